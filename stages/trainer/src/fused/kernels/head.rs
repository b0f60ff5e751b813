//! The head: values and gradients of rows of logits.

use cubecl::prelude::*;
use half::bf16;

use super::{HIDDEN, UNITS, cube_max, cube_sum};
use lm::kernel_math::{exp, ln};

/// Log-probability of the target and entropy of each row of `logits` `[rows, vocab]`, into `[2, rows]`.
/// Cubes: the rows.
#[cube(launch_unchecked)]
pub fn row_values(logits: &[f32], targets: &[i32], values: &mut [f32], vocab: u32, rows: u32, factor: f32) {
    let from = CUBE_POS_X * vocab;
    // running maximum, sum of exponentials and of exponentials times logits
    let mut top = f32::new(HIDDEN);
    let mut sum = 0.0f32;
    let mut weighted = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < vocab {
        let z = logits[(from + i) as usize] * factor;
        if z > top {
            let shrink = exp(top - z);
            sum *= shrink;
            weighted *= shrink;
            top = z;
        }
        let e = exp(z - top);
        sum += e;
        weighted += e * z;
        i += UNITS;
    }
    let peak = cube_max(top);
    let shrink = exp(top - peak);
    let sum = cube_sum(sum * shrink);
    let weighted = cube_sum(weighted * shrink);
    if UNIT_POS_X == 0 {
        let lse = peak + ln(sum);
        let target = u32::cast_from(targets[CUBE_POS_X as usize]);
        values[CUBE_POS_X as usize] = logits[(from + target) as usize] * factor - lse;
        values[(rows + CUBE_POS_X) as usize] = lse - weighted / sum;
    }
}

/// Gradients of `logits` from those of [`row_values`]' log-probabilities and entropies (`by` `[2,
/// rows]`), which are given again in `values`. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn row_gradients(
    logits: &[f32],
    targets: &[i32],
    values: &[f32],
    by: &[f32],
    out: &mut [bf16],
    vocab: u32,
    rows: u32,
    factor: f32,
) {
    let row = CUBE_POS_X;
    let from = row * vocab;
    let target = u32::cast_from(targets[row as usize]);
    let entropy = values[(rows + row) as usize];
    let lse = logits[(from + target) as usize] * factor - values[row as usize];
    let by_log_prob = by[row as usize];
    let by_entropy = by[(rows + row) as usize];
    let mut i = UNIT_POS_X;
    while i < vocab {
        let z = logits[(from + i) as usize] * factor;
        let p = exp(z - lse);
        let mut gradient = -p * (by_log_prob + by_entropy * (z - lse + entropy));
        if i == target {
            gradient += by_log_prob;
        }
        out[(from + i) as usize] = bf16::cast_from(gradient);
        i += UNITS;
    }
}
