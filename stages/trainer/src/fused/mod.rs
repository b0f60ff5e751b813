//! Runs of elementwise operations as one kernel each, on NVIDIA GPUs in bf16.
//!
//! | module | what |
//! |---|---|
//! | `kernels` | the kernels |
//! | `launch` | from tensors to launches |
//!
//! Operation by operation, a layer writes and reads every intermediate result: ten times the memory
//! traffic of its operands, more time than its matrix products take. Every function here answers with
//! a result, or `None` where it does not apply (the CPU, f32, tensors in another layout), and the
//! caller computes the same with tensor operations. `PIPELINE_KERNELS=off` leaves everything to those.

#[cfg(feature = "cuda")]
pub(crate) mod kernels;
#[cfg(feature = "cuda")]
mod launch;

#[cfg(feature = "cuda")]
pub(crate) use launch::*;

#[cfg(not(feature = "cuda"))]
pub(crate) use without::*;

/// The queries of a block of scores.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) struct Rows {
    /// Number of the first query.
    pub start: usize,
    /// Queries of the block.
    pub queries: usize,
    /// Length of the sequence.
    pub seq: usize,
}

/// The scalars of one AdamW update; see [`crate::optim`].
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) struct Adam {
    pub clip: f64,
    /// What the weight is multiplied with.
    pub decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    /// Learning rate over the first moment's bias correction.
    pub rate: f64,
    /// Root of the second moment's bias correction.
    pub root: f64,
    pub eps: f64,
}

/// Without GPUs nothing applies.
#[cfg(not(feature = "cuda"))]
mod without {
    use burn::tensor::{Int, Tensor};

    use super::{Adam, Rows};

    pub(crate) fn dense_copy(_: &Tensor<4>) -> Option<Tensor<4>> {
        None
    }
    pub(crate) fn soften(_: &Tensor<4>, _: Option<&Tensor<2, Int>>, _: Rows, _: f32) -> Option<Tensor<4>> {
        None
    }
    pub(crate) fn soften_backward(_: &Tensor<4>, _: &Tensor<4>, _: Rows, _: f32) -> Option<Tensor<4>> {
        None
    }
    pub(crate) fn gate_up(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
        None
    }
    pub(crate) fn gate_up_backward(_: &Tensor<2>, _: &Tensor<2>, _: &Tensor<2>) -> Option<[Tensor<2>; 2]> {
        None
    }
    pub(crate) fn norm(_: &Tensor<2>, _: &Tensor<1>, _: f64) -> Option<Tensor<2>> {
        None
    }
    pub(crate) fn norm_backward(
        _: &Tensor<2>,
        _: &Tensor<1>,
        _: &Tensor<2>,
        _: &Tensor<2>,
        _: f64,
    ) -> Option<Tensor<2>> {
        None
    }
    pub(crate) fn turn(_: &Tensor<4>, _: &Tensor<4>, _: &Tensor<4>, _: bool) -> Option<Tensor<4>> {
        None
    }
    pub(crate) fn row_values(_: &Tensor<2>, _: &Tensor<2, Int>, _: f32) -> Option<Tensor<1>> {
        None
    }
    pub(crate) fn row_gradients(
        _: &Tensor<2>,
        _: &Tensor<2, Int>,
        _: &Tensor<1>,
        _: &Tensor<1>,
        _: f32,
    ) -> Option<Tensor<2>> {
        None
    }
    pub(crate) fn square_sums(_: &[Tensor<1>]) -> Option<Tensor<1>> {
        None
    }
    pub(crate) fn column_sums(_: &Tensor<2>) -> Option<Tensor<1>> {
        None
    }
    pub(crate) fn norm_weight(_: &Tensor<2>, _: &Tensor<2>, _: f64) -> Option<Tensor<1>> {
        None
    }
    pub(crate) fn adamw(_: [&Tensor<1>; 4], _: Adam) -> Option<[Tensor<1>; 3]> {
        None
    }
}
