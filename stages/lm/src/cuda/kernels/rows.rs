//! What is done row by row between the products.

use cubecl::prelude::*;
use half::bf16;

use super::PLANE;
use super::fragment::spot;
use super::math::exp;
use super::sample::RESULT;

/// Units of a cube here.
pub const UNITS: u32 = 256;
const PLANES: usize = (UNITS / PLANE) as usize;

/// Sum over a cube of [`UNITS`] units.
#[cube]
pub fn cube_sum(value: f32) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(PLANES);
    let sum = plane_sum(value);
    if UNIT_POS_PLANE == 0 {
        shared[(UNIT_POS_X / PLANE) as usize] = sum;
    }
    sync_cube();
    let mut total = 0.0f32;
    #[unroll]
    for plane in 0..PLANES {
        total += shared[plane];
    }
    sync_cube();
    total
}

/// No earlier row: the id given by the host counts.
pub const FROM_HOST: u32 = 0xFFFF_FFFF;

/// `hidden[row] = table[id]`, f32 `[rows, width]` from bf16, where the id is `ids[row]`, or the token
/// that the step before chose for its row `from[row]` (`results`, see `sample::choose`). Cubes: `rows`.
#[cube(launch_unchecked)]
pub fn embed(
    ids: &[u32],
    from: &[u32],
    results: &[u32],
    table: &[bf16],
    hidden: &mut [f32],
    width: u32,
    stride: u32,
    vocab: u32,
) {
    let mut id = ids[CUBE_POS_X as usize];
    let source = from[CUBE_POS_X as usize];
    if source != FROM_HOST {
        id = results[(source * RESULT) as usize];
    }
    // A token that could not be chosen is reported by the host; here it must only not lead astray.
    let at = min(id, vocab - 1) * stride;
    let to = CUBE_POS_X * width;
    let mut i = UNIT_POS_X;
    while i < width {
        hidden[(to + i) as usize] = f32::cast_from(table[(at + i) as usize]);
        i += UNITS;
    }
}

/// Four f32.
type Four = Vector<f32, Const<4>>;

/// Units of a cube of [`add_and_norm`], each with four numbers of a row at a time.
pub const NORM_UNITS: u32 = 512;

/// Adds a projection's partial sums `[splits, rows, width]` and bias to the residual stream `hidden`
/// `[rows, width]`, and writes its RMSNorm as an activation (`size` and `plain` as for
/// `fragment::spot`). With `picked`, cube `i` takes row `picks[i]` and writes row `i` of `x`.
///
/// Cubes: the rows of `x`; `slab` is the size of one split. `width` and `slab` are in fours.
#[cube(launch_unchecked)]
pub fn add_and_norm(
    parts: &[Four],
    bias: &[Four],
    picks: &[u32],
    weight: &[Vector<bf16, Const<4>>],
    hidden: &mut [Four],
    x: &mut [Vector<bf16, Const<4>>],
    width: u32,
    slab: u32,
    size: u32,
    eps: f32,
    #[comptime] splits: u32,
    #[comptime] biased: bool,
    #[comptime] picked: bool,
    #[comptime] plain: bool,
) {
    let mut row = CUBE_POS_X;
    if comptime!(picked) {
        row = picks[CUBE_POS_X as usize];
    }
    let at = row * width;
    let mut squares = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < width {
        let mut value = hidden[(at + i) as usize];
        #[unroll]
        for split in 0..splits {
            value += parts[(split * slab + at + i) as usize];
        }
        if comptime!(biased) {
            value += bias[i as usize];
        }
        hidden[(at + i) as usize] = value;
        let square = value * value;
        squares +=
            square.extract(0usize) + square.extract(1usize) + square.extract(2usize) + square.extract(3usize);
        i += NORM_UNITS;
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime!((NORM_UNITS / PLANE) as usize));
    let sum = plane_sum(squares);
    if UNIT_POS_PLANE == 0 {
        shared[(UNIT_POS_X / PLANE) as usize] = sum;
    }
    sync_cube();
    let mut total = 0.0f32;
    #[unroll]
    for plane in 0..comptime!((NORM_UNITS / PLANE) as usize) {
        total += shared[plane];
    }
    let mean = total / f32::cast_from(4 * width);
    let factor = 1.0f32 / (mean + eps).sqrt();
    let mut i = UNIT_POS_X;
    while i < width {
        let weight = Four::cast_from(weight[i as usize]);
        let value = hidden[(at + i) as usize] * Four::new(factor) * weight;
        x[(spot(CUBE_POS_X, 4 * i, size, plain) / 4) as usize] = Vector::cast_from(value);
        i += NORM_UNITS;
    }
}

/// Adds up the partial sums `[splits, rows, (q_heads + 2 kv_heads) dim]` of queries, keys and values,
/// rotates queries and keys by their positions, and puts keys and values into the cache (keys
/// `[slots, kv_heads, capacity, dim]`, values `[slots, kv_heads, dim, capacity]`).
///
/// `cos` and `sin` are `[positions, dim / 2]`. Cubes: `(pairs of a row / UNITS, rows)`.
#[cube(launch_unchecked)]
pub fn rotate_and_store(
    parts: &[f32],
    bias: &[f32],
    cos: &[f32],
    sin: &[f32],
    positions: &[u32],
    slots: &[u32],
    q: &mut [bf16],
    keys: &mut [bf16],
    values: &mut [bf16],
    q_heads: u32,
    kv_heads: u32,
    capacity: u32,
    slab: u32,
    #[comptime] splits: u32,
    #[comptime] biased: bool,
    #[comptime] dim: u32,
) {
    let half = comptime!(dim / 2);
    let width = (q_heads + 2 * kv_heads) * dim;
    let row = CUBE_POS_Y;
    let index = CUBE_POS_X * UNITS + UNIT_POS_X;
    if index < width / 2 {
        let position = positions[row as usize];
        let slot = slots[row as usize];
        let head = index / half;
        let j = index % half;
        let at = head * dim + j;
        let mut a = 0.0f32;
        let mut b = 0.0f32;
        #[unroll]
        for split in 0..splits {
            let from = split * slab + row * width + at;
            a += parts[from as usize];
            b += parts[(from + half) as usize];
        }
        if comptime!(biased) {
            a += bias[at as usize];
            b += bias[(at + half) as usize];
        }
        let angle = (position * half + j) as usize;
        let low = a * cos[angle] - b * sin[angle];
        let high = b * cos[angle] + a * sin[angle];
        if head < q_heads {
            let to = row * q_heads * dim + at;
            q[to as usize] = bf16::cast_from(low);
            q[(to + half) as usize] = bf16::cast_from(high);
        } else if head < q_heads + kv_heads {
            let to = ((slot * kv_heads + head - q_heads) * capacity + position) * dim + j;
            keys[to as usize] = bf16::cast_from(low);
            keys[(to + half) as usize] = bf16::cast_from(high);
        } else {
            let head = slot * kv_heads + head - q_heads - kv_heads;
            let to = (head * dim + j) * capacity + position;
            values[to as usize] = bf16::cast_from(a);
            values[(to + half * capacity) as usize] = bf16::cast_from(b);
        }
    }
}

/// Copies the first `len` positions of slot `from` to slot `to` in one layer's cache.
///
/// Cubes: `(kv_heads × dim, 2)`; `(h, 0)` copies a row of values, `(h, 1)` a part of the keys.
#[cube(launch_unchecked)]
pub fn copy_prefix(
    keys: &mut [bf16],
    values: &mut [bf16],
    from: u32,
    to: u32,
    len: u32,
    kv_heads: u32,
    capacity: u32,
    dim: u32,
) {
    let slot = kv_heads * capacity * dim;
    if CUBE_POS_Y == 0 {
        let row = CUBE_POS_X * capacity;
        let mut i = UNIT_POS_X;
        while i < len {
            values[(to * slot + row + i) as usize] = values[(from * slot + row + i) as usize];
            i += UNITS;
        }
    } else {
        // `dim` cubes share one head's keys.
        let head = CUBE_POS_X / dim * capacity * dim;
        let mut i = CUBE_POS_X % dim * UNITS + UNIT_POS_X;
        while i < len * dim {
            keys[(to * slot + head + i) as usize] = keys[(from * slot + head + i) as usize];
            i += UNITS * dim;
        }
    }
}

/// `gate[row, i] = silu(gate[row, i]) · up[row, i]`, rows of `width` fours. `extra` `[rows, 2 width]`,
/// where `extended`, is added to both before (a low-rank adapter's part), and `bias` `[2 width]` where
/// `biased`. Cubes: `(width / UNITS, rows)`.
#[cube(launch_unchecked)]
pub fn gate_rows(
    gate: &mut [Vector<bf16, Const<4>>],
    up: &[Vector<bf16, Const<4>>],
    bias: &[Four],
    extra: &[Four],
    width: u32,
    #[comptime] biased: bool,
    #[comptime] extended: bool,
) {
    let i = CUBE_POS_X * UNITS + UNIT_POS_X;
    if i < width {
        let at = CUBE_POS_Y * width + i;
        let mut a = Four::cast_from(gate[at as usize]);
        let mut b = Four::cast_from(up[at as usize]);
        if comptime!(biased) {
            a += bias[i as usize];
            b += bias[(width + i) as usize];
        }
        if comptime!(extended) {
            let row = CUBE_POS_Y * 2 * width;
            a += extra[(row + i) as usize];
            b += extra[(row + width + i) as usize];
        }
        let mut value = Four::new(0.0f32);
        #[unroll]
        for j in 0..4usize {
            let x = a.extract(j);
            value.insert(j, x / (1.0f32 + exp(-x)) * b.extract(j));
        }
        gate[at as usize] = Vector::cast_from(value);
    }
}
