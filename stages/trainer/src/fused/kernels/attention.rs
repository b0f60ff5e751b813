//! Attention weights from scores, and back.

use cubecl::prelude::*;
use half::bf16;

use super::{HIDDEN, PLANE, PLANES};
use lm::kernel_math::exp;

/// The scaled score at `at`, [`HIDDEN`] where the key belongs to another segment than the query.
#[cube]
fn score(
    scores: &[bf16],
    segments: &[u32],
    at: u32,
    key: u32,
    own: u32,
    scale: f32,
    #[comptime] segmented: bool,
) -> f32 {
    let mut value = f32::cast_from(scores[at as usize]) * scale;
    if comptime!(segmented) {
        if segments[key as usize] != own {
            value = HIDDEN;
        }
    }
    value
}

/// Attention weights of scores `[rows, keys]`, rows `stride` numbers apart: the softmax over the keys that
/// a query sees, zero elsewhere. Row `r` is query `start + r / group % queries`; it sees keys up to itself,
/// of its own segment (`segments` `[batch, seq]`) where rows hold several. The weights may take the
/// scores' place. Cubes: `rows / PLANES`.
#[cube(launch_unchecked)]
pub fn soften(
    scores: &[bf16],
    segments: &[u32],
    weights: &mut [bf16],
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
        let mut top = f32::new(HIDDEN);
        let mut i = lane;
        while i < visible {
            top = max(top, score(scores, segments, from + i, base + i, own, scale, segmented));
            i += PLANE;
        }
        let top = plane_max(top);
        let mut sum = 0.0f32;
        let mut i = lane;
        while i < visible {
            sum += exp(score(scores, segments, from + i, base + i, own, scale, segmented) - top);
            i += PLANE;
        }
        let factor = 1.0f32 / plane_sum(sum);
        let mut i = lane;
        while i < keys {
            let mut weight = 0.0f32;
            if i < visible {
                weight =
                    exp(score(scores, segments, from + i, base + i, own, scale, segmented) - top) * factor;
            }
            weights[(from + i) as usize] = bf16::cast_from(weight);
            i += PLANE;
        }
    }
}

/// Gradients of the scores from the weights of [`soften`] and their gradients, all `[rows, keys]` as there:
/// `w·(d - Σ w·d)·scale`. They may take the place of the latter. Cubes: `rows / PLANES`.
#[cube(launch_unchecked)]
pub fn soften_backward(
    weights: &[bf16],
    by_weights: &[bf16],
    by_scores: &mut [bf16],
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
        while i < visible {
            let at = (from + i) as usize;
            sum += f32::cast_from(weights[at]) * f32::cast_from(by_weights[at]);
            i += PLANE;
        }
        let sum = plane_sum(sum);
        let mut i = lane;
        while i < keys {
            let at = (from + i) as usize;
            let mut value = 0.0f32;
            if i < visible {
                value = f32::cast_from(weights[at]) * (f32::cast_from(by_weights[at]) - sum) * scale;
            }
            by_scores[at] = bf16::cast_from(value);
            i += PLANE;
        }
    }
}
