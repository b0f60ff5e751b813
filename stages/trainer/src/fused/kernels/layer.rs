//! Gating, RMSNorm, rotation.

use cubecl::prelude::*;
use half::bf16;

use super::{EACH, UNITS, cube_sum};
use lm::kernel_math::exp;

/// `silu(gate)·up`, elementwise. Cubes: `len / (UNITS·EACH)`.
#[cube(launch_unchecked)]
pub fn gate_up(gate: &[bf16], up: &[bf16], out: &mut [bf16], len: u32) {
    let first = CUBE_POS_X * comptime!(UNITS * EACH) + UNIT_POS_X;
    #[unroll]
    for i in 0..EACH {
        let at = first + i * UNITS;
        if at < len {
            let g = f32::cast_from(gate[at as usize]);
            let u = f32::cast_from(up[at as usize]);
            out[at as usize] = bf16::cast_from(g / (1.0f32 + exp(-g)) * u);
        }
    }
}

/// Gradients of gate and up from that of `silu(gate)·up`. Cubes: `len / (UNITS·EACH)`.
#[cube(launch_unchecked)]
pub fn gate_up_backward(
    gate: &[bf16],
    up: &[bf16],
    by: &[bf16],
    by_gate: &mut [bf16],
    by_up: &mut [bf16],
    len: u32,
) {
    let first = CUBE_POS_X * comptime!(UNITS * EACH) + UNIT_POS_X;
    #[unroll]
    for i in 0..EACH {
        let at = first + i * UNITS;
        if at < len {
            let g = f32::cast_from(gate[at as usize]);
            let u = f32::cast_from(up[at as usize]);
            let d = f32::cast_from(by[at as usize]);
            let sigma = 1.0f32 / (1.0f32 + exp(-g));
            by_gate[at as usize] = bf16::cast_from(d * u * sigma * (1.0f32 + g * (1.0f32 - sigma)));
            by_up[at as usize] = bf16::cast_from(d * g * sigma);
        }
    }
}

/// RMSNorm of rows of `width` numbers. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn norm(x: &[bf16], weight: &[bf16], out: &mut [bf16], width: u32, eps: f32) {
    let from = CUBE_POS_X * width;
    let mut squares = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < width {
        let value = f32::cast_from(x[(from + i) as usize]);
        squares += value * value;
        i += UNITS;
    }
    let rms = (cube_sum(squares) / f32::cast_from(width) + eps).sqrt();
    let mut i = UNIT_POS_X;
    while i < width {
        let at = (from + i) as usize;
        let unit = bf16::cast_from(f32::cast_from(x[at]) / rms);
        out[at] = bf16::cast_from(f32::cast_from(unit) * f32::cast_from(weight[i as usize]));
        i += UNITS;
    }
}

/// `skip` plus the gradient of [`norm`]'s input. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn norm_backward(
    x: &[bf16],
    weight: &[bf16],
    by: &[bf16],
    skip: &[bf16],
    out: &mut [bf16],
    width: u32,
    eps: f32,
) {
    let from = CUBE_POS_X * width;
    let mut squares = 0.0f32;
    let mut along = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < width {
        let at = (from + i) as usize;
        let value = f32::cast_from(x[at]);
        squares += value * value;
        along += value * f32::cast_from(by[at]) * f32::cast_from(weight[i as usize]);
        i += UNITS;
    }
    let mean = cube_sum(squares) / f32::cast_from(width) + eps;
    let factor = 1.0f32 / mean.sqrt();
    // x̂·mean(g·x̂) = x·Σ(g·x) / (width·mean)
    let along = cube_sum(along) / (f32::cast_from(width) * mean);
    let mut i = UNIT_POS_X;
    while i < width {
        let at = (from + i) as usize;
        let by_unit = f32::cast_from(by[at]) * f32::cast_from(weight[i as usize]);
        let gradient = (by_unit - f32::cast_from(x[at]) * along) * factor;
        out[at] = bf16::cast_from(f32::cast_from(skip[at]) + gradient);
        i += UNITS;
    }
}

/// Turns pairs of numbers by the angles of their positions (`sign` -1 turns back) and changes the
/// layout: `[batch, seq, heads, dim]` to `[batch, heads, seq, dim]`, or from there with `back`.
///
/// `cos` and `sin` are `[batch or 1, seq, half]`, `table` numbers of them per batch (0 for all alike).
/// Cubes: pairs / UNITS.
#[cube(launch_unchecked)]
pub fn turn(
    x: &[bf16],
    cos: &[f32],
    sin: &[f32],
    out: &mut [bf16],
    pairs: u32,
    seq: u32,
    heads: u32,
    half: u32,
    table: u32,
    sign: f32,
    #[comptime] back: bool,
) {
    let index = CUBE_POS_X * UNITS + UNIT_POS_X;
    if index < pairs {
        let j = index % half;
        let rest = index / half;
        let head = rest % heads;
        let place = rest / heads % seq;
        let batch = rest / heads / seq;
        let row = ((batch * seq + place) * heads + head) * 2 * half + j;
        let column = ((batch * heads + head) * seq + place) * 2 * half + j;
        let mut from = row;
        let mut to = column;
        if comptime!(back) {
            from = column;
            to = row;
        }
        let angle = (batch * table + place * half + j) as usize;
        let a = f32::cast_from(x[from as usize]);
        let b = f32::cast_from(x[(from + half) as usize]);
        let c = cos[angle];
        let s = sin[angle] * sign;
        out[to as usize] = bf16::cast_from(a * c - b * s);
        out[(to + half) as usize] = bf16::cast_from(b * c + a * s);
    }
}
