//! The forward pass as kernel launches.

use cubecl::prelude::*;
use cubecl::server::Handle;

use super::kernels::attention::{BLOCK, TILE};
use super::kernels::fragment::{self, STEP};
use super::kernels::rows::{NORM_UNITS, UNITS, add_and_norm, clear, copy_prefix, embed};
use super::plan::{padded, planes_of, splits};
use super::weights::DeviceWeights;
use crate::adapter::Projection;
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
    pub layers: Vec<(Handle, Handle)>,
    pub cos: Handle,
    pub sin: Handle,
    pub slots: u32,
    pub capacity: u32,
}

/// Activations of up to so many rows.
pub struct Scratch {
    pub hidden: Handle,
    pub x: Handle,
    pub parts: Handle,
    pub q: Handle,
    pub attended: Handle,
    pub gated: Handle,
    /// Low-rank parts: of gate and up, and the inner ones.
    pub extra: Handle,
    pub inner: Handle,
    pub attention: Handle,
    pub attention_stats: Handle,
    /// `[picks, vocab]`
    pub logits: Handle,
}

/// Where a step's inputs lie.
pub struct Inputs {
    pub ids: Handle,
    pub from: Handle,
    pub results: Handle,
    pub slots: Handle,
    pub positions: Handle,
    /// Of prompts: first row and number of rows of each segment, and rows whose logits are wanted.
    pub starts: Handle,
    pub lengths: Handle,
    pub picks: Handle,
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
}

/// A model on the device.
pub struct Net {
    pub weights: DeviceWeights,
    pub sizes: Sizes,
    pub processors: u32,
}

/// A buffer as a kernel's argument.
pub fn arg(handle: &Handle) -> BufferArg {
    let size = handle.size_in_used() as usize;
    // SAFETY: launches are unchecked and no kernel asks for a length.
    unsafe { BufferArg::from_raw_parts(handle.clone(), size / 16) }
}

/// Partial sums for the next kernel to add up.
#[derive(Clone, Copy)]
pub struct Parts {
    pub splits: u32,
    /// Size of one.
    pub slab: u32,
}

/// Tiles of an activation of so many rows.
pub fn row_tiles(rows: u32) -> u32 {
    padded(rows) / fragment::TILE
}

pub fn cubes(x: u32, y: u32, z: u32) -> CubeCount {
    CubeCount::Static(x, y, z)
}

impl Net {
    pub fn new(weights: DeviceWeights, sizes: Sizes) -> Self {
        let hardware = &weights.client.properties().hardware;
        let processors = hardware.num_streaming_multiprocessors.unwrap_or(64);
        Self { weights, sizes, processors }
    }

    pub fn client(&self) -> &Client {
        &self.weights.client
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
            self.client().empty((u64::from(rows) * u64::from(width) * size).max(16) as usize)
        };
        let pieces = narrow * self.sizes.q_heads * chunks;
        Scratch {
            hidden: make(wide, hidden, 4),
            x: make(wide, hidden, 2),
            parts: self.client().empty((parts * 4) as usize),
            q: make(wide, attended, 2),
            attended: make(wide, attended, 2),
            gated: make(wide, inner, 2),
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
            let handle = self.client().empty(size as usize);
            let lines = (size / 16) as u32;
            let count = cubes(lines.div_ceil(UNITS).min(65_535), 1, 1);
            // SAFETY: `lines` are the buffer's.
            unsafe {
                clear::launch_unchecked(self.client(), count, CubeDim::new_1d(UNITS), arg(&handle), lines)
            };
            handle
        };
        Cache {
            layers: self.weights.layers.iter().map(|_| (zeros(), zeros())).collect(),
            cos: self.client().create_from_slice(f32::as_bytes(cos)),
            sin: self.client().create_from_slice(f32::as_bytes(sin)),
            slots,
            capacity,
        }
    }

    /// Copies the first `len` positions of a slot to another.
    pub fn copy_prefix(&self, cache: &Cache, from: u32, to: u32, len: u32) {
        let Sizes { kv_heads, dim, .. } = self.sizes;
        for (keys, values) in &cache.layers {
            // SAFETY: both slots and `len` lie in the cache.
            unsafe {
                copy_prefix::launch_unchecked(
                    self.client(),
                    cubes(kv_heads * dim, 2, 1),
                    CubeDim::new_1d(UNITS),
                    arg(keys),
                    arg(values),
                    from,
                    to,
                    len,
                    kv_heads,
                    cache.capacity,
                    dim,
                );
            }
        }
    }

    /// Computes a step: keys and values go to the cache, the wanted logits to the scratch.
    pub fn forward(&self, cache: &Cache, scratch: &Scratch, inputs: &Inputs, shape: Shape) {
        let Sizes { hidden, vocab, .. } = self.sizes;
        let rows = shape.rows();
        let embedding = &self.weights.embedding;
        // SAFETY: ids are bounded in the kernel, and the scratch has room for `rows`.
        unsafe {
            embed::launch_unchecked(
                self.client(),
                cubes(rows, 1, 1),
                CubeDim::new_1d(UNITS),
                arg(&inputs.ids),
                arg(&inputs.from),
                arg(&inputs.results),
                arg(&embedding.handle),
                arg(&scratch.hidden),
                hidden,
                embedding.stride,
                vocab,
            );
        }
        let mut pending = (Parts { splits: 0, slab: 0 }, None);
        for (layer, kv) in self.weights.layers.iter().zip(&cache.layers) {
            self.norm(scratch, pending, &layer.input_norm, None, rows);
            self.attention(layer, cache, kv, scratch, inputs, shape);
            let parts = self.project(
                &scratch.attended,
                [&layer.output],
                &[Projection::Output],
                layer,
                scratch,
                shape,
            );
            self.norm(scratch, (parts, layer.output_bias.as_ref()), &layer.post_norm, None, rows);
            self.gated(layer, scratch, rows);
            let parts =
                self.project(&scratch.gated, [&layer.down], &[Projection::Down], layer, scratch, shape);
            pending = (parts, layer.down_bias.as_ref());
        }
        let picks = shape.picks();
        if picks == 0 {
            return;
        }
        let picked = matches!(shape, Shape::Prompt { .. }).then_some(&inputs.picks);
        self.norm(scratch, pending, &self.weights.norm, picked, picks);
        let head = &self.weights.head;
        self.product(&scratch.x, [head], &scratch.logits, hidden, picks, 1);
    }

    /// Adds what is pending to the residual stream and writes its norm to `x`.
    fn norm(
        &self,
        scratch: &Scratch,
        (parts, bias): (Parts, Option<&Handle>),
        weight: &Handle,
        picks: Option<&Handle>,
        rows: u32,
    ) {
        // SAFETY: picks are rows of the step.
        unsafe {
            add_and_norm::launch_unchecked(
                self.client(),
                cubes(rows, 1, 1),
                CubeDim::new_1d(NORM_UNITS),
                arg(&scratch.parts),
                arg(bias.unwrap_or(weight)),
                arg(picks.unwrap_or(weight)),
                arg(weight),
                arg(&scratch.hidden),
                arg(&scratch.x),
                self.sizes.hidden / 4,
                parts.slab / 4,
                row_tiles(rows),
                self.sizes.eps,
                parts.splits,
                bias.is_some(),
                picks.is_some(),
            );
        }
    }
}
