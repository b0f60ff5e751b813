//! From tensors to launches.

use std::sync::LazyLock;

use burn::backend::Cuda;
use burn::tensor::{DType, Device, Int, Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernels::{self, EACH, PLANES, ROWS_EACH, SQUARES, UNITS};
use super::{Adam, Rows};

/// Whether the kernels are used at all.
static WANTED: LazyLock<bool> = LazyLock::new(|| !crate::knobs::knobs().without_kernels);

/// The dense buffer of a tensor of this number format on a GPU, if it is small enough to count in u32.
fn dense<const D: usize>(tensor: &Tensor<D>, dtype: DType) -> Option<CubeTensor> {
    let applies = *WANTED
        && tensor.dtype() == dtype
        && tensor.device() != Device::flex()
        && tensor.shape().num_elements() < u32::MAX as usize;
    applies.then(|| tensor.clone().try_into_primitive::<Cuda>().ok()).flatten().map(into_contiguous)
}

fn dense_ints<const D: usize>(tensor: &Tensor<D, Int>) -> Option<CubeTensor> {
    tensor.clone().try_into_primitive::<Cuda>().ok().map(into_contiguous)
}

fn like(of: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(of.client.clone(), of.device.clone(), shape.into(), dtype)
}

fn tensor<const D: usize>(primitive: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<Cuda>(primitive)
}

fn arg(of: &CubeTensor) -> BufferArg {
    let len = of.meta.shape().num_elements();
    // SAFETY: launches are unchecked and no kernel asks for a length.
    unsafe { BufferArg::from_raw_parts(of.handle.clone(), len) }
}

fn cubes(work: usize, per_cube: u32) -> CubeCount {
    CubeCount::Static((work as u32).div_ceil(per_cube), 1, 1)
}

const CUBE: fn() -> CubeDim = || CubeDim::new_1d(UNITS);

/// The same numbers one after the other in memory, so that blocks of them need no copies of their own.
pub(crate) fn dense_copy(of: &Tensor<4>) -> Option<Tensor<4>> {
    dense(of, DType::BF16).map(tensor)
}

/// Attention weights of a block's scores `[batch, kv_heads, group * queries, keys]` (unscaled), where
/// rows see keys up to themselves, of their own segment if `segments` `[batch, seq]` are given.
pub(crate) fn soften(
    scores: &Tensor<4>,
    segments: Option<&Tensor<2, Int>>,
    rows: Rows,
    scale: f32,
) -> Option<Tensor<4>> {
    let [batch, heads, folded, keys] = scores.dims();
    let scores = dense(scores, DType::BF16)?;
    let of_segments = segments.map(dense_ints);
    let segments = match &of_segments {
        Some(segments) => segments.as_ref()?,
        None => &scores,
    };
    let out = like(&scores, [batch, heads, folded, keys], DType::BF16);
    let count = batch * heads * folded;
    // SAFETY: indices stay below the shapes that were just read.
    unsafe {
        kernels::soften::launch_unchecked(
            &scores.client,
            cubes(count, PLANES),
            CUBE(),
            arg(&scores),
            arg(segments),
            arg(&out),
            count as u32,
            keys as u32,
            keys as u32,
            rows.queries as u32,
            1,
            rows.start as u32,
            (heads * folded) as u32,
            rows.seq as u32,
            scale,
            of_segments.is_some(),
        );
    }
    Some(tensor(out))
}

/// Gradients of scores from the weights of [`soften`] and their gradients.
pub(crate) fn soften_backward(
    weights: &Tensor<4>,
    by_weights: &Tensor<4>,
    rows: Rows,
    scale: f32,
) -> Option<Tensor<4>> {
    let shape = weights.dims();
    let [batch, heads, folded, keys] = shape;
    let (weights, by_weights) = (dense(weights, DType::BF16)?, dense(by_weights, DType::BF16)?);
    let out = like(&weights, shape, DType::BF16);
    let count = batch * heads * folded;
    // SAFETY: as above.
    unsafe {
        kernels::soften_backward::launch_unchecked(
            &weights.client,
            cubes(count, PLANES),
            CUBE(),
            arg(&weights),
            arg(&by_weights),
            arg(&out),
            count as u32,
            keys as u32,
            keys as u32,
            rows.queries as u32,
            1,
            rows.start as u32,
            scale,
        );
    }
    Some(tensor(out))
}

/// `silu(gate)·up`.
pub(crate) fn gate_up(gate: &Tensor<2>, up: &Tensor<2>) -> Option<Tensor<2>> {
    let shape = gate.dims();
    let (gate, up) = (dense(gate, DType::BF16)?, dense(up, DType::BF16)?);
    let out = like(&gate, shape, DType::BF16);
    let len = shape[0] * shape[1];
    // SAFETY: the kernel stays below `len`.
    unsafe {
        kernels::gate_up::launch_unchecked(
            &gate.client,
            cubes(len, UNITS * EACH),
            CUBE(),
            arg(&gate),
            arg(&up),
            arg(&out),
            len as u32,
        );
    }
    Some(tensor(out))
}

/// Gradients of gate and up from that of [`gate_up`].
pub(crate) fn gate_up_backward(gate: &Tensor<2>, up: &Tensor<2>, by: &Tensor<2>) -> Option<[Tensor<2>; 2]> {
    let shape = gate.dims();
    let (gate, up, by) = (dense(gate, DType::BF16)?, dense(up, DType::BF16)?, dense(by, DType::BF16)?);
    let outs = [like(&gate, shape, DType::BF16), like(&gate, shape, DType::BF16)];
    let len = shape[0] * shape[1];
    // SAFETY: the kernel stays below `len`.
    unsafe {
        kernels::gate_up_backward::launch_unchecked(
            &gate.client,
            cubes(len, UNITS * EACH),
            CUBE(),
            arg(&gate),
            arg(&up),
            arg(&by),
            arg(&outs[0]),
            arg(&outs[1]),
            len as u32,
        );
    }
    Some(outs.map(tensor))
}

/// RMSNorm of the rows of `x` `[rows, hidden]`.
pub(crate) fn norm(x: &Tensor<2>, weight: &Tensor<1>, eps: f64) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let (x, weight) = (dense(x, DType::BF16)?, dense(weight, DType::BF16)?);
    let out = like(&x, [rows, width], DType::BF16);
    // SAFETY: a cube a row.
    unsafe {
        kernels::norm::launch_unchecked(
            &x.client,
            cubes(rows, 1),
            CUBE(),
            arg(&x),
            arg(&weight),
            arg(&out),
            width as u32,
            eps as f32,
        );
    }
    Some(tensor(out))
}

/// `skip` plus the gradient of [`norm`]'s input from that of its output.
pub(crate) fn norm_backward(
    x: &Tensor<2>,
    weight: &Tensor<1>,
    by: &Tensor<2>,
    skip: &Tensor<2>,
    eps: f64,
) -> Option<Tensor<2>> {
    let [rows, width] = x.dims();
    let (x, weight) = (dense(x, DType::BF16)?, dense(weight, DType::BF16)?);
    let (by, skip) = (dense(by, DType::BF16)?, dense(skip, DType::BF16)?);
    let out = like(&x, [rows, width], DType::BF16);
    // SAFETY: a cube a row.
    unsafe {
        kernels::norm_backward::launch_unchecked(
            &x.client,
            cubes(rows, 1),
            CUBE(),
            arg(&x),
            arg(&weight),
            arg(&by),
            arg(&skip),
            arg(&out),
            width as u32,
            eps as f32,
        );
    }
    Some(tensor(out))
}

/// Rotates `x` `[batch, seq, heads, head_dim]` into `[batch, heads, seq, head_dim]`, or with `back`
/// rotates backwards from there. `cos` and `sin` are `[batch or 1, seq, 1, head_dim / 2]`.
pub(crate) fn turn(x: &Tensor<4>, cos: &Tensor<4>, sin: &Tensor<4>, back: bool) -> Option<Tensor<4>> {
    let [batch, first, second, dim] = x.dims();
    let (seq, heads) = if back { (second, first) } else { (first, second) };
    let [tables, _, _, half] = cos.dims();
    let x = dense(x, DType::BF16)?;
    let (cos, sin) = (dense(cos, DType::F32)?, dense(sin, DType::F32)?);
    let out = like(&x, [batch, second, first, dim], DType::BF16);
    let pairs = batch * seq * heads * half;
    // SAFETY: the kernel stays below `pairs`.
    unsafe {
        kernels::turn::launch_unchecked(
            &x.client,
            cubes(pairs, UNITS),
            CUBE(),
            arg(&x),
            arg(&cos),
            arg(&sin),
            arg(&out),
            pairs as u32,
            seq as u32,
            heads as u32,
            half as u32,
            if tables == 1 { 0 } else { (seq * half) as u32 },
            if back { -1.0 } else { 1.0 },
            back,
        );
    }
    Some(tensor(out))
}

/// Log-probabilities of `targets` `[rows, 1]` and entropies, one after the other (`[2 * rows]`), of
/// `logits` `[rows, vocab]` f32 times `factor`. The gradient of such logits is bf16.
pub(crate) fn row_values(logits: &Tensor<2>, targets: &Tensor<2, Int>, factor: f32) -> Option<Tensor<1>> {
    let [rows, vocab] = logits.dims();
    let logits = dense(logits, DType::F32)?;
    let targets = dense_ints(targets)?;
    let out = like(&logits, [2 * rows], DType::F32);
    // SAFETY: a cube a row; targets are below the vocabulary.
    unsafe {
        kernels::row_values::launch_unchecked(
            &logits.client,
            cubes(rows, 1),
            CUBE(),
            arg(&logits),
            arg(&targets),
            arg(&out),
            vocab as u32,
            rows as u32,
            factor,
        );
    }
    Some(tensor(out))
}

/// Gradients of the logits from those of the values of [`row_values`], `by` `[2 * rows]`.
pub(crate) fn row_gradients(
    logits: &Tensor<2>,
    targets: &Tensor<2, Int>,
    values: &Tensor<1>,
    by: &Tensor<1>,
    factor: f32,
) -> Option<Tensor<2>> {
    let [rows, vocab] = logits.dims();
    let logits = dense(logits, DType::F32)?;
    let targets = dense_ints(targets)?;
    let (values, by) = (dense(values, DType::F32)?, dense(by, DType::F32)?);
    let out = like(&logits, [rows, vocab], DType::BF16);
    // SAFETY: as above.
    unsafe {
        kernels::row_gradients::launch_unchecked(
            &logits.client,
            cubes(rows, 1),
            CUBE(),
            arg(&logits),
            arg(&targets),
            arg(&values),
            arg(&by),
            arg(&out),
            vocab as u32,
            rows as u32,
            factor,
        );
    }
    Some(tensor(out))
}

/// Value, mean and square after an update with the gradient, the fourth of `of`.
pub(crate) fn adamw(of: [&Tensor<1>; 4], with: Adam) -> Option<[Tensor<1>; 3]> {
    let len = of[0].dims()[0];
    let [value, mean, square, gradient] = of.map(|tensor| dense(tensor, DType::F32));
    let (value, mean, square, gradient) = (value?, mean?, square?, gradient?);
    let outs = [(); 3].map(|()| like(&value, [len], DType::F32));
    // SAFETY: the kernel stays below `len`.
    unsafe {
        kernels::adamw::launch_unchecked(
            &value.client,
            cubes(len, UNITS * EACH),
            CUBE(),
            arg(&value),
            arg(&mean),
            arg(&square),
            arg(&gradient),
            arg(&outs[0]),
            arg(&outs[1]),
            arg(&outs[2]),
            // nothing is copied
            arg(&outs[2]),
            len as u32,
            with.clip as f32,
            with.decay as f32,
            with.beta1 as f32,
            with.beta2 as f32,
            with.rate as f32,
            with.root as f32,
            with.eps as f32,
            false,
        );
    }
    Some(outs.map(tensor))
}

/// Sums of squares of parts of `of` (f32); their sum is that of all squares.
pub(crate) fn square_sums(of: &[Tensor<1>]) -> Option<Tensor<1>> {
    let buffers = of.iter().map(|tensor| dense(tensor, DType::F32)).collect::<Option<Vec<_>>>()?;
    let parts = |buffer: &CubeTensor| buffer.meta.shape().num_elements().div_ceil((UNITS * SQUARES) as usize);
    let total: usize = buffers.iter().map(parts).sum();
    let out = like(buffers.first()?, [total], DType::F32);
    let mut offset = 0;
    for buffer in &buffers {
        let len = buffer.meta.shape().num_elements();
        // SAFETY: `out` has a place for every cube.
        unsafe {
            kernels::square_sums::launch_unchecked(
                &buffer.client,
                cubes(len, UNITS * SQUARES),
                CUBE(),
                arg(buffer),
                arg(&out),
                len as u32,
                offset as u32,
            );
        }
        offset += parts(buffer);
    }
    Some(tensor(out))
}

/// Sums of the columns of `by` `[rows, width]`, in f32.
pub(crate) fn column_sums(by: &Tensor<2>) -> Option<Tensor<1>> {
    column_sums_of(by, None)
}

/// The gradient of an RMSNorm's weight: sums over the rows of `by·x / rms(x)`, in f32.
pub(crate) fn norm_weight(x: &Tensor<2>, by: &Tensor<2>, eps: f64) -> Option<Tensor<1>> {
    let [rows, width] = x.dims();
    let x = dense(x, DType::BF16)?;
    let factors = like(&x, [rows], DType::F32);
    // SAFETY: a cube a row.
    unsafe {
        kernels::norm_factors::launch_unchecked(
            &x.client,
            cubes(rows, 1),
            CUBE(),
            arg(&x),
            arg(&factors),
            width as u32,
            eps as f32,
        );
    }
    column_sums_of(by, Some((x, factors)))
}

fn column_sums_of(by: &Tensor<2>, scaled: Option<(CubeTensor, CubeTensor)>) -> Option<Tensor<1>> {
    let [rows, width] = by.dims();
    let by = dense(by, DType::BF16)?;
    let count = rows.div_ceil(ROWS_EACH);
    let parts = like(&by, [count, width], DType::F32);
    let out = like(&by, [width], DType::F32);
    let (x, factors) = scaled.as_ref().map_or((&by, &parts), |(x, factors)| (x, factors));
    let columns = (width as u32).div_ceil(UNITS);
    // SAFETY: indices stay below the shapes that were just read.
    unsafe {
        kernels::column_parts::launch_unchecked(
            &by.client,
            CubeCount::Static(columns, count as u32, 1),
            CUBE(),
            arg(&by),
            arg(x),
            arg(factors),
            arg(&parts),
            rows as u32,
            width as u32,
            width as u32,
            ROWS_EACH as u32,
            scaled.is_some(),
        );
        kernels::column_totals::launch_unchecked(
            &by.client,
            CubeCount::Static(columns, 1, 1),
            CUBE(),
            arg(&parts),
            arg(&out),
            count as u32,
            width as u32,
            false,
        );
    }
    Some(tensor(out))
}
