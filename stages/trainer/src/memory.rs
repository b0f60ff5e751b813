//! How much memory of a device a training run needs: one formula, for choosing micro-batches, for
//! saying beforehand what a run needs, and for refusing one that cannot fit.
//!
//! It counts what the passes of [`crate::gradient`] and the update hold at their worst moment, and a
//! test holds it against peaks that were measured (`tests/data/peaks.json`). It is made for bf16 on a
//! GPU; in f32, where tensor operations do what kernels do in bf16, more copies live at a time.
//!
//! A pass beside burn (bf16 on NVIDIA GPUs) has memory of its own, which it takes and gives up like a
//! stack: there the formula is exact ([`Load::stack`]), and how many layers keep their widest results
//! follows from what is free ([`Load::keeps`]).

use lm::config::ModelConfig;

use crate::knobs::knobs;
use crate::loss::chunk_rows;
use crate::pass::{block_beside, block_rows};

/// What decides the memory of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The model's shape.
    pub config: ModelConfig,
    /// Bytes of one weight and of one activation: 2 for bf16, 4 for f32.
    pub number: u64,
    /// How many numbers train.
    pub trained: u64,
    /// Whether these are the model's own parameters; otherwise an adapter's.
    pub full: bool,
    /// Recompute products in the backward pass.
    pub recompute: bool,
    /// Whether passes go beside burn ([`crate::gradient::through_burn`]).
    pub beside: bool,
    /// Rows of the largest micro-batch.
    pub rows: u64,
    /// Tokens per row.
    pub seq: u64,
    /// Sequences that are generated at once and their longest length, where rollouts are drawn.
    pub rollouts: Option<(u64, u64)>,
}

/// Bytes by what they are for, at the worst moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// The model's weights, and the trained copy of them.
    pub weights: u64,
    /// f32 masters and AdamW's two moments.
    pub optimizer: u64,
    /// What changes during an update: kept activations, working sets, gradients.
    pub update: u64,
    /// What a pass beside burn takes of that: memory of its own, which rollouts cannot use meanwhile.
    pub apart: u64,
    /// Keys and values of rollouts.
    pub cache: u64,
    /// What the driver, its libraries and the allocator's rounding take.
    pub overhead: u64,
}

impl Needs {
    /// The peak: rollouts and updates take turns.
    pub fn total(&self) -> u64 {
        let turns = (self.update - self.apart).max(self.cache);
        self.weights + self.optimizer + self.apart + turns + self.overhead
    }
}

/// Context, loaded kernels and the workspaces of libraries, as measured.
const FIXED: u64 = 660_000_000;
/// The allocator rounds up and cannot use every gap: a share of all but frozen weights.
const SLACK: f64 = 0.10;

/// How many tensors of a kind live at once.
struct Copies {
    /// As wide as the MLP, in the backward pass of a layer: gate, up and three gradients.
    mlp: u64,
    /// Bytes per score of a block: scores, weights and their gradients.
    score: u64,
    /// Bytes per logit of a chunk.
    logit: u64,
    /// As wide as the hidden states, beside the others.
    hidden: u64,
}

impl Load {
    fn copies(&self) -> Copies {
        if self.number == 2 {
            // f32 logits and their bf16 gradient
            Copies { mlp: 5, score: 4 * 2, logit: 6, hidden: 6 }
        } else {
            Copies { mlp: 9, score: 6 * 4, logit: 5 * 4, hidden: 14 }
        }
    }

    /// What the run needs.
    pub fn needs(&self) -> Needs {
        if self.beside { self.needs_beside() } else { self.needs_through_burn() }
    }

    fn parameters(&self) -> (u64, u64) {
        let shapes = self.config.tensor_shapes();
        let sizes = || shapes.iter().map(|(_, dims)| dims.iter().product::<usize>() as u64);
        (sizes().sum(), sizes().max().unwrap_or(0))
    }

    fn cache(&self) -> u64 {
        self.rollouts.map_or(0, |(slots, length)| (slots + 1) * self.slot(length))
    }

    /// With a pass beside burn: at least, where `recompute` is off; more is kept if there is room.
    fn needs_beside(&self) -> Needs {
        let (parameters, largest) = self.parameters();
        let trained_copy = if self.full { parameters * self.number } else { 0 };
        let apart = self.stack(0);
        // new values and moments of the largest parameter
        let stepping = 3 * 4 * if self.full { largest } else { 0 };
        let burns = self.trained * 4 + stepping;
        let (optimizer, cache) = (self.trained * 3 * 4, self.cache());
        let changing = optimizer + burns.max(cache) + trained_copy;
        let overhead = FIXED + (changing as f64 * SLACK) as u64;
        let weights = parameters * self.number + trained_copy;
        Needs { weights, optimizer, update: apart + burns, apart, cache, overhead }
    }

    /// Bytes of the stack of a pass beside burn of which `keeping` layers keep gate and up.
    pub fn stack(&self, keeping: usize) -> u64 {
        let c = &self.config;
        let (tokens, layers) = (self.rows * self.seq, c.num_layers as u64);
        let [hidden, inner, vocab, dim] =
            [c.hidden_size, c.intermediate_size, c.vocab_size, c.head_dim].map(|size| size as u64);
        let [q, kv] = [c.num_heads, c.num_kv_heads].map(|heads| (heads * c.head_dim) as u64);
        let width = q + 2 * kv;
        // what reads inputs of projections in the backward pass: every parameter, or low-rank factors,
        // which are far more than a vector per layer
        let low_rank = !self.full && self.trained > layers * hidden.max(inner);
        let inputs = u64::from(self.full || low_rank);
        let rows = |width: u64| tokens * width * 2;

        let start = 2 * rows(hidden)
            + 2 * self.seq * dim * 2
            + layers * (width + hidden) * 4
            + if low_rank { self.trained * 2 } else { 0 };
        let kept = layers * rows(2 * hidden + width) + (keeping as u64).min(layers) * self.gate_up();
        let chunk = (chunk_rows(c.vocab_size, false) as u64).min(tokens);
        let head = 4 * rows(hidden) + chunk * vocab * 6 + tokens * 8;
        let again = if keeping >= c.num_layers { 0 } else { self.gate_up() };
        let mlp = rows(2 * hidden + inner) + again + inputs * rows(inner);
        let block = block_beside(self.rows as usize, c.num_heads, self.seq as usize, knobs().scores) as u64;
        let scores =
            2 * 2 * self.rows * c.num_heads as u64 * block.min(self.seq) * self.seq.next_multiple_of(8);
        let attention = rows(inputs * hidden + 3 * q + 4 * kv) + scores.max(rows(width + hidden));
        // column sums in parts, and the middle of low-rank factors
        let small = tokens.div_ceil(64) * inner * 4;
        start + kept + head.max(mlp.max(attention) + small)
    }

    /// Bytes of one layer's gate and up.
    fn gate_up(&self) -> u64 {
        2 * self.rows * self.seq * self.config.intermediate_size as u64 * self.number
    }

    /// How many layers keep gate and up in a pass beside burn whose stack may take `bytes`; the others
    /// compute them again, with the same result.
    pub fn keeps(&self, bytes: u64) -> usize {
        if self.recompute {
            return 0;
        }
        let fits = |keeping: &usize| self.stack(*keeping) <= bytes;
        (0..=self.config.num_layers).rev().find(fits).unwrap_or(0)
    }

    fn needs_through_burn(&self) -> Needs {
        let c = &self.config;
        let (parameters, largest) = self.parameters();
        let copies = self.copies();
        let tokens = self.rows * self.seq;
        let [hidden, inner, vocab] =
            [c.hidden_size, c.intermediate_size, c.vocab_size].map(|size| size as u64);
        let [q, kv] = [c.num_heads, c.num_kv_heads].map(|heads| (heads * c.head_dim) as u64);

        // between the passes: hidden states before and between the halves of a layer, or products too
        let products = if self.recompute { 0 } else { q + 2 * kv + 2 * inner };
        let kept = tokens * (2 * hidden + products) * self.number * c.num_layers as u64;

        // in a layer
        let block = block_rows(self.rows as usize, c.num_heads, self.seq as usize, false) as u64;
        let scores = self.rows * c.num_heads as u64 * block * self.seq;
        let attention = scores * copies.score + tokens * 6 * q * self.number;
        let mlp = tokens * copies.mlp * inner * self.number;
        let layer = attention.max(mlp) + tokens * hidden * copies.hidden * self.number;

        // in the head; its own gradient is summed over chunks: the sum, a part and the new sum
        let head_gradient = if self.full { vocab * hidden * 4 } else { 0 };
        let chunk = (chunk_rows(c.vocab_size, false) as u64).min(tokens);
        let head = chunk * vocab * copies.logit + tokens * hidden * 3 * self.number + 3 * head_gradient;

        let gradients = self.trained * 4;
        let trained_copy = if self.full { parameters * self.number } else { 0 };
        let moments = [
            kept + head,
            kept + head_gradient + layer,
            // the first layer, or the embedding whose gradient is copied once
            gradients + layer.max(head_gradient),
            // new values and moments of the largest parameter; the trained copy is gone by then
            (gradients + 3 * 4 * if self.full { largest } else { 0 }).saturating_sub(trained_copy),
        ];
        let update = moments.into_iter().max().unwrap_or(0);
        let cache = self.cache();
        let optimizer = self.trained * 3 * 4;
        let changing = optimizer + update.max(cache) + trained_copy;
        let overhead = FIXED + (changing as f64 * SLACK) as u64;
        Needs {
            weights: parameters * self.number + trained_copy,
            optimizer,
            update,
            apart: 0,
            cache,
            overhead,
        }
    }

    /// The same with as many rollouts at once as `bytes` of keys and values hold: the generation engine
    /// lets no more run than fit its cache.
    #[must_use]
    pub fn with_cache(&self, bytes: u64) -> Self {
        let limit = |(slots, length): (u64, u64)| (slots.min(bytes / self.slot(length)).max(1), length);
        Self { rollouts: self.rollouts.map(limit), ..self.clone() }
    }

    /// Bytes of the keys and values of one rollout of this length.
    fn slot(&self, length: u64) -> u64 {
        let c = &self.config;
        length * (2 * c.num_kv_heads * c.head_dim * c.num_layers) as u64 * self.number
    }

    /// The same with micro-batches of `rows` rows.
    #[must_use]
    pub fn with_rows(&self, rows: u64) -> Self {
        Self { rows, ..self.clone() }
    }

    /// The most rows per micro-batch, up to `most`, that need no more than `free` bytes: a power of two,
    /// or `most` itself. None where not even one fits.
    pub fn fitting_rows(&self, free: u64, most: u64) -> Option<u64> {
        let powers = std::iter::successors(Some(1u64), |rows| rows.checked_mul(2));
        let sizes = powers.take_while(|&rows| rows < most).chain([most.max(1)]);
        sizes.take_while(|&rows| self.with_rows(rows).needs().total() <= free).last()
    }

    /// What would make the run fit into `free` bytes, as advice; empty where nothing would.
    pub fn advice(&self, free: u64) -> Vec<String> {
        let fits = |load: &Self| load.needs().total() <= free;
        let mut advice = Vec::new();
        if self.rows > 1
            && let Some(rows) = self.fitting_rows(free, self.rows - 1)
        {
            advice.push(format!("micro_tokens = {}", rows * self.seq));
        }
        let recomputing = Self { recompute: true, ..self.clone() };
        if !self.recompute && fits(&recomputing) {
            advice.push("recompute = true".to_owned());
        } else if !self.recompute && fits(&recomputing.with_rows(1)) {
            advice.push(format!("recompute = true with micro_tokens = {}", self.seq));
        }
        if advice.is_empty() && self.full {
            let adapter = Self { full: false, trained: 0, ..recomputing.with_rows(1) };
            if fits(&adapter) {
                advice.push(
                    "an adapter (`adapter = { type = \"lora\" }`) instead of every parameter".to_owned(),
                );
            }
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(rows: u64, recompute: bool) -> Load {
        let json = serde_json::json!({
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
            "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": true,
        });
        let fields = json.as_object().unwrap().clone();
        let config = ModelConfig::from_json(fields, "config.json".as_ref()).unwrap();
        let (trained, full) = (494_032_768, true);
        Load { config, number: 2, trained, full, recompute, beside: false, rows, seq: 2048, rollouts: None }
    }

    #[test]
    fn more_rows_need_more_and_recomputing_needs_less() {
        let total = |rows, recompute| load(rows, recompute).needs().total();
        for rows in 1..20 {
            assert!(total(rows, true) < total(rows + 1, true));
            assert!(total(rows, true) < total(rows, false));
        }
    }

    #[test]
    fn a_pass_beside_burn_keeps_what_fits() {
        let load = Load { beside: true, ..load(4, false) };
        assert_eq!(load.keeps(load.stack(0)), 0);
        assert_eq!(load.keeps(load.stack(7)), 7);
        assert_eq!(load.keeps(u64::MAX), 24);
        assert_eq!(Load { recompute: true, ..load.clone() }.keeps(u64::MAX), 0);
        // what is needed does not depend on what could be kept
        assert_eq!(load.needs(), Load { recompute: true, ..load.clone() }.needs());
        assert!(load.needs().total() < Load { beside: false, ..load.clone() }.needs().total());
    }

    #[test]
    fn the_most_rows_that_fit_are_chosen() {
        let one = load(1, true).needs().total();
        assert_eq!(load(1, true).fitting_rows(one - 1, 8), None);
        assert_eq!(load(1, true).fitting_rows(one, 8), Some(1));
        let six = load(6, true).needs().total();
        assert_eq!(load(1, true).fitting_rows(six, 6), Some(6));
        assert_eq!(load(1, true).fitting_rows(six, 8), Some(4));
        assert_eq!(load(1, true).fitting_rows(u64::MAX, 8), Some(8));
    }

    #[test]
    fn rollouts_take_no_more_than_the_cache() {
        let many = Load { rollouts: Some((64, 2048)), ..load(1, true) };
        let one = Load { rollouts: Some((1, 2048)), ..load(1, true) };
        assert_eq!(many.with_cache(1 << 40), many);
        // 2 · 2 heads · 64 · 24 layers · 2 bytes a token
        assert_eq!(many.with_cache(10 * 2048 * 12_288).rollouts, Some((10, 2048)));
        assert_eq!(many.with_cache(1), one);
        assert!(many.needs().cache > one.needs().cache);
    }

    #[test]
    fn advice_makes_the_run_fit() {
        let one = load(1, true).needs().total();
        assert_eq!(load(8, true).advice(one), ["micro_tokens = 2048"]);
        assert!(load(1, false).advice(one).contains(&"recompute = true".to_owned()));
        assert_eq!(load(8, false).advice(one), ["recompute = true with micro_tokens = 2048"]);
        let little = 6 << 30;
        assert!(load(1, true).advice(little)[0].starts_with("an adapter"));
        assert!(load(1, true).advice(1 << 20).is_empty());
    }
}
