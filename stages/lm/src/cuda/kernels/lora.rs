//! Low-rank products `scale · B (A x)` beside a frozen projection, in f32.

use cubecl::prelude::*;
use half::bf16;

use super::fragment::spot;
use super::rows::{UNITS, cube_sum};

/// `inner[row, r] = scale · Σ a[r, k] x[row, k]`, `x` an activation (`size` and `plain` as for
/// `fragment::spot`). Cubes: `(rank, rows)`.
#[cube(launch_unchecked)]
pub fn lora_down(
    x: &[bf16],
    a: &[f32],
    inner: &mut [f32],
    width: u32,
    stride: u32,
    size: u32,
    scale: f32,
    #[comptime] plain: bool,
) {
    let mut sum = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < width {
        let x = f32::cast_from(x[spot(CUBE_POS_Y, i, size, plain) as usize]);
        sum += x * a[(CUBE_POS_X * stride + i) as usize];
        i += UNITS;
    }
    let sum = cube_sum(sum);
    if UNIT_POS_X == 0 {
        inner[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = sum * scale;
    }
}

/// `out[row, offset + o] = Σ b[o, r] inner[row, r]`, rows of `out` `width` apart. Cubes:
/// `(outs / UNITS, rows)`.
#[cube(launch_unchecked)]
pub fn lora_up(
    inner: &[f32],
    b: &[f32],
    out: &mut [f32],
    rank: u32,
    stride: u32,
    outs: u32,
    width: u32,
    offset: u32,
    base: u32,
) {
    let o = CUBE_POS_X * UNITS + UNIT_POS_X;
    if o < outs {
        let mut sum = 0.0f32;
        for r in 0..rank {
            sum += inner[(CUBE_POS_Y * rank + r) as usize] * b[(o * stride + r) as usize];
        }
        out[(base + CUBE_POS_Y * width + offset + o) as usize] = sum;
    }
}
