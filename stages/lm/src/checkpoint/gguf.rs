//! The GGUF container: metadata and tensor list, every length checked against the file.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3,
//! little-endian.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::CheckpointError;
use super::format::Format;

/// A metadata value. Numbers keep only their kind, not their width.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Any floating-point number; an f32 becomes the f64 with the same shortest decimal.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// A list of one kind of value.
    List(Vec<Value>),
}

/// The key-value part of a GGUF file.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// The file it came from.
    pub file: PathBuf,
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// A value as it is.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A non-negative integer of any width.
    pub fn integer(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Float(n) => Some(*n),
            Value::Unsigned(n) => Some(*n as f64),
            Value::Signed(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A list.
    pub fn list(&self, key: &str) -> Option<&[Value]> {
        match self.get(key)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }
}

/// A tensor's description.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// llama.cpp's name (`blk.0.attn_q.weight`).
    pub name: String,
    /// Dimensions, outermost first (the file stores them innermost first).
    pub shape: Vec<usize>,
    pub format: Format,
    /// Bytes from the start of the file.
    pub range: Range<usize>,
}

/// Parses and checks the metadata and the tensor list of a whole file in memory (or mapped).
pub(super) fn read_header(file: &Path, bytes: &[u8]) -> Result<(Metadata, Vec<Entry>), CheckpointError> {
    let mut reader = Reader { bytes, at: 0 };
    let (values, tensors) =
        read_lists(&mut reader).map_err(|detail| CheckpointError::header(file, detail))?;
    let metadata = Metadata { file: file.to_path_buf(), values };

    let alignment = match metadata.get("general.alignment") {
        None => 32,
        Some(_) => metadata.integer("general.alignment").unwrap_or(0) as usize,
    };
    if !alignment.is_power_of_two() {
        return Err(CheckpointError::header(file, "`general.alignment` is no power of two"));
    }
    let start = reader.at.checked_next_multiple_of(alignment);
    let mut entries = Vec::with_capacity(tensors.len());
    let mut names = HashSet::with_capacity(tensors.len());
    for raw in tensors {
        let wrong = |detail: String| CheckpointError::tensor(file, &raw.name, detail);
        if !names.insert(raw.name.clone()) {
            return Err(wrong("is listed twice".into()));
        }
        let format = Format::from_ggml(raw.kind).map_err(|kind| {
            wrong(format!(
                "is stored as {kind}; readable are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K"
            ))
        })?;
        let (values, size) = format.block();
        let row = raw.shape.last().copied().unwrap_or(1);
        if row % values != 0 {
            return Err(wrong(format!("has rows of {row} values, no multiple of the block size {values}")));
        }
        let length = raw
            .shape
            .iter()
            .try_fold(1usize, |product, dim| product.checked_mul(*dim))
            .and_then(|count| (count / values).checked_mul(size));
        let range = (|| {
            let begin = start?.checked_add(usize::try_from(raw.offset).ok()?)?;
            Some(begin..begin.checked_add(length?)?)
        })();
        match range {
            Some(range) if range.end <= bytes.len() && raw.offset % alignment as u64 == 0 => {
                entries.push(Entry { name: raw.name, shape: raw.shape, format, range });
            }
            _ => {
                return Err(wrong(format!(
                    "of shape {:?} at offset {} does not lie inside the file ({} bytes); the file is \
                     truncated or damaged, download it again",
                    raw.shape,
                    raw.offset,
                    bytes.len()
                )));
            }
        }
    }
    entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
    for pair in entries.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            let detail = format!("overlaps `{}`", pair[0].name);
            return Err(CheckpointError::tensor(file, &pair[1].name, detail));
        }
    }
    Ok((metadata, entries))
}

struct RawTensor {
    name: String,
    shape: Vec<usize>,
    kind: u32,
    offset: u64,
}

type Lists = (BTreeMap<String, Value>, Vec<RawTensor>);

fn read_lists(reader: &mut Reader<'_>) -> Result<Lists, String> {
    if reader.array::<4>().ok() != Some(*b"GGUF") {
        return Err("does not start with GGUF; this is another kind of file".into());
    }
    match reader.u32()? {
        2 | 3 => {}
        1 => return Err("is GGUF version 1; convert it with a current llama.cpp".into()),
        version if version.swap_bytes() < 16 => {
            return Err("is a big-endian GGUF file; convert it to little-endian".into());
        }
        version => return Err(format!("is GGUF version {version}; readable are 2 and 3")),
    }
    let tensor_count = reader.u64()?;
    let value_count = reader.u64()?;

    let mut values = BTreeMap::new();
    for _ in 0..value_count {
        let key = reader.text()?;
        let kind = reader.u32()?;
        let value = reader.value(kind).map_err(|e| format!("metadata `{key}`: {e}"))?;
        values.insert(key, value);
    }
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        let name = reader.text()?;
        let dimensions = reader.u32()?;
        if dimensions > 4 {
            return Err(format!("tensor `{name}` claims {dimensions} dimensions"));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let dim = usize::try_from(reader.u64()?).map_err(|_| format!("tensor `{name}` is too large"))?;
            shape.push(dim);
        }
        shape.reverse();
        tensors.push(RawTensor { name, shape, kind: reader.u32()?, offset: reader.u64()? });
    }
    Ok((values, tensors))
}

/// Reads forward; every step is checked, and what grows grows by what was read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(format!(
                "ends inside its header ({length} bytes wanted at {}, {} left); the file is truncated, download it again",
                self.at,
                rest.len()
            )),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.u64()?;
        let bytes = self.take(length)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| "holds a text that is not UTF-8".to_string())
    }

    fn value(&mut self, kind: u32) -> Result<Value, String> {
        if kind != 9 {
            return self.scalar(kind);
        }
        let kind = self.u32()?;
        let count = self.u64()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(self.scalar(kind)?);
        }
        Ok(Value::List(list))
    }

    fn scalar(&mut self, kind: u32) -> Result<Value, String> {
        Ok(match kind {
            0 => Value::Unsigned(u64::from(u8::from_le_bytes(self.array()?))),
            1 => Value::Signed(i64::from(i8::from_le_bytes(self.array()?))),
            2 => Value::Unsigned(u64::from(u16::from_le_bytes(self.array()?))),
            3 => Value::Signed(i64::from(i16::from_le_bytes(self.array()?))),
            4 => Value::Unsigned(u64::from(self.u32()?)),
            5 => Value::Signed(i64::from(i32::from_le_bytes(self.array()?))),
            6 => Value::Float(widen(f32::from_le_bytes(self.array()?))),
            7 => Value::Bool(self.array::<1>()? != [0]),
            8 => Value::Text(self.text()?),
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.array()?)),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            9 => return Err("a list of lists is not supported".into()),
            other => return Err(format!("unknown value type {other}")),
        })
    }
}

/// 1e-5 stored as f32 means 1e-5, not 9.999999747e-6: `config.json` writes the decimal.
fn widen(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
