//! The forward and backward pass of a model's parts, written out by hand.
//!
//! | module | what |
//! |---|---|
//! | `layer` | a decoder layer: what it keeps, its backward pass |
//! | `attention` | grouped-query attention in blocks of queries |
//! | `linear` | a projection with an adapter on it |
//! | `dropout` | LoRA's dropout |
//! | `norm` | RMSNorm |
//! | `embedding` | the gradient of the embedding |
//!
//! Automatic differentiation would keep every intermediate result, the attention's weights and f32
//! copies among them, and would compute products whose results nobody reads. By hand, a layer keeps
//! what its backward pass cannot do without, frozen weights cost nothing, and what has to be in
//! memory at once is a formula ([`crate::memory`]).

mod attention;
mod dropout;
mod embedding;
mod layer;
mod linear;
mod norm;

use std::collections::HashMap;

use burn::tensor::{DType, Tensor};

pub(crate) use attention::{block_beside, block_rows};
pub use dropout::Dropout;
pub(crate) use dropout::Masks;
pub(crate) use embedding::embedding_gradient;
pub(crate) use layer::{Kept, LayerPass};
pub(crate) use norm::{norm_backward, norm_forward};

use crate::fused;
use crate::gradient::Gradients;

/// Where gradients of named parameters go. Parameters that do not train have no place here, and their
/// gradients are not computed.
pub(crate) struct Sink<'a> {
    pub places: &'a HashMap<String, usize>,
    pub gradients: &'a mut Gradients,
}

impl Sink<'_> {
    /// Whether the parameter called `name` trains.
    pub fn wants(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Adds to the gradient of `name`, where it trains.
    pub fn add<const D: usize>(&mut self, name: &str, gradient: impl FnOnce() -> Tensor<D>) {
        if let Some(&index) = self.places.get(name) {
            let gradient = gradient();
            let len = gradient.dims().iter().product::<usize>();
            self.gradients.add(index, gradient.reshape([len]));
        }
    }
}

/// Sums over the rows of `[rows, columns]`, as `[columns]` f32.
///
/// In two steps, so that a GPU has more to do side by side than the columns.
pub(crate) fn column_sums(of: Tensor<2>) -> Tensor<1> {
    if let Some(sums) = fused::column_sums(&of) {
        return sums;
    }
    let [rows, columns] = of.dims();
    let parts = (1..=128).rev().find(|parts| rows.is_multiple_of(*parts)).unwrap_or(1);
    let of = of.cast(DType::F32).reshape([parts, rows / parts, columns]);
    of.sum_dim(1).reshape([parts, columns]).sum_dim(0).reshape([columns])
}
