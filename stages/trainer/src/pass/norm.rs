//! RMSNorm with its backward pass.

use burn::tensor::{DType, Tensor};
use lm::model::RmsNorm;

use super::{Sink, column_sums};
use crate::fused;

/// The norm of the rows of `x` `[rows, hidden]`.
pub(crate) fn norm_forward(norm: &RmsNorm, x: &Tensor<2>) -> Tensor<2> {
    fused::norm(x, &norm.weight, norm.eps).unwrap_or_else(|| norm.forward(x.clone()))
}

/// `skip` plus the gradient of `x` `[rows, hidden]` from that of its norm; the weight's goes to `sink`.
///
/// With `r = 1/√(mean x² + ε)`, `x̂ = x·r` and `g = dy·w`: `dx = r·(g - x̂·mean(g·x̂))`, `dw = Σ dy·x̂`.
/// In f32, brought back to `x`'s dtype.
pub(crate) fn norm_backward(
    norm: &RmsNorm,
    name: &str,
    x: Tensor<2>,
    by_output: Tensor<2>,
    skip: Tensor<2>,
    sink: &mut Sink,
) -> Tensor<2> {
    let unit_and_rms = || {
        let x = x.clone().cast(DType::F32);
        let rms = (x.clone().square().mean_dim(1) + norm.eps).sqrt();
        (x / rms.clone(), rms)
    };
    sink.add(name, || {
        let plain = || column_sums(by_output.clone().cast(DType::F32) * unit_and_rms().0);
        fused::norm_weight(&x, &by_output, norm.eps).unwrap_or_else(plain)
    });
    if let Some(sum) = fused::norm_backward(&x, &norm.weight, &by_output, &skip, norm.eps) {
        return sum;
    }
    let (unit, rms) = unit_and_rms();
    let by_unit = by_output.cast(DType::F32) * norm.weight.clone().cast(DType::F32).unsqueeze();
    let along = (by_unit.clone() * unit.clone()).mean_dim(1);
    skip + ((by_unit - unit * along) / rms).cast(x.dtype())
}
