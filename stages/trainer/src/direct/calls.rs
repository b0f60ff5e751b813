//! The kernels of [`crate::fused`] and products, as calls on raw pointers.
//!
//! Pointers are those of an [`Executor`]'s arena or of borrowed tensors; every caller takes what the
//! shapes it names need, which is what makes these calls safe.

use lm::nvidia::executor::Executor;
use lm::nvidia::kernel::BUFFER;
use lm::nvidia::{Operand, Product, Target};

use crate::fused::kernels::lines::{self, LINE};
use crate::fused::kernels::{self, EACH, PLANES, UNITS, head, rows, update};

/// Bytes of a bf16 number.
pub const HALF: usize = 2;
/// Bytes of an f32 number.
pub const FULL: usize = 4;

/// The address `count` bf16 numbers after `pointer`.
pub fn after(pointer: u64, count: usize) -> u64 {
    pointer + (count * HALF) as u64
}

fn line(work: usize, per_cube: u32) -> ([usize; 3], u32) {
    ([work.div_ceil(per_cube as usize), 1, 1], UNITS)
}

/// Says that a kernel reads whole lines of [`LINE`] numbers: of bf16 at `halves`, of f32 at `fulls`, all of
/// whose `counts` are whole lines. A GPU faults, or reads something else, where one begins in between.
pub fn reads_lines(e: &mut Executor, name: &str, halves: &[u64], fulls: &[u64], counts: &[usize]) {
    let whole =
        |pointers: &[u64], bytes: usize| pointers.iter().all(|p| p.is_multiple_of((LINE * bytes) as u64));
    let holds = whole(halves, HALF) && whole(fulls, FULL) && counts.iter().all(|n| n.is_multiple_of(LINE));
    e.require(holds, || {
        format!(
            "{name} reads lines of {LINE} numbers, but got {halves:x?} and {fulls:x?} with {counts:?} numbers"
        )
    });
}

fn each(len: usize) -> ([usize; 3], u32) {
    line(len, UNITS * EACH)
}

fn per_row(rows: usize) -> ([usize; 3], u32) {
    ([rows, 1, 1], UNITS)
}

/// A product.
pub fn multiply(e: &mut Executor, name: &'static str, product: Product) {
    // SAFETY: see above.
    unsafe { e.product(name, &product) }
}

/// `c = a·b + beta·c`.
pub fn product(
    e: &mut Executor,
    name: &'static str,
    size: [usize; 3],
    operands: [Operand; 2],
    c: Target,
    beta: f32,
) {
    multiply(e, name, Product { beta, ..Product::new(size, operands, c) });
}

/// Copies `len` bf16 numbers.
pub fn copy(e: &mut Executor, from: u64, to: u64, len: usize) {
    // SAFETY: see above.
    unsafe { e.copy(from, to, len * HALF) }
}

/// Sets `bytes` to zero.
pub fn clear(e: &mut Executor, pointer: u64, bytes: usize) {
    // SAFETY: see above.
    unsafe { e.clear(pointer, bytes) }
}

/// Which queries the rows of a block of scores are.
#[derive(Debug, Clone, Copy)]
pub struct Scores {
    /// All rows of all heads.
    pub rows: usize,
    /// Rows of one sequence.
    pub per_batch: usize,
    /// Keys they see at most.
    pub keys: usize,
    /// Numbers from row to row.
    pub stride: usize,
    /// Queries of the block.
    pub queries: usize,
    /// Heads that share a key head.
    pub group: usize,
    /// The first query.
    pub start: usize,
    /// Tokens of a sequence.
    pub seq: usize,
    /// Factor of the scores.
    pub scale: f32,
}

/// Attention weights in the place of scores.
pub fn soften(e: &mut Executor, scores: u64, segments: Option<u64>, of: Scores) {
    let segmented = segments.is_some();
    reads_lines(e, "soften", &[scores], &[], &[of.stride]);
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("soften", u32::from(segmented)),
            line(of.rows, PLANES),
            &[scores, segments.unwrap_or(scores)],
            &[
                of.rows.into(),
                of.keys.into(),
                (of.stride / LINE).into(),
                of.queries.into(),
                of.group.into(),
                of.start.into(),
                of.per_batch.into(),
                of.seq.into(),
                of.scale.into(),
            ],
            |(s, p, t)| {
                let (a, b, c, d, f, g, h, i, j) = ((), (), (), (), (), (), (), (), ());
                lines::soften_lines::SoftenLines::new(
                    s, p, t, BUFFER, BUFFER, a, b, c, d, f, g, h, i, j, segmented,
                )
            },
        );
    }
}

/// Gradients of scores in the place of those of their weights.
pub fn soften_backward(e: &mut Executor, weights: u64, by: u64, of: Scores) {
    reads_lines(e, "soften_backward", &[weights, by], &[], &[of.stride]);
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("soften_backward", 0),
            line(of.rows, PLANES),
            &[weights, by],
            &[
                of.rows.into(),
                of.keys.into(),
                (of.stride / LINE).into(),
                of.queries.into(),
                of.group.into(),
                of.start.into(),
                of.scale.into(),
            ],
            |(s, p, t)| {
                let (a, b, c, d, f, g, h) = ((), (), (), (), (), (), ());
                lines::soften_backward_lines::SoftenBackwardLines::new(
                    s, p, t, BUFFER, BUFFER, a, b, c, d, f, g, h,
                )
            },
        );
    }
}

/// `silu(gate)·up`.
pub fn gate_up(e: &mut Executor, [gate, up]: [u64; 2], out: u64, len: usize) {
    let count = len / LINE;
    reads_lines(e, "gate_up", &[gate, up, out], &[], &[len]);
    // SAFETY: see above.
    unsafe {
        e.launch(("gate_up", 0), line(count, UNITS), &[gate, up, out], &[count.into()], |(s, p, t)| {
            lines::gate_up_lines::GateUpLines::new(s, p, t, BUFFER, BUFFER, BUFFER, ())
        });
    }
}

/// Gradients of gate and up, in their places, from that of [`gate_up`].
pub fn gate_up_backward(e: &mut Executor, [gate, up]: [u64; 2], by: u64, len: usize) {
    let count = len / LINE;
    reads_lines(e, "gate_up_backward", &[gate, up, by], &[], &[len]);
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("gate_up_backward", 0),
            line(count, UNITS),
            &[gate, up, by],
            &[count.into()],
            |(s, p, t)| {
                lines::gate_up_backward_lines::GateUpBackwardLines::new(s, p, t, BUFFER, BUFFER, BUFFER, ())
            },
        );
    }
}

/// RMSNorm of `rows` rows of `width` numbers.
pub fn norm(e: &mut Executor, x: u64, weight: u64, out: u64, [rows, width]: [usize; 2], eps: f32) {
    reads_lines(e, "norm", &[x, weight, out], &[], &[width]);
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("norm", 0),
            per_row(rows),
            &[x, weight, out],
            &[(width / LINE).into(), eps.into()],
            |(s, p, t)| lines::norm_lines::NormLines::new(s, p, t, BUFFER, BUFFER, BUFFER, (), ()),
        );
    }
}

/// Adds the gradient of [`norm`]'s input to `sum`.
pub fn norm_backward(e: &mut Executor, [x, weight, by, sum]: [u64; 4], [rows, width]: [usize; 2], eps: f32) {
    reads_lines(e, "norm_backward", &[x, weight, by, sum], &[], &[width]);
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("norm_backward", 0),
            per_row(rows),
            &[x, weight, by, sum],
            &[(width / LINE).into(), eps.into()],
            |(s, p, t)| {
                let b = || BUFFER;
                lines::norm_backward_lines::NormBackwardLines::new(s, p, t, b(), b(), b(), b(), (), ())
            },
        );
    }
}

/// Adds the gradient of [`norm`]'s weight to `sum` (f32).
pub fn norm_weight(e: &mut Executor, x: u64, by: u64, sum: u64, [rows, width]: [usize; 2], eps: f32) {
    let mark = e.mark();
    let factors = e.take(rows, FULL);
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("norm_factors", 0),
            per_row(rows),
            &[x, factors],
            &[width.into(), eps.into()],
            |(s, p, t)| update::norm_factors::NormFactors::new(s, p, t, BUFFER, BUFFER, (), ()),
        );
    }
    sums_of_columns(e, by, width, Some((x, factors)), sum, [rows, width]);
    e.release(mark);
}

/// Adds the sums of the columns of `by` (bf16, rows `stride` apart) to `sum` (f32).
pub fn column_sums(e: &mut Executor, by: u64, stride: usize, sum: u64, shape: [usize; 2]) {
    sums_of_columns(e, by, stride, None, sum, shape);
}

fn sums_of_columns(
    e: &mut Executor,
    by: u64,
    stride: usize,
    scaled: Option<(u64, u64)>,
    sum: u64,
    [rows, width]: [usize; 2],
) {
    let each = kernels::ROWS_EACH;
    let count = rows.div_ceil(each);
    let mark = e.mark();
    let parts = e.take(count * width, FULL);
    let columns = width.div_ceil(UNITS as usize);
    let (x, factors) = scaled.unwrap_or((by, parts));
    let is_scaled = scaled.is_some();
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("column_parts", u32::from(is_scaled)),
            ([columns, count, 1], UNITS),
            &[by, x, factors, parts],
            &[rows.into(), width.into(), stride.into(), each.into()],
            |(s, p, t)| {
                let b = || BUFFER;
                update::column_parts::ColumnParts::new(s, p, t, b(), b(), b(), b(), (), (), (), (), is_scaled)
            },
        );
        e.launch(
            ("column_totals", 1),
            ([columns, 1, 1], UNITS),
            &[parts, sum],
            &[count.into(), width.into()],
            |(s, p, t)| update::column_totals::ColumnTotals::new(s, p, t, BUFFER, BUFFER, (), (), true),
        );
    }
    e.release(mark);
}

/// Rows of `x` (`stride` apart) by `index` (u32).
pub fn gather(e: &mut Executor, x: u64, index: u64, out: u64, [rows, width]: [usize; 2], stride: usize) {
    // SAFETY: see above; indices are below the rows of `x`.
    unsafe {
        e.launch(
            ("gather", 0),
            per_row(rows),
            &[x, index, out],
            &[width.into(), stride.into()],
            |(s, p, t)| rows::gather::Gather::new(s, p, t, BUFFER, BUFFER, BUFFER, (), ()),
        );
    }
}

/// Adds rows of `x` by places to rows of `sums` (f32): ids, starts and places as
/// [`rows::scatter_sums`] takes them.
pub fn scatter_sums(
    e: &mut Executor,
    x: u64,
    [ids, starts, places]: [u64; 3],
    sums: u64,
    [count, width]: [usize; 2],
) {
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("scatter_sums", 0),
            per_row(count),
            &[x, ids, starts, places, sums],
            &[width.into()],
            |(s, p, t)| {
                let b = || BUFFER;
                rows::scatter_sums::ScatterSums::new(s, p, t, b(), b(), b(), b(), b(), ())
            },
        );
    }
}

/// `base` (or zero) plus a bias (f32) in every row.
pub fn base_rows(e: &mut Executor, base: Option<u64>, bias: u64, out: u64, [rows, width]: [usize; 2]) {
    let len = rows * width;
    let based = base.is_some();
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("base_rows", u32::from(based)),
            each(len),
            &[base.unwrap_or(out), bias, out],
            &[len.into(), width.into()],
            |(s, p, t)| rows::base_rows::BaseRows::new(s, p, t, BUFFER, BUFFER, BUFFER, (), (), based),
        );
    }
}

/// A bias in f32 from a model's (bf16) and an adapter's (f32); zero without either.
pub fn sum_bias(e: &mut Executor, own: Option<u64>, extra: Option<u64>, out: u64, len: usize) {
    let (owned, extended) = (own.is_some(), extra.is_some());
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("sum_bias", u32::from(owned) + 2 * u32::from(extended)),
            line(len, UNITS),
            &[own.unwrap_or(out), extra.unwrap_or(out), out],
            &[len.into()],
            |(s, p, t)| rows::sum_bias::SumBias::new(s, p, t, BUFFER, BUFFER, BUFFER, (), owned, extended),
        );
    }
}

/// f32 numbers in bf16.
pub fn round(e: &mut Executor, x: u64, out: u64, len: usize) {
    // SAFETY: see above.
    unsafe {
        e.launch(("round", 0), each(len), &[x, out], &[len.into()], |(s, p, t)| {
            rows::round::Round::new(s, p, t, BUFFER, BUFFER, ())
        });
    }
}

/// Log-probabilities of targets and entropies of rows of logits (f32), `[2 * rows]`.
pub fn row_values(
    e: &mut Executor,
    [logits, targets, out]: [u64; 3],
    [rows, vocab]: [usize; 2],
    factor: f32,
) {
    // SAFETY: see above; targets are below the vocabulary.
    unsafe {
        e.launch(
            ("row_values", 0),
            per_row(rows),
            &[logits, targets, out],
            &[vocab.into(), rows.into(), factor.into()],
            |(s, p, t)| head::row_values::RowValues::new(s, p, t, BUFFER, BUFFER, BUFFER, (), (), ()),
        );
    }
}

/// Gradients of logits (bf16) from those of [`row_values`]' values.
pub fn row_gradients(
    e: &mut Executor,
    [logits, targets, values, by, out]: [u64; 5],
    [rows, vocab]: [usize; 2],
    factor: f32,
) {
    // SAFETY: see above.
    unsafe {
        e.launch(
            ("row_gradients", 0),
            per_row(rows),
            &[logits, targets, values, by, out],
            &[vocab.into(), rows.into(), factor.into()],
            |(s, p, t)| {
                let b = || BUFFER;
                head::row_gradients::RowGradients::new(s, p, t, b(), b(), b(), b(), b(), (), (), ())
            },
        );
    }
}
