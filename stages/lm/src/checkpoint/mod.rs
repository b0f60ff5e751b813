//! Checkpoints on disk: reading safetensors folders and GGUF files, writing folders.
//!
//! - [`mod@self`]: [`Checkpoint`], one view of any of them: Hugging Face names
//!   (`model.layers.0.self_attn.q_proj.weight`), matrices `[out, in]`;
//! - `safetensors`: header and shard index, every number checked;
//! - `convert`: parallel number-format conversion.
//!
//! Files are mapped, not read: a tensor's pages come in when it is loaded and only that
//! tensor is held. Nothing is allocated by a number that was not checked against the file.

mod convert;
mod safetensors;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Tensor, TensorData};
use half::{bf16, f16};
use memmap2::Mmap;

use crate::config::{ConfigError, FloatType, ModelConfig};

/// A checkpoint that cannot be read or written, and where.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The configuration is missing or unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The path holds no checkpoint.
    #[error("{}: {detail}", path.display())]
    NotACheckpoint {
        /// What was opened.
        path: PathBuf,
        /// What was looked for.
        detail: String,
    },
    /// A file is damaged before any tensor could be named.
    #[error("{}: {detail}", file.display())]
    Header {
        /// The damaged file.
        file: PathBuf,
        /// What is wrong and what to do.
        detail: String,
    },
    /// One tensor is damaged or unusable.
    #[error("{}: tensor `{tensor}` {detail}", file.display())]
    Tensor {
        /// File that holds it.
        file: PathBuf,
        /// Its name.
        tensor: String,
        /// What is wrong.
        detail: String,
    },
    /// Tensors that the configuration calls for are not there.
    #[error("{}: {count} tensors are missing: {}", path.display(), tensors.join(", "))]
    Missing {
        /// The checkpoint.
        path: PathBuf,
        /// How many are missing.
        count: usize,
        /// Names of the first few.
        tensors: Vec<String>,
    },
    /// Tensors that the configuration has no place for.
    #[error("{}: {count} tensors have no place in the model that config.json describes: {}", path.display(), tensors.join(", "))]
    Extra {
        /// The checkpoint.
        path: PathBuf,
        /// How many there are.
        count: usize,
        /// Names of the first few.
        tensors: Vec<String>,
    },
}

impl CheckpointError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        CheckpointError::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    fn header(file: &Path, detail: impl Into<String>) -> Self {
        CheckpointError::Header {
            file: file.to_path_buf(),
            detail: detail.into(),
        }
    }

    fn tensor(file: &Path, tensor: &str, detail: impl Into<String>) -> Self {
        CheckpointError::Tensor {
            file: file.to_path_buf(),
            tensor: tensor.into(),
            detail: detail.into(),
        }
    }
}

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
    dtype: FloatType,
    range: Range<usize>,
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
}

impl Checkpoint {
    /// Opens a folder of safetensors (one file, or shards with an index).
    ///
    /// Headers are read and checked; weights are not touched.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let config = ModelConfig::from_file(&path.join("config.json"))?;
        let index = path.join("model.safetensors.index.json");
        let single = path.join("model.safetensors");
        let placement = match (single.is_file(), index.is_file()) {
            (true, _) => None,
            (false, true) => Some(safetensors::read_index(&index)?),
            (false, false) => {
                return Err(CheckpointError::NotACheckpoint {
                    path: path.to_path_buf(),
                    detail: "holds neither model.safetensors nor model.safetensors.index.json \
                             nor one .gguf file"
                        .into(),
                });
            }
        };
        let mut names: Vec<String> = match &placement {
            None => vec!["model.safetensors".into()],
            Some(map) => map.values().cloned().collect(),
        };
        names.sort();
        names.dedup();

        let mut shards = Vec::new();
        let mut tensors = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            let shard = map_file(&path.join(name))?;
            for entry in safetensors::read_header(&shard.path, &shard.map)? {
                if let Some(wanted) = placement.as_ref().map(|map| map.get(&entry.name)) {
                    if wanted != Some(name) {
                        let wanted = wanted.map_or("no file", String::as_str);
                        let detail =
                            format!("is here, but {} puts it in {wanted}", index.display());
                        return Err(CheckpointError::tensor(&shard.path, &entry.name, detail));
                    }
                }
                if is_buffer(&entry.name) {
                    continue;
                }
                let dtype = entry.float(&shard.path)?;
                let place = Place {
                    shard: number,
                    shape: entry.shape,
                    dtype,
                    range: entry.range,
                };
                tensors.insert(entry.name, place);
            }
            shards.push(shard);
        }
        for (name, file) in placement.into_iter().flatten() {
            if !tensors.contains_key(&name) && !is_buffer(&name) {
                return Err(CheckpointError::tensor(
                    &index,
                    &name,
                    format!("should be in {file}, but is not"),
                ));
            }
        }
        Ok(Checkpoint {
            path: path.to_path_buf(),
            config,
            shards,
            tensors,
        })
    }

    /// The model's hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The folder or file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape and stored number format of a tensor.
    pub fn info(&self, name: &str) -> Option<(&[usize], FloatType)> {
        self.tensors
            .get(name)
            .map(|place| (place.shape.as_slice(), place.dtype))
    }

    /// The stored values of a tensor.
    ///
    /// Errors: no tensor of that name.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, CheckpointError> {
        let place = self.place(name)?;
        let bytes = Cow::Borrowed(&self.shards[place.shard].map[place.range.clone()]);
        Ok(TensorView {
            dtype: place.dtype,
            shape: place.shape.clone(),
            bytes,
        })
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
        let view = self.tensor(name)?;
        let data = match dtype {
            DType::F32 => TensorData::new(convert::to_vec::<f32>(&view), expected),
            DType::F16 => TensorData::new(convert::to_vec::<f16>(&view), expected),
            DType::BF16 => TensorData::new(convert::to_vec::<bf16>(&view), expected),
            other => {
                let detail = format!("cannot be loaded as {other:?}; use F32, F16 or BF16");
                return Err(CheckpointError::tensor(
                    &self.shards[place.shard].path,
                    name,
                    detail,
                ));
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
            let count = missing.len();
            missing.truncate(8);
            return Err(CheckpointError::Missing {
                path: self.path.clone(),
                count,
                tensors: missing,
            });
        }
        let known: HashSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        let mut extra: Vec<String> = self
            .names()
            .filter(|name| !known.contains(name))
            .map(str::to_string)
            .collect();
        if self.config.tie_word_embeddings && extra.iter().any(|name| name == "lm_head.weight") {
            self.check_tied_head()?;
            extra.retain(|name| name != "lm_head.weight");
        }
        if !extra.is_empty() {
            let count = extra.len();
            extra.truncate(8);
            return Err(CheckpointError::Extra {
                path: self.path.clone(),
                count,
                tensors: extra,
            });
        }
        Ok(())
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

    fn place(&self, name: &str) -> Result<&Place, CheckpointError> {
        self.tensors
            .get(name)
            .ok_or_else(|| CheckpointError::Missing {
                path: self.path.clone(),
                count: 1,
                tensors: vec![name.to_string()],
            })
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
    Ok(Shard {
        path: path.to_path_buf(),
        map,
    })
}
