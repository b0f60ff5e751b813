//! Grouped-query causal attention in blocks of queries.
//!
//! A block of queries sees the keys up to its last query and no later ones, so scores exist for one
//! block at a time and half of them are never computed. The backward pass computes a block's scores
//! again instead of keeping them (Dao et al. 2022, without its fused kernel). One block holds a short
//! sequence whole.

use burn::tensor::{DType, Tensor, activation::softmax};
use lm::model::AttentionContext;
use lm::product::products;

use crate::fused::{self, Rows};

/// Sequences up to this length are one block.
const WHOLE: usize = 512;
/// Queries per block of longer ones on a CPU.
const ON_CPU: usize = 256;
/// Scores of a block of longer ones on a GPU, at most: a quarter of a gigabyte in bf16.
const SCORES: usize = 1 << 27;

/// Queries per block for `rows` sequences of `seq` tokens with `heads` query heads.
pub(crate) fn block_rows(rows: usize, heads: usize, seq: usize, on_cpu: bool) -> usize {
    if seq <= WHOLE {
        return seq.max(1);
    }
    if on_cpu {
        return ON_CPU;
    }
    let most = SCORES / (rows * heads * seq).max(1);
    // few sizes, so that few shapes are tuned
    (most / 128 * 128).clamp(128, seq.next_multiple_of(128)).min(seq)
}

/// Sequences up to this length have their blocks in the GPU's cache, beside burn.
const SHORT: usize = 1024;
/// Scores of such a block, at most: 32 MB in bf16.
const CACHED: u64 = 1 << 24;

/// The same for the pass beside burn, whose launches cost little. Scores that the GPU's cache holds need not come
/// from its memory again, and smaller blocks compute fewer scores that are hidden; longer sequences would be cut
/// into so many that it does not pay (PERFORMANCE.md). `most` scores of a block, where given.
pub(crate) fn block_beside(rows: usize, heads: usize, seq: usize, most: Option<u64>) -> usize {
    let cached = (seq <= SHORT).then_some(CACHED);
    let Some(most) = most.or(cached) else { return block_rows(rows, heads, seq, false) };
    let (most, each) = (most as usize, (rows * heads * seq).max(1));
    if each * seq <= most { seq.max(1) } else { (most / each / 128 * 128).max(128).min(seq) }
}

/// The operands of one attention.
pub(super) struct Attention<'a> {
    /// Rotated queries by the key head they read, `[batch, kv_heads, group, seq, head_dim]`.
    q: Tensor<5>,
    /// Rotated keys `[batch, kv_heads, seq, head_dim]`.
    k: Tensor<4>,
    /// Values `[batch, kv_heads, seq, head_dim]`.
    v: Tensor<4>,
    /// Who sees whom.
    context: &'a AttentionContext,
    /// Queries per block.
    block: usize,
}

/// The queries `start..end` of all heads, which see the keys `0..end`.
struct Block {
    start: usize,
    end: usize,
}

impl<'a> Attention<'a> {
    /// Attention of rotated queries `[batch, heads, seq, head_dim]` and keys, and values, `[batch, kv_heads,
    /// seq, head_dim]`.
    pub fn new([q, k, v]: [Tensor<4>; 3], context: &'a AttentionContext, block: usize) -> Self {
        let [batch, heads, seq, dim] = q.dims();
        let kv_heads = k.dims()[1];
        let q = q.reshape([batch, kv_heads, heads / kv_heads, seq, dim]);
        Self { q, k, v, context, block }
    }

    fn blocks(&self) -> impl DoubleEndedIterator<Item = Block> + use<> {
        let (seq, block) = (self.q.dims()[3], self.block);
        (0..seq.div_ceil(block)).map(move |i| Block { start: i * block, end: ((i + 1) * block).min(seq) })
    }

    fn scale(&self) -> f32 {
        1.0 / (self.q.dims()[4] as f32).sqrt()
    }

    /// The block of `of` `[batch, kv_heads, group, seq, head_dim]`, its groups side by side:
    /// `[batch, kv_heads, group * rows, head_dim]`.
    fn rows(of: &Tensor<5>, block: &Block) -> Tensor<4> {
        let [batch, kv_heads, group, _, dim] = of.dims();
        let rows = block.end - block.start;
        of.clone().narrow(3, block.start, rows).reshape([batch, kv_heads, group * rows, dim])
    }

    fn rows_of(&self, block: &Block) -> Rows {
        Rows { start: block.start, queries: block.end - block.start, seq: self.q.dims()[3] }
    }

    /// Attention weights of a block, `[batch, kv_heads, group * rows, end]`; in f32 where tensor
    /// operations computed them.
    fn weights(&self, q: Tensor<4>, block: &Block) -> Tensor<4> {
        let [batch, kv_heads, group, _, _] = self.q.dims();
        let rows = block.end - block.start;
        let k = self.k.clone().narrow(2, 0, block.end);
        let scores = products(q, k.swap_dims(2, 3));
        let segments = self.context.segments();
        if let Some(weights) = fused::soften(&scores, segments, self.rows_of(block), self.scale()) {
            return weights;
        }
        let mask = self.context.mask().clone().narrow(3, block.start, rows).narrow(4, 0, block.end);
        let scores = scores
            .cast(DType::F32)
            .mul_scalar(self.scale())
            .reshape([batch, kv_heads, group, rows, block.end])
            + mask;
        softmax(scores, 4).reshape([batch, kv_heads, group * rows, block.end])
    }

    /// `[batch, seq, heads * head_dim]`
    pub fn forward(&self) -> Tensor<3> {
        let [batch, kv_heads, group, seq, dim] = self.q.dims();
        let outputs = self.blocks().map(|block| {
            let weights = self.weights(Self::rows(&self.q, &block), &block).cast(self.v.dtype());
            let attended = products(weights, self.v.clone().narrow(2, 0, block.end));
            attended.reshape([batch, kv_heads, group, block.end - block.start, dim])
        });
        let output = joined(outputs.collect()).permute([0, 3, 1, 2, 4]);
        output.reshape([batch, seq, kv_heads * group * dim])
    }

    /// Gradients of `q`, `k` and `v`, shaped as [`Attention::new`] takes them, from that of the output
    /// `[batch, seq, heads * head_dim]`.
    ///
    /// With `P = softmax(s·QKᵀ)` and `O = PV`: `dV = PᵀdO`, `dP = dO·Vᵀ`, `dS = P∘(dP - Σ dP∘P)`,
    /// `dQ = s·dS·K`, `dK = s·dSᵀ·Q`.
    pub fn backward(&self, by_output: Tensor<3>) -> [Tensor<4>; 3] {
        let [batch, kv_heads, group, seq, dim] = self.q.dims();
        let dtype = self.q.dtype();
        let by_output = by_output.reshape([batch, seq, kv_heads, group, dim]).permute([0, 2, 3, 1, 4]);
        let mut by_q = Vec::new();
        let (mut by_k, mut by_v): (Option<Tensor<4>>, Option<Tensor<4>>) = (None, None);
        // the last block sees every key, so that its parts are the sums to begin with
        for block in self.blocks().rev() {
            let rows = block.end - block.start;
            let folded = [batch, kv_heads, group, rows, dim];
            let q = Self::rows(&self.q, &block);
            let by_output = Self::rows(&by_output, &block);
            let k = self.k.clone().narrow(2, 0, block.end);
            let v = self.v.clone().narrow(2, 0, block.end);
            let weights = self.weights(q.clone(), &block);
            let rounded = weights.clone().cast(dtype);
            let part = products(rounded.swap_dims(2, 3), by_output.clone());
            by_v = Some(summed(by_v, part, block.end));
            let by_weights = products(by_output, v.swap_dims(2, 3));
            let by_scores = self.by_scores(weights, by_weights, &block);
            by_q.push(products(by_scores.clone(), k).reshape(folded));
            by_k = Some(summed(by_k, products(by_scores.swap_dims(2, 3), q), block.end));
        }
        by_q.reverse();
        let by_q = joined(by_q).reshape([batch, kv_heads * group, seq, dim]);
        let rounded = |sum: Option<Tensor<4>>| sum.unwrap_or_else(|| self.k.zeros_like()).cast(dtype);
        [by_q, rounded(by_k), rounded(by_v)]
    }

    /// Gradients of a block's scores from its weights and their gradients.
    fn by_scores(&self, weights: Tensor<4>, by_weights: Tensor<4>, block: &Block) -> Tensor<4> {
        let rows = self.rows_of(block);
        if let Some(by_scores) = fused::soften_backward(&weights, &by_weights, rows, self.scale()) {
            return by_scores;
        }
        let dtype = by_weights.dtype();
        let weights = weights.cast(DType::F32);
        let weighted = by_weights.cast(DType::F32) * weights.clone();
        let sums = weighted.clone().sum_dim(3);
        (weighted - weights * sums).mul_scalar(self.scale()).cast(dtype)
    }
}

/// Blocks `[batch, kv_heads, group, rows, head_dim]` one after the other.
fn joined(mut blocks: Vec<Tensor<5>>) -> Tensor<5> {
    if blocks.len() == 1 { blocks.remove(0) } else { Tensor::cat(blocks, 3) }
}

/// `sum` with `part` added to its first `end` keys, in f32.
fn summed(sum: Option<Tensor<4>>, part: Tensor<4>, end: usize) -> Tensor<4> {
    let part = part.cast(DType::F32);
    let Some(mut sum) = sum else { return part };
    let [batch, heads, _, dim] = sum.dims();
    let here = [0..batch, 0..heads, 0..end, 0..dim];
    let part = part + sum.clone().slice(here.clone());
    sum.inplace(|sum| sum.slice_assign(here, part));
    sum
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use lm::rng::Stream;

    use super::*;
    use crate::loss::floats;

    fn random<const D: usize>(name: &str, shape: [usize; D]) -> Tensor<D> {
        let stream = Stream::named(3, name);
        let len: usize = shape.iter().product();
        let values: Vec<f32> = (0..len as u64).map(|i| stream.normal(i) as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn rope() -> lm::model::Rope {
        let json = serde_json::json!({
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
            "vocab_size": 9, "hidden_size": 48, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": true,
        });
        let fields = json.as_object().unwrap().clone();
        lm::model::Rope::new(&lm::config::ModelConfig::from_json(fields, "config.json".as_ref()).unwrap())
    }

    fn close<const D: usize>(a: Tensor<D>, b: Tensor<D>, what: &str) {
        assert_eq!(a.dims(), b.dims(), "{what}");
        let largest = floats(b.clone()).iter().fold(1.0f32, |m, v| m.max(v.abs()));
        for (x, y) in floats(a).iter().zip(floats(b)) {
            assert!((x - y).abs() <= 2e-6 * largest, "{what}: {x} against {y}");
        }
    }

    /// Blocks of every size, dividing the sequence or not, against automatic differentiation of the
    /// attention written out whole. Tolerance: 2e-6 of the largest value (f32).
    #[test]
    fn blocks_give_the_values_and_gradients_of_the_whole() {
        let (batch, seq, heads, kv_heads, dim) = (2, 13, 6, 2, 8);
        let q = random("q", [batch, heads, seq, dim]);
        let k = random("k", [batch, kv_heads, seq, dim]);
        let v = random("v", [batch, kv_heads, seq, dim]);
        let context = AttentionContext::causal(&rope(), seq, &Device::flex());
        let mask = context.mask().clone().reshape([1, 1, seq, seq]);
        let by_output = random("dO", [batch, seq, heads * dim]);

        let [tq, tk, tv] = [&q, &k, &v].map(|t| t.clone().autodiff().require_grad());
        // keys and values repeated for each query head, [batch, heads, seq, dim]
        let repeat = |t: Tensor<4>| {
            let group = heads / kv_heads;
            let t = t.reshape([batch, kv_heads, 1, seq, dim]);
            t.repeat_dim(2, group).reshape([batch, heads, seq, dim])
        };
        let scores = tq.clone().matmul(repeat(tk.clone()).swap_dims(2, 3));
        let scores = scores.mul_scalar(1.0 / (dim as f32).sqrt());
        let scores = scores + mask.autodiff();
        let whole = softmax(scores, 3).matmul(repeat(tv.clone()));
        let whole = whole.swap_dims(1, 2).reshape([batch, seq, heads * dim]);
        let tape = (whole.clone() * by_output.clone().autodiff()).sum().backward();
        let wanted = [tq, tk, tv].map(|t| t.grad(&tape).unwrap());

        for block in [1, 4, 5, 13, 64] {
            let attention = Attention::new([q.clone(), k.clone(), v.clone()], &context, block);
            close(attention.forward(), whole.clone().inner(), "output");
            let gradients = attention.backward(by_output.clone());
            for ((got, wanted), name) in gradients.into_iter().zip(&wanted).zip(["q", "k", "v"]) {
                close(got, wanted.clone(), name);
            }
        }
    }

    #[test]
    fn long_sequences_are_cut_and_short_ones_are_not() {
        assert_eq!([0, 40, 512].map(|seq| block_rows(8, 28, seq, false)), [1, 40, 512]);
        assert_eq!([513, 4096].map(|seq| block_rows(8, 28, seq, true)), [256, 256]);
        assert_eq!(block_rows(8, 28, 1152, false), 512);
        // small enough to stay whole
        assert_eq!(block_rows(1, 14, 2048, false), 2048);
        assert_eq!(block_rows(1, 14, 2000, false), 2000);
        assert_eq!(block_rows(1000, 100, 9000, false), 128);
    }

    #[test]
    fn blocks_beside_burn_hold_the_scores_that_were_asked_for() {
        assert_eq!(block_beside(16, 9, 1024, None), 128);
        assert_eq!(block_beside(2, 9, 300, None), 300);
        assert_eq!(block_beside(54, 9, 300, None), 128);
        assert_eq!(block_beside(1, 1, 1, None), 1);
        let most = Some(1 << 24);
        assert_eq!(block_beside(1, 14, 2048, most), 512);
        assert_eq!(block_beside(1, 14, 2048, None), block_rows(1, 14, 2048, false));
        assert_eq!(block_beside(8, 28, 1152, None), block_rows(8, 28, 1152, false));
        for seq in [1, 127, 128, 129, 5000] {
            let block = block_beside(64, 32, seq, most);
            assert!(
                (1..=seq).contains(&block) && (block == seq || block.is_multiple_of(128)),
                "{seq}: {block}"
            );
        }
    }
}
