//! The kernels.
//!
//! | module | what |
//! |---|---|
//! | `attention` | weights from scores, and back |
//! | `layer` | gating, RMSNorm, rotation |
//! | `head` | rows of logits |
//! | `lines` | the heaviest of them in lines of four numbers |
//! | `rows` | what a pass on raw pointers needs beside them |
//! | `update` | sums, norms of gradients, AdamW |
//!
//! One reads its operands once, computes in f32 and writes bf16. Sums are taken in an order that the
//! shape alone decides, so results repeat to the bit.

#![allow(clippy::too_many_arguments, reason = "a launch names every operand")]
#![allow(
    clippy::collapsible_if,
    clippy::manual_is_multiple_of,
    reason = "the language of kernels knows neither `let` chains with `comptime!` nor that method"
)]

pub mod attention;
pub mod head;
pub mod layer;
pub mod lines;
pub mod rows;
pub mod update;

use cubecl::prelude::*;

pub use attention::{soften, soften_backward};
pub use head::{row_gradients, row_values};
pub use layer::{gate_up, gate_up_backward, norm, norm_backward, turn};
pub use update::{SQUARES, adamw, column_parts, column_totals, norm_factors, square_sums};

/// Units that work in step.
pub const PLANE: u32 = 32;
/// Units of a cube.
pub const UNITS: u32 = 256;
/// Planes of a cube; each takes a row of scores.
pub const PLANES: u32 = UNITS / PLANE;
/// Numbers that a unit of an elementwise kernel takes.
pub const EACH: u32 = 4;
/// Rows that one unit of [`column_parts`] adds up.
pub const ROWS_EACH: usize = 64;

/// The score of a hidden key; no real one is as low.
const HIDDEN: f32 = -1e30;

/// Sum over a cube.
#[cube]
fn cube_sum(value: f32) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(PLANES as usize));
    let sum = plane_sum(value);
    if UNIT_POS_X % PLANE == 0 {
        shared[(UNIT_POS_X / PLANE) as usize] = sum;
    }
    sync_cube();
    let mut total = 0.0f32;
    #[unroll]
    for plane in 0..comptime!(PLANES as usize) {
        total += shared[plane];
    }
    sync_cube();
    total
}

/// Largest value of a cube.
#[cube]
fn cube_max(value: f32) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(PLANES as usize));
    let top = plane_max(value);
    if UNIT_POS_X % PLANE == 0 {
        shared[(UNIT_POS_X / PLANE) as usize] = top;
    }
    sync_cube();
    let mut total = shared[0];
    #[unroll]
    for plane in 1..comptime!(PLANES as usize) {
        total = max(total, shared[plane]);
    }
    sync_cube();
    total
}
