//! Number-format conversion of whole tensors, in parallel.

use half::{bf16, f16};
use rayon::prelude::*;

use super::TensorView;
use crate::config::FloatType;

/// Values per task: enough to hide the scheduling, small enough to share out.
const CHUNK: usize = 1 << 16;

/// A number format that weights are loaded into.
pub(super) trait Float: Copy + Default + Send + Sync {
    /// The format's tag.
    const TYPE: FloatType;
    /// Rounds to nearest even.
    fn from_f32(value: f32) -> Self;
}

impl Float for f32 {
    const TYPE: FloatType = FloatType::F32;
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Float for f16 {
    const TYPE: FloatType = FloatType::F16;
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
}

impl Float for bf16 {
    const TYPE: FloatType = FloatType::BF16;
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

/// The values of a tensor in another number format.
pub(super) fn to_vec<T: Float>(view: &TensorView<'_>) -> Vec<T> {
    match view.dtype {
        FloatType::F32 => map::<T, 4>(&view.bytes, |b| T::from_f32(f32::from_le_bytes(b))),
        FloatType::F16 => map::<T, 2>(&view.bytes, |b| T::from_f32(f16::from_le_bytes(b).to_f32())),
        FloatType::BF16 => map::<T, 2>(&view.bytes, |b| {
            T::from_f32(bf16::from_le_bytes(b).to_f32())
        }),
    }
}

fn map<T: Float, const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> T + Sync) -> Vec<T> {
    let mut out = vec![T::default(); bytes.len() / N];
    out.par_chunks_mut(CHUNK)
        .zip(bytes.par_chunks(CHUNK * N))
        .for_each(|(out, bytes)| {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
                *out = convert(*bytes);
            }
        });
    out
}
