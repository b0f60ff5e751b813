//! The heaviest kernels in lines of four numbers, for operands whose rows are whole lines: a GPU reads
//! single numbers of two bytes at half its speed.

use cubecl::prelude::*;
use half::bf16;

use super::{HIDDEN, PLANE, PLANES, UNITS, cube_sum};
use lm::kernel_math::exp;

/// Four numbers in memory.
pub type Line = Vector<bf16, Const<4>>;
/// Four numbers in registers.
pub type Four = Vector<f32, Const<4>>;

/// Numbers of a line.
pub const LINE: usize = 4;

#[cube]
fn sum_of(line: Four) -> f32 {
    line.extract(0usize) + line.extract(1usize) + line.extract(2usize) + line.extract(3usize)
}

/// `silu(gate)·up`, elementwise. Cubes: `lines / UNITS`.
#[cube(launch_unchecked)]
pub fn gate_up_lines(gate: &[Line], up: &[Line], out: &mut [Line], lines: u32) {
    let at = CUBE_POS_X * UNITS + UNIT_POS_X;
    if at < lines {
        let a = Four::cast_from(gate[at as usize]);
        let b = Four::cast_from(up[at as usize]);
        let mut value = Four::new(0.0f32);
        #[unroll]
        for j in 0..4usize {
            let g = a.extract(j);
            value.insert(j, g / (1.0f32 + exp(-g)) * b.extract(j));
        }
        out[at as usize] = Line::cast_from(value);
    }
}

/// Gradients of gate and up from that of `silu(gate)·up`, in their places. Cubes: `lines / UNITS`.
#[cube(launch_unchecked)]
pub fn gate_up_backward_lines(gate: &mut [Line], up: &mut [Line], by: &[Line], lines: u32) {
    let at = CUBE_POS_X * UNITS + UNIT_POS_X;
    if at < lines {
        let a = Four::cast_from(gate[at as usize]);
        let b = Four::cast_from(up[at as usize]);
        let d = Four::cast_from(by[at as usize]);
        let mut by_gate = Four::new(0.0f32);
        let mut by_up = Four::new(0.0f32);
        #[unroll]
        for j in 0..4usize {
            let g = a.extract(j);
            let sigma = 1.0f32 / (1.0f32 + exp(-g));
            let d = d.extract(j);
            by_gate.insert(j, d * b.extract(j) * sigma * (1.0f32 + g * (1.0f32 - sigma)));
            by_up.insert(j, d * g * sigma);
        }
        gate[at as usize] = Line::cast_from(by_gate);
        up[at as usize] = Line::cast_from(by_up);
    }
}

/// RMSNorm of rows of `lines` lines. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn norm_lines(x: &[Line], weight: &[Line], out: &mut [Line], lines: u32, eps: f32) {
    let from = CUBE_POS_X * lines;
    let mut squares = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < lines {
        let value = Four::cast_from(x[(from + i) as usize]);
        squares += sum_of(value * value);
        i += UNITS;
    }
    let rms = (cube_sum(squares) / f32::cast_from(4 * lines) + eps).sqrt();
    let mut i = UNIT_POS_X;
    while i < lines {
        let at = (from + i) as usize;
        let unit = Line::cast_from(Four::cast_from(x[at]) / Four::new(rms));
        out[at] = Line::cast_from(Four::cast_from(unit) * Four::cast_from(weight[i as usize]));
        i += UNITS;
    }
}

/// Adds the gradient of [`norm_lines`]' input to `sum`. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn norm_backward_lines(x: &[Line], weight: &[Line], by: &[Line], sum: &mut [Line], lines: u32, eps: f32) {
    let from = CUBE_POS_X * lines;
    let mut squares = 0.0f32;
    let mut along = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < lines {
        let at = (from + i) as usize;
        let value = Four::cast_from(x[at]);
        squares += sum_of(value * value);
        along += sum_of(value * Four::cast_from(by[at]) * Four::cast_from(weight[i as usize]));
        i += UNITS;
    }
    let width = f32::cast_from(4 * lines);
    let mean = cube_sum(squares) / width + eps;
    let factor = 1.0f32 / mean.sqrt();
    // x̂·mean(g·x̂) = x·Σ(g·x) / (width·mean)
    let along = cube_sum(along) / (width * mean);
    let mut i = UNIT_POS_X;
    while i < lines {
        let at = (from + i) as usize;
        let by_unit = Four::cast_from(by[at]) * Four::cast_from(weight[i as usize]);
        let gradient = (by_unit - Four::cast_from(x[at]) * Four::new(along)) * Four::new(factor);
        sum[at] = Line::cast_from(Four::cast_from(sum[at]) + gradient);
        i += UNITS;
    }
}

/// Attention weights in the place of scores, as `attention::soften` computes them: `stride` lines from row
/// to row, zero beyond the keys. Cubes: `rows / PLANES`.
#[cube(launch_unchecked)]
pub fn soften_lines(
    scores: &mut [Line],
    segments: &[u32],
    rows: u32,
    keys: u32,
    stride: u32,
    queries: u32,
    group: u32,
    start: u32,
    rows_per_batch: u32,
    seq: u32,
    scale: f32,
    #[comptime] segmented: bool,
) {
    let row = CUBE_POS_X * PLANES + UNIT_POS_X / PLANE;
    let lane = UNIT_POS_X % PLANE;
    if row < rows {
        let query = start + row / group % queries;
        let visible = min(query + 1, keys);
        let from = row * stride;
        let base = row / rows_per_batch * seq;
        let mut own = 0u32;
        if comptime!(segmented) {
            own = segments[(base + query) as usize];
        }
        // running maximum, and sum of exponentials
        let mut top = f32::new(HIDDEN);
        let mut sum = 0.0f32;
        let mut i = lane;
        while 4 * i < visible {
            let mut line = Four::cast_from(scores[(from + i) as usize]) * Four::new(scale);
            #[unroll]
            for j in 0..4usize {
                let key = 4 * i + j as u32;
                if key >= visible {
                    line.insert(j, f32::new(HIDDEN));
                }
                if comptime!(segmented) {
                    if key < visible {
                        if segments[(base + key) as usize] != own {
                            line.insert(j, f32::new(HIDDEN));
                        }
                    }
                }
            }
            let peak = max(
                max(line.extract(0usize), line.extract(1usize)),
                max(line.extract(2usize), line.extract(3usize)),
            );
            if peak > top {
                sum *= exp(top - peak);
                top = peak;
            }
            #[unroll]
            for j in 0..4usize {
                sum += exp(line.extract(j) - top);
            }
            i += PLANE;
        }
        let peak = plane_max(top);
        let factor = 1.0f32 / plane_sum(sum * exp(top - peak));
        let mut i = lane;
        while i < stride {
            let mut value = Four::new(0.0f32);
            if 4 * i < visible {
                let line = Four::cast_from(scores[(from + i) as usize]) * Four::new(scale);
                #[unroll]
                for j in 0..4usize {
                    let key = 4 * i + j as u32;
                    if key < visible {
                        let mut weight = exp(line.extract(j) - peak) * factor;
                        if comptime!(segmented) {
                            if segments[(base + key) as usize] != own {
                                weight = 0.0f32;
                            }
                        }
                        value.insert(j, weight);
                    }
                }
            }
            scores[(from + i) as usize] = Line::cast_from(value);
            i += PLANE;
        }
    }
}

/// Gradients of scores in the place of those of the weights of [`soften_lines`]. Cubes: `rows / PLANES`.
#[cube(launch_unchecked)]
pub fn soften_backward_lines(
    weights: &[Line],
    by: &mut [Line],
    rows: u32,
    keys: u32,
    stride: u32,
    queries: u32,
    group: u32,
    start: u32,
    scale: f32,
) {
    let row = CUBE_POS_X * PLANES + UNIT_POS_X / PLANE;
    let lane = UNIT_POS_X % PLANE;
    if row < rows {
        let visible = min(start + row / group % queries + 1, keys);
        let from = row * stride;
        let mut sum = 0.0f32;
        let mut i = lane;
        while 4 * i < visible {
            let at = (from + i) as usize;
            let w = Four::cast_from(weights[at]);
            let d = Four::cast_from(by[at]);
            #[unroll]
            for j in 0..4usize {
                // beyond the keys there are no numbers
                if 4 * i + (j as u32) < visible {
                    sum += w.extract(j) * d.extract(j);
                }
            }
            i += PLANE;
        }
        let sum = plane_sum(sum);
        let mut i = lane;
        while i < stride {
            let at = (from + i) as usize;
            let mut value = Four::new(0.0f32);
            if 4 * i < visible {
                let w = Four::cast_from(weights[at]);
                let d = Four::cast_from(by[at]);
                #[unroll]
                for j in 0..4usize {
                    if 4 * i + (j as u32) < visible {
                        value.insert(j, w.extract(j) * (d.extract(j) - sum) * scale);
                    }
                }
            }
            by[at] = Line::cast_from(value);
            i += PLANE;
        }
    }
}
