//! LoRA's dropout: inputs of the factors set to zero at random, in training alone.
//!
//! Which ones is a function of the run's seed, the update, the sequence, the position in it, the
//! projection and the column: not of how sequences share a batch, nor of devices, nor of what was
//! computed before. So nothing has to be kept for the backward pass or for a resumed run. The mask is
//! hashed on the device from a random number per row and one per column.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lm::adapter::Projection;
use lm::rng::Stream;

/// Dropout in one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Share of numbers that become zero.
    pub rate: f64,
    /// Seed of the run.
    pub seed: u64,
    /// The update, counted from 0.
    pub step: u64,
}

impl Dropout {
    /// A random number for each of the rows, of which each is a sequence's number and a position in it.
    pub(crate) fn row_numbers(&self, origins: &[(u32, u32)]) -> Vec<u32> {
        let update = Stream::named(self.seed, "dropout").bits(self.step);
        let row = |&(sequence, position): &(u32, u32)| {
            Stream::new(update, u64::from(sequence)).bits(u64::from(position))
        };
        origins.iter().map(row).map(number).collect()
    }

    /// A random number for each column of the input of `projection` in layer `layer`.
    pub(crate) fn column_numbers(&self, layer: usize, projection: Projection, width: usize) -> Vec<u32> {
        let columns = Stream::named(self.seed, &format!("dropout {layer} {}", projection.path()));
        (0..width as u64).map(|i| number(columns.bits(i))).collect()
    }

    /// Hashes below this are dropped.
    pub(crate) fn below(&self) -> u32 {
        (self.rate * 2f64.powi(15)) as u32
    }

    /// What the others are multiplied with, so that the mean stays.
    pub(crate) fn factor(&self) -> f32 {
        (1.0 / (1.0 - self.rate)) as f32
    }
}

/// Dropout over the rows of one batch.
#[derive(Debug, Clone)]
pub(crate) struct Masks {
    dropout: Dropout,
    /// A random number per row, `[rows, 1]`.
    rows: Tensor<2, Int>,
}

/// Bits of the numbers that are hashed: products of halves stay below 2³¹, so that no device overflows.
const BITS: u32 = 31;

fn number(bits: u64) -> u32 {
    (bits >> (64 - BITS)) as u32
}

fn numbers(values: &[u32], shape: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, DType::I32))
}

impl Masks {
    /// For rows of which each is a sequence's number and a position in it.
    pub fn new(dropout: Dropout, origins: &[(u32, u32)], device: &Device) -> Self {
        let rows = numbers(&dropout.row_numbers(origins), [origins.len(), 1], device);
        Self { dropout, rows }
    }

    /// `x` `[rows, width]`, the input of `projection` in layer `layer` (or a gradient of it), with some
    /// numbers zero and the others scaled up, so that the mean stays.
    pub fn apply(&self, x: Tensor<2>, layer: usize, projection: Projection) -> Tensor<2> {
        let [_, width] = x.dims();
        let columns = self.dropout.column_numbers(layer, projection, width);
        let columns = numbers(&columns, [1, width], &x.device());
        let kept = hash(self.rows.clone(), columns).greater_elem(self.dropout.below() as i32 - 1);
        let factor = self.dropout.factor();
        let dtype = x.dtype();
        x * kept.float().cast(dtype).mul_scalar(factor)
    }
}

/// 15 random bits for every pair of a row's and a column's number.
fn hash(rows: Tensor<2, Int>, columns: Tensor<2, Int>) -> Tensor<2, Int> {
    let shape = [rows.dims()[0], columns.dims()[1]];
    let both = rows.expand(shape).bitwise_xor(columns.expand(shape));
    let mut low = both.clone().bitwise_and_scalar(0xFFFF);
    let mut high = both.bitwise_right_shift_scalar(16);
    // odd factors below 2^15; each half is stirred with the other
    for (a, b) in [(0x6A35, 0x5D4B), (0x4F1D, 0x7A69), (0x652F, 0x3C6F)] {
        low = (low.mul_scalar(a) + high.clone()).bitwise_and_scalar(0xFFFF);
        low = low.clone().bitwise_xor(low.bitwise_right_shift_scalar(7));
        high = (high.mul_scalar(b) + low.clone()).bitwise_and_scalar(0x7FFF);
        high = high.clone().bitwise_xor(high.bitwise_right_shift_scalar(6));
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::floats;

    fn mask(step: u64, origins: &[(u32, u32)], width: usize, layer: usize) -> Vec<f32> {
        let dropout = Dropout { rate: 0.25, seed: 5, step };
        let masks = Masks::new(dropout, origins, &Device::flex());
        let ones = Tensor::ones([origins.len(), width], &Device::flex());
        floats(masks.apply(ones, layer, Projection::Query))
    }

    #[test]
    fn a_mask_depends_on_update_sequence_position_and_place_alone() {
        let whole = mask(3, &[(0, 0), (0, 1), (7, 0)], 64, 2);
        let swapped = mask(3, &[(7, 0), (0, 0)], 64, 2);
        assert_eq!(whole[128..], swapped[..64]);
        assert_eq!(whole[..64], swapped[64..]);
        assert_ne!(whole[..64], whole[64..128]);
        assert_ne!(whole, mask(4, &[(0, 0), (0, 1), (7, 0)], 64, 2));
        assert_ne!(whole, mask(3, &[(0, 0), (0, 1), (7, 0)], 64, 3));
    }

    /// Of a million places a quarter is dropped, within five standard deviations; and neither
    /// neighbours nor the corners of rectangles hang together.
    #[test]
    fn masks_look_random() {
        let origins: Vec<(u32, u32)> = (0..1024).map(|i| (i / 32, i % 32)).collect();
        let width = 1024;
        let dropped: Vec<bool> = mask(0, &origins, width, 0).iter().map(|v| *v == 0.0).collect();
        let count = |of: &dyn Fn(usize, usize) -> bool| {
            let places = (0..1023).flat_map(|r| (0..1023).map(move |c| (r, c)));
            places.filter(|&(r, c)| of(r, c)).count() as f64 / (1023.0 * 1023.0)
        };
        let at = |r: usize, c: usize| dropped[r * width + c];
        let near =
            |got: f64, wanted: f64| assert!((got - wanted).abs() < 5.0 * 0.5 / 1023.0, "{got} {wanted}");
        near(count(&at), 0.25);
        near(count(&|r, c| at(r, c) && at(r, c + 1)), 1.0 / 16.0);
        near(count(&|r, c| at(r, c) && at(r + 1, c)), 1.0 / 16.0);
        let corners = |r: usize, c: usize| [at(r, c), at(r, c + 1), at(r + 1, c), at(r + 1, c + 1)];
        near(count(&|r, c| corners(r, c).iter().all(|d| *d)), 1.0 / 256.0);
        let odd = |r: usize, c: usize| corners(r, c).iter().filter(|d| **d).count() % 2 == 1;
        // of four independent places with p = 1/4, an odd number is dropped with (1 - (1/2)^4) / 2
        near(count(&odd), 15.0 / 32.0);
    }
}
