//! Checkpoints on disk: reading safetensors folders and GGUF files, writing folders.
//!
//! - here: [`Checkpoint`], one view of any of them: Hugging Face names
//!   (`model.layers.0.self_attn.q_proj.weight`), matrices `[out, in]`;
//! - `safetensors`: header and shard index, every number checked;
//! - `gguf`: the container; `gguf_model`: its names, row order and configuration;
//!   `gguf_tokenizer`: its tokenizer;
//! - `format`: stored number formats; `convert`: parallel conversion into another;
//! - `write`: [`write_folder`];
//! - `error`: what can be wrong.
//!
//! Files are mapped, not read: a tensor's pages come in when it is loaded and only that
//! tensor is held. Nothing is allocated by a number that was not checked against the file.

mod convert;
mod error;
mod format;
mod gguf;
mod gguf_model;
pub(crate) mod gguf_tokenizer;
mod safetensors;
mod write;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Tensor, TensorData};
use half::{bf16, f16};
use memmap2::Mmap;

use self::convert::Stored;
pub use self::error::CheckpointError;
use self::format::Format;
pub use self::gguf::{Metadata as GgufMetadata, Value as GgufValue};
pub use self::write::{TensorSpec, WriteOptions, write_folder};
use crate::config::{FloatType, GenerationConfig, ModelConfig};

/// The values of one tensor as they are stored.
#[derive(Debug)]
pub struct TensorView<'a> {
    /// Number format of `bytes`.
    pub dtype: FloatType,
    /// Dimensions, outermost first; matrices are `[out, in]`.
    pub shape: Vec<usize>,
    /// Little-endian values in row-major order.
    pub bytes: Cow<'a, [u8]>,
}

/// Where a tensor is.
#[derive(Debug)]
struct Place {
    shard: usize,
    shape: Vec<usize>,
    format: Format,
    range: Range<usize>,
    /// See [`Stored::interleaved`].
    interleaved: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    map: Mmap,
}

/// An opened checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    config: ModelConfig,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Place>,
    gguf: Option<GgufMetadata>,
}

impl Checkpoint {
    /// Opens a folder of safetensors (one file, or shards with an index), a GGUF file, or a
    /// folder that holds one GGUF file.
    ///
    /// Headers are read and checked; weights are not touched.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let nothing = |detail: &str| CheckpointError::NotACheckpoint {
            path: path.to_path_buf(),
            detail: detail.to_string(),
        };
        let kind = std::fs::metadata(path).map_err(|e| CheckpointError::io(path, e))?;
        if kind.is_file() {
            let mut magic = [0; 4];
            let mut file = File::open(path).map_err(|e| CheckpointError::io(path, e))?;
            return match file.read_exact(&mut magic) {
                Ok(()) if magic == *b"GGUF" => Self::open_gguf(path),
                _ => Err(nothing("is no GGUF file; for safetensors name the folder that holds config.json")),
            };
        }
        let index = path.join("model.safetensors.index.json");
        if path.join("model.safetensors").is_file() {
            return Self::open_folder(path, None);
        }
        if index.is_file() {
            return Self::open_folder(path, Some(&index));
        }
        match gguf_model::find_in_folder(path)? {
            Some(file) => Self::open_gguf(&file),
            None => Err(nothing(
                "holds neither model.safetensors nor model.safetensors.index.json nor a .gguf file; \
                 other formats (pytorch_model.bin) must be converted to safetensors first",
            )),
        }
    }

    fn open_folder(path: &Path, index: Option<&Path>) -> Result<Self, CheckpointError> {
        let config = ModelConfig::from_file(&path.join("config.json"))?;
        let placement = index.map(safetensors::read_index).transpose()?;
        let names = match &placement {
            None => BTreeSet::from(["model.safetensors".to_string()]),
            Some(map) => map.values().cloned().collect(),
        };
        let mut shards = Vec::new();
        let mut tensors = BTreeMap::new();
        for name in &names {
            let shard = map_file(&path.join(name))?;
            for entry in safetensors::read_header(&shard.path, &shard.map)? {
                let wanted = placement.as_ref().map(|map| map.get(&entry.name));
                if wanted.is_some_and(|wanted| wanted != Some(name)) {
                    let wanted = wanted.flatten().map_or("no file", String::as_str);
                    let detail = format!("is here, but the index puts it in {wanted}");
                    return Err(CheckpointError::tensor(&shard.path, &entry.name, detail));
                }
                if is_buffer(&entry.name) {
                    continue;
                }
                let format = entry.format(&shard.path)?;
                let place = Place {
                    shard: shards.len(),
                    shape: entry.shape,
                    format,
                    range: entry.range,
                    interleaved: None,
                };
                tensors.insert(entry.name, place);
            }
            shards.push(shard);
        }
        for (name, file) in placement.into_iter().flatten() {
            if !tensors.contains_key(&name) && !is_buffer(&name) {
                let detail = format!("is not in {file}, where the index puts it");
                return Err(CheckpointError::tensor(&path.join(&file), &name, detail));
            }
        }
        Ok(Checkpoint { path: path.to_path_buf(), config, shards, tensors, gguf: None })
    }

    fn open_gguf(path: &Path) -> Result<Self, CheckpointError> {
        let shard = map_file(path)?;
        let (metadata, entries) = gguf::read_header(path, &shard.map)?;
        let config = gguf_model::config(&metadata, &entries, &shard.map)?;
        let mut tensors = BTreeMap::new();
        // The factors of llama 3's rotary scaling have become part of the configuration.
        for entry in entries.into_iter().filter(|entry| entry.name != "rope_freqs.weight") {
            // A tensor of no known place keeps its name and is reported by `check_complete`.
            let name = gguf_model::tensor_name(&entry.name).unwrap_or_else(|| entry.name.clone());
            let rows = entry.shape.first().copied().unwrap_or(0);
            let interleaved = gguf_model::interleaved_heads(&config, &name).map(|heads| (rows, heads));
            let quantised_vector = entry.shape.len() < 2 && entry.format.block().0 > 1;
            if interleaved
                .is_some_and(|(rows, heads)| rows == 0 || quantised_vector || !rows.is_multiple_of(2 * heads))
            {
                let detail = format!("of shape {:?} does not divide into its heads", entry.shape);
                return Err(CheckpointError::tensor(path, &entry.name, detail));
            }
            let place =
                Place { shard: 0, shape: entry.shape, format: entry.format, range: entry.range, interleaved };
            tensors.insert(name, place);
        }
        let path = path.to_path_buf();
        Ok(Checkpoint { path, config, shards: vec![shard], tensors, gguf: Some(metadata) })
    }

    /// The model's hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What `generation_config.json` suggests; for a GGUF file, its end tokens.
    pub fn generation_config(&self) -> Result<GenerationConfig, CheckpointError> {
        Ok(GenerationConfig::from_folder(&self.path, &self.config)?)
    }

    /// The folder or file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of a GGUF file, where tokenizer and chat template are; none for a folder.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        self.gguf.as_ref()
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape of a tensor and the number format that [`Checkpoint::tensor`] gives it in.
    pub fn info(&self, name: &str) -> Option<(&[usize], FloatType)> {
        self.tensors.get(name).map(|place| (place.shape.as_slice(), place.format.float()))
    }

    /// The values of a tensor: as they are stored, or f32 where they are quantised.
    ///
    /// Errors: no tensor of that name.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, CheckpointError> {
        let place = self.place(name)?;
        let stored = self.stored(place);
        let float = place.format.float();
        let bytes = if place.interleaved.is_none() && place.format.block() == (1, float.size()) {
            Cow::Borrowed(stored.bytes)
        } else {
            Cow::Owned(convert::to_bytes(stored, float))
        };
        Ok(TensorView { dtype: float, shape: place.shape.clone(), bytes })
    }

    /// The values of a tensor as little-endian bytes in the asked number format.
    ///
    /// Errors: no tensor of that name.
    pub fn bytes(&self, name: &str, dtype: FloatType) -> Result<Cow<'_, [u8]>, CheckpointError> {
        let place = self.place(name)?;
        match place.format.float() == dtype {
            true => Ok(self.tensor(name)?.bytes),
            false => Ok(Cow::Owned(convert::to_bytes(self.stored(place), dtype))),
        }
    }

    /// Loads a tensor onto a device in the asked number format (F32, F16 or BF16).
    ///
    /// Errors: no tensor of that name; a shape other than `expected`.
    pub fn load<const D: usize>(
        &self,
        name: &str,
        expected: [usize; D],
        device: &Device,
        dtype: DType,
    ) -> Result<Tensor<D>, CheckpointError> {
        let place = self.place(name)?;
        if place.shape != expected {
            return Err(self.wrong_shape(name, place, &expected));
        }
        let stored = self.stored(place);
        #[cfg(feature = "cuda")]
        if let Some(bytes) = convert::as_it_lies(stored, dtype)
            && let Some(tensor) = crate::nvidia::from_bytes(bytes, expected, device, dtype)
        {
            return Ok(tensor);
        }
        let data = match dtype {
            DType::F32 => TensorData::new(convert::to_vec::<f32>(stored), expected),
            DType::F16 => TensorData::new(convert::to_vec::<f16>(stored), expected),
            DType::BF16 => TensorData::new(convert::to_vec::<bf16>(stored), expected),
            other => {
                let detail = format!("cannot be loaded as {other:?}; use F32, F16 or BF16");
                return Err(CheckpointError::tensor(&self.shards[place.shard].path, name, detail));
            }
        };
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    /// Checks that exactly the tensors of a list are there, with these shapes.
    ///
    /// A tied model may carry an `lm_head.weight` only if it equals the embedding.
    /// The list for a whole model is [`ModelConfig::tensor_shapes`].
    pub fn check_complete(&self, expected: &[(String, Vec<usize>)]) -> Result<(), CheckpointError> {
        let mut missing = Vec::new();
        for (name, shape) in expected {
            match self.tensors.get(name) {
                None => missing.push(name.clone()),
                Some(place) if place.shape != *shape => {
                    return Err(self.wrong_shape(name, place, shape));
                }
                Some(_) => {}
            }
        }
        if !missing.is_empty() {
            return Err(CheckpointError::missing(self.path.clone(), missing));
        }
        let known: HashSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        let mut extra: Vec<String> =
            self.names().filter(|name| !known.contains(name)).map(str::to_string).collect();
        if self.config.tie_word_embeddings && extra.iter().any(|name| name == "lm_head.weight") {
            self.check_tied_head()?;
            extra.retain(|name| name != "lm_head.weight");
        }
        match extra.is_empty() {
            true => Ok(()),
            false => Err(CheckpointError::extra(self.path.clone(), extra)),
        }
    }

    fn check_tied_head(&self) -> Result<(), CheckpointError> {
        let head = self.tensor("lm_head.weight")?;
        let embedding = self.tensor("model.embed_tokens.weight")?;
        if head.dtype == embedding.dtype && head.bytes == embedding.bytes {
            return Ok(());
        }
        let file = &self.shards[self.place("lm_head.weight")?.shard].path;
        Err(CheckpointError::tensor(
            file,
            "lm_head.weight",
            "differs from the embedding, but config.json says `tie_word_embeddings`: true; \
             set it to false, or remove the tensor",
        ))
    }

    fn stored(&self, place: &Place) -> Stored<'_> {
        Stored {
            bytes: &self.shards[place.shard].map[place.range.clone()],
            format: place.format,
            interleaved: place.interleaved,
        }
    }

    fn place(&self, name: &str) -> Result<&Place, CheckpointError> {
        let missing = || CheckpointError::missing(self.path.clone(), vec![name.to_string()]);
        self.tensors.get(name).ok_or_else(missing)
    }

    fn wrong_shape(&self, name: &str, place: &Place, expected: &[usize]) -> CheckpointError {
        let detail = format!(
            "has shape {:?}, but config.json calls for {expected:?}; the two files belong to \
             different models",
            place.shape
        );
        CheckpointError::tensor(&self.shards[place.shard].path, name, detail)
    }
}

/// Values that old `transformers` versions saved though they follow from the configuration.
fn is_buffer(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

fn map_file(path: &Path) -> Result<Shard, CheckpointError> {
    let file = File::open(path).map_err(|e| CheckpointError::io(path, e))?;
    // SAFETY: the map is only read. As with every mapped file, another process that shortens
    // it while it is in use could end this one; checkpoints are not edited in place.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| CheckpointError::io(path, e))?;
    Ok(Shard { path: path.to_path_buf(), map })
}
