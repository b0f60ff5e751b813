//! The tensor-core instruction `mma.sync.m16n8k16` (bf16 in, f32 out; compute capability 8.0 and up).
//!
//! Lane `4g + t` of a plane holds, of A `[16, 16]`, the pairs of columns `2t` and `2t + 8` in rows
//! `g` and `g + 8`; of B `[16, 8]`, the same pairs of rows in column `g`; of C `[16, 8]`, columns
//! `2t`, `2t + 1` in rows `g` and `g + 8` (PTX ISA, "Matrix fragments for mma.m16n8k16"). The order
//! of the shared dimension is free as long as A and B agree. So a lane takes eight consecutive
//! numbers, one 16-byte load, of a row of A and of a column of B: the four lanes of a group cover 32
//! numbers, which feed two instructions, and nothing is moved between lanes.
//!
//! Activations are stored in the order in which lanes take them, [`place`]: a plane's load of a tile
//! of eight rows is 512 consecutive bytes. Those that cuBLAS takes are plain rows ([`spot`]).

use cubecl::cmma::MmaDefinition;
use cubecl::prelude::*;
use half::bf16;

/// 16 bytes: eight bf16 numbers.
pub type Line = Vector<u32, Const<4>>;
/// Two bf16 numbers, one register.
pub type Pair = Vector<bf16, Const<2>>;
/// Two neighbouring accumulators.
pub type Sum = Vector<f32, Const<2>>;

/// Numbers of the shared dimension that one line per lane covers.
pub const STEP: u32 = 32;

/// Rows of a tile of activations.
pub const TILE: u32 = 8;

/// Where number `k` of row `row` lies in an activation of `tiles` tiles of eight rows: `[k / 32,
/// tiles, 8 rows, 32]`.
#[cube]
pub fn place(row: u32, k: u32, tiles: u32) -> u32 {
    ((k / STEP * tiles + row / TILE) * TILE + row % TILE) * STEP + k % STEP
}

/// Where number `k` of row `row` of an activation lies: if `plain` in rows of `size` numbers, as
/// cuBLAS wants them, else in [`place`]'s order of `size` tiles.
#[cube]
pub fn spot(row: u32, k: u32, size: u32, #[comptime] plain: bool) -> u32 {
    let mut at = row * size + k;
    if comptime!(!plain) {
        at = place(row, k, size);
    }
    at
}

/// Adds A·B over 32 numbers of the shared dimension: `low` and `high` are rows `g` and `g + 8` of A,
/// `column` is column `g` of B, `sums[at]` and `sums[at + 1]` are rows `g` and `g + 8` of C.
#[cube]
pub fn multiply(low: Line, high: Line, column: Line, sums: &mut Array<Sum>, #[comptime] at: usize) {
    let mma = MmaDefinition::<bf16, bf16, f32>::new(16usize, 8usize, 16usize);
    #[unroll]
    for half in 0..2usize {
        let mut a = Array::<Pair>::new(4usize);
        a[0] = Pair::reinterpret(low.extract(comptime!(2 * half)));
        a[1] = Pair::reinterpret(high.extract(comptime!(2 * half)));
        a[2] = Pair::reinterpret(low.extract(comptime!(2 * half + 1)));
        a[3] = Pair::reinterpret(high.extract(comptime!(2 * half + 1)));
        let mut b = Array::<Pair>::new(2usize);
        b[0] = Pair::reinterpret(column.extract(comptime!(2 * half)));
        b[1] = Pair::reinterpret(column.extract(comptime!(2 * half + 1)));
        let mut c = Array::<Sum>::new(2usize);
        c[0] = sums[at];
        c[1] = sums[comptime!(at + 1)];
        let d = mma.execute(&a, &b, &c);
        sums[at] = d[0];
        sums[comptime!(at + 1)] = d[1];
    }
}
