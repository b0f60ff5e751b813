//! Choosing tokens as kernel launches.

use super::kernels::make;
use super::kernels::rows::UNITS;
use super::kernels::sample::{CHUNK, RESULT, STATS};
use super::stream::{Buffer, Launch, Stream};
use crate::nvidia::kernel::Scalar;

/// Room for choosing the tokens of up to so many rows.
pub struct Sampler {
    vocab: u32,
    chunks: u32,
    stats: Buffer,
    sums: Buffer,
    cutoffs: Buffer,
}

/// How the rows choose, as the host wrote it.
pub struct Draws {
    /// 0 chooses the likeliest.
    pub temperatures: u64,
    /// Numbers in (0, 1).
    pub uniforms: u64,
    /// Top-k, top-p and min-p, `[3, stride]`.
    pub filters: u64,
    /// Rows between two filters.
    pub stride: u32,
    /// Whether any row filters.
    pub filtered: bool,
    /// Ids that may be chosen: those below.
    pub usable: u32,
}

impl Sampler {
    pub fn new(stream: &Stream, rows: u32, vocab: u32) -> Self {
        let chunks = vocab.div_ceil(CHUNK);
        let make = |width: u32| stream.buffer(u64::from(rows) * u64::from(width) * 4);
        Self { vocab, chunks, stats: make(chunks * STATS), sums: make(chunks), cutoffs: make(1) }
    }

    /// A buffer for the results of `rows` rows.
    pub fn results(stream: &Stream, rows: u32) -> Buffer {
        stream.buffer(u64::from(rows * RESULT) * 4)
    }

    /// Chooses a token for each row of `logits` `[rows, vocab]`.
    pub fn choose(&self, stream: &Stream, logits: u64, rows: u32, draws: &Draws, results: &Buffer) {
        let (vocab, usable, chunks) = (self.vocab.into(), draws.usable.into(), self.chunks);
        let (stats, sums, cutoffs) = (self.stats.pointer, self.sums.pointer, self.cutoffs.pointer);
        let filtered = draws.filtered;
        let (by_chunk, by_row) = ([chunks, rows, 1], [rows, 1, 1]);
        // SAFETY: there is room for `rows`, and chosen ids lie in the vocabulary.
        unsafe {
            let (buffers, scalars) = ([logits, stats], [vocab, usable]);
            stream.launch(&launch("survey", filtered, by_chunk, &buffers, &scalars), make::survey);
            if filtered {
                let buffers = [logits, stats, draws.temperatures, draws.filters, cutoffs];
                let scalars = [vocab, usable, chunks.into(), draws.stride.into()];
                stream.launch(&launch("cutoff", filtered, by_row, &buffers, &scalars), make::cutoff);
            }
            let (buffers, scalars) = ([logits, stats, draws.temperatures, cutoffs, sums], [vocab, usable]);
            let weigh = launch("weigh", filtered, by_chunk, &buffers, &scalars);
            stream.launch(&weigh, |s| make::weigh(s, filtered));
            let buffers = [logits, stats, sums, draws.temperatures, draws.uniforms, cutoffs, results.pointer];
            let scalars = [vocab, usable, chunks.into()];
            let choose = launch("choose", filtered, by_row, &buffers, &scalars);
            stream.launch(&choose, |s| make::choose(s, filtered));
        }
    }
}

fn launch<'a>(
    name: &'static str,
    filtered: bool,
    cubes: [u32; 3],
    buffers: &'a [u64],
    scalars: &'a [Scalar],
) -> Launch<'a> {
    Launch { name, variant: [filtered.into(), 0, 0, 0, 0], cubes, units: UNITS, buffers, scalars }
}
