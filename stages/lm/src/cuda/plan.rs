//! How a product is divided among the multiprocessors.

use super::kernels::fragment::STEP;
use super::kernels::product::OUTPUTS;

/// Planes that `outs` outputs need, each matrix by itself.
pub fn planes_of(outs: &[u32]) -> u32 {
    outs.iter().map(|o| o.div_ceil(OUTPUTS)).sum()
}

/// Planes of a cube where the shared dimension is split.
pub const PLANES: u32 = 4;
/// Cubes that one multiprocessor holds at once.
const RESIDENT: u32 = 3;
/// Steps that a part of the shared dimension has at least: starting and ending a plane, and the partial
/// sums, cost about as much.
const PART: u32 = 8;

/// Parts that the shared dimension `k` of a product is split into: where there are fewer cubes than
/// `processors` hold. It depends on the shape and the GPU alone: the number of rows must not change
/// the order of any sum.
pub fn splits(planes: u32, k: u32, processors: u32) -> u32 {
    let cubes = planes.div_ceil(PLANES);
    (RESIDENT * processors / cubes).min(k / STEP / PART).clamp(1, 16)
}

/// Planes of a cube of a product that is not split, of 4, 3 or 2 the one that leaves the least to do for
/// the busiest of `processors`.
pub fn cube_planes(planes: u32, processors: u32) -> u32 {
    let load = |of: &u32| planes.div_ceil(*of).div_ceil(processors) * of;
    [4, 3, 2].into_iter().min_by_key(load).unwrap_or(PLANES)
}

/// Row tiles of 8 that one plane takes, and how many steps ahead it loads: limited by registers.
pub fn tiles(rows: u32) -> (u32, u32) {
    match rows {
        0..=8 => (1, 4),
        9..=16 => (2, 4),
        17..=32 => (4, 4),
        33..=64 => (8, 2),
        _ => (16, 1),
    }
}

/// Rows rounded up to whole tiles.
pub fn padded(rows: u32) -> u32 {
    rows.next_multiple_of(8 * tiles(rows).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_products_are_split_and_large_ones_not() {
        let splits = |outs: u32, k| splits(planes_of(&[outs]), k, 132);
        assert_eq!(splits(152_064, 3584), 1);
        for (outs, k) in [(3584, 3584), (3584, 18_944), (4608, 3584), (576, 1536)] {
            let cubes = planes_of(&[outs]).div_ceil(PLANES) * splits(outs, k);
            assert!(splits(outs, k) > 1 && cubes <= 132 * RESIDENT, "{outs} {k}: {cubes}");
        }
    }

    #[test]
    fn unsplit_products_are_spread_evenly() {
        // gate and up of a 7B model: 395 cubes of 3 are 3 for each of 132, 296 of 4 up to 3 as well
        assert_eq!(cube_planes(1184, 132), 3);
        assert_eq!(cube_planes(planes_of(&[152_064]), 132), 4);
    }

    #[test]
    fn rows_are_padded_to_tiles() {
        let padded: Vec<u32> = [1, 8, 9, 17, 33, 64, 65, 129].map(padded).into();
        assert_eq!(padded, [8, 8, 16, 32, 64, 64, 128, 256]);
    }
}
