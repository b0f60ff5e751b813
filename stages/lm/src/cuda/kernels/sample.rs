//! From logits to tokens: the arithmetic of `generate::sampling`, a row to a cube.
//!
//! A row's number `uniform` picks the token at which the running sum of the weights passes that
//! share of their total, as on the host, so that both choose alike from like logits. Weights are
//! `exp((logit - largest) / temperature)`, zero below the row's cutoff (top-k, top-p, min-p) and for
//! padding of the vocabulary.

use cubecl::prelude::*;

use super::PLANE;
use super::math::{exp, ln};
use super::rows::{UNITS, cube_sum};

const PLANES: usize = (UNITS / PLANE) as usize;
/// Logits of one chunk.
pub const CHUNK: u32 = 4096;
/// Logits of one unit in a chunk.
const SHARE: u32 = CHUNK / UNITS;
/// Numbers of a row's statistics per chunk: largest logit, sum of exponentials relative to it, largest
/// usable logit, its index.
pub const STATS: u32 = 4;
/// Numbers of a row's result: token, log-probability as drawn, log-probability under the model.
pub const RESULT: u32 = 4;
/// The token of a row whose logits are not finite.
pub const BROKEN: u32 = 0xFFFF_FFFF;

/// Bits of an f32 in the order of its values.
#[cube]
fn order(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    select(bits >= 0x8000_0000u32, !bits, bits | 0x8000_0000u32)
}

// By their bits: a compiler may assume that comparisons see numbers.
#[cube]
fn is_number(value: f32) -> bool {
    (u32::reinterpret(value) & 0x7FFF_FFFFu32) <= 0x7F80_0000u32
}

#[cube]
fn is_finite(value: f32) -> bool {
    (u32::reinterpret(value) & 0x7FFF_FFFFu32) < 0x7F80_0000u32
}

/// Statistics `[rows, chunks, 4]` of the chunks of `logits` `[rows, vocab]`. Cubes: `(chunks, rows)`.
#[cube(launch_unchecked)]
pub fn survey(logits: &[f32], stats: &mut [f32], vocab: u32, usable: u32) {
    let row = CUBE_POS_Y * vocab;
    let begin = CUBE_POS_X * CHUNK;
    let end = min(begin + CHUNK, vocab);
    let mut top = f32::new(f32::NEG_INFINITY);
    let mut best = f32::new(f32::NEG_INFINITY);
    let mut best_at = begin;
    let mut broken = 0.0f32;
    let mut i = begin + UNIT_POS_X;
    while i < end {
        let value = logits[(row + i) as usize];
        if !is_number(value) {
            broken = 1.0f32;
        }
        top = max(top, value);
        if i < usable && value > best {
            best = value;
            best_at = i;
        }
        i += UNITS;
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime!(2 * PLANES));
    let mut shared_at = Shared::<[u32]>::new_slice(PLANES);
    // The first of the largest: ties go to the smaller index.
    #[unroll]
    for shift in 0..5u32 {
        let other_top = plane_shuffle_xor(top, comptime!(1u32 << shift));
        let other = plane_shuffle_xor(best, comptime!(1u32 << shift));
        let other_at = plane_shuffle_xor(best_at, comptime!(1u32 << shift));
        top = max(top, other_top);
        let better = other > best || (other == best && other_at < best_at);
        best = select(better, other, best);
        best_at = select(better, other_at, best_at);
    }
    if UNIT_POS_PLANE == 0 {
        let plane = UNIT_POS_X / PLANE;
        shared[(2 * plane) as usize] = top;
        shared[(2 * plane + 1) as usize] = best;
        shared_at[plane as usize] = best_at;
    }
    sync_cube();
    #[unroll]
    for plane in 0..PLANES {
        let other = shared[comptime!(2 * plane + 1)];
        let other_at = shared_at[plane];
        top = max(top, shared[comptime!(2 * plane)]);
        let better = other > best || (other == best && other_at < best_at);
        best = select(better, other, best);
        best_at = select(better, other_at, best_at);
    }
    let mut sum = 0.0f32;
    let mut i = begin + UNIT_POS_X;
    while i < end {
        sum += exp(logits[(row + i) as usize] - top);
        i += UNITS;
    }
    let sum = cube_sum(sum);
    let broken = cube_sum(broken);
    if UNIT_POS_X == 0 {
        let at = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) * STATS;
        stats[at as usize] = select(broken > 0.0f32, f32::new(f32::INFINITY), top);
        stats[(at + 1) as usize] = sum;
        stats[(at + 2) as usize] = best;
        stats[(at + 3) as usize] = f32::reinterpret(best_at);
    }
}

/// Over a row's chunks: the largest usable logit.
#[cube]
fn largest(stats: &[f32], row: u32, chunks: u32) -> f32 {
    let mut best = stats[(row * chunks * STATS + 2) as usize];
    for chunk in 1..chunks {
        best = max(best, stats[((row * chunks + chunk) * STATS + 2) as usize]);
    }
    best
}

/// Sum of the weights (`weighted`), or count, of a row's logits whose order is at least `bound`.
#[cube]
fn measure(
    logits: &[f32],
    row: u32,
    usable: u32,
    bound: u32,
    best: f32,
    temperature: f32,
    #[comptime] weighted: bool,
) -> f32 {
    let mut sum = 0.0f32;
    let mut i = UNIT_POS_X;
    while i < usable {
        let value = logits[(row + i) as usize];
        if order(value) >= bound {
            if comptime!(weighted) {
                sum += exp((value - best) / temperature);
            } else {
                sum += 1.0f32;
            }
        }
        i += UNITS;
    }
    cube_sum(sum)
}

/// The largest bound whose measure reaches `target`, at least `floor`.
#[cube]
fn search(
    logits: &[f32],
    row: u32,
    usable: u32,
    floor: u32,
    target: f32,
    best: f32,
    temperature: f32,
    #[comptime] weighted: bool,
) -> u32 {
    let mut low = floor;
    let mut high = order(best);
    while low < high {
        let middle = high - (high - low) / 2;
        if measure(logits, row, usable, middle, best, temperature, weighted) >= target {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// The order of the smallest logit that top-k, top-p and min-p leave, per row; `filters` are `[3,
/// rows]`: k (0 for all), p, and the share of min-p. Cubes: `rows`.
#[cube(launch_unchecked)]
pub fn cutoff(
    logits: &[f32],
    stats: &[f32],
    temperatures: &[f32],
    filters: &[f32],
    cutoffs: &mut [u32],
    vocab: u32,
    usable: u32,
    chunks: u32,
    rows: u32,
) {
    let index = CUBE_POS_X;
    let row = index * vocab;
    let temperature = temperatures[index as usize];
    let k = filters[index as usize];
    let p = filters[(rows + index) as usize];
    let share = filters[(2 * rows + index) as usize];
    let best = largest(stats, index, chunks);
    let mut bound = 0u32;
    if temperature > 0.0f32 {
        if k > 0.0f32 {
            bound = search(logits, row, usable, bound, k, best, temperature, false);
        }
        if p < 1.0f32 {
            let total = measure(logits, row, usable, bound, best, temperature, true);
            bound = search(logits, row, usable, bound, p * total, best, temperature, true);
        }
        if share > 0.0f32 {
            bound = max(bound, order(best + temperature * ln(share)));
        }
        bound = min(bound, order(best));
    }
    if UNIT_POS_X == 0 {
        cutoffs[index as usize] = bound;
    }
}

/// Sums of weights per chunk, `[rows, chunks]`. Cubes: `(chunks, rows)`.
#[cube(launch_unchecked)]
pub fn weigh(
    logits: &[f32],
    stats: &[f32],
    temperatures: &[f32],
    cutoffs: &[u32],
    sums: &mut [f32],
    vocab: u32,
    usable: u32,
    #[comptime] filtered: bool,
) {
    let (chunk, row) = (CUBE_POS_X, CUBE_POS_Y);
    let chunks = CUBE_COUNT_X;
    let temperature = temperatures[row as usize];
    if temperature > 0.0f32 {
        let best = largest(stats, row, chunks);
        let mut bound = 0u32;
        if comptime!(filtered) {
            bound = cutoffs[row as usize];
        }
        let mut sum = 0.0f32;
        let mut i = chunk * CHUNK + UNIT_POS_X;
        let end = min((chunk + 1) * CHUNK, usable);
        while i < end {
            let value = logits[(row * vocab + i) as usize];
            if order(value) >= bound {
                sum += exp((value - best) / temperature);
            }
            i += UNITS;
        }
        let sum = cube_sum(sum);
        if UNIT_POS_X == 0 {
            sums[(row * chunks + chunk) as usize] = sum;
        }
    }
}

/// Chooses each row's token: `results` `[rows, 4]`. Cubes: `rows`.
#[cube(launch_unchecked)]
pub fn choose(
    logits: &[f32],
    stats: &[f32],
    sums: &[f32],
    temperatures: &[f32],
    uniforms: &[f32],
    cutoffs: &[u32],
    results: &mut [u32],
    vocab: u32,
    usable: u32,
    chunks: u32,
    #[comptime] filtered: bool,
) {
    let index = CUBE_POS_X;
    let row = index * vocab;
    let first = index * chunks;
    let mut top = f32::new(f32::NEG_INFINITY);
    let mut best = f32::new(f32::NEG_INFINITY);
    let mut token = 0u32;
    for chunk in 0..chunks {
        let at = (first + chunk) * STATS;
        top = max(top, stats[at as usize]);
        let value = stats[(at + 2) as usize];
        if value > best {
            best = value;
            token = u32::reinterpret(stats[(at + 3) as usize]);
        }
    }
    let mut sum = 0.0f32;
    for chunk in 0..chunks {
        let at = (first + chunk) * STATS;
        sum += stats[(at + 1) as usize] * exp(stats[at as usize] - top);
    }
    let log_sum = top + ln(sum);
    let temperature = temperatures[index as usize];
    let mut logprob = 0.0f32;
    if temperature > 0.0f32 {
        let mut bound = 0u32;
        if comptime!(filtered) {
            bound = cutoffs[index as usize];
        }
        let mut total = 0.0f32;
        for chunk in 0..chunks {
            total += sums[(first + chunk) as usize];
        }
        // The chunk in which the running sum passes the target; rounding may use the total up.
        let mut target = uniforms[index as usize] * total;
        let mut found = 0u32;
        let mut chunk = 0u32;
        let mut rest = target;
        while chunk < chunks {
            let weight = sums[(first + chunk) as usize];
            if weight > 0.0f32 {
                found = chunk;
                target = rest;
                if rest < weight {
                    chunk = chunks;
                } else {
                    rest -= weight;
                }
            }
            chunk += 1;
        }
        // Each unit's share of the chunk.
        let begin = found * CHUNK + UNIT_POS_X * SHARE;
        let end = min(begin + SHARE, usable);
        let mut weight = 0.0f32;
        let mut last = 0xFFFF_FFFFu32;
        for i in begin..end {
            let value = logits[(row + i) as usize];
            if order(value) >= bound {
                let w = exp((value - best) / temperature);
                weight += w;
                if w > 0.0f32 {
                    last = i;
                }
            }
        }
        let mut shared = Shared::<[f32]>::new_slice(UNITS as usize);
        let mut shared_last = Shared::<[u32]>::new_slice(UNITS as usize);
        shared[UNIT_POS_X as usize] = weight;
        shared_last[UNIT_POS_X as usize] = last;
        sync_cube();
        // Every unit walks the sums alike; they are few.
        let mut rest = target;
        let mut unit = 0u32;
        let mut chosen = 0u32;
        let mut within = target;
        while unit < UNITS {
            let weight = shared[unit as usize];
            if weight > 0.0f32 {
                chosen = unit;
                within = rest;
                if rest < weight {
                    unit = UNITS;
                } else {
                    rest -= weight;
                }
            }
            unit += 1;
        }
        token = shared_last[chosen as usize];
        let begin = found * CHUNK + chosen * SHARE;
        let end = min(begin + SHARE, usable);
        let mut i = begin;
        while i < end {
            let value = logits[(row + i) as usize];
            if order(value) >= bound {
                within -= exp((value - best) / temperature);
                if within < 0.0f32 {
                    token = i;
                    i = end;
                }
            }
            i += 1;
        }
        let value = logits[(row + min(token, vocab - 1)) as usize];
        logprob = (value - best) / temperature - ln(total);
    }
    if UNIT_POS_X == 0 {
        let at = index * RESULT;
        let value = logits[(row + min(token, vocab - 1)) as usize];
        let model = value - log_sum;
        if !(is_finite(top) && is_finite(log_sum)) {
            token = BROKEN;
        }
        results[at as usize] = token;
        results[(at + 1) as usize] = u32::reinterpret(logprob);
        results[(at + 2) as usize] = u32::reinterpret(model);
    }
}
