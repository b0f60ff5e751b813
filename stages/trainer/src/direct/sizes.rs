//! The shapes of a pass, and where its batch lies.

use lm::config::ModelConfig;

use crate::knobs::knobs;
use crate::pass::block_beside;

/// What the shapes of a pass follow from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// Sequences side by side.
    pub rows: usize,
    /// Tokens of each.
    pub seq: usize,
    /// Width of hidden states.
    pub hidden: usize,
    /// Width of the MLP.
    pub inner: usize,
    /// Key heads.
    pub kv: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Queries per block of attention.
    pub block: usize,
    /// RMSNorm's epsilon.
    pub eps: f32,
}

/// Products read numbers in groups of this many.
const GROUP: usize = 8;

impl Sizes {
    /// For `rows` sequences of `seq` tokens.
    pub fn new(config: &ModelConfig, rows: usize, seq: usize) -> Self {
        Self {
            rows,
            seq,
            hidden: config.hidden_size,
            inner: config.intermediate_size,
            kv: config.num_kv_heads,
            heads: config.num_heads,
            dim: config.head_dim,
            vocab: config.vocab_size,
            block: block_beside(rows, config.num_heads, seq, knobs().scores),
            eps: config.rms_norm_eps as f32,
        }
    }

    /// Tokens in all.
    pub fn tokens(&self) -> usize {
        self.rows * self.seq
    }

    /// Query heads that share a key head.
    pub fn group(&self) -> usize {
        self.heads / self.kv
    }

    /// Width of all queries.
    pub fn queries(&self) -> usize {
        self.heads * self.dim
    }

    /// Width of all keys.
    pub fn keys(&self) -> usize {
        self.kv * self.dim
    }

    /// Width of queries, keys and values together.
    pub fn width(&self) -> usize {
        self.queries() + 2 * self.keys()
    }

    /// Whether the kernels and products take these shapes: even widths, and counts that fit 32 bits.
    pub fn fit(&self) -> bool {
        let widths = [self.hidden, self.inner, self.dim, self.vocab];
        let scores = self.rows * self.heads * self.block * self.seq.next_multiple_of(GROUP);
        let wide = self.tokens() * self.inner.max(self.width()).max(self.hidden);
        let table = self.vocab * self.hidden;
        widths.iter().all(|width| width.is_multiple_of(GROUP))
            && [scores, wide, table].iter().all(|&count| count < u32::MAX as usize)
            && self.heads.is_multiple_of(self.kv)
            && self.tokens() > 0
    }
}

/// What a batch's tokens have beside their ids.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// Tables of angles `[positions, dim / 2]`, f32.
    pub cos: u64,
    /// The same of sines.
    pub sin: u64,
    /// Positions `[tokens]`, where they are not the places in the row.
    pub positions: Option<u64>,
    /// Segments `[tokens]`, where rows hold several sequences.
    pub segments: Option<u64>,
}
