//! How much of a GPU's memory generation needs: one formula, for saying it beforehand and for refusing
//! what cannot fit.
//!
//! It counts what the engine reserves before its first step: weights, keys and values, and the working
//! room of a batch of prompts (as `cuda/net.rs` allots it). A test holds it against measured peaks
//! (`tests/data/generation_peaks.json`). In f32, where tensor operations compute, the working room is a
//! guess on the large side.

use crate::config::ModelConfig;

/// What decides the memory of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The model's shape.
    pub config: ModelConfig,
    /// Bytes of one weight and of one cached number: 2 for bf16, 4 for f32.
    pub number: u64,
    /// Bytes of the adapter on the model; 0 without one.
    pub adapter: u64,
    /// Whether the adapter is LoRA, whose products need room of their own.
    pub lora: bool,
    /// Sequences that run at once.
    pub sequences: u64,
    /// Tokens of the longest, prompt and answer.
    pub length: u64,
}

/// Bytes by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// The model's weights and the adapter's.
    pub weights: u64,
    /// Keys and values.
    pub cache: u64,
    /// Activations of a step, and logits.
    pub scratch: u64,
    /// What the driver, its libraries and the allocator's rounding take.
    pub overhead: u64,
}

impl Needs {
    /// All together.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.scratch + self.overhead
    }
}

/// Context, loaded kernels and graphs, as measured.
const FIXED: u64 = 660_000_000;
/// A share of the weights that the allocator's pages and the loading of weights take beside them.
const SLACK: f64 = 0.04;
/// Positions of the cache are rounded up to a multiple of this.
const POSITIONS: u64 = 64;
/// Prompt tokens of a step at most: of the kernels for bf16, and of tensor operations.
const PROMPT_TOKENS: [u64; 2] = [4096, 512];
/// Bytes of keys and values that the engine gives itself on the path of tensor operations.
const TENSOR_CACHE: u64 = 4 << 30;
/// The part of a GPU's memory that keys and values may take on the path of kernels.
const CACHE_PART: u64 = 8;

impl Load {
    /// Bytes of keys and values that the engine gives itself on a GPU of `total` bytes.
    pub fn cache_budget(&self, total: u64) -> u64 {
        if self.number == 2 { total / CACHE_PART } else { TENSOR_CACHE }
    }

    /// Bytes of the keys and values of one sequence.
    pub fn sequence_bytes(&self) -> u64 {
        let c = &self.config;
        self.length * (2 * c.num_layers * c.num_kv_heads * c.head_dim) as u64 * self.number
    }

    /// The same with as many sequences at once as a GPU of `total` bytes holds keys and values of: the
    /// engine lets no more run. None where there is no room for one.
    pub fn on_card(&self, total: u64) -> Option<Self> {
        let fit = self.cache_budget(total) / self.sequence_bytes().max(1);
        (fit > 0).then(|| Self { sequences: self.sequences.min(fit), ..self.clone() })
    }

    /// What the call needs.
    pub fn needs(&self) -> Needs {
        let c = &self.config;
        let parameters: u64 =
            c.tensor_shapes().iter().map(|(_, dims)| dims.iter().product::<usize>() as u64).sum();
        let model = parameters * self.number;
        let capacity = self.length.next_multiple_of(POSITIONS);
        // one slot more takes what is not kept
        let cache = (self.sequences + 1) * Self { length: capacity, ..self.clone() }.sequence_bytes();
        Needs {
            weights: model + self.adapter,
            cache,
            scratch: self.scratch(),
            overhead: FIXED + (model as f64 * SLACK) as u64,
        }
    }

    fn scratch(&self) -> u64 {
        let c = &self.config;
        let [hidden, inner, vocab] =
            [c.hidden_size, c.intermediate_size, c.vocab_size].map(|size| size as u64);
        let [q, kv] = [c.num_heads, c.num_kv_heads].map(|heads| (heads * c.head_dim) as u64);
        let kernels = self.number == 2;
        let rows = PROMPT_TOKENS[usize::from(!kernels)].max(self.sequences);
        let low_rank = if self.lora { 2 * inner * 4 } else { 0 };
        let widths = if kernels {
            // residuals in f32; their normed copy, queries and what they gathered, the gated products;
            // two partial sums of the widest narrow product
            4 * hidden + 2 * (hidden + 2 * q + inner) + 8 * (q + 2 * kv).max(hidden)
        } else {
            // as tensors: everything that a layer makes, and scores over the whole length
            4 * (4 * hidden + 2 * q + 4 * kv + 4 * inner) + 8 * c.num_heads as u64 * self.length
        };
        // logits, and their copy while tokens are chosen
        rows * (widths + low_rank) + 2 * 4 * vocab * self.sequences
    }

    /// What would make the call fit into a GPU of `total` bytes: the most sequences at once, or the
    /// longest that one could be.
    pub fn advice(&self, total: u64) -> Option<Advice> {
        let fits =
            |load: Self| load.sequence_bytes() <= load.cache_budget(total) && load.needs().total() <= total;
        let with = |sequences| Self { sequences, ..self.clone() };
        let halves = std::iter::successors(Some(self.sequences / 2), |n| Some(n / 2));
        if let Some(sequences) = halves.take_while(|&n| n > 0).find(|&n| fits(with(n))) {
            return Some(Advice::Sequences(sequences));
        }
        let shorter = std::iter::successors(Some(self.length / 2), |n| Some(n / 2));
        let one = |length| Self { sequences: 1, length, ..self.clone() };
        shorter.take_while(|&n| n > 0).find(|&n| fits(one(n))).map(Advice::Length)
    }
}

/// A setting that would fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// So many sequences at once.
    Sequences(u64),
    /// One sequence at a time, of so many tokens.
    Length(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(sequences: u64, length: u64) -> Load {
        let json = serde_json::json!({
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
            "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": true,
        });
        let config = ModelConfig::from_json(json.as_object().unwrap().clone(), "c".as_ref()).unwrap();
        Load { config, number: 2, adapter: 0, lora: false, sequences, length }
    }

    #[test]
    fn more_sequences_longer_ones_and_adapters_need_more() {
        let total = |load: Load| load.needs().total();
        for n in [1, 8, 64] {
            assert!(total(load(n, 512)) < total(load(n + 1, 512)));
            assert!(total(load(n, 512)) < total(load(n, 577)));
        }
        assert!(total(Load { lora: true, ..load(8, 512) }) > total(load(8, 512)));
        assert_eq!(total(Load { adapter: 7, ..load(8, 512) }), total(load(8, 512)) + 7);
    }

    #[test]
    fn the_engine_runs_as_many_as_its_cache_holds() {
        // 2 · 24 layers · 2 heads · 64 · 2 bytes a token
        let each = 1024 * 12_288;
        assert_eq!(load(64, 1024).sequence_bytes(), each);
        assert_eq!(load(64, 1024).on_card(8 * 10 * each).unwrap().sequences, 10);
        assert_eq!(load(4, 1024).on_card(8 * 10 * each).unwrap().sequences, 4);
        assert_eq!(load(4, 1024).on_card(8 * each - 8), None);
    }

    #[test]
    fn advice_fits() {
        let card = load(16, 4096).needs().total();
        let Some(Advice::Sequences(n)) = load(64, 4096).advice(card) else { panic!("no advice") };
        assert!(n >= 8 && load(n, 4096).needs().total() <= card, "{n}");
        let small = load(1, 2048).needs().total();
        let Some(Advice::Length(n)) = load(1, 1 << 20).advice(small) else { panic!("no advice") };
        assert!(load(1, n).needs().total() <= small && n <= 2048);
        assert_eq!(load(1, 64).advice(1 << 20), None);
    }
}
