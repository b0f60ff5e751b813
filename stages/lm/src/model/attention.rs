//! Grouped-query causal attention, and what it needs to know about the rows of a batch.
//!
//! Written out rather than taken from `burn::tensor::module::attention`: in 0.22.1 that function's
//! fallback, which is what automatic differentiation runs, returns garbage when the numbers of query
//! and key heads differ. Query heads that share a key head are stacked along the sequence axis, so
//! keys and values are never repeated in memory.

use std::sync::OnceLock;

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData, activation::softmax};

use super::Rope;
use crate::product::products;

/// What a hidden score is set to. Finite, so that a row which may see nothing (padding on the left)
/// softens to a uniform distribution instead of NaN.
const HIDDEN: f32 = -1e30;

/// Positions and visibility for one batch `[batch, seq]`, shared by every layer.
#[derive(Debug, Clone)]
pub struct AttentionContext {
    pub(crate) cos: Tensor<4>,
    pub(crate) sin: Tensor<4>,
    device: Device,
    batch: usize,
    seq: usize,
    /// Segment of each token, where rows are made of segments.
    segments: Option<Vec<u32>>,
    /// Made when first asked for: the largest part, and not every way of computing needs it.
    mask: OnceLock<Tensor<5>>,
    segment_ids: OnceLock<Tensor<2, Int>>,
}

impl AttentionContext {
    /// Rows that start at position 0 and see themselves and what is before them. Right-padded
    /// batches need nothing else: no real token ever looks at the padding after it.
    pub fn causal(rope: &Rope, seq: usize, device: &Device) -> Self {
        let positions: Vec<u32> = (0..seq as u32).collect();
        Self::new(rope, &positions, None, 1, device)
    }

    /// Rows made of segments: `positions` and `segments` are `[batch, seq]`, row by row, and a token
    /// sees the tokens of its own segment that do not come after it. This serves packed sequences
    /// (every segment with its own number and positions from 0) and left-padded rows (padding as a
    /// segment of its own).
    ///
    /// # Panics
    /// When the two slices differ in length or do not divide into `batch` rows.
    pub fn segmented(
        rope: &Rope,
        positions: &[u32],
        segments: &[u32],
        batch: usize,
        device: &Device,
    ) -> Self {
        assert_eq!(positions.len(), segments.len(), "one segment per position");
        assert_eq!(positions.len() % batch, 0, "rows of equal length");
        Self::new(rope, positions, Some(segments.to_vec()), batch, device)
    }

    fn new(
        rope: &Rope,
        positions: &[u32],
        segments: Option<Vec<u32>>,
        batch: usize,
        device: &Device,
    ) -> Self {
        let [cos, sin] = rope.tensors(positions, batch, device);
        Self {
            cos,
            sin,
            device: device.clone(),
            batch,
            seq: positions.len() / batch,
            segments,
            mask: OnceLock::new(),
            segment_ids: OnceLock::new(),
        }
    }

    /// Cosines of the rotary embedding, `[batch or 1, seq, 1, head_dim / 2]`.
    pub fn cos(&self) -> &Tensor<4> {
        &self.cos
    }

    /// Sines of the rotary embedding, shaped as the cosines.
    pub fn sin(&self) -> &Tensor<4> {
        &self.sin
    }

    /// What is added to the scores: `[batch or 1, 1, 1, seq, seq]` f32, 0 where a query (fourth) may see
    /// a key (fifth) and a large negative number where not.
    pub fn mask(&self) -> &Tensor<5> {
        self.mask.get_or_init(|| {
            let (batch, seq) = (self.batch, self.seq);
            mask_tensor(batch, seq, seq, &self.device, |row, q, k| {
                let same = |of: &Vec<u32>| of[row * seq + q] == of[row * seq + k];
                k <= q && self.segments.as_ref().is_none_or(same)
            })
        })
    }

    /// Segment of each token `[batch, seq]`, where rows are made of segments.
    pub fn segments(&self) -> Option<&Tensor<2, Int>> {
        let segments = self.segments.as_ref()?;
        Some(self.segment_ids.get_or_init(|| {
            let ids: Vec<i32> = segments.iter().map(|&id| id as i32).collect();
            let data = TensorData::new(ids, [self.batch, self.seq]);
            Tensor::from_data(data, (&self.device, DType::I32))
        }))
    }
}

/// An additive mask `[batch, 1, 1, queries, keys]` from a visibility rule `(row, query, key)`.
fn mask_tensor(
    batch: usize,
    queries: usize,
    keys: usize,
    device: &Device,
    visible: impl Fn(usize, usize, usize) -> bool,
) -> Tensor<5> {
    let mut mask = Vec::with_capacity(batch * queries * keys);
    for row in 0..batch {
        for q in 0..queries {
            mask.extend((0..keys).map(|k| if visible(row, q, k) { 0.0 } else { HIDDEN }));
        }
    }
    Tensor::from_data(TensorData::new(mask, [batch, 1, 1, queries, keys]), (device, DType::F32))
}

/// The additive mask of a boolean one: [`HIDDEN`] where `hidden` is true, 0 elsewhere.
pub(crate) fn hidden_where(hidden: Tensor<5, Bool>) -> Tensor<5> {
    hidden.float().cast(DType::F32).mul_scalar(HIDDEN)
}

/// softmax(q·kᵀ / √d + mask)·v for grouped queries.
///
/// `q` is `[batch, queries, heads, head_dim]`, `k` and `v` are `[batch, kv_heads, keys, head_dim]`,
/// `mask` is `[batch or 1, 1, 1, queries, keys]` f32. Query head `h` reads key head
/// `h / (heads / kv_heads)`. The softmax is f32. Returns `[batch, queries, heads * head_dim]`.
pub(crate) fn attend(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, mask: Tensor<5>) -> Tensor<3> {
    let [batch, queries, heads, dim] = q.dims();
    let [_, kv_heads, keys, _] = k.dims();
    let group = heads / kv_heads;
    let dtype = q.dtype();
    let q = q.reshape([batch, queries, kv_heads, group, dim]).permute([0, 2, 3, 1, 4]).reshape([
        batch,
        kv_heads,
        group * queries,
        dim,
    ]);
    let scores = products(q, k.swap_dims(2, 3))
        .cast(DType::F32)
        .mul_scalar(1.0 / (dim as f32).sqrt())
        .reshape([batch, kv_heads, group, queries, keys])
        + mask;
    let weights = softmax(scores, 4).cast(dtype).reshape([batch, kv_heads, group * queries, keys]);
    products(weights, v).reshape([batch, kv_heads, group, queries, dim]).permute([0, 3, 1, 2, 4]).reshape([
        batch,
        queries,
        heads * dim,
    ])
}
