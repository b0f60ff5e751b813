//! The safetensors format: header parsing with every number checked against the file.
//!
//! Layout: `u64` header length, a JSON header `{name: {dtype, shape, data_offsets}}`, data.
//! The `safetensors` crate reads the header's entries; the checks are ours, because an
//! error must name the tensor it is about.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Deserialize;

use super::CheckpointError;
use super::format::Format;

/// The format's own limit on the header, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Where a tensor lies in a file and how to read it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Name in the file.
    pub name: String,
    /// Stored number format.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Bytes from the start of the file.
    pub range: Range<usize>,
}

impl Entry {
    /// The number format, or an error that names the tensor.
    pub(super) fn format(&self, file: &Path) -> Result<Format, CheckpointError> {
        match self.dtype {
            Dtype::F32 => Ok(Format::F32),
            Dtype::F16 => Ok(Format::F16),
            Dtype::BF16 => Ok(Format::BF16),
            other => Err(CheckpointError::tensor(
                file,
                &self.name,
                format!("is stored as {other:?}; readable are F32, F16 and BF16"),
            )),
        }
    }
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    _metadata: Option<HashMap<String, String>>,
    #[serde(flatten)]
    tensors: HashMap<String, TensorInfo>,
}

/// Parses and checks the header of a whole file in memory (or mapped).
///
/// Errors name the tensor: offsets outside the file (a truncated download), overlaps,
/// holes, and lengths that disagree with shape and dtype.
pub(super) fn read_header(file: &Path, bytes: &[u8]) -> Result<Vec<Entry>, CheckpointError> {
    let damaged = |detail: String| CheckpointError::header(file, detail);
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(damaged(format!("only {} bytes long; download it again", bytes.len())));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(damaged(format!("claims a header of {length} bytes; this is no safetensors file")));
    }
    let length = length as usize;
    let Some(json) = rest.get(..length) else {
        return Err(damaged(format!(
            "ends inside its header ({length} bytes claimed, {} there); download it again",
            rest.len()
        )));
    };
    let header: Header = serde_json::from_slice(json).map_err(|e| damaged(format!("header: {e}")))?;

    let start = 8 + length;
    let available = rest.len() - length;
    let mut tensors: Vec<(String, TensorInfo)> = header.tensors.into_iter().collect();
    tensors.sort_by(|a, b| (a.1.data_offsets, &a.0).cmp(&(b.1.data_offsets, &b.0)));
    let mut end_of_previous = 0;
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, info) in tensors {
        let (begin, end) = info.data_offsets;
        let wrong = |detail: String| CheckpointError::tensor(file, &name, detail);
        if end < begin {
            return Err(wrong(format!("has offsets {begin}..{end}")));
        }
        if end > available {
            return Err(wrong(format!(
                "ends at byte {end} of the data, but only {available} are there; the file is \
                 truncated, download it again"
            )));
        }
        if begin != end_of_previous {
            let what = if begin < end_of_previous {
                "overlaps the tensor before it"
            } else {
                "leaves a hole before it"
            };
            return Err(wrong(format!("{what} (starts at {begin}, expected {end_of_previous})")));
        }
        let bits = info
            .shape
            .iter()
            .try_fold(info.dtype.bitsize(), |product, dim| product.checked_mul(*dim))
            .ok_or_else(|| wrong(format!("has an impossible shape {:?}", info.shape)))?;
        if bits % 8 != 0 || bits / 8 != end - begin {
            return Err(wrong(format!(
                "holds {} bytes, but {:?} of shape {:?} takes {}",
                end - begin,
                info.dtype,
                info.shape,
                bits.div_ceil(8)
            )));
        }
        end_of_previous = end;
        entries.push(Entry { name, dtype: info.dtype, shape: info.shape, range: start + begin..start + end });
    }
    if end_of_previous != available {
        return Err(damaged(format!(
            "has {} bytes after its last tensor; it was not written completely or was changed",
            available - end_of_previous
        )));
    }
    Ok(entries)
}

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// Reads `model.safetensors.index.json`: tensor name to file name.
///
/// File names that point outside the folder are refused.
pub(super) fn read_index(file: &Path) -> Result<HashMap<String, String>, CheckpointError> {
    let text = std::fs::read_to_string(file).map_err(|e| CheckpointError::io(file, e))?;
    let index: Index =
        serde_json::from_str(&text).map_err(|e| CheckpointError::header(file, e.to_string()))?;
    for (tensor, shard) in &index.weight_map {
        let plain = Path::new(shard).file_name().is_some_and(|name| name == shard.as_str());
        if !plain || !shard.ends_with(".safetensors") {
            return Err(CheckpointError::tensor(
                file,
                tensor,
                format!("lies in {shard:?}, which is no safetensors file beside the index"),
            ));
        }
    }
    Ok(index.weight_map)
}
