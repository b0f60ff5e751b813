//! The forward pass as kernel launches.

use super::kernels::attention::{BLOCK, TILE};
use super::kernels::fragment::{self, STEP};
use super::kernels::make;
use super::kernels::rows::{NORM_UNITS, UNITS};
use super::plan::{padded, planes_of, splits};
use super::stream::{Buffer, Launch, Stream};
use super::weights::{DeviceWeights, Numbers};
use crate::config::ModelConfig;

/// Planes of a cube of attention.
pub const ATTENTION_PLANES: u32 = 4;
/// Keys of one cube of decode attention.
pub const CHUNK: u32 = ATTENTION_PLANES * BLOCK;

/// Sizes of a model as the kernels take them.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub hidden: u32,
    pub inner: u32,
    pub q_heads: u32,
    pub kv_heads: u32,
    pub dim: u32,
    pub vocab: u32,
    pub eps: f32,
}

impl Sizes {
    /// `None` for a shape that the kernels do not take.
    pub fn new(config: &ModelConfig) -> Option<Self> {
        let size = |n: usize| u32::try_from(n).ok();
        let sizes = Self {
            hidden: size(config.hidden_size)?,
            inner: size(config.intermediate_size)?,
            q_heads: size(config.num_heads)?,
            kv_heads: size(config.num_kv_heads)?,
            dim: size(config.head_dim)?,
            vocab: size(config.vocab_size)?,
            eps: config.rms_norm_eps as f32,
        };
        let whole = [sizes.hidden, sizes.inner, sizes.dim].iter().all(|n| n.is_multiple_of(STEP));
        (whole && sizes.dim <= 128 && sizes.group() <= TILE).then_some(sizes)
    }

    /// Query heads of a key head.
    pub fn group(&self) -> u32 {
        self.q_heads / self.kv_heads
    }

    pub fn attended(&self) -> u32 {
        self.q_heads * self.dim
    }

    pub fn qkv(&self) -> u32 {
        (self.q_heads + 2 * self.kv_heads) * self.dim
    }
}

/// Keys and values of every layer, and the angles of every position.
pub struct Cache {
    /// Per layer, keys `[slots + 1, kv_heads, capacity, dim]` and values `[slots + 1, kv_heads, dim,
    /// capacity]`; the last slot takes what is not kept.
    pub layers: Vec<(Buffer, Buffer)>,
    pub cos: Buffer,
    pub sin: Buffer,
    pub slots: u32,
    pub capacity: u32,
}

/// Activations of up to so many rows.
pub struct Scratch {
    pub hidden: Buffer,
    pub x: Buffer,
    pub parts: Buffer,
    pub q: Buffer,
    pub attended: Buffer,
    pub gated: Buffer,
    /// Up beside gate, where cuBLAS computes them.
    pub up: Buffer,
    /// Low-rank parts: of gate and up, and the inner ones.
    pub extra: Buffer,
    pub inner: Buffer,
    pub attention: Buffer,
    pub attention_stats: Buffer,
    /// `[picks, vocab]`
    pub logits: Buffer,
}

/// Where a step's inputs lie.
pub struct Inputs {
    pub ids: u64,
    pub from: u64,
    pub results: u64,
    pub slots: u64,
    pub positions: u64,
    /// Of prompts: first row and number of rows of each segment, and rows whose logits are wanted.
    pub starts: u64,
    pub lengths: u64,
    pub picks: u64,
}

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One token for each row; keys in so many chunks at most.
    Decode { rows: u32, chunks: u32 },
    /// Segments of prompts of up to `longest` rows, with the logits of some.
    Prompt { rows: u32, segments: u32, longest: u32, picks: u32 },
}

impl Shape {
    pub fn rows(self) -> u32 {
        match self {
            Self::Decode { rows, .. } | Self::Prompt { rows, .. } => rows,
        }
    }

    /// Rows of the logits.
    pub fn picks(self) -> u32 {
        match self {
            Self::Decode { rows, .. } => rows,
            Self::Prompt { picks, .. } => picks,
        }
    }

    pub fn is_prompt(self) -> bool {
        matches!(self, Self::Prompt { .. })
    }
}

/// A model on the device.
pub struct Net {
    pub weights: DeviceWeights,
    pub sizes: Sizes,
    pub processors: u32,
}

/// Partial sums for the next kernel to add up.
#[derive(Clone, Copy)]
pub struct Parts {
    pub splits: u32,
    /// Size of one.
    pub slab: u32,
}

/// What an addition to the residual stream still lacks, and which norm comes after it.
struct Pending<'a> {
    parts: Parts,
    bias: Option<&'a Numbers>,
    weight: &'a Numbers,
    /// Whether cuBLAS takes what comes out.
    plain: bool,
}

/// Tiles of an activation of so many rows.
pub fn row_tiles(rows: u32) -> u32 {
    padded(rows) / fragment::TILE
}

/// An activation's size as `fragment::spot` takes it.
pub fn size(rows: u32, width: u32, plain: bool) -> u32 {
    if plain { width } else { row_tiles(rows) }
}

impl Net {
    pub fn new(weights: DeviceWeights, sizes: Sizes) -> Self {
        let processors = weights.stream.processors().unwrap_or(64);
        Self { weights, sizes, processors }
    }

    pub fn stream(&self) -> &Stream {
        &self.weights.stream
    }

    /// Whether cuBLASLt computes the products of prompts, and all but those of query, key and value in
    /// decoding: these are three, and small.
    pub fn plain(&self) -> bool {
        self.weights.products.is_some()
    }

    /// Parts that decoding splits the shared dimension of a product into.
    pub fn splits(&self, outs: &[u32], k: u32) -> u32 {
        splits(planes_of(outs), k, self.processors)
    }

    /// Room for steps of up to `rows` rows (decoding: `decode_rows`, with `chunks` of keys) and
    /// `picks` rows of logits.
    pub fn scratch(&self, rows: u32, decode_rows: u32, chunks: u32, picks: u32) -> Scratch {
        let Sizes { hidden, inner, .. } = self.sizes;
        let (attended, qkv) = (self.sizes.attended(), self.sizes.qkv());
        let wide = padded(rows.max(decode_rows).max(picks));
        let narrow = padded(decode_rows);
        let shapes = [(qkv, hidden), (hidden, attended), (hidden, inner)];
        let parts = shapes.iter().map(|&(outs, k)| {
            // one more for low-rank parts
            let splits = self.splits(&[outs], k) + 1;
            let kv = self.sizes.kv_heads * self.sizes.dim;
            let three = self.splits(&[attended, kv, kv], k) + 1;
            u64::from(outs) * (u64::from(narrow) * u64::from(splits.max(three))).max(2 * u64::from(wide))
        });
        let parts = parts.max().unwrap_or(0);
        let low_rank = self.weights.layers.iter().flat_map(|l| l.lora.iter().flatten()).map(|l| l.rank).max();
        let rank = u64::from(low_rank.unwrap_or(0));
        let make = |rows: u32, width: u32, size: u64| {
            self.stream().buffer(u64::from(rows) * u64::from(width) * size)
        };
        let pieces = narrow * self.sizes.q_heads * chunks;
        Scratch {
            hidden: make(wide, hidden, 4),
            x: make(wide, hidden, 2),
            parts: self.stream().buffer(parts * 4),
            q: make(wide, attended, 2),
            attended: make(wide, attended, 2),
            gated: make(wide, inner, 2),
            up: make(if self.plain() { wide } else { 0 }, inner, 2),
            extra: make(if rank > 0 { wide } else { 0 }, 2 * inner, 4),
            inner: make(wide, 1, 4 * rank.max(1)),
            attention: make(pieces, self.sizes.dim, 4),
            attention_stats: make(pieces, 2, 4),
            logits: make(padded(picks.max(decode_rows)), self.sizes.vocab, 4),
        }
    }

    /// A cache of zeros: what was never written must not be infinite, for it is multiplied by zero.
    pub fn cache(&self, slots: u32, capacity: u32, cos: &[f32], sin: &[f32]) -> Cache {
        let Sizes { kv_heads, dim, .. } = self.sizes;
        let size = u64::from(slots + 1) * u64::from(kv_heads * dim) * u64::from(capacity) * 2;
        let zeros = || {
            let buffer = self.stream().buffer(size);
            self.stream().clear(buffer.pointer, size);
            buffer
        };
        Cache {
            layers: self.weights.layers.iter().map(|_| (zeros(), zeros())).collect(),
            cos: self.stream().upload(cos),
            sin: self.stream().upload(sin),
            slots,
            capacity,
        }
    }

    /// Copies the first `len` positions of a slot to another.
    pub fn copy_prefix(&self, cache: &Cache, from: u32, to: u32, len: u32) {
        let Sizes { kv_heads, dim, .. } = self.sizes;
        let scalars = [from, to, len, kv_heads, cache.capacity, dim].map(Into::into);
        for (keys, values) in &cache.layers {
            let launch = Launch {
                name: "copy_prefix",
                variant: [0; 5],
                cubes: [kv_heads * dim, 2, 1],
                units: UNITS,
                buffers: &[keys.pointer, values.pointer],
                scalars: &scalars,
            };
            // SAFETY: both slots and `len` lie in the cache.
            unsafe { self.stream().launch(&launch, make::copy_prefix) };
        }
    }

    /// Computes a step: keys and values go to the cache, the wanted logits to the scratch.
    pub fn forward(&self, cache: &Cache, scratch: &Scratch, inputs: &Inputs, shape: Shape) {
        let rows = shape.rows();
        self.embed(scratch, inputs, rows);
        let (mut parts, mut bias) = (Parts { splits: 0, slab: 0 }, None);
        for (layer, kv) in self.weights.layers.iter().zip(&cache.layers) {
            let plain = self.plain() && shape.is_prompt();
            self.norm(scratch, Pending { parts, bias, weight: &layer.input_norm, plain }, None, rows);
            self.attention(layer, cache, kv, scratch, inputs, shape);
            parts = self.output(layer, scratch, shape);
            bias = layer.output_bias.as_ref();
            let plain = self.plain();
            self.norm(scratch, Pending { parts, bias, weight: &layer.post_norm, plain }, None, rows);
            self.gated(layer, scratch, shape);
            parts = self.down(layer, scratch, shape);
            bias = layer.down_bias.as_ref();
        }
        let picks = shape.picks();
        if picks == 0 {
            return;
        }
        let head = &self.weights.head;
        let products = self.weights.products.as_ref().filter(|products| products.has(head));
        let picked = shape.is_prompt().then_some(inputs.picks);
        let plain = products.is_some();
        self.norm(scratch, Pending { parts, bias, weight: &self.weights.norm, plain }, picked, picks);
        let (x, logits) = (scratch.x.pointer, scratch.logits.pointer);
        match products {
            // SAFETY: the logits have the padded rows.
            Some(products) => unsafe {
                products.multiply(self.stream(), head, [x, logits], padded(picks));
            },
            None => self.product(x, [head], logits, self.sizes.hidden, picks, 1),
        }
    }

    fn embed(&self, scratch: &Scratch, inputs: &Inputs, rows: u32) {
        let embedding = &self.weights.embedding;
        let launch = Launch {
            name: "embed",
            variant: [0; 5],
            cubes: [rows, 1, 1],
            units: UNITS,
            buffers: &[inputs.ids, inputs.from, inputs.results, embedding.pointer, scratch.hidden.pointer],
            scalars: &[self.sizes.hidden, embedding.stride, self.sizes.vocab].map(Into::into),
        };
        // SAFETY: ids are bounded in the kernel, and the scratch has room for `rows`.
        unsafe { self.stream().launch(&launch, make::embed) };
    }

    /// Adds what is pending to the residual stream and writes its norm to `x`.
    fn norm(&self, scratch: &Scratch, pending: Pending, picks: Option<u64>, rows: u32) {
        let Pending { parts, bias, weight, plain } = pending;
        let flags = [bias.is_some(), picks.is_some(), plain];
        let width = self.sizes.hidden;
        let launch = Launch {
            name: "add_and_norm",
            variant: [parts.splits, flags[0].into(), flags[1].into(), flags[2].into(), 0],
            cubes: [rows, 1, 1],
            units: NORM_UNITS,
            buffers: &[
                scratch.parts.pointer,
                bias.unwrap_or(weight).pointer,
                picks.unwrap_or(weight.pointer),
                weight.pointer,
                scratch.hidden.pointer,
                scratch.x.pointer,
            ],
            scalars: &[
                (width / 4).into(),
                (parts.slab / 4).into(),
                size(rows, width, plain).into(),
                self.sizes.eps.into(),
            ],
        };
        // SAFETY: picks are rows of the step.
        unsafe { self.stream().launch(&launch, |s| make::add_and_norm(s, parts.splits, flags)) };
    }
}
