//! Logits with the weights of one layer in memory at a time.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::layer::LayerAdapter;
use super::{AttentionContext, FromCheckpoint, Rope, parameters};
use crate::adapter::Adapter;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::product::product;

/// Logits `[1, seq, vocab]` of each text under `checkpoint` in f32, with the weights of one layer in
/// memory at a time (and the embedding or the head): slow for many tokens, but the whole of a 7B model
/// in f32 wants 30 GB. The same numbers as [`super::Model::forward`]'s.
///
/// # Errors
/// As [`super::Model::load`]'s.
pub fn logits_by_layer(
    checkpoint: &Checkpoint,
    adapter: Option<&Adapter>,
    texts: &[Vec<u32>],
    device: &Device,
) -> Result<Vec<Tensor<3>>, CheckpointError> {
    let config = checkpoint.config();
    checkpoint.check_complete(&config.tensor_shapes())?;
    let source = &mut FromCheckpoint(checkpoint, device, DType::F32);
    let rope = Rope::new(config);
    let embedding = parameters::embedding(config, source)?;
    let embed = |ids: &Vec<u32>| {
        let numbers: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(numbers, [1, ids.len()]), device);
        burn::tensor::module::embedding(embedding.clone(), ids)
    };
    let mut hidden: Vec<Tensor<3>> = texts.iter().map(embed).collect();
    let contexts: Vec<_> =
        texts.iter().map(|ids| AttentionContext::causal(&rope, ids.len(), device)).collect();
    // an embedding that is not the head, too, leaves before the layers come
    let tied = config.tie_word_embeddings.then_some(embedding);
    for index in 0..config.num_layers {
        let layer = parameters::layer(config, source, index)?;
        for (hidden, context) in hidden.iter_mut().zip(&contexts) {
            let adapter = LayerAdapter { adapter, layer: index };
            *hidden = layer.forward(config, hidden.clone(), context, adapter);
        }
    }
    let norm = parameters::norm(config, source, "model.norm")?;
    let head = match tied {
        Some(embedding) => embedding,
        None => parameters::head(config, source)?.expect("a head of its own where it is not the embedding"),
    };
    let logits = |hidden: Tensor<3>| {
        let [_, seq, width] = hidden.dims();
        let rows = norm.forward(hidden).reshape([seq, width]);
        product(rows, head.clone().transpose()).reshape([1, seq, config.vocab_size])
    };
    Ok(hidden.into_iter().map(logits).collect())
}
