//! Products of activations `[rows, k]` with weights `[out, k]`, both bf16, summed in f32.
//!
//! The weights are the instruction's A and the activations its B, so that few rows waste little. A
//! plane owns 32 outputs and 8 × `tiles` rows. A cube of `planes` planes takes `depth` steps of 32
//! numbers at a time: each plane loads its weights from memory straight into registers, all together
//! the activations through shared memory; while one cube of a multiprocessor waits, others compute.
//! Where there are fewer outputs than the GPU can stream at once, `k` is split among cubes and each
//! writes its own slab of partial sums for the next kernel to add up.
//!
//! The order of every sum depends on `k`, the weights' shape and the GPU alone, not on how many rows
//! there are or what is in them.

use cubecl::prelude::*;
use half::bf16;

use super::PLANE;
use super::fragment::{Line, Sum, multiply, place};
use super::math::exp;

/// Outputs of one plane.
pub const OUTPUTS: u32 = 32;
/// The shared dimension is split at multiples of so many steps.
const CHUNK: u32 = 4;

/// Adds steps `begin..end` of the product of two times 16 weight rows with 8 × `tiles` activation
/// rows. `at` are the lines where the lane's four weight rows start, `x_at` the first line of the
/// cube's activation tiles, `x_step` the lines of a step, `shared` room for `depth` of them. Every
/// unit of the cube takes part.
#[cube]
fn stream(
    a: &[Line],
    b: &[Line],
    at: &Array<u32>,
    x: &[Line],
    x_at: u32,
    x_step: u32,
    begin: u32,
    end: u32,
    sums: &mut Array<Sum>,
    shared: &mut Shared<[Line]>,
    #[comptime] planes: u32,
    #[comptime] tiles: usize,
    #[comptime] depth: usize,
) {
    // Lines of one step's activations; lines that each unit fetches, and whether some unit has less.
    let width = comptime!(tiles as u32 * PLANE);
    let units = comptime!(planes * PLANE);
    let wanted = comptime!(depth as u32 * width);
    let share = comptime!(wanted.div_ceil(units) as usize);
    let uneven = comptime!(wanted % units != 0);
    let mut lines = Array::<Line>::new(comptime!(4 * depth));
    let mut fetched = Array::<Line>::new(share);
    let groups = (end - begin) / depth as u32;
    for group in 0..groups {
        let step = begin + group * depth as u32;
        #[unroll]
        for d in 0..depth {
            load(a, b, at, (step + d as u32) * 4, &mut lines, d);
        }
        #[unroll]
        for i in 0..share {
            let mut index = comptime!(i as u32 * units) + UNIT_POS_X;
            if comptime!(uneven) {
                index = min(index, wanted - 1);
            }
            fetched[i] = x[(x_at + (step + index / width) * x_step + index % width) as usize];
        }
        // Loads stay above this: left to itself, the compiler loads each line of weights just before
        // its use, and one is under way at a time.
        sync_cube();
        #[unroll]
        for i in 0..share {
            let mut index = comptime!(i as u32 * units) + UNIT_POS_X;
            if comptime!(uneven) {
                // Several units store the last line, all the same.
                index = min(index, wanted - 1);
            }
            shared[index as usize] = fetched[i];
        }
        sync_cube();
        #[unroll]
        for d in 0..depth {
            let stored = shared.with_vector_size::<Const<4>>();
            apply(&lines, d, stored, comptime!(d as u32 * width), sums, tiles);
        }
    }
    for step in begin + groups * depth as u32..end {
        load(a, b, at, step * 4, &mut lines, 0usize);
        apply(&lines, 0usize, x, x_at + step * x_step, sums, tiles);
    }
}

/// Loads a step's weights as number `d` of the lines.
#[cube]
fn load(a: &[Line], b: &[Line], at: &Array<u32>, offset: u32, lines: &mut Array<Line>, #[comptime] d: usize) {
    lines[comptime!(4 * d)] = a[(at[0] + offset) as usize];
    lines[comptime!(4 * d + 1)] = a[(at[1] + offset) as usize];
    lines[comptime!(4 * d + 2)] = b[(at[2] + offset) as usize];
    lines[comptime!(4 * d + 3)] = b[(at[3] + offset) as usize];
}

/// Multiplies step `d` of the lines with the activations from line `x_at` on.
#[cube]
fn apply(
    lines: &Array<Line>,
    #[comptime] d: usize,
    x: &[Line],
    x_at: u32,
    sums: &mut Array<Sum>,
    #[comptime] tiles: usize,
) {
    let a_low = lines[comptime!(4 * d)];
    let a_high = lines[comptime!(4 * d + 1)];
    let b_low = lines[comptime!(4 * d + 2)];
    let b_high = lines[comptime!(4 * d + 3)];
    let lane = UNIT_POS_X % PLANE;
    // A number that is zero and not known to be: combined with it, a line stays one load, where the
    // compiler would else load its words one by one, each where it is used.
    let zero = Line::new(lane >> 5u32);
    #[unroll]
    for tile in 0..tiles {
        let column = x[(x_at + tile as u32 * PLANE + lane) as usize] ^ zero;
        multiply(a_low, a_high, column, sums, comptime!(2 * tile));
        multiply(b_low, b_high, column, sums, comptime!(2 * (tiles + tile)));
    }
}

/// `out[split, row, o] = Σ x[row, k] w[o, k]` over the split's part of `k`, where `w` are up to three
/// matrices of `outs` outputs one below the other. `x` is an activation (see `fragment`), `out`
/// `[splits, rows, Σ outs]`, rows padded to 8 × `tiles`.
///
/// Cubes: `(rows / (8 tiles), planes of 32 outputs / planes, splits)`; `stride` is lines from a weight
/// row to the next.
#[allow(clippy::if_same_then_else, reason = "which branch is compiled at all depends on `matrices`")]
#[cube(launch_unchecked)]
pub fn product(
    x: &[Line],
    w0: &mut [Line],
    w1: &mut [Line],
    w2: &mut [Line],
    out: &mut [f32],
    outs0: u32,
    outs1: u32,
    outs2: u32,
    stride: u32,
    steps: u32,
    splits: u32,
    rows: u32,
    #[comptime] matrices: u32,
    #[comptime] planes: u32,
    #[comptime] tiles: usize,
    #[comptime] depth: usize,
) {
    // Never so: buffers that a kernel may write are loaded in order, constant ones at any time.
    if steps == 0 {
        w0[0] = Line::new(0u32);
        w1[0] = Line::new(0u32);
        w2[0] = Line::new(0u32);
    }
    let w0 = w0.with_vector_size::<Const<4>>();
    let w1 = w1.with_vector_size::<Const<4>>();
    let w2 = w2.with_vector_size::<Const<4>>();
    let lane = UNIT_POS_X % PLANE;
    let (g, t) = (lane / 4, lane % 4);
    let plane = CUBE_POS_Y * planes + UNIT_POS_X / PLANE;
    let planes0 = outs0.div_ceil(OUTPUTS);
    let planes1 = outs1.div_ceil(OUTPUTS);
    let planes2 = outs2.div_ceil(OUTPUTS);
    // Planes beyond the last help to fetch activations.
    let idle = plane >= planes0 + planes1 + planes2;
    let chunks = steps.div_ceil(CHUNK);
    let begin = CUBE_POS_Z * chunks / splits * CHUNK;
    let end = min((CUBE_POS_Z + 1) * chunks / splits * CHUNK, steps);
    let x_at = CUBE_POS_X * tiles as u32 * PLANE;
    let x_step = CUBE_COUNT_X * tiles as u32 * PLANE;
    let mut shared = Shared::<[Line]>::new_slice(comptime!(depth * tiles * PLANE as usize));
    let mut sums = Array::<Sum>::new(comptime!(4 * tiles));
    #[unroll]
    for i in 0..comptime!(4 * tiles) {
        sums[i] = Sum::new(0.0f32);
    }
    let mut first = plane * OUTPUTS;
    let mut outs = outs0;
    let mut base = 0u32;
    if comptime!(matrices > 1) {
        if plane >= planes0 {
            first = (plane - planes0) * OUTPUTS;
            outs = outs1;
            base = outs0;
        }
        if plane >= planes0 + planes1 {
            first = (plane - planes0 - planes1) * OUTPUTS;
            outs = outs2;
            base = outs0 + outs1;
        }
    }
    let mut at = Array::<u32>::new(4usize);
    #[unroll]
    for i in 0..4u32 {
        // Outputs beyond the last are computed as copies of it and not written.
        at[i as usize] = min(first + i * 8 + g, outs - 1) * stride + t;
    }
    if comptime!(matrices == 1) {
        stream(w0, w0, &at, x, x_at, x_step, begin, end, &mut sums, &mut shared, planes, tiles, depth);
    } else if plane < planes0 {
        stream(w0, w0, &at, x, x_at, x_step, begin, end, &mut sums, &mut shared, planes, tiles, depth);
    } else if plane < planes0 + planes1 {
        stream(w1, w1, &at, x, x_at, x_step, begin, end, &mut sums, &mut shared, planes, tiles, depth);
    } else {
        stream(w2, w2, &at, x, x_at, x_step, begin, end, &mut sums, &mut shared, planes, tiles, depth);
    }
    let width = outs0 + outs1 + outs2;
    let row = CUBE_POS_Z * rows + CUBE_POS_X * (8 * tiles as u32) + 2 * t;
    #[unroll]
    for half in 0..2u32 {
        #[unroll]
        for tile in 0..tiles {
            #[unroll]
            for high in 0..2u32 {
                let output = first + half * 16 + high * 8 + g;
                if output < outs && !idle {
                    let sum = sums[comptime!(2 * (half as usize * tiles + tile) + high as usize)];
                    let place = (row + 8 * tile as u32) * width + base + output;
                    out[place as usize] = sum.extract(0usize);
                    out[(place + width) as usize] = sum.extract(1usize);
                }
            }
        }
    }
}

/// `out[row, o] = silu(x·gate[o]) · (x·up[o])`, an activation of `outs` numbers a row. `extra` `[rows,
/// 2 outs]`, where `extended`, is added to the two products before (a low-rank adapter's part), and
/// `bias` `[2 outs]` where `biased`.
///
/// Cubes: `(rows / (8 tiles), planes of 16 outputs / planes)`.
#[cube(launch_unchecked)]
pub fn gated_product(
    x: &[Line],
    gate: &mut [Line],
    up: &mut [Line],
    bias: &[f32],
    extra: &[f32],
    out: &mut [bf16],
    outs: u32,
    stride: u32,
    steps: u32,
    #[comptime] biased: bool,
    #[comptime] extended: bool,
    #[comptime] planes: u32,
    #[comptime] tiles: usize,
    #[comptime] depth: usize,
) {
    // Never so, see `product`.
    if steps == 0 {
        gate[0] = Line::new(0u32);
        up[0] = Line::new(0u32);
    }
    let gate = gate.with_vector_size::<Const<4>>();
    let up = up.with_vector_size::<Const<4>>();
    let lane = UNIT_POS_X % PLANE;
    let (g, t) = (lane / 4, lane % 4);
    let first = (CUBE_POS_Y * planes + UNIT_POS_X / PLANE) * 16;
    let x_at = CUBE_POS_X * tiles as u32 * PLANE;
    let x_step = CUBE_COUNT_X * tiles as u32 * PLANE;
    let mut shared = Shared::<[Line]>::new_slice(comptime!(depth * tiles * PLANE as usize));
    let mut sums = Array::<Sum>::new(comptime!(4 * tiles));
    #[unroll]
    for i in 0..comptime!(4 * tiles) {
        sums[i] = Sum::new(0.0f32);
    }
    let mut at = Array::<u32>::new(4usize);
    let low = min(first + g, outs - 1) * stride + t;
    let high = min(first + 8 + g, outs - 1) * stride + t;
    at[0] = low;
    at[1] = high;
    at[2] = low;
    at[3] = high;
    stream(gate, up, &at, x, x_at, x_step, 0, steps, &mut sums, &mut shared, planes, tiles, depth);
    let row = CUBE_POS_X * (8 * tiles as u32) + 2 * t;
    #[unroll]
    for tile in 0..tiles {
        #[unroll]
        for high in 0..2u32 {
            let output = first + high * 8 + g;
            if output < outs {
                #[unroll]
                for i in 0..2u32 {
                    let row = row + 8 * tile as u32 + i;
                    let mut a = sums[comptime!(2 * tile + high as usize)].extract(i as usize);
                    let mut b = sums[comptime!(2 * (tiles + tile) + high as usize)].extract(i as usize);
                    if comptime!(biased) {
                        a += bias[output as usize];
                        b += bias[(outs + output) as usize];
                    }
                    if comptime!(extended) {
                        a += extra[(row * 2 * outs + output) as usize];
                        b += extra[(row * 2 * outs + outs + output) as usize];
                    }
                    let value = a / (1.0f32 + exp(-a)) * b;
                    let to = place(row, output, CUBE_COUNT_X * tiles as u32);
                    out[to as usize] = bf16::cast_from(value);
                }
            }
        }
    }
}
