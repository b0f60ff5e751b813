//! Grouped-query causal attention in blocks of queries, as [`crate::pass`] has it, on raw pointers.
//!
//! Queries lie by the key head they read, `[batch, kv, seq, group, dim]`: the queries of a block, of all
//! heads of a group, are then one run of rows, and products read and write blocks where they lie.

use lm::nvidia::executor::Executor;
use lm::nvidia::kernel::BUFFER;
use lm::nvidia::{Operand, Product, Target};

use super::calls::{self, FULL, HALF, Scores, after};
use super::sizes::{Places, Sizes};
use crate::fused::kernels::lines::LINE;
use crate::fused::kernels::{UNITS, rows};

/// Rotated queries and keys, and values.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// `[batch, kv, seq, group, dim]`
    pub q: u64,
    /// `[batch, kv, seq, dim]`
    pub k: u64,
    /// `[batch, kv, seq, dim]`
    pub v: u64,
}

impl Heads {
    /// Room for them.
    pub fn take(e: &mut Executor, s: &Sizes) -> Self {
        let [q, k, v] = [s.queries(), s.keys(), s.keys()].map(|width| e.take(s.tokens() * width, HALF));
        Self { q, k, v }
    }
}

/// A block of queries.
struct Block {
    start: usize,
    end: usize,
    /// Rows of scores of one key head.
    rows: usize,
    /// Numbers from one row of scores to the next: every row begins aligned.
    stride: usize,
}

fn blocks(s: &Sizes) -> impl DoubleEndedIterator<Item = Block> + use<> {
    let (seq, block, group) = (s.seq, s.block, s.group());
    (0..seq.div_ceil(block)).map(move |i| {
        let (start, end) = (i * block, ((i + 1) * block).min(seq));
        Block { start, end, rows: (end - start) * group, stride: end.next_multiple_of(8) }
    })
}

/// The operands of the products of a block.
struct Operands<'a> {
    s: &'a Sizes,
    block: Block,
}

impl Operands<'_> {
    fn count(&self) -> usize {
        self.s.rows * self.s.kv
    }

    /// Where the block's rows of something that lies as the queries do begin.
    fn rows_of(&self, of: u64) -> u64 {
        after(of, self.block.start * self.s.group() * self.s.dim)
    }

    fn step(&self) -> usize {
        self.s.seq * self.s.group() * self.s.dim
    }

    fn queries(&self, of: u64) -> Operand {
        Operand::rows(self.rows_of(of), self.s.dim).stacked(self.step())
    }

    fn queries_out(&self, of: u64) -> Target {
        Target::rows(self.rows_of(of), self.s.dim).stacked(self.step())
    }

    fn keys(&self, of: u64) -> Operand {
        Operand::rows(of, self.s.dim).stacked(self.s.seq * self.s.dim)
    }

    /// Sums over queries, in f32.
    fn keys_out(&self, of: u64) -> Target {
        Target::rows(of, self.s.dim).stacked(self.s.seq * self.s.dim).wide()
    }

    fn scores(&self, of: u64) -> Operand {
        Operand::rows(of, self.block.stride).stacked(self.block.rows * self.block.stride)
    }

    fn take_scores(&self, e: &mut Executor) -> u64 {
        e.take(self.count() * self.block.rows * self.block.stride, HALF)
    }

    fn multiply(
        &self,
        e: &mut Executor,
        name: &'static str,
        size: [usize; 3],
        operands: [Operand; 2],
        (c, beta): (Target, f32),
    ) {
        let product = Product { count: self.count(), beta, ..Product::new(size, operands, c) };
        calls::multiply(e, name, product);
    }

    fn of_scores(&self) -> Scores {
        let Block { start, end, rows, stride } = self.block;
        Scores {
            rows: self.count() * rows,
            per_batch: self.s.kv * rows,
            keys: end,
            stride,
            queries: end - start,
            group: self.s.group(),
            start,
            seq: self.s.seq,
            scale: 1.0 / (self.s.dim as f32).sqrt(),
        }
    }

    /// `left·rightᵀ`, scores or their gradients, into `to`.
    fn across(&self, e: &mut Executor, left: u64, right: u64, to: u64) {
        let (rows, stride) = (self.block.rows, self.block.stride);
        let c = Target::rows(to, stride).stacked(rows * stride);
        let operands = [self.queries(left), self.keys(right).transpose()];
        self.multiply(e, "scores", [rows, self.s.dim, self.block.end], operands, (c, 0.0));
    }

    fn weights(&self, e: &mut Executor, heads: Heads, places: &Places) -> u64 {
        let scores = self.take_scores(e);
        self.across(e, heads.q, heads.k, scores);
        calls::soften(e, scores, places.segments, self.of_scores());
        scores
    }

    /// `scores·right` into the block's rows of `to`.
    fn along(&self, e: &mut Executor, scores: u64, right: u64, to: u64) {
        let size = [self.block.rows, self.block.end, self.s.dim];
        let operands = [self.scores(scores), self.keys(right)];
        self.multiply(e, "attended", size, operands, (self.queries_out(to), 0.0));
    }

    /// `scoresᵀ·left` added to `to`, or written where the block is the first to be summed.
    fn back(&self, e: &mut Executor, scores: u64, left: u64, to: u64) {
        let size = [self.block.end, self.block.rows, self.s.dim];
        let operands = [self.scores(scores).transpose(), self.queries(left)];
        // the last block sees every key and comes first
        let beta = if self.block.end == self.s.seq { 0.0 } else { 1.0 };
        self.multiply(e, "to keys", size, operands, (self.keys_out(to), beta));
    }
}

/// The attention's output, lying as the queries do.
pub fn forward(e: &mut Executor, s: &Sizes, heads: Heads, places: &Places, output: u64) {
    for block in blocks(s) {
        let of = Operands { s, block };
        let mark = e.mark();
        let weights = of.weights(e, heads, places);
        of.along(e, weights, heads.v, output);
        e.release(mark);
    }
}

/// Gradients of [`Heads`]; those of keys and values in f32.
#[derive(Debug, Clone, Copy)]
pub struct ByHeads {
    q: u64,
    k: u64,
    v: u64,
}

impl ByHeads {
    /// Room for them.
    pub fn take(e: &mut Executor, s: &Sizes) -> Self {
        let q = e.take(s.tokens() * s.queries(), HALF);
        let [k, v] = [(); 2].map(|()| e.take(s.tokens() * s.keys(), FULL));
        Self { q, k, v }
    }
}

/// Gradients of `heads` from that of the output, which lies as the queries do; and the output again,
/// where it is wanted.
pub fn backward(
    e: &mut Executor,
    s: &Sizes,
    heads: Heads,
    places: &Places,
    (by_output, output): (u64, Option<u64>),
    to: ByHeads,
) {
    for block in blocks(s).rev() {
        let of = Operands { s, block };
        let mark = e.mark();
        let weights = of.weights(e, heads, places);
        if let Some(output) = output {
            of.along(e, weights, heads.v, output);
        }
        of.back(e, weights, by_output, to.v);
        let by_scores = of.take_scores(e);
        of.across(e, by_output, heads.v, by_scores);
        calls::soften_backward(e, weights, by_scores, of.of_scores());
        of.along(e, by_scores, heads.k, to.q);
        of.back(e, by_scores, heads.q, to.k);
        e.release(mark);
    }
}

/// Lines of pairs.
fn pairs(s: &Sizes) -> usize {
    s.tokens() * s.width() / 2 / LINE
}

/// Queries, keys and values from the rows `[tokens, width]` that products gave, with a bias (f32).
pub fn part(e: &mut Executor, s: &Sizes, x: u64, bias: Option<u64>, places: &Places, to: Heads) {
    let (biased, placed) = (bias.is_some(), places.positions.is_some());
    let pairs = pairs(s);
    let turns = [bias.unwrap_or(places.cos), places.cos, places.sin];
    calls::reads_lines(e, "part_heads", &[x, to.q, to.k, to.v], &turns, &[s.dim / 2]);
    // SAFETY: the shapes are those of `s`.
    unsafe {
        e.launch(
            ("part_heads", u32::from(biased) + 2 * u32::from(placed)),
            ([pairs.div_ceil(UNITS as usize), 1, 1], UNITS),
            &[
                x,
                bias.unwrap_or(places.cos),
                places.cos,
                places.sin,
                places.positions.unwrap_or(places.cos),
                to.q,
                to.k,
                to.v,
            ],
            &[pairs.into(), s.seq.into(), s.kv.into(), s.group().into(), (s.dim / 2 / LINE).into()],
            |(st, p, t)| {
                let b = || BUFFER;
                rows::part_heads::PartHeads::new(
                    st,
                    p,
                    t,
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    (),
                    (),
                    (),
                    (),
                    (),
                    biased,
                    placed,
                )
            },
        );
    }
}

/// The gradient of [`part`]'s `x`.
pub fn join(e: &mut Executor, s: &Sizes, by: ByHeads, places: &Places, to: u64) {
    let placed = places.positions.is_some();
    let pairs = pairs(s);
    let fulls = [by.k, by.v, places.cos, places.sin];
    calls::reads_lines(e, "join_heads", &[by.q, to], &fulls, &[s.dim / 2]);
    // SAFETY: as above.
    unsafe {
        e.launch(
            ("join_heads", u32::from(placed)),
            ([pairs.div_ceil(UNITS as usize), 1, 1], UNITS),
            &[by.q, by.k, by.v, places.cos, places.sin, places.positions.unwrap_or(places.cos), to],
            &[pairs.into(), s.seq.into(), s.kv.into(), s.group().into(), (s.dim / 2 / LINE).into()],
            |(st, p, t)| {
                let b = || BUFFER;
                rows::join_heads::JoinHeads::new(
                    st,
                    p,
                    t,
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    b(),
                    (),
                    (),
                    (),
                    (),
                    (),
                    placed,
                )
            },
        );
    }
}

/// From `[batch, seq, heads·dim]` to how queries lie, or with `back` the other way.
pub fn swap(e: &mut Executor, s: &Sizes, x: u64, to: u64, back: bool) {
    let len = s.tokens() * s.queries() / LINE;
    calls::reads_lines(e, "swap_heads", &[x, to], &[], &[s.dim]);
    // SAFETY: as above.
    unsafe {
        e.launch(
            ("swap_heads", u32::from(back)),
            ([len.div_ceil(UNITS as usize), 1, 1], UNITS),
            &[x, to],
            &[len.into(), s.seq.into(), s.kv.into(), (s.group() * s.dim / LINE).into()],
            |(st, p, t)| rows::swap_heads::SwapHeads::new(st, p, t, BUFFER, BUFFER, (), (), (), (), back),
        );
    }
}
