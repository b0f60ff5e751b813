//! What a pass on raw pointers needs beside the other kernels: rows by index, heads apart and together,
//! biases, dropout, rounding.

use cubecl::prelude::*;
use half::bf16;

use super::lines::{Four, Line};
use super::{EACH, UNITS};

/// Index of a row of zeros.
pub const NOWHERE: u32 = u32::MAX;

/// Rows of `x` (`stride` numbers apart) by `index`, `[rows, width]`; zeros for [`NOWHERE`]. Cubes: the rows.
#[cube(launch_unchecked)]
pub fn gather(x: &[bf16], index: &[u32], out: &mut [bf16], width: u32, stride: u32) {
    let place = index[CUBE_POS_X as usize];
    let to = CUBE_POS_X * width;
    let mut i = UNIT_POS_X;
    while i < width {
        let mut value = bf16::cast_from(0.0f32);
        if place != NOWHERE {
            value = x[(place * stride + i) as usize];
        }
        out[(to + i) as usize] = value;
        i += UNITS;
    }
}

/// Adds the rows `places[starts[i]..starts[i + 1]]` of `x` `[.., width]`, one after the other, to row
/// `ids[i]` of `sums` `[.., width]`. Cubes: the ids.
#[cube(launch_unchecked)]
pub fn scatter_sums(x: &[bf16], ids: &[u32], starts: &[u32], places: &[u32], sums: &mut [f32], width: u32) {
    let row = ids[CUBE_POS_X as usize];
    let first = starts[CUBE_POS_X as usize];
    let end = starts[(CUBE_POS_X + 1) as usize];
    let mut i = UNIT_POS_X;
    while i < width {
        let mut sum = sums[(row * width + i) as usize];
        let mut at = first;
        while at < end {
            sum += f32::cast_from(x[(places[at as usize] * width + i) as usize]);
            at += 1u32;
        }
        sums[(row * width + i) as usize] = sum;
        i += UNITS;
    }
}

/// Queries, keys and values of rows of `x` `[batch·seq, (heads + 2·kv)·dim]`, with a bias where `biased`:
/// queries to `[batch, kv, seq, group, dim]`, the others to `[batch, kv, seq, dim]`; queries and keys turned
/// by the angles of `positions` (of the place in the row where not `placed`) in the tables `[.., half]`. `half`
/// and `pairs` count lines.
/// Cubes: `batch·seq·(heads + 2·kv)·half / UNITS`.
#[cube(launch_unchecked)]
pub fn part_heads(
    x: &[Line],
    bias: &[Four],
    cos: &[Four],
    sin: &[Four],
    positions: &[u32],
    q: &mut [Line],
    k: &mut [Line],
    v: &mut [Line],
    pairs: u32,
    seq: u32,
    kv: u32,
    group: u32,
    half: u32,
    #[comptime] biased: bool,
    #[comptime] placed: bool,
) {
    let index = CUBE_POS_X * UNITS + UNIT_POS_X;
    if index < pairs {
        let total = kv * (group + 2u32);
        let j = index % half;
        let head = index / half % total;
        let token = index / half / total;
        let place = token % seq;
        let batch = token / seq;
        let from = (token * total + head) * 2u32 * half + j;
        let mut a = Four::cast_from(x[from as usize]);
        let mut b = Four::cast_from(x[(from + half) as usize]);
        if comptime!(biased) {
            a += bias[(head * 2u32 * half + j) as usize];
            b += bias[(head * 2u32 * half + half + j) as usize];
        }
        let mut position = place;
        if comptime!(placed) {
            position = positions[token as usize];
        }
        let c = cos[(position * half + j) as usize];
        let s = sin[(position * half + j) as usize];
        let low = Line::cast_from(a * c - b * s);
        let high = Line::cast_from(b * c + a * s);
        let queries = kv * group;
        if head < queries {
            let of = batch * kv + head / group;
            let to = ((of * seq + place) * group + head % group) * 2u32 * half + j;
            q[to as usize] = low;
            q[(to + half) as usize] = high;
        } else if head < queries + kv {
            let to = ((batch * kv + head - queries) * seq + place) * 2u32 * half + j;
            k[to as usize] = low;
            k[(to + half) as usize] = high;
        } else {
            let to = ((batch * kv + head - queries - kv) * seq + place) * 2u32 * half + j;
            v[to as usize] = Line::cast_from(a);
            v[(to + half) as usize] = Line::cast_from(b);
        }
    }
}

/// The other way, for gradients: from those of [`part_heads`]' results (`by_k` and `by_v` in f32) to that of
/// its `x`. Cubes: as there.
#[cube(launch_unchecked)]
pub fn join_heads(
    by_q: &[Line],
    by_k: &[Four],
    by_v: &[Four],
    cos: &[Four],
    sin: &[Four],
    positions: &[u32],
    out: &mut [Line],
    pairs: u32,
    seq: u32,
    kv: u32,
    group: u32,
    half: u32,
    #[comptime] placed: bool,
) {
    let index = CUBE_POS_X * UNITS + UNIT_POS_X;
    if index < pairs {
        let total = kv * (group + 2u32);
        let j = index % half;
        let head = index / half % total;
        let token = index / half / total;
        let place = token % seq;
        let batch = token / seq;
        let mut position = place;
        if comptime!(placed) {
            position = positions[token as usize];
        }
        let c = cos[(position * half + j) as usize];
        let s = sin[(position * half + j) as usize];
        let queries = kv * group;
        let mut a = Four::new(0.0f32);
        let mut b = Four::new(0.0f32);
        if head < queries {
            let of = batch * kv + head / group;
            let from = ((of * seq + place) * group + head % group) * 2u32 * half + j;
            a += Four::cast_from(by_q[from as usize]);
            b += Four::cast_from(by_q[(from + half) as usize]);
        } else if head < queries + kv {
            let from = ((batch * kv + head - queries) * seq + place) * 2u32 * half + j;
            a += by_k[from as usize];
            b += by_k[(from + half) as usize];
        } else {
            let from = ((batch * kv + head - queries - kv) * seq + place) * 2u32 * half + j;
            a += by_v[from as usize];
            b += by_v[(from + half) as usize];
        }
        let mut low = a;
        let mut high = b;
        if head < queries + kv {
            low = a * c + b * s;
            high = b * c - a * s;
        }
        let to = (token * total + head) * 2u32 * half + j;
        out[to as usize] = Line::cast_from(low);
        out[(to + half) as usize] = Line::cast_from(high);
    }
}

/// `[batch, kv, seq, group·dim]` from `[batch, seq, kv, group·dim]`, or with `back` the other way; `width` is
/// `group·dim`; it and `len` count lines. Cubes: `len / UNITS`.
#[cube(launch_unchecked)]
pub fn swap_heads(
    x: &[Line],
    out: &mut [Line],
    len: u32,
    seq: u32,
    kv: u32,
    width: u32,
    #[comptime] back: bool,
) {
    let row = CUBE_POS_X * UNITS + UNIT_POS_X;
    if row < len {
        let j = row % width;
        let rest = row / width;
        let head = rest % kv;
        let place = rest / kv % seq;
        let batch = rest / kv / seq;
        let column = ((batch * kv + head) * seq + place) * width + j;
        if comptime!(back) {
            out[row as usize] = x[column as usize];
        } else {
            out[column as usize] = x[row as usize];
        }
    }
}

/// What a product is added to: a bias `[width]` in every row, on top of `base` where `based`. Cubes:
/// `len / (UNITS·EACH)`.
#[cube(launch_unchecked)]
pub fn base_rows(
    base: &[bf16],
    bias: &[f32],
    out: &mut [bf16],
    len: u32,
    width: u32,
    #[comptime] based: bool,
) {
    let first = CUBE_POS_X * comptime!(UNITS * EACH) + UNIT_POS_X;
    #[unroll]
    for i in 0..EACH {
        let at = first + i * UNITS;
        if at < len {
            let mut value = bias[(at % width) as usize];
            if comptime!(based) {
                value += f32::cast_from(base[at as usize]);
            }
            out[at as usize] = bf16::cast_from(value);
        }
    }
}

/// A bias in f32 from a model's and an adapter's, each where it is there. Cubes: `len / UNITS`.
#[cube(launch_unchecked)]
pub fn sum_bias(
    own: &[bf16],
    extra: &[f32],
    out: &mut [f32],
    len: u32,
    #[comptime] owned: bool,
    #[comptime] extended: bool,
) {
    let at = CUBE_POS_X * UNITS + UNIT_POS_X;
    if at < len {
        let mut value = 0.0f32;
        if comptime!(owned) {
            value += f32::cast_from(own[at as usize]);
        }
        if comptime!(extended) {
            value += extra[at as usize];
        }
        out[at as usize] = value;
    }
}

/// Numbers in bf16. Cubes: `len / (UNITS·EACH)`.
#[cube(launch_unchecked)]
pub fn round(x: &[f32], out: &mut [bf16], len: u32) {
    let first = CUBE_POS_X * comptime!(UNITS * EACH) + UNIT_POS_X;
    #[unroll]
    for i in 0..EACH {
        let at = first + i * UNITS;
        if at < len {
            out[at as usize] = bf16::cast_from(x[at as usize]);
        }
    }
}

/// `x` `[.., width]` with the numbers zero whose hash of row and column is below `below`, the others times
/// `factor` (`pass::dropout`), added to `out` where `onto`. Cubes: `len / (UNITS·EACH)`.
#[cube(launch_unchecked)]
pub fn drop_out(
    x: &[bf16],
    rows: &[u32],
    columns: &[u32],
    out: &mut [bf16],
    len: u32,
    width: u32,
    below: u32,
    factor: f32,
    #[comptime] onto: bool,
) {
    let first = CUBE_POS_X * comptime!(UNITS * EACH) + UNIT_POS_X;
    #[unroll]
    for i in 0..EACH {
        let at = first + i * UNITS;
        if at < len {
            let both = rows[(at / width) as usize] ^ columns[(at % width) as usize];
            let mut low = both & 0xFFFFu32;
            let mut high = both >> 16u32;
            low = (low * 0x6A35u32 + high) & 0xFFFFu32;
            low ^= low >> 7u32;
            high = (high * 0x5D4Bu32 + low) & 0x7FFFu32;
            high ^= high >> 6u32;
            low = (low * 0x4F1Du32 + high) & 0xFFFFu32;
            low ^= low >> 7u32;
            high = (high * 0x7A69u32 + low) & 0x7FFFu32;
            high ^= high >> 6u32;
            low = (low * 0x652Fu32 + high) & 0xFFFFu32;
            low ^= low >> 7u32;
            high = (high * 0x3C6Fu32 + low) & 0x7FFFu32;
            high ^= high >> 6u32;
            let mut value = 0.0f32;
            if high >= below {
                value = f32::cast_from(x[at as usize]) * factor;
            }
            if comptime!(onto) {
                value = f32::cast_from(bf16::cast_from(value)) + f32::cast_from(out[at as usize]);
            }
            out[at as usize] = bf16::cast_from(value);
        }
    }
}
