//! Matrix products, by the fastest way there is on a device.

use burn::tensor::{DType, Tensor};

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

/// `a·b` of matrices `[batch, heads, .., ..]`, in the operands' number format.
pub fn products(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    #[cfg(feature = "cuda")]
    if let Some(c) = crate::nvidia::products(&a, &b) {
        return c;
    }
    a.matmul(b)
}
