//! The numbers of all masters, one master after the other in a few long buffers: what a pass beside burn
//! adds to in place, and what devices exchange without gathering hundreds of small tensors first.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

/// Numbers of a buffer, at most, unless one master is longer.
const BUCKET: usize = 1 << 26;

/// Every master begins at a multiple of this, where burn makes views without copying (512 bytes).
const START: usize = 256;

/// Where each master lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    places: Vec<Place>,
    /// Lengths of the buffers.
    buckets: Vec<usize>,
}

/// A master's numbers: `start..start + len` of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub bucket: usize,
    pub start: usize,
    pub len: usize,
}

impl Layout {
    /// The layout of masters of these lengths.
    fn new(lengths: impl Iterator<Item = usize>) -> Self {
        let mut buckets: Vec<usize> = Vec::new();
        let places = lengths.map(|len| {
            let room = len.next_multiple_of(START);
            if buckets.last().is_none_or(|size| size + room > BUCKET) {
                buckets.push(0);
            }
            let bucket = buckets.len() - 1;
            let start = buckets[bucket];
            buckets[bucket] += room;
            Place { bucket, start, len }
        });
        Self { places: places.collect(), buckets }
    }

    /// The layout of masters of these shapes.
    pub fn of<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Arc<Self> {
        Arc::new(Self::new(shapes.map(|shape| shape.iter().product())))
    }
}

/// Buffers in a layout, on one device.
#[derive(Debug, Clone)]
pub(crate) struct Flat {
    layout: Arc<Layout>,
    /// What is between masters is zero in sums of gradients and has no meaning elsewhere.
    pub buckets: Vec<Tensor<1>>,
}

impl Flat {
    /// Zeros.
    pub fn zeros(layout: &Arc<Layout>, device: &Device, dtype: DType) -> Self {
        let zeros = |&len: &usize| Tensor::zeros([len], (device, dtype));
        Self { layout: layout.clone(), buckets: layout.buckets.iter().map(zeros).collect() }
    }

    /// A copy of `values`, one per master in their order; they are asked for buffer by buffer.
    pub fn gathered(layout: &Arc<Layout>, mut values: impl Iterator<Item = Tensor<1>>) -> Self {
        let of_bucket = |bucket: usize| {
            let mut pieces = Vec::new();
            for place in layout.places.iter().filter(|place| place.bucket == bucket) {
                let value = values.next().expect("one value per master, in their order");
                let gap = place.len.next_multiple_of(START) - place.len;
                let zeros = (gap > 0).then(|| Tensor::zeros([gap], (&value.device(), value.dtype())));
                pieces.push(value);
                pieces.extend(zeros);
            }
            Tensor::cat(pieces, 0)
        };
        Self { layout: layout.clone(), buckets: (0..layout.buckets.len()).map(of_bucket).collect() }
    }

    /// Other buffers in the same layout.
    pub fn like(&self, buckets: Vec<Tensor<1>>) -> Self {
        Self { layout: self.layout.clone(), buckets }
    }

    /// Each master's numbers: views of the buffers where the device allows it.
    pub fn parts(&self) -> Vec<Tensor<1>> {
        self.layout.places.iter().map(|place| part(&self.buckets[place.bucket], *place)).collect()
    }

    /// The places of the masters, in their order.
    #[cfg(feature = "cuda")]
    pub fn places(&self) -> &[Place] {
        &self.layout.places
    }
}

fn part(bucket: &Tensor<1>, Place { start, len, .. }: Place) -> Tensor<1> {
    // burn copies where the end is not aligned either
    #[cfg(feature = "cuda")]
    if let Some(view) = lm::nvidia::view(bucket, start, len) {
        return view;
    }
    bucket.clone().narrow(0, start, len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::loss::floats;
    use crate::optim::flat;

    #[test]
    fn a_master_longer_than_a_bucket_has_one_of_its_own() {
        let layout = Layout::new([10, BUCKET + 1, 10, 300].into_iter());
        let place = |bucket, start, len| Place { bucket, start, len };
        let last = [place(2, 0, 10), place(2, START, 300)];
        assert_eq!(layout.places, [&[place(0, 0, 10), place(1, 0, BUCKET + 1)], &last[..]].concat());
        assert_eq!(layout.buckets, [START, BUCKET + START, 3 * START]);
    }

    proptest! {
        #[test]
        fn what_is_gathered_comes_apart_again(lengths in prop::collection::vec(1usize..700, 1..9)) {
            let layout = Arc::new(Layout::new(lengths.iter().copied()));
            let numbers = |i: usize, len: usize| -> Vec<f32> { (0..len).map(|j| (i * 1000 + j) as f32).collect() };
            let values: Vec<Vec<f32>> = lengths.iter().enumerate().map(|(i, &len)| numbers(i, len)).collect();
            let tensors = values.iter().map(|v| flat(v.clone(), &Device::flex()));
            let whole = Flat::gathered(&layout, tensors);
            prop_assert_eq!(whole.parts().into_iter().map(floats).collect::<Vec<_>>(), values);
            let sizes: Vec<usize> = whole.buckets.iter().map(|bucket| bucket.dims()[0]).collect();
            prop_assert_eq!(&sizes, &layout.buckets);
        }
    }
}
