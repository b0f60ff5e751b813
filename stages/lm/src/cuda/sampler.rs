//! Choosing tokens as kernel launches.

use cubecl::prelude::*;
use cubecl::server::Handle;

use super::kernels::rows::UNITS;
use super::kernels::sample::{CHUNK, RESULT, STATS, choose, cutoff, survey, weigh};
use super::net::arg;

/// Room for choosing the tokens of up to so many rows.
pub struct Sampler {
    client: Client,
    vocab: u32,
    chunks: u32,
    stats: Handle,
    sums: Handle,
    cutoffs: Handle,
}

/// How the rows choose, as the host wrote it.
pub struct Draws<'a> {
    /// 0 chooses the likeliest.
    pub temperatures: &'a Handle,
    /// Numbers in (0, 1).
    pub uniforms: &'a Handle,
    /// Top-k, top-p and min-p, `[3, stride]`.
    pub filters: &'a Handle,
    /// Rows between two filters.
    pub stride: u32,
    /// Whether any row filters.
    pub filtered: bool,
    /// Ids that may be chosen: those below.
    pub usable: u32,
}

impl Sampler {
    pub fn new(client: &Client, rows: u32, vocab: u32) -> Self {
        let chunks = vocab.div_ceil(CHUNK);
        let make = |width: u32| client.empty((rows * width * 4).max(16) as usize);
        Self {
            client: client.clone(),
            vocab,
            chunks,
            stats: make(chunks * STATS),
            sums: make(chunks),
            cutoffs: make(1),
        }
    }

    /// A buffer for the results of `rows` rows.
    pub fn results(client: &Client, rows: u32) -> Handle {
        client.empty((rows * RESULT * 4) as usize)
    }

    /// Chooses a token for each row of `logits` `[rows, vocab]`.
    pub fn choose(&self, logits: &Handle, rows: u32, draws: &Draws, results: &Handle) {
        let (client, vocab, usable, chunks) = (&self.client, self.vocab, draws.usable, self.chunks);
        let units = CubeDim::new_1d(UNITS);
        let by_chunk = || CubeCount::Static(chunks, rows, 1);
        let by_row = || CubeCount::Static(rows, 1, 1);
        // SAFETY: there is room for `rows`, and chosen ids lie in the vocabulary.
        unsafe {
            survey::launch_unchecked(client, by_chunk(), units, arg(logits), arg(&self.stats), vocab, usable);
            if draws.filtered {
                cutoff::launch_unchecked(
                    client,
                    by_row(),
                    units,
                    arg(logits),
                    arg(&self.stats),
                    arg(draws.temperatures),
                    arg(draws.filters),
                    arg(&self.cutoffs),
                    vocab,
                    usable,
                    chunks,
                    draws.stride,
                );
            }
            weigh::launch_unchecked(
                client,
                by_chunk(),
                units,
                arg(logits),
                arg(&self.stats),
                arg(draws.temperatures),
                arg(&self.cutoffs),
                arg(&self.sums),
                vocab,
                usable,
                draws.filtered,
            );
            choose::launch_unchecked(
                client,
                by_row(),
                units,
                arg(logits),
                arg(&self.stats),
                arg(&self.sums),
                arg(draws.temperatures),
                arg(draws.uniforms),
                arg(&self.cutoffs),
                arg(results),
                vocab,
                usable,
                chunks,
                draws.filtered,
            );
        }
    }
}
