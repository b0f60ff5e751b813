//! What follows the passes: sums, norms of gradients, AdamW.

use cubecl::prelude::*;
use half::bf16;

use super::{EACH, UNITS, cube_sum};

/// One update of AdamW, elementwise, with a bf16 copy of the new values where `copied`. New numbers may
/// take the place of old ones. Cubes: `len / (UNITS·EACH)`.
#[cube(launch_unchecked)]
pub fn adamw(
    value: &[f32],
    mean: &[f32],
    square: &[f32],
    gradient: &[f32],
    new_value: &mut [f32],
    new_mean: &mut [f32],
    new_square: &mut [f32],
    copy: &mut [bf16],
    len: u32,
    clip: f32,
    decay: f32,
    beta1: f32,
    beta2: f32,
    rate: f32,
    root: f32,
    eps: f32,
    #[comptime] copied: bool,
) {
    let first = CUBE_POS_X * comptime!(UNITS * EACH) + UNIT_POS_X;
    #[unroll]
    for i in 0..EACH {
        let at = first + i * UNITS;
        if at < len {
            let at = at as usize;
            let g = gradient[at] * clip;
            let m = mean[at] * beta1 + g * (1.0f32 - beta1);
            let v = square[at] * beta2 + g * g * (1.0f32 - beta2);
            new_mean[at] = m;
            new_square[at] = v;
            let new = value[at] * decay - m * rate / (v.sqrt() / root + eps);
            new_value[at] = new;
            if comptime!(copied) {
                copy[at] = bf16::cast_from(new);
            }
        }
    }
}

/// Numbers that a unit of [`square_sums`] adds up.
pub const SQUARES: u32 = 64;

/// Sums of squares of `x`, one per cube, from `out[offset]` on. Cubes: `len / (UNITS·SQUARES)`.
#[cube(launch_unchecked)]
pub fn square_sums(x: &[f32], out: &mut [f32], len: u32, offset: u32) {
    let first = CUBE_POS_X * comptime!(UNITS * SQUARES) + UNIT_POS_X;
    let mut sum = 0.0f32;
    let mut i = 0u32;
    while i < SQUARES {
        let at = first + i * UNITS;
        if at < len {
            let value = x[at as usize];
            sum += value * value;
        }
        i += 1u32;
    }
    let total = cube_sum(sum);
    if UNIT_POS_X == 0 {
        out[(offset + CUBE_POS_X) as usize] = total;
    }
}

/// `1 / √(mean x² + ε)` of every row of `x`. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn norm_factors(x: &[bf16], out: &mut [f32], width: u32, eps: f32) {
    let from = CUBE_POS_X * width;
    let mut squares = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < width {
        let value = f32::cast_from(x[(from + i) as usize]);
        squares += value * value;
        i += UNITS;
    }
    let mean = cube_sum(squares) / f32::cast_from(width) + eps;
    if UNIT_POS_X == 0 {
        out[CUBE_POS_X as usize] = 1.0f32 / mean.sqrt();
    }
}

/// Sums of columns of `by` `[rows, width]`, rows `stride` numbers apart, over `each` rows at a time,
/// `[parts, width]`; with `scaled`, of `by·x` (`x` laid out alike) times a factor per row. Cubes:
/// `(width / UNITS, parts)`.
#[cube(launch_unchecked)]
pub fn column_parts(
    by: &[bf16],
    x: &[bf16],
    factors: &[f32],
    out: &mut [f32],
    rows: u32,
    width: u32,
    stride: u32,
    each: u32,
    #[comptime] scaled: bool,
) {
    let column = CUBE_POS_X * UNITS + UNIT_POS_X;
    let first = CUBE_POS_Y * each;
    let end = min(first + each, rows);
    if column < width {
        let mut sum = 0.0f32;
        let mut row = first;
        while row < end {
            let at = (row * stride + column) as usize;
            let mut value = f32::cast_from(by[at]);
            if comptime!(scaled) {
                value = value * f32::cast_from(x[at]) * factors[row as usize];
            }
            sum += value;
            row += 1u32;
        }
        out[(CUBE_POS_Y * width + column) as usize] = sum;
    }
}

/// Sums of the columns of `parts` `[rows, width]`, added to `out` where `onto`. Cubes: `width / UNITS`.
#[cube(launch_unchecked)]
pub fn column_totals(parts: &[f32], out: &mut [f32], rows: u32, width: u32, #[comptime] onto: bool) {
    let column = CUBE_POS_X * UNITS + UNIT_POS_X;
    if column < width {
        let mut sum = 0.0f32;
        if comptime!(onto) {
            sum = out[column as usize];
        }
        let mut row = 0u32;
        while row < rows {
            sum += parts[(row * width + column) as usize];
            row += 1u32;
        }
        out[column as usize] = sum;
    }
}
