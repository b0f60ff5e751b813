//! The forward pass of generation on a CPU, written out over f32 slices.
//!
//! A decoding step of a small model is a few hundred small operations; run as tensor operations,
//! dispatch and allocation take longer than the arithmetic, and the products re-pack weights that
//! are read once. Here the weights are borrowed from the model's tensors and streamed once a step,
//! the rows of all sequences (prompts and decoding alike) go through each product together, and
//! every row is computed in an order that does not depend on the others (see `kernels`).
//! Tests hold it to the tensor path; `PERFORMANCE.md` has the measurements that led here.
//!
//! | module | what |
//! |---|---|
//! | `kernels` | inner loops |
//! | `parallel` | sharing an operation among threads |
//! | `weights` | the model as slices |

mod kernels;
mod parallel;
mod weights;

use std::ops::Range;

use pulp::Arch;

pub(crate) use kernels::exponentials;
use kernels::{Products, WeightedSum, rms_norm, rotate, silu_mul, softmax, vectorized};
use parallel::{Cells, each};
use weights::{HostLayer, HostLinear, Weights};

use crate::adapter::Adapter;
use crate::config::ModelConfig;
use crate::model::{Model, Rope};

/// Rows of the input that a product keeps near the core while it streams weights past them.
const ROW_BLOCK: usize = 64;
/// Query positions that one attention task takes.
const QUERY_BLOCK: usize = 16;

/// Consecutive tokens of one sequence, to be computed in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Cache slot of the sequence.
    pub slot: usize,
    /// Position of the first token; the cache holds what is before it.
    pub start: usize,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether the logits after the last token are wanted.
    pub wants_logits: bool,
    /// Whether the token was generated, rather than part of a prompt.
    pub decoding: bool,
}

/// Keys and values of every layer: `[slots, kv_heads, capacity, head_dim]` each.
struct Cache {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    slots: usize,
    kv_heads: usize,
    capacity: usize,
    dim: usize,
}

impl Cache {
    fn head(&self, slot: usize, head: usize) -> usize {
        (slot * self.kv_heads + head) * self.capacity * self.dim
    }

    fn span(&self, slot: usize, head: usize, positions: Range<usize>) -> Range<usize> {
        let base = self.head(slot, head);
        base + positions.start * self.dim..base + positions.end * self.dim
    }
}

/// A model and its cache on the host.
pub(crate) struct HostRunner {
    config: ModelConfig,
    weights: Weights,
    rope: Rope,
    cache: Cache,
    /// `[capacity, head_dim / 2]`
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl HostRunner {
    /// A runner without room for a sequence yet.
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> Self {
        let config = model.config().clone();
        Self {
            weights: Weights::new(model, adapter),
            rope: model.rope().clone(),
            cache: Cache {
                keys: vec![Vec::new(); config.num_layers],
                values: vec![Vec::new(); config.num_layers],
                slots: 0,
                kv_heads: config.num_kv_heads,
                capacity: 0,
                dim: config.head_dim,
            },
            cos: Vec::new(),
            sin: Vec::new(),
            config,
        }
    }

    /// Makes room for `slots` sequences of up to `capacity` tokens. Says whether what was cached
    /// before is still there. Pages that are never written stay unbacked by memory.
    pub fn reserve(&mut self, slots: usize, capacity: usize) -> bool {
        let cache = &mut self.cache;
        if slots <= cache.slots && capacity <= cache.capacity {
            return true;
        }
        (cache.slots, cache.capacity) = (slots, capacity);
        let size = slots * cache.kv_heads * capacity * cache.dim;
        for layer in cache.keys.iter_mut().chain(&mut cache.values) {
            *layer = Vec::new(); // freed before the larger one is allocated
            *layer = vec![0.0; size];
        }
        (self.cos, self.sin) = self.rope.table(0..capacity as u32);
        false
    }

    /// Copies the first `len` positions of one slot to another.
    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) {
        let cache = &mut self.cache;
        for head in 0..cache.kv_heads {
            let source = cache.span(from, head, 0..len);
            let target = cache.head(to, head);
            for side in [&mut cache.keys, &mut cache.values] {
                side.iter_mut().for_each(|layer| layer.copy_within(source.clone(), target));
            }
        }
    }

    /// Computes the segments, writes their keys and values to the cache, and returns the logits
    /// `[segments that want them, vocab]`.
    pub fn forward(&mut self, segments: &[Segment]) -> Vec<f32> {
        // From inside the pool every parallel operation below is a cheap fork.
        let mut logits = Vec::new();
        rayon::scope(|_| logits = self.forward_in_pool(segments));
        logits
    }

    fn forward_in_pool(&mut self, segments: &[Segment]) -> Vec<f32> {
        let hidden_size = self.config.hidden_size;
        let eps = self.config.rms_norm_eps as f32;
        let mut batch = Batch::new(&self.config, segments);
        for (row, &token) in batch.hidden.chunks_exact_mut(hidden_size).zip(&batch.tokens) {
            let start = token as usize * hidden_size;
            row.copy_from_slice(&self.weights.embedding.values()[start..start + hidden_size]);
        }
        for index in 0..self.weights.layers.len() {
            self.layer(index, &mut batch, eps);
        }
        let wanted: Vec<usize> = batch.last_rows(segments);
        let mut x = vec![0.0; wanted.len() * hidden_size];
        for (out, row) in x.chunks_exact_mut(hidden_size).zip(wanted) {
            let hidden = &batch.hidden[row * hidden_size..][..hidden_size];
            rms_norm(hidden, self.weights.norm.values(), eps, out);
        }
        let mut logits = vec![0.0; x.len() / hidden_size * self.config.vocab_size];
        project(&x, &mut [(&self.weights.head, &mut logits)]);
        logits
    }

    fn layer(&mut self, index: usize, batch: &mut Batch, eps: f32) {
        let layer = &self.weights.layers[index];
        norm_rows(&batch.hidden, layer.input_norm.values(), eps, &mut batch.normed);
        project(
            &batch.normed,
            &mut [(&layer.query, &mut batch.q), (&layer.key, &mut batch.k), (&layer.value, &mut batch.v)],
        );
        self.write_cache(index, batch);
        self.attend(index, batch);
        let layer: &HostLayer = &self.weights.layers[index];
        project(&batch.attended, &mut [(&layer.output, &mut batch.projected)]);
        add(&mut batch.hidden, &batch.projected);
        norm_rows(&batch.hidden, layer.post_norm.values(), eps, &mut batch.normed);
        project(&batch.normed, &mut [(&layer.gate, &mut batch.gate), (&layer.up, &mut batch.up)]);
        let width = self.config.intermediate_size;
        let rows = batch.gate.chunks_exact_mut(width).zip(batch.up.chunks_exact(width));
        each(rows.collect(), batch.up.len() * 16, |(gate, up)| silu_mul(gate, up));
        project(&batch.gate, &mut [(&layer.down, &mut batch.projected)]);
        add(&mut batch.hidden, &batch.projected);
    }

    /// Rotates queries and keys, and stores keys and values.
    fn write_cache(&mut self, index: usize, batch: &mut Batch) {
        let (dim, half) = (self.config.head_dim, self.config.head_dim / 2);
        let (q_width, kv_width) = (self.config.num_heads * dim, self.config.num_kv_heads * dim);
        for (row, &(slot, position)) in batch.places.iter().enumerate() {
            let table = position * half..(position + 1) * half;
            let (cos, sin) = (&self.cos[table.clone()], &self.sin[table]);
            rotate(&mut batch.q[row * q_width..][..q_width], cos, sin);
            let k = &mut batch.k[row * kv_width..][..kv_width];
            let v = &batch.v[row * kv_width..][..kv_width];
            rotate(k, cos, sin);
            for (head, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
                let span = self.cache.span(slot, head, position..position + 1);
                self.cache.keys[index][span.clone()].copy_from_slice(k);
                self.cache.values[index][span].copy_from_slice(v);
            }
        }
    }

    /// Attention of every row to its own sequence up to itself.
    fn attend(&self, index: usize, batch: &mut Batch) {
        let (dim, kv_heads) = (self.config.head_dim, self.config.num_kv_heads);
        let group = self.config.num_heads / kv_heads;
        let width = self.config.num_heads * dim;
        let scale = 1.0 / (dim as f32).sqrt();
        let (keys, values) = (&self.cache.keys[index], &self.cache.values[index]);
        let (q, places) = (&batch.q, &batch.places);
        let attended = Cells::new(&mut batch.attended, width);
        let mut work = 0;
        let mut tasks = Vec::new();
        for rows in &batch.segments {
            for start in rows.clone().step_by(QUERY_BLOCK) {
                let block = start..rows.end.min(start + QUERY_BLOCK);
                work += 2 * block.len() * (places[start].1 + 1) * width;
                tasks.extend((0..kv_heads).map(|head| (block.clone(), head)));
            }
        }
        each(tasks, work, |(rows, head)| {
            let mut scores = Vec::new();
            for row in rows {
                let (slot, position) = places[row];
                let seen = self.cache.span(slot, head, 0..position + 1);
                let q = &q[row * width + head * group * dim..][..group * dim];
                // SAFETY: the heads of this group in this row belong to this task.
                let out = unsafe { attended.row(row, head * group * dim, group * dim) };
                attend_row(q, &keys[seen.clone()], &values[seen], dim, scale, &mut scores, out);
            }
        });
    }
}

/// One position's query heads `[group, dim]` over `keys` and `values` `[seen, dim]`.
fn attend_row(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    dim: usize,
    scale: f32,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let seen = keys.len() / dim;
    scores.clear();
    scores.resize(q.len() / dim * seen, 0.0);
    let arch = Arch::new();
    let store = |g: usize, j: usize, value| scores[g * seen + j] = value;
    arch.dispatch(Products { x: q, w: keys, k: dim, store });
    for (weights, out) in scores.chunks_exact_mut(seen).zip(out.chunks_exact_mut(dim)) {
        vectorized(
            #[inline(always)]
            || softmax(weights, scale),
        );
        arch.dispatch(WeightedSum { weights, rows: values, out });
    }
}

/// The rows of one step and room for what is computed from them.
struct Batch {
    tokens: Vec<u32>,
    /// Slot and position of every row.
    places: Vec<(usize, usize)>,
    /// Rows of every segment.
    segments: Vec<Range<usize>>,
    hidden: Vec<f32>,
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    attended: Vec<f32>,
    projected: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl Batch {
    fn new(config: &ModelConfig, segments: &[Segment]) -> Self {
        let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        let places =
            segments.iter().flat_map(|s| (0..s.tokens.len()).map(|i| (s.slot, s.start + i))).collect();
        let mut start = 0;
        let ranges = segments.iter().map(|s| {
            start += s.tokens.len();
            start - s.tokens.len()..start
        });
        let segments = ranges.collect();
        let rows = |width: usize| vec![0.0; tokens.len() * width];
        let (q, kv) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        Self {
            hidden: rows(config.hidden_size),
            normed: rows(config.hidden_size),
            q: rows(q),
            k: rows(kv),
            v: rows(kv),
            attended: rows(q),
            projected: rows(config.hidden_size),
            gate: rows(config.intermediate_size),
            up: rows(config.intermediate_size),
            tokens,
            places,
            segments,
        }
    }

    fn last_rows(&self, segments: &[Segment]) -> Vec<usize> {
        let wanted = self.segments.iter().zip(segments).filter(|(_, s)| s.wants_logits);
        wanted.map(|(rows, _)| rows.end - 1).collect()
    }
}

fn norm_rows(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        rms_norm(x, weight, eps, out);
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Several projections of the same rows `x` `[rows, in]`, each to its own `[rows, out]`.
fn project(x: &[f32], outputs: &mut [(&HostLinear, &mut Vec<f32>)]) {
    let Some((first, _)) = outputs.first() else { return };
    let k = first.input;
    let rows = x.len() / k;
    let total: usize = outputs.iter().map(|(linear, _)| linear.output).sum();
    // A few tasks a thread, of whole register tiles.
    let chunk = (total / (4 * rayon::current_num_threads())).next_multiple_of(12).max(12);
    let mut tasks = Vec::new();
    for (linear, y) in outputs.iter_mut() {
        let cells = Cells::new(y, linear.output);
        for start in (0..linear.output).step_by(chunk) {
            tasks.push((&**linear, cells, start..linear.output.min(start + chunk)));
        }
    }
    each(tasks, rows * k * total, |(linear, cells, outs)| {
        let w = &linear.weight.values()[outs.start * k..outs.end * k];
        for (block, x) in x.chunks(ROW_BLOCK * k).enumerate() {
            let store = |t: usize, o: usize, value: f32| {
                let out = outs.start + o;
                let value = value + linear.bias.as_ref().map_or(0.0, |bias| bias[out]);
                // SAFETY: columns `outs` of this projection belong to this task.
                unsafe { cells.write(block * ROW_BLOCK + t, out, value) };
            };
            Arch::new().dispatch(Products { x, w, k, store });
        }
    });
    for (linear, y) in outputs.iter_mut() {
        if let Some(lora) = &linear.lora {
            add_lora(x, linear, lora, y);
        }
    }
}

/// `y += scale · (x·Aᵀ)·Bᵀ`.
fn add_lora(x: &[f32], linear: &HostLinear, lora: &weights::HostLora, y: &mut [f32]) {
    let arch = Arch::new();
    let rank = lora.a.values().len() / linear.input;
    let mut inner = vec![0.0; x.len() / linear.input * rank];
    let store = |t: usize, r: usize, value| inner[t * rank + r] = value;
    arch.dispatch(Products { x, w: lora.a.values(), k: linear.input, store });
    let store = |t: usize, o: usize, value: f32| y[t * linear.output + o] += lora.scale * value;
    arch.dispatch(Products { x: &inner, w: lora.b.values(), k: rank, store });
}
