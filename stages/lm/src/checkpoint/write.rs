//! Writes a checkpoint folder that `transformers` and vLLM load.
//!
//! Tensors are asked for one at a time and written as they come, so that a model larger than
//! memory can be converted. The folder appears under its name only when it is whole.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Checkpoint, CheckpointError, gguf_tokenizer};
use crate::config::{FloatType, ModelConfig};

/// Files of a model folder that belong to the tokenizer or say how to use the model.
const CARRIED: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "LICENSE",
    "NOTICE",
];

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorSpec {
    /// Hugging Face name.
    pub name: String,
    /// Number format on disk.
    pub dtype: FloatType,
    /// Dimensions; matrices are `[out, in]`.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Every tensor of a model, in one number format.
    pub fn all(config: &ModelConfig, dtype: FloatType) -> Vec<Self> {
        let shapes = config.tensor_shapes();
        shapes.into_iter().map(|(name, shape)| TensorSpec { name, dtype, shape }).collect()
    }

    fn bytes(&self) -> u64 {
        self.shape.iter().map(|dim| *dim as u64).product::<u64>() * self.dtype.size() as u64
    }
}

/// What to write beside the weights.
#[derive(Debug, Clone)]
pub struct WriteOptions<'a> {
    /// A file is closed before it would grow beyond this many bytes of tensors.
    pub max_shard_bytes: u64,
    /// Content of `generation_config.json`; otherwise the source's is carried along.
    pub generation_config: Option<&'a Map<String, Value>>,
    /// Model whose tokenizer and chat template are carried along.
    pub source: Option<&'a Checkpoint>,
}

impl Default for WriteOptions<'_> {
    fn default() -> Self {
        WriteOptions { max_shard_bytes: 5_000_000_000, generation_config: None, source: None }
    }
}

/// Writes `config.json`, `model.safetensors` (or shards and their index), and the files that
/// belong to the tokenizer.
///
/// `specs` are all tensors that `config` calls for (see [`TensorSpec::all`]); `values` gives a
/// tensor's little-endian bytes when it is asked. `folder` must not exist, or be empty.
///
/// Errors: a tensor missing, left over or of the wrong shape or length; what `values` and the
/// file system say. Nothing is left under `folder` then.
pub fn write_folder<'v>(
    folder: &Path,
    config: &ModelConfig,
    specs: &[TensorSpec],
    options: &WriteOptions<'_>,
    mut values: impl FnMut(&TensorSpec) -> Result<Cow<'v, [u8]>, CheckpointError>,
) -> Result<(), CheckpointError> {
    check_specs(folder, config, specs)?;
    let staging = Staging::beside(folder)?;
    let at = |name: &str| staging.path.join(name);

    let shards = split(specs, options.max_shard_bytes);
    let mut weight_map = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_string(),
            count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        write_shard(&at(&name), shard, &mut values)?;
        weight_map.extend(shard.iter().map(|spec| (spec.name.clone(), name.clone())));
    }
    if shards.len() > 1 {
        let total: u64 = specs.iter().map(TensorSpec::bytes).sum();
        let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
        write_json(&at("model.safetensors.index.json"), &index)?;
    }

    if let Some(source) = options.source {
        carry(source, &staging.path)?;
    }
    if let Some(generation) = options.generation_config {
        write_json(&at("generation_config.json"), &json!(generation))?;
    }
    let dtype = specs.first().map_or(FloatType::F32, |spec| spec.dtype);
    write_json(&at("config.json"), &Value::Object(config.to_json(dtype)))?;
    staging.publish(folder)
}

/// The tensors are exactly those that the configuration calls for, the tie flag included.
fn check_specs(folder: &Path, config: &ModelConfig, specs: &[TensorSpec]) -> Result<(), CheckpointError> {
    let mut given: HashMap<&str, &[usize]> = HashMap::new();
    for spec in specs {
        if given.insert(&spec.name, &spec.shape).is_some() {
            return Err(CheckpointError::tensor(folder, &spec.name, "is given twice"));
        }
    }
    let mut missing = Vec::new();
    for (name, shape) in config.tensor_shapes() {
        match given.remove(name.as_str()) {
            None => missing.push(name),
            Some(found) if found != shape => {
                let detail = format!("has shape {found:?}, but the configuration calls for {shape:?}");
                return Err(CheckpointError::tensor(folder, &name, detail));
            }
            Some(_) => {}
        }
    }
    let path = folder.to_path_buf();
    if !missing.is_empty() {
        return Err(CheckpointError::missing(path, missing));
    }
    match given.is_empty() {
        true => Ok(()),
        false => Err(CheckpointError::extra(path, given.keys().map(|name| name.to_string()).collect())),
    }
}

/// Tensors of each file, in the given order.
fn split(specs: &[TensorSpec], limit: u64) -> Vec<Vec<&TensorSpec>> {
    let mut shards: Vec<Vec<&TensorSpec>> = vec![Vec::new()];
    let mut size = 0;
    for spec in specs {
        if size > 0 && size + spec.bytes() > limit {
            shards.push(Vec::new());
            size = 0;
        }
        size += spec.bytes();
        shards.last_mut().expect("one is always there").push(spec);
    }
    for shard in &mut shards {
        // Wide numbers first keeps every tensor aligned to its own size.
        shard.sort_by_key(|spec| std::cmp::Reverse(spec.dtype.size()));
    }
    shards
}

fn write_shard<'v>(
    path: &Path,
    specs: &[&TensorSpec],
    values: &mut impl FnMut(&TensorSpec) -> Result<Cow<'v, [u8]>, CheckpointError>,
) -> Result<(), CheckpointError> {
    // transformers refuses a file that does not name its framework.
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut offset = 0;
    for spec in specs {
        let dtype = match spec.dtype {
            FloatType::F32 => "F32",
            FloatType::F16 => "F16",
            FloatType::BF16 => "BF16",
        };
        let end = offset + spec.bytes();
        header.insert(
            spec.name.clone(),
            json!({"dtype": dtype, "shape": spec.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');

    let io = |error| CheckpointError::io(path, error);
    let mut file = File::create(path).map_err(io)?;
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(&header).map_err(io)?;
    for spec in specs {
        let bytes = values(spec)?;
        if bytes.len() as u64 != spec.bytes() {
            let detail = format!(
                "is given as {} bytes, but {} of shape {:?} takes {}",
                bytes.len(),
                spec.dtype,
                spec.shape,
                spec.bytes()
            );
            return Err(CheckpointError::tensor(path, &spec.name, detail));
        }
        file.write_all(&bytes).map_err(io)?;
    }
    file.sync_all().map_err(io)
}

fn write_json(path: &Path, value: &Value) -> Result<(), CheckpointError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(format!("{value:#}\n").as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| CheckpointError::io(path, error))
}

/// Copies what belongs to the tokenizer; out of a GGUF file it is written anew.
fn carry(source: &Checkpoint, folder: &Path) -> Result<(), CheckpointError> {
    let Some(metadata) = source.gguf() else {
        for name in CARRIED {
            let from = source.path().join(name);
            if from.is_file() {
                fs::copy(&from, folder.join(name)).map_err(|error| CheckpointError::io(&from, error))?;
            }
        }
        return Ok(());
    };
    // A file whose tokenizer is not understood still converts; its folder then has none.
    if let Ok(tokenizer) = gguf_tokenizer::tokenizer_json(metadata) {
        write_json(&folder.join("tokenizer.json"), &tokenizer)?;
        write_json(&folder.join("tokenizer_config.json"), &gguf_tokenizer::tokenizer_config(metadata))?;
    }
    let config = source.config();
    let eos = match config.eos_token_ids.as_slice() {
        [one] => json!(one),
        list => json!(list),
    };
    let generation = json!({
        "bos_token_id": config.bos_token_id, "eos_token_id": eos, "pad_token_id": config.pad_token_id,
    });
    write_json(&folder.join("generation_config.json"), &generation)
}

/// A folder under construction; removed unless it is published.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn beside(folder: &Path) -> Result<Self, CheckpointError> {
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |error| CheckpointError::io(&path, error)
        };
        if folder.exists() && fs::read_dir(folder).map_err(io(folder))?.next().is_some() {
            return Err(CheckpointError::NotACheckpoint {
                path: folder.to_path_buf(),
                detail: "is not empty; nothing is overwritten, choose another folder".into(),
            });
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(io(parent))?;
        let path = parent.join(format!(".{name}.{}.partial", std::process::id()));
        // Left by a process of the same number that was killed.
        if path.exists() {
            fs::remove_dir_all(&path).map_err(io(&path))?;
        }
        fs::create_dir(&path).map_err(io(&path))?;
        Ok(Staging { path })
    }

    fn publish(self, folder: &Path) -> Result<(), CheckpointError> {
        let io = |error| CheckpointError::io(folder, error);
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(io)?;
        fs::rename(&self.path, folder).map_err(io)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After `publish` there is nothing under this name any more.
        let _ = fs::remove_dir_all(&self.path);
    }
}
