//! The gradient of the token embedding.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData};
use lm::product::wide_product;

/// Adds the gradients `by_hidden` `[tokens, hidden]` of the embedded `ids` to `sum` `[vocab, hidden]` f32.
///
/// Rows of equal ids are added up by a product with a matrix of zeros and ones, so that every row of
/// `sum` is written once: no order of additions is left to chance, and nothing waits in line.
pub(crate) fn embedding_gradient(sum: Tensor<2>, ids: &[u32], by_hidden: Tensor<2>) -> Tensor<2> {
    let device = by_hidden.device();
    if device == Device::flex() {
        // in line is fast enough there
        let index = integers(ids.iter().copied(), [ids.len()], &device);
        return sum.select_assign(0, index, by_hidden.cast(DType::F32), IndexingUpdateOp::Add);
    }
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for &id in ids {
        let next = places.len();
        places.entry(id).or_insert(next);
    }
    // rounded up so that few shapes occur; rows beyond the ids stay zero
    let rows = places.len().next_multiple_of(256);
    let columns = integers(ids.iter().map(|id| places[id] as u32), [1, ids.len()], &device);
    let numbers = integers(0..rows as u32, [rows, 1], &device);
    let shape = [rows, ids.len()];
    let ones = numbers.expand(shape).equal(columns.expand(shape)).float().cast(by_hidden.dtype());
    let sums = wide_product(ones, by_hidden).narrow(0, 0, places.len());
    let mut order: Vec<(usize, u32)> = places.into_iter().map(|(id, place)| (place, id)).collect();
    order.sort_unstable();
    let index = integers(order.iter().map(|&(_, id)| id), [order.len(), 1], &device);
    sum.scatter_nd(index, sums, IndexingUpdateOp::Add)
}

fn integers<const D: usize>(
    values: impl Iterator<Item = u32>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D, Int> {
    let values: Vec<i32> = values.map(|v| v as i32).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, DType::I32))
}
