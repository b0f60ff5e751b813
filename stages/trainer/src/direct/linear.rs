//! A projection with an adapter on it.

use lm::nvidia::executor::Executor;
use lm::nvidia::kernel::BUFFER;
use lm::nvidia::{Operand, Product, Target};

use super::calls::{self, HALF};
use super::weights::{Factors, Linear, Rows};
use crate::fused::kernels::{EACH, UNITS, rows};

/// Dropout on the inputs of low-rank factors.
#[derive(Debug, Clone, Copy)]
pub struct Drop {
    /// A random number per token.
    pub rows: u64,
    /// Hashes below this are dropped.
    pub below: u32,
    /// Factor of the others.
    pub factor: f32,
}

/// The tokens of a pass, and its dropout.
#[derive(Debug, Clone, Copy)]
pub struct Over {
    pub tokens: usize,
    pub drop: Option<Drop>,
}

fn low_rank(e: &mut Executor, size: [usize; 3], operands: [Operand; 2], c: Target, alpha: f32, beta: f32) {
    calls::multiply(e, "low rank", Product { alpha, beta, ..Product::new(size, operands, c) });
}

impl Over {
    /// `x` as the factors see it: itself, or a copy on the arena with numbers dropped.
    fn seen(&self, e: &mut Executor, x: u64, factors: &Factors, width: usize) -> u64 {
        match (self.drop, factors.columns) {
            (Some(drop), Some(columns)) => {
                let to = e.take(self.tokens * width, HALF);
                drop_out(e, drop, columns, [x, to], [self.tokens, width], false);
                to
            }
            _ => x,
        }
    }

    fn inner(&self, e: &mut Executor, x: u64, factors: &Factors, width: usize) -> u64 {
        let inner = e.take(self.tokens * factors.rank, HALF);
        let operands = [Operand::rows(x, width), Operand::rows(factors.a, width).transpose()];
        let c = Target::rows(inner, factors.rank);
        low_rank(e, [self.tokens, width, factors.rank], operands, c, 1.0, 0.0);
        inner
    }

    /// The projection of `x` `[tokens, in]` into rows of `to`, on top of `base` (laid out as `to`, without
    /// gaps).
    pub fn forward(
        &self,
        e: &mut Executor,
        name: &'static str,
        linear: &Linear,
        x: u64,
        to: Rows,
        base: Option<u64>,
    ) {
        let [out, input] = linear.size;
        let beta = match (linear.bias, base) {
            (None, None) => 0.0,
            (None, Some(base)) => {
                calls::copy(e, base, to.pointer, self.tokens * out);
                1.0
            }
            (Some(bias), base) => {
                calls::base_rows(e, base, bias, to.pointer, [self.tokens, out]);
                1.0
            }
        };
        let operands = [
            Operand::rows(x, input),
            Operand::rows(linear.weight.pointer, linear.weight.leading).transpose(),
        ];
        let c = Target::rows(to.pointer, to.leading);
        calls::product(e, name, [self.tokens, input, out], operands, c, beta);
        if let Some(factors) = &linear.lora {
            let mark = e.mark();
            let seen = self.seen(e, x, factors, input);
            let inner = self.inner(e, seen, factors, input);
            let b = Operand::rows(factors.b, factors.rank).transpose();
            let operands = [Operand::rows(inner, factors.rank), b];
            low_rank(e, [self.tokens, factors.rank, out], operands, c, factors.scale, 1.0);
            e.release(mark);
        }
    }

    /// The gradient of the input from that of the output `by`, written to `to` `[tokens, in]` (added where
    /// `beta` is 1); and that of the factors' middle, on the arena, where there are factors.
    pub fn to_input(
        self,
        e: &mut Executor,
        name: &'static str,
        linear: &Linear,
        by: Rows,
        (to, beta): (u64, f32),
    ) -> Option<u64> {
        let [out, input] = linear.size;
        let by_rows = Operand::rows(by.pointer, by.leading);
        let operands = [by_rows, Operand::rows(linear.weight.pointer, linear.weight.leading)];
        let c = Target::rows(to, input);
        calls::product(e, name, [self.tokens, out, input], operands, c, beta);
        let factors = linear.lora.as_ref()?;
        let by_inner = e.take(self.tokens * factors.rank, HALF);
        let operands = [by_rows, Operand::rows(factors.b, factors.rank)];
        let middle = Target::rows(by_inner, factors.rank);
        low_rank(e, [self.tokens, out, factors.rank], operands, middle, factors.scale, 0.0);
        let operands = [Operand::rows(by_inner, factors.rank), Operand::rows(factors.a, input)];
        let size = [self.tokens, factors.rank, input];
        match (self.drop, factors.columns) {
            (Some(drop), Some(columns)) => {
                let mark = e.mark();
                let part = e.take(self.tokens * input, HALF);
                low_rank(e, size, operands, Target::rows(part, input), 1.0, 0.0);
                drop_out(e, drop, columns, [part, to], [self.tokens, input], true);
                e.release(mark);
            }
            _ => low_rank(e, size, operands, c, 1.0, 1.0),
        }
        Some(by_inner)
    }

    /// Adds the gradients of what trains in the projection: from that of its output, its input `x` where
    /// [`Linear::needs_input`], and what [`Over::to_input`] gave.
    pub fn to_weights(
        self,
        e: &mut Executor,
        linear: &Linear,
        by: Rows,
        x: Option<u64>,
        by_inner: Option<u64>,
    ) {
        let [out, input] = linear.size;
        if let Some(sum) = linear.by_bias {
            calls::column_sums(e, by.pointer, by.leading, sum, [self.tokens, out]);
        }
        let Some(x) = x else { return };
        let by_columns = Operand::rows(by.pointer, by.leading).transpose();
        if let Some(sum) = linear.by_weight {
            let operands = [by_columns, Operand::rows(x, input)];
            let c = Target::rows(sum, input).wide();
            calls::product(e, "to weights", [out, self.tokens, input], operands, c, 1.0);
        }
        let (Some(factors), Some(by_inner)) = (&linear.lora, by_inner) else { return };
        let mark = e.mark();
        let seen = self.seen(e, x, factors, input);
        if let Some(sum) = factors.by_b {
            let inner = self.inner(e, seen, factors, input);
            let operands = [by_columns, Operand::rows(inner, factors.rank)];
            let c = Target::rows(sum, factors.rank).wide();
            low_rank(e, [out, self.tokens, factors.rank], operands, c, factors.scale, 1.0);
        }
        if let Some(sum) = factors.by_a {
            let operands = [Operand::rows(by_inner, factors.rank).transpose(), Operand::rows(seen, input)];
            let c = Target::rows(sum, input).wide();
            low_rank(e, [factors.rank, self.tokens, input], operands, c, 1.0, 1.0);
        }
        e.release(mark);
    }
}

/// `from` with numbers dropped, written to `to` or, with `onto`, added to it.
fn drop_out(
    e: &mut Executor,
    drop: Drop,
    columns: u64,
    [from, to]: [u64; 2],
    [tokens, width]: [usize; 2],
    onto: bool,
) {
    let len = tokens * width;
    // SAFETY: the buffers are `[tokens, width]`, with a number for every row and column.
    unsafe {
        e.launch(
            ("drop_out", u32::from(onto)),
            ([len.div_ceil((UNITS * EACH) as usize), 1, 1], UNITS),
            &[from, drop.rows, columns, to],
            &[len.into(), width.into(), drop.below.into(), drop.factor.into()],
            |(s, p, t)| {
                let b = || BUFFER;
                rows::drop_out::DropOut::new(s, p, t, b(), b(), b(), b(), (), (), (), (), onto)
            },
        );
    }
}
