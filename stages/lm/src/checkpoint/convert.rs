//! Whole tensors into another number format, in parallel and row by row.

use half::slice::HalfFloatSliceExt;
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::format::Format;
use crate::config::FloatType;

/// Values per task: enough to hide the scheduling, small enough to share out.
const TASK: usize = 1 << 16;
/// Values decoded at once on the way to another format; stays in the first-level cache.
const STEP: usize = 1 << 11;

/// A tensor as it lies in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored<'a> {
    pub bytes: &'a [u8],
    pub format: Format,
    /// Rows and heads of a projection whose rows llama.cpp interleaved for its rotary
    /// embedding. Each head has an even number of rows, each row a whole number of blocks.
    pub interleaved: Option<(usize, usize)>,
}

/// A number format that weights are loaded into.
pub(super) trait Float: Copy + Send + Sync {
    /// The stored format that needs no conversion.
    const FORMAT: Format;
    /// New memory, not touched yet: its pages come in where the tasks write them.
    fn zeros(count: usize) -> Vec<Self>;
    /// The value of little-endian bytes in that format.
    fn copy(bytes: &[u8], out: &mut [Self]);
    /// Rounds to nearest even.
    fn round(values: &[f32], out: &mut [Self]);
}

impl Float for f32 {
    const FORMAT: Format = Format::F32;
    fn zeros(count: usize) -> Vec<Self> {
        vec![0.0; count]
    }
    fn copy(bytes: &[u8], out: &mut [Self]) {
        Format::F32.decode(bytes, out);
    }
    fn round(values: &[f32], out: &mut [Self]) {
        out.copy_from_slice(values);
    }
}

impl Float for f16 {
    const FORMAT: Format = Format::F16;
    fn zeros(count: usize) -> Vec<Self> {
        vec![0u16; count].reinterpret_into()
    }
    fn copy(bytes: &[u8], out: &mut [Self]) {
        for (out, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *out = f16::from_le_bytes(*b);
        }
    }
    fn round(values: &[f32], out: &mut [Self]) {
        out.convert_from_f32_slice(values);
    }
}

impl Float for bf16 {
    const FORMAT: Format = Format::BF16;
    fn zeros(count: usize) -> Vec<Self> {
        vec![0u16; count].reinterpret_into()
    }
    fn copy(bytes: &[u8], out: &mut [Self]) {
        for (out, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *out = bf16::from_le_bytes(*b);
        }
    }
    fn round(values: &[f32], out: &mut [Self]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = bf16::from_f32(*value);
        }
    }
}

/// The values of a tensor in another number format, rows in Hugging Face's order.
pub(super) fn to_vec<T: Float>(tensor: Stored<'_>) -> Vec<T> {
    let (values, size) = tensor.format.block();
    let mut out = T::zeros(tensor.bytes.len() / size * values);
    huge_pages(&mut out);
    match tensor.interleaved {
        None => {
            let step = TASK / values;
            out.par_chunks_mut(step * values)
                .zip(tensor.bytes.par_chunks(step * size))
                .for_each(|(out, bytes)| decode(tensor.format, bytes, out));
        }
        Some((rows, heads)) => {
            let row_bytes = tensor.bytes.len() / rows;
            out.par_chunks_mut((row_bytes / size * values).max(1)).enumerate().for_each(|(row, out)| {
                let from = interleaved_row(row, rows, heads) * row_bytes;
                decode(tensor.format, &tensor.bytes[from..][..row_bytes], out);
            });
        }
    }
    out
}

/// A tensor's bytes where they are already what a device with the same order of bytes would hold.
#[cfg(feature = "cuda")]
pub(super) fn as_it_lies(tensor: Stored<'_>, dtype: burn::tensor::DType) -> Option<&[u8]> {
    use burn::tensor::DType;
    let same = matches!(
        (tensor.format, dtype),
        (Format::F32, DType::F32) | (Format::F16, DType::F16) | (Format::BF16, DType::BF16)
    );
    (same && tensor.interleaved.is_none() && cfg!(target_endian = "little")).then_some(tensor.bytes)
}

/// The values of a tensor as little-endian bytes of another number format.
pub(super) fn to_bytes(tensor: Stored<'_>, dtype: FloatType) -> Vec<u8> {
    fn bytes<T: Float, const N: usize>(tensor: Stored<'_>, le: impl Fn(T) -> [u8; N] + Sync) -> Vec<u8> {
        let values = to_vec::<T>(tensor);
        let mut out = vec![0; values.len() * N];
        out.par_chunks_mut(TASK * N).zip(values.par_chunks(TASK)).for_each(|(out, values)| {
            for (out, value) in out.as_chunks_mut::<N>().0.iter_mut().zip(values) {
                *out = le(*value);
            }
        });
        out
    }
    match dtype {
        FloatType::F32 => bytes::<f32, 4>(tensor, f32::to_le_bytes),
        FloatType::F16 => bytes::<f16, 2>(tensor, f16::to_le_bytes),
        FloatType::BF16 => bytes::<bf16, 2>(tensor, bf16::to_le_bytes),
    }
}

/// Asks the system for huge pages under a large buffer that was not touched yet: filling new
/// memory is bound by its page faults otherwise.
fn huge_pages<T>(buffer: &mut [T]) {
    #[cfg(target_os = "linux")]
    if size_of_val(buffer) >= 4 << 20 {
        const PAGE: usize = 4096;
        let start = buffer.as_mut_ptr().cast::<u8>();
        let skip = start.align_offset(PAGE);
        // SAFETY: the range lies inside the buffer, and the advice changes no content. Where it
        // is refused, everything works as before.
        unsafe { libc::madvise(start.add(skip).cast(), size_of_val(buffer) - skip, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = buffer;
}

/// Row of the GGUF file that holds row `row` of the Hugging Face matrix.
///
/// `convert_hf_to_gguf.py` (`LlamaModel.permute`) turns each head's two rotary halves
/// `[2, half]` into pairs `[half, 2]`; this is where an output row was moved to.
fn interleaved_row(row: usize, rows: usize, heads: usize) -> usize {
    let width = rows / heads;
    let (head, within) = (row / width, row % width);
    let half = width / 2;
    head * width + within % half * 2 + within / half
}

fn decode<T: Float>(format: Format, bytes: &[u8], out: &mut [T]) {
    if format == T::FORMAT {
        return T::copy(bytes, out);
    }
    let (values, size) = format.block();
    let mut buffer = [0f32; STEP];
    for (out, bytes) in out.chunks_mut(STEP).zip(bytes.chunks(STEP / values * size)) {
        let buffer = &mut buffer[..out.len()];
        format.decode(bytes, buffer);
        T::round(buffer, out);
    }
}
