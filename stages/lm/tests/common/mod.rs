//! The tiny checkpoints under `tests/fixtures/tiny` and what `transformers` makes of them
//! (`tests/scripts/tiny_models.py`).
#![allow(dead_code)] // each test binary uses a part

use std::path::PathBuf;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lm::checkpoint::Checkpoint;
use lm::model::Model;

/// One tiny checkpoint with its expected values.
pub struct Tiny {
    pub name: String,
    pub folder: PathBuf,
    pub model: Model,
    /// `[batch][seq]`
    pub input_ids: Vec<Vec<u32>>,
    pub prompts: Vec<Vec<u32>>,
    /// 16 greedy tokens per prompt.
    pub greedy: Vec<Vec<u32>>,
    /// Token ids below this one are real; the rows above are padding of the vocabulary.
    pub vocab_used: usize,
    /// `[batch * seq * vocab]`
    pub logits: Vec<f32>,
}

pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny").join(name)
}

fn ids(value: &serde_json::Value) -> Vec<Vec<u32>> {
    serde_json::from_value(value.clone()).unwrap()
}

impl Tiny {
    pub fn load(name: &str) -> Self {
        let folder = folder(name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let model = Model::load(&checkpoint, &Device::flex(), DType::F32).unwrap();
        let expected: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
        let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let logits = tensors.tensor("logits").unwrap();
        Self {
            name: name.to_owned(),
            model,
            input_ids: ids(&expected["input_ids"]),
            prompts: ids(&expected["prompts"]),
            greedy: ids(&expected["greedy"]),
            vocab_used: expected["vocab_used"].as_u64().unwrap() as usize,
            logits: logits
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect(),
            folder,
        }
    }

    /// Every tiny checkpoint.
    pub fn all() -> Vec<Self> {
        let mut names: Vec<String> = std::fs::read_dir(folder(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert!(names.len() >= 13, "{names:?}");
        names.iter().map(|name| Self::load(name)).collect()
    }
}

/// Rows of equal length as a tensor `[rows, len]`.
pub fn tensor(rows: &[Vec<u32>]) -> Tensor<2, Int> {
    let shape = [rows.len(), rows[0].len()];
    let values: Vec<i64> = rows.iter().flatten().map(|&id| i64::from(id)).collect();
    Tensor::from_data(TensorData::new(values, shape), (&Device::flex(), DType::I64))
}

pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// Largest absolute difference.
pub fn max_diff(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let diff = |(x, y): (&f32, &f32)| {
        assert!(x.is_finite() && y.is_finite());
        (x - y).abs()
    };
    a.iter().zip(b).map(diff).fold(0.0, f32::max)
}
