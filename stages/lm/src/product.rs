//! Matrix products, by the fastest way there is on a device.
//!
//! In f32 they round as f32 does, on a GPU through cuBLAS. Where that is missing, burn's kernels round the
//! factors to TF32, and a line on standard error says so. Tensors that automatic differentiation tracks go
//! through burn everywhere.

use burn::tensor::{DType, Device, Tensor};

/// `a·b`, in the operands' number format.
pub fn product(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    #[cfg(feature = "cuda")]
    if let Some(c) = crate::nvidia::product(&a, &b, false) {
        return c;
    }
    a.matmul(b)
}

/// `a·b` in f32; where the device can, never rounded to less.
pub fn wide_product(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    #[cfg(feature = "cuda")]
    if let Some(c) = crate::nvidia::product(&a, &b, true) {
        return c;
    }
    a.matmul(b).cast(DType::F32)
}

/// `a·b` of matrices `[batch, heads, .., ..]`, as many on both sides, in the operands' number format.
pub fn products(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    #[cfg(feature = "cuda")]
    if let Some(c) = crate::nvidia::products(&a, &b) {
        return c;
    }
    a.matmul(b)
}

/// Whether f32 products on a device round their factors to TF32 (10 bits).
pub fn rounds_factors(device: &Device) -> bool {
    #[cfg(feature = "cuda")]
    return device.clone().without_autodiff() != Device::flex() && !crate::nvidia::blas_available();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}
