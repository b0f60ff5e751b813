//! Attention over the cache, in 32-key blocks with a running softmax (Dao et al., FlashAttention-2).
//!
//! The query heads of a group, and for prompts also consecutive tokens, are rows of one tile of 16,
//! so that each key and value is read once for all of them. Scores come out of the tensor core in
//! the layout in which the next product wants them: the block's keys are dealt to its columns so
//! that lane `t` of a group holds keys `8t..8t + 8`, which are also the ones whose values one
//! 16-byte load of the transposed value cache brings.

use cubecl::prelude::*;
use half::bf16;

use super::PLANE;
use super::fragment::{Line, Sum, multiply, spot};
use super::math::exp;

/// Rows of a tile: pairs of token and query head.
pub const TILE: u32 = 16;
/// Keys of a block.
pub const BLOCK: u32 = 32;
/// A score that is not seen.
const HIDDEN: f32 = -1e30;

/// Two f32 as bf16 in one register.
#[cube]
fn pack(low: f32, high: f32) -> u32 {
    let mut both = Sum::new(low);
    both.insert(1usize, high);
    u32::reinterpret(Vector::<bf16, Const<2>>::cast_from(both))
}

/// The larger of a row's values over the four lanes that share it.
#[cube]
fn row_max(value: f32) -> f32 {
    let other = max(value, plane_shuffle_xor(value, 1u32));
    max(other, plane_shuffle_xor(other, 2u32))
}

#[cube]
fn row_sum(value: f32) -> f32 {
    let other = value + plane_shuffle_xor(value, 1u32);
    other + plane_shuffle_xor(other, 2u32)
}

/// Adds `blocks` blocks of keys, from key `begin` on and `stride` apart, to a tile's running softmax.
/// Every plane of the cube takes part in as many; a block beyond key `last`, which begins one, counts
/// for nothing.
///
/// `queries` from line `queries_at` on are the tile's rows `g` and `g + 8`, a pair of lines for each 32
/// dimensions and lane; `seen` the number of keys those rows may see; `keys_at` and `values_at` the first lines of the slot's head.
/// `peak` and `total` are the rows' running maxima and (this lane's part of the) sums, `sums`
/// `[dim / 8][2]` the weighted values.
#[cube]
fn attend_keys(
    queries: &Shared<[Line]>,
    queries_at: u32,
    seen: &Array<u32>,
    keys: &[Line],
    values: &[Line],
    keys_at: u32,
    values_at: u32,
    capacity: u32,
    begin: u32,
    blocks: u32,
    stride: u32,
    last: u32,
    scale: f32,
    peak: &mut Array<f32>,
    total: &mut Array<f32>,
    sums: &mut Array<Sum>,
    #[comptime] dim: usize,
) {
    let lane = UNIT_POS_X % PLANE;
    let (g, t) = (lane / 4, lane % 4);
    let query_at = queries_at + lane;
    let mut block = begin;
    for _ in 0..blocks {
        // Beyond the last block: any keys, for all planes meet below.
        let place = min(block, last);
        // Column `g` of tile `j` is key `8 (g / 2) + 2j + g % 2`.
        let key = place + g / 2 * 8 + g % 2;
        let mut key_lines = Array::<Line>::new(comptime!(dim / 8));
        let mut value_lines = Array::<Line>::new(comptime!(dim / 8));
        #[unroll]
        for part in 0..comptime!(dim / 32) {
            #[unroll]
            for tile in 0..4usize {
                let row = key + 2 * tile as u32;
                let at = keys_at + row * comptime!(dim as u32 / 8) + comptime!(4 * part as u32) + t;
                key_lines[comptime!(4 * part + tile)] = keys[at as usize];
            }
        }
        #[unroll]
        for n in 0..comptime!(dim / 8) {
            let row = n as u32 * 8 + g;
            value_lines[n] = values[(values_at + (row * capacity + place) / 8 + t) as usize];
        }
        // Loads stay above this, see `product`, and what needs a query below.
        sync_cube();
        let mut scores = Array::<Sum>::new(8usize);
        #[unroll]
        for i in 0..8usize {
            scores[i] = Sum::new(0.0f32);
        }
        #[unroll]
        for part in 0..comptime!(dim / 32) {
            #[unroll]
            for tile in 0..4usize {
                let low = queries[(query_at + comptime!(2 * part as u32) * PLANE) as usize];
                let high = queries[(query_at + comptime!(2 * part as u32 + 1) * PLANE) as usize];
                let line = key_lines[comptime!(4 * part + tile)];
                multiply(low, high, line, &mut scores, comptime!(2 * tile));
            }
        }
        #[unroll]
        for row in 0..2usize {
            let limit = seen[row];
            let mut largest = peak[row];
            #[unroll]
            for tile in 0..4usize {
                let mut pair = scores[comptime!(2 * tile + row)];
                #[unroll]
                for i in 0..2usize {
                    let key = block + t * 8 + comptime!(2 * tile as u32 + i as u32);
                    let score = select(key < limit, pair.extract(i) * scale, HIDDEN);
                    pair.insert(i, score);
                    largest = max(largest, score);
                }
                scores[comptime!(2 * tile + row)] = pair;
            }
            let largest = row_max(largest);
            let shrink = exp(peak[row] - largest);
            let mut sum = total[row] * shrink;
            #[unroll]
            for tile in 0..4usize {
                let mut pair = scores[comptime!(2 * tile + row)];
                #[unroll]
                for i in 0..2usize {
                    let score = pair.extract(i);
                    let weight = select(score > HIDDEN, exp(score - largest), 0.0f32);
                    pair.insert(i, weight);
                    sum += weight;
                }
                scores[comptime!(2 * tile + row)] = pair;
            }
            peak[row] = largest;
            total[row] = sum;
            #[unroll]
            for n in 0..comptime!(dim / 8) {
                sums[comptime!(2 * n + row)] *= Sum::new(shrink);
            }
        }
        let mut low = Line::new(0u32);
        let mut high = Line::new(0u32);
        #[unroll]
        for tile in 0..4usize {
            let a = scores[comptime!(2 * tile)];
            let b = scores[comptime!(2 * tile + 1)];
            low.insert(tile, pack(a.extract(0usize), a.extract(1usize)));
            high.insert(tile, pack(b.extract(0usize), b.extract(1usize)));
        }
        #[unroll]
        for n in 0..comptime!(dim / 8) {
            multiply(low, high, value_lines[n], sums, comptime!(2 * n));
        }
        block += stride;
    }
}

/// Puts rows `g` and `g + 8` of a tile of queries into `queries` from line `queries_at` on: row `r` is token `r / group` after `first_row`
/// and head `r % group` of the group. Rows beyond `rows` are copies of the last.
#[cube]
fn load_query(
    q: &[Line],
    queries: &mut Shared<[Line]>,
    queries_at: u32,
    seen: &mut Array<u32>,
    tile: u32,
    rows: u32,
    first_row: u32,
    first_position: u32,
    q_heads: u32,
    head: u32,
    group: u32,
    #[comptime] dim: usize,
) {
    let lane = UNIT_POS_X % PLANE;
    let (g, t) = (lane / 4, lane % 4);
    #[unroll]
    for half in 0..2usize {
        let row = min(tile * TILE + comptime!(8 * half as u32) + g, rows - 1);
        let token = row / group;
        seen[half] = first_position + token + 1;
        let at = ((first_row + token) * q_heads + head * group + row % group) * comptime!(dim as u32 / 8);
        #[unroll]
        for part in 0..comptime!(dim / 32) {
            let to = queries_at + comptime!((2 * part + half) as u32) * PLANE + lane;
            queries[to as usize] = q[(at + comptime!(4 * part as u32) + t) as usize];
        }
    }
}

/// Attention of one new token per sequence. Row `r` of `q` `[rows, q_heads, dim]` stands at
/// `positions[r]` in slot `slots[r]`; keys are `[slots, kv_heads, capacity, dim]`, values `[slots,
/// kv_heads, dim, capacity]`. A cube takes `chunk` keys of one sequence and one key head, dealt to
/// its planes in blocks, and writes the weighted values `[rows, q_heads, chunks, dim]` with maximum
/// and sum `[rows, q_heads, chunks, 2]` for [`combine`].
///
/// Cubes: `(chunks, kv_heads, rows)`.
#[cube(launch_unchecked)]
pub fn attend_token(
    q: &[Line],
    keys: &mut [Line],
    values: &mut [Line],
    slots: &[u32],
    positions: &[u32],
    out: &mut [Sum],
    stats: &mut [f32],
    group: u32,
    capacity: u32,
    chunk: u32,
    scale: f32,
    #[comptime] dim: usize,
    #[comptime] planes: u32,
) {
    // Never so, see `product`.
    if capacity == 0 {
        keys[0] = Line::new(0u32);
        values[0] = Line::new(0u32);
    }
    let keys = keys.with_vector_size::<Const<4>>();
    let values = values.with_vector_size::<Const<4>>();
    let lane = UNIT_POS_X % PLANE;
    let plane = UNIT_POS_X / PLANE;
    let (g, t) = (lane / 4, lane % 4);
    let (head, row) = (CUBE_POS_Y, CUBE_POS_Z);
    let position = positions[row as usize];
    let begin = CUBE_POS_X * chunk;
    if begin <= position {
        let end = min(begin + chunk, position + 1);
        let q_heads = CUBE_COUNT_Y * group;
        // The same for every plane.
        let mut queries = Shared::<[Line]>::new_slice(comptime!(dim / 16 * PLANE as usize));
        let mut seen = Array::<u32>::new(2usize);
        load_query(q, &mut queries, 0u32, &mut seen, 0u32, group, row, position, q_heads, head, group, dim);
        let mut peak = Array::<f32>::new(2usize);
        let mut total = Array::<f32>::new(2usize);
        let mut sums = Array::<Sum>::new(comptime!(dim / 4));
        #[unroll]
        for i in 0..2usize {
            peak[i] = HIDDEN;
            total[i] = 0.0f32;
        }
        #[unroll]
        for i in 0..comptime!(dim / 4) {
            sums[i] = Sum::new(0.0f32);
        }
        let slot_head = slots[row as usize] * CUBE_COUNT_Y + head;
        let head_lines = capacity * comptime!(dim as u32 / 8);
        attend_keys(
            &queries,
            0u32,
            &seen,
            keys,
            values,
            slot_head * head_lines,
            slot_head * head_lines,
            capacity,
            begin + plane * BLOCK,
            (end - begin).div_ceil(comptime!(planes * BLOCK)),
            comptime!(planes * BLOCK),
            position / BLOCK * BLOCK,
            scale,
            &mut peak,
            &mut total,
            &mut sums,
            dim,
        );
        // Each plane saw other keys: bring them together. Rows are a little apart from each other, for
        // lanes that write at once to meet different banks.
        let pitch = comptime!(dim as u32 / 2 + 4);
        let mut shared_peak = Shared::<[f32]>::new_slice(comptime!((planes * TILE) as usize));
        let mut shared_total = Shared::<[f32]>::new_slice(comptime!((planes * TILE) as usize));
        let mut shared_sums = Shared::<[Sum]>::new_slice(comptime!((planes * TILE * pitch) as usize));
        #[unroll]
        for half in 0..2u32 {
            let total = row_sum(total[half as usize]);
            let tile_row = plane * TILE + half * 8 + g;
            if t == 0 {
                shared_peak[tile_row as usize] = peak[half as usize];
                shared_total[tile_row as usize] = total;
            }
            if half * 8 + g < group {
                #[unroll]
                for n in 0..comptime!(dim / 8) {
                    let at = tile_row * pitch + comptime!(4 * n as u32) + t;
                    shared_sums[at as usize] = sums[comptime!(2 * n + half as usize)];
                }
            }
        }
        sync_cube();
        let chunks = CUBE_COUNT_X;
        let mut index = UNIT_POS_X;
        while index < group * comptime!(dim as u32 / 2) {
            let tile_row = index / comptime!(dim as u32 / 2);
            let d = index % comptime!(dim as u32 / 2);
            let mut largest = shared_peak[tile_row as usize];
            #[unroll]
            for p in 1..planes {
                largest = max(largest, shared_peak[(p * TILE + tile_row) as usize]);
            }
            let mut total = 0.0f32;
            let mut sum = Sum::new(0.0f32);
            #[unroll]
            for p in 0..planes {
                let from = p * TILE + tile_row;
                let weight = exp(shared_peak[from as usize] - largest);
                total += weight * shared_total[from as usize];
                sum += Sum::new(weight) * shared_sums[(from * pitch + d) as usize];
            }
            let place = (row * q_heads + head * group + tile_row) * chunks + CUBE_POS_X;
            out[(place * comptime!(dim as u32 / 2) + d) as usize] = sum;
            if d == 0 {
                stats[(2 * place) as usize] = largest;
                stats[(2 * place + 1) as usize] = total;
            }
            index += CUBE_DIM_X;
        }
    }
}

/// Brings the chunks of [`attend_token`] together, into an activation (`size` and `plain` as for
/// `fragment::spot`).
///
/// Cubes: `(q_heads, rows)` of `dim` units.
#[cube(launch_unchecked)]
pub fn combine(
    parts: &[f32],
    stats: &[f32],
    positions: &[u32],
    out: &mut [bf16],
    chunk: u32,
    chunks: u32,
    size: u32,
    #[comptime] dim: usize,
    #[comptime] plain: bool,
) {
    let row = CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X;
    let d = UNIT_POS_X;
    let used = positions[CUBE_POS_Y as usize] / chunk + 1;
    let mut largest = f32::new(HIDDEN);
    for c in 0..used {
        largest = max(largest, stats[(2 * (row * chunks + c)) as usize]);
    }
    let mut total = 0.0f32;
    let mut sum = 0.0f32;
    for c in 0..used {
        let at = row * chunks + c;
        let weight = exp(stats[(2 * at) as usize] - largest);
        total += weight * stats[(2 * at + 1) as usize];
        sum += weight * parts[(at * comptime!(dim as u32) + d) as usize];
    }
    let to = spot(CUBE_POS_Y, CUBE_POS_X * comptime!(dim as u32) + d, size, plain);
    out[to as usize] = bf16::cast_from(sum / total);
}

/// Causal attention of prompts: segment `s` are `lengths[s]` consecutive rows of `q` from
/// `starts[s]`, at consecutive positions of one slot whose earlier keys are in the cache. Each plane
/// takes a tile of rows through all keys that they see. Writes an activation (`size` and `plain` as for
/// `fragment::spot`).
///
/// Cubes: `(tiles / planes of the longest segment, kv_heads, segments)`.
#[cube(launch_unchecked)]
pub fn attend_prompt(
    q: &[Line],
    keys: &mut [Line],
    values: &mut [Line],
    starts: &[u32],
    lengths: &[u32],
    slots: &[u32],
    positions: &[u32],
    out: &mut [bf16],
    group: u32,
    capacity: u32,
    size: u32,
    scale: f32,
    #[comptime] dim: usize,
    #[comptime] planes: u32,
    #[comptime] plain: bool,
) {
    // Never so, see `product`.
    if capacity == 0 {
        keys[0] = Line::new(0u32);
        values[0] = Line::new(0u32);
    }
    let keys = keys.with_vector_size::<Const<4>>();
    let values = values.with_vector_size::<Const<4>>();
    let lane = UNIT_POS_X % PLANE;
    let (g, t) = (lane / 4, lane % 4);
    let (head, segment) = (CUBE_POS_Y, CUBE_POS_Z);
    let first_tile = CUBE_POS_X * planes;
    let tile = first_tile + UNIT_POS_X / PLANE;
    let first_row = starts[segment as usize];
    let rows = lengths[segment as usize] * group;
    if first_tile * TILE < rows {
        let q_heads = CUBE_COUNT_Y * group;
        let position = positions[first_row as usize];
        let room = comptime!(dim as u32 / 16 * PLANE);
        let mut queries = Shared::<[Line]>::new_slice(comptime!((planes * room) as usize));
        let queries_at = UNIT_POS_X / PLANE * room;
        let mut seen = Array::<u32>::new(2usize);
        load_query(
            q,
            &mut queries,
            queries_at,
            &mut seen,
            tile,
            rows,
            first_row,
            position,
            q_heads,
            head,
            group,
            dim,
        );
        let mut peak = Array::<f32>::new(2usize);
        let mut total = Array::<f32>::new(2usize);
        let mut sums = Array::<Sum>::new(comptime!(dim / 4));
        #[unroll]
        for i in 0..2usize {
            peak[i] = HIDDEN;
            total[i] = 0.0f32;
        }
        #[unroll]
        for i in 0..comptime!(dim / 4) {
            sums[i] = Sum::new(0.0f32);
        }
        // What the cube's last row sees.
        let end = position + min((first_tile + planes) * TILE - 1, rows - 1) / group + 1;
        let slot_head = slots[first_row as usize] * CUBE_COUNT_Y + head;
        let head_lines = capacity * comptime!(dim as u32 / 8);
        attend_keys(
            &queries,
            queries_at,
            &seen,
            keys,
            values,
            slot_head * head_lines,
            slot_head * head_lines,
            capacity,
            0u32,
            end.div_ceil(BLOCK),
            BLOCK,
            capacity - BLOCK,
            scale,
            &mut peak,
            &mut total,
            &mut sums,
            dim,
        );
        #[unroll]
        for half in 0..2u32 {
            let total = row_sum(total[half as usize]);
            let row = tile * TILE + half * 8 + g;
            if row < rows {
                let column = (head * group + row % group) * comptime!(dim as u32) + 2 * t;
                #[unroll]
                for n in 0..comptime!(dim / 8) {
                    let sum = sums[comptime!(2 * n + half as usize)];
                    let at = spot(first_row + row / group, column + comptime!(8 * n as u32), size, plain);
                    out[at as usize] = bf16::cast_from(sum.extract(0usize) / total);
                    out[(at + 1) as usize] = bf16::cast_from(sum.extract(1usize) / total);
                }
            }
        }
    }
}
