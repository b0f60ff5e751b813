//! Matrix products of burn's tensors through cuBLAS: large ones in bf16, and all in f32.
//!
//! cuBLAS does large bf16 products three to four times faster than burn's kernels (an H200: 780 against
//! 180 TFLOP/s). Small ones stay with burn, since going outside costs a wait before and after.
//!
//! In f32 burn's kernels round the factors to TF32, which has the ten bits of f16, and no setting of burn's
//! forbids it. cuBLAS multiplies them as they are.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch};
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::{result, sys};

use super::cublas::{BLAS, Blas, Handle, Operand, Product, Target, available};
use super::raw;

/// Multiplications from which a product is worth the waits around it (measured: a product of this size
/// takes burn 0.2 ms and cuBLAS 0.05 ms, the waits 0.05 ms).
/// `PIPELINE_CUBLAS_FROM` sets another bound.
static WORTH_IT: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var("PIPELINE_CUBLAS_FROM").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(1 << 33)
});

/// cuBLAS on one GPU, and the stream it works on.
#[derive(Clone, Copy)]
struct OnGpu {
    handle: Handle,
    stream: usize,
}

static ON_GPUS: LazyLock<Mutex<HashMap<usize, OnGpu>>> = LazyLock::new(Mutex::default);

/// The state on the GPU whose context is current, made on first use.
fn on_gpu(blas: &Blas, index: usize) -> Option<OnGpu> {
    let mut all = ON_GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.get(&index) {
        return Some(*found);
    }
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).ok()?;
    let made = OnGpu { handle: blas.handle(stream)?, stream: stream as usize };
    all.insert(index, made);
    Some(made)
}

/// Computes a product and waits for it.
fn alone(blas: &Blas, index: usize, product: &Product) -> Option<()> {
    let on = on_gpu(blas, index)?;
    // SAFETY: the pointers are held by the caller and lie on the handle's GPU; the stream lives as long
    // as the process.
    unsafe {
        blas.multiply(on.handle, product)?;
        result::stream::synchronize(on.stream as sys::CUstream).ok()
    }
}

/// How a matrix lies in memory: rows or columns one after the other, `leading` numbers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    transposed: bool,
    leading: usize,
}

impl Layout {
    /// The layout of `[rows, columns]` with these strides, where cuBLAS knows it.
    fn of([rows, columns]: [usize; 2], [down, across]: [usize; 2]) -> Option<Self> {
        if across == 1 && down >= columns {
            Some(Self { transposed: false, leading: down })
        } else if down == 1 && across >= rows {
            Some(Self { transposed: true, leading: across })
        } else {
            None
        }
    }

    fn of_matrix(self, pointer: u64, step: usize, wide: bool) -> Operand {
        Operand { pointer, leading: self.leading, transposed: self.transposed, step, wide }
    }
}

/// Matrix products as burn's backends offer them to [`product`].
#[backend_extension(Cube)]
trait Products: Backend {
    /// `a·b` of matrices in bf16 or f32; the result is f32 if `wide`, else as they are.
    fn outer_product(a: FloatTensor<Self>, b: FloatTensor<Self>, wide: bool) -> FloatTensor<Self>;

    /// `a·b` of matrices `[batch, heads, .., ..]` in bf16 or f32.
    fn outer_products(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Products for CubeBackend {
    fn outer_product(a: CubeTensor, b: CubeTensor, wide: bool) -> CubeTensor {
        let from_wide = a.dtype == DType::F32;
        let wide = wide || from_wide;
        let dtype = if wide { DType::F32 } else { DType::BF16 };
        let (a, of_a) = laid_out(a);
        let (b, of_b) = laid_out(b);
        let [m, k] = [a.meta.shape()[0], a.meta.shape()[1]];
        let n = b.meta.shape()[1];
        let c = empty_device_contiguous_dtype(a.client.clone(), a.device.clone(), Shape::new([m, n]), dtype);
        let done = BLAS.as_ref().zip(raw::index(&a)).and_then(|(blas, index)| {
            raw::with_pointers([&a, &b, &c], |[pa, pb, pc]| {
                raw::enter(index).ok()?;
                raw::wait().ok()?;
                let c = Target { pointer: pc, leading: n, step: 0, wide };
                let operands = [of_a.of_matrix(pa, 0, from_wide), of_b.of_matrix(pb, 0, from_wide)];
                alone(blas, index, &Product::new([m, k, n], operands, c))
            })
            .flatten()
        });
        // A product that silently stayed undone would be a wrong number.
        assert!(done.is_some(), "cuBLAS failed on a product {m} x {k} x {n}; {WITHOUT}");
        c
    }

    fn outer_products(a: CubeTensor, b: CubeTensor) -> CubeTensor {
        let (wide, dtype) = (a.dtype == DType::F32, a.dtype);
        let (a, of_a, step_a) = stacked(a);
        let (b, of_b, step_b) = stacked(b);
        let [batch, heads, m, k] = [0, 1, 2, 3].map(|dim| a.meta.shape()[dim]);
        let n = b.meta.shape()[3];
        let shape = Shape::new([batch, heads, m, n]);
        let c = empty_device_contiguous_dtype(a.client.clone(), a.device.clone(), shape, dtype);
        let done = BLAS.as_ref().zip(raw::index(&a)).and_then(|(blas, index)| {
            raw::with_pointers([&a, &b, &c], |[pa, pb, pc]| {
                raw::enter(index).ok()?;
                raw::wait().ok()?;
                let c = Target { pointer: pc, leading: n, step: m * n, wide };
                let operands = [of_a.of_matrix(pa, step_a, wide), of_b.of_matrix(pb, step_b, wide)];
                alone(blas, index, &Product { count: batch * heads, ..Product::new([m, k, n], operands, c) })
            })
            .flatten()
        });
        assert!(done.is_some(), "cuBLAS failed on {batch} x {heads} products {m} x {k} x {n}; {WITHOUT}");
        c
    }
}

/// What to do when cuBLAS fails.
const WITHOUT: &str = "set PIPELINE_CUBLAS=off to do without it";

/// A stack of matrices `[batch, heads, rows, columns]` with equal steps between them.
fn stacked(tensor: CubeTensor) -> (CubeTensor, Layout, usize) {
    let layout = |t: &CubeTensor| {
        let (shape, strides) = (t.meta.shape(), t.meta.strides());
        let even = shape[0] == 1 || shape[1] == 1 || strides[0] == shape[1] * strides[1];
        let step = if shape[1] > 1 { strides[1] } else { strides[0] };
        let layout = Layout::of([shape[2], shape[3]], [strides[2], strides[3]])?;
        even.then_some((layout, step))
    };
    match layout(&tensor) {
        Some((found, step)) => (tensor, found, step),
        None => {
            let tensor = into_contiguous(tensor);
            let (rows, columns) = (tensor.meta.shape()[2], tensor.meta.shape()[3]);
            let found = Layout { transposed: false, leading: columns };
            (tensor, found, rows * columns)
        }
    }
}

fn laid_out(tensor: CubeTensor) -> (CubeTensor, Layout) {
    let layout = |t: &CubeTensor| {
        let (shape, strides) = (t.meta.shape(), t.meta.strides());
        Layout::of([shape[0], shape[1]], [strides[0], strides[1]])
    };
    match layout(&tensor) {
        Some(found) => (tensor, found),
        None => {
            let tensor = into_contiguous(tensor);
            let columns = tensor.meta.shape()[1];
            let found = layout(&tensor).unwrap_or(Layout { transposed: false, leading: columns });
            (tensor, found)
        }
    }
}

/// `a·b` through cuBLAS, where that is possible and worth it; f32 if `wide`, else as the operands are.
pub fn product(a: &Tensor<2>, b: &Tensor<2>, wide: bool) -> Option<Tensor<2>> {
    let ([m, k], [inner, n]) = (a.dims(), b.dims());
    (inner == k && applies(a, b, [m, k, n], 1)).then(|| {
        let (a, b) = (a.clone().into_dispatch(), b.clone().into_dispatch());
        Tensor::from_dispatch(<Dispatch as Products>::outer_product(a, b, wide))
    })
}

/// `a·b` of matrices `[batch, heads, .., ..]` through cuBLAS, where that is possible and worth it.
pub fn products(a: &Tensor<4>, b: &Tensor<4>) -> Option<Tensor<4>> {
    let ([batch, heads, m, k], [batches, of_heads, inner, n]) = (a.dims(), b.dims());
    let fit = [batch, heads, k] == [batches, of_heads, inner];
    (fit && applies(a, b, [m, k, n], batch * heads)).then(|| {
        let (a, b) = (a.clone().into_dispatch(), b.clone().into_dispatch());
        Tensor::from_dispatch(<Dispatch as Products>::outer_products(a, b))
    })
}

/// Whether `count` products `[m, k, n]` of these operands can and should go through cuBLAS.
fn applies<const D: usize>(a: &Tensor<D>, b: &Tensor<D>, size: [usize; 3], count: usize) -> bool {
    let dtype = a.dtype();
    let device = a.device();
    let plain = !device.is_autodiff() && !b.device().is_autodiff();
    if dtype != b.dtype() || !plain || device == burn::tensor::Device::flex() {
        return false;
    }
    match dtype {
        DType::BF16 => worth_it(size, count) && available(),
        DType::F32 if size.contains(&0) || count == 0 => false,
        DType::F32 => available() || say_that_factors_are_rounded(),
        _ => false,
    }
}

/// Whether bf16 products gain by cuBLAS more than going outside costs.
fn worth_it(size: [usize; 3], count: usize) -> bool {
    let multiplications = size.iter().chain([&count]).map(|&size| size as u64).product::<u64>();
    multiplications >= *WORTH_IT && size.iter().all(|size| size.is_multiple_of(8))
}

/// Tells, once, that f32 products without cuBLAS are TF32.
fn say_that_factors_are_rounded() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let folder = super::library::FOLDER_VARIABLE;
        eprintln!(
            "warning: products in f32 round their factors to TF32 (10 bits) on this GPU, since cuBLAS is not \
             used; install it (it comes with `pip install torch` and with NVIDIA's CUDA packages), or name its \
             folder in {folder}"
        );
    });
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_rows_or_columns() {
        let layout = |transposed, leading| Some(Layout { transposed, leading });
        assert_eq!(Layout::of([4, 6], [6, 1]), layout(false, 6));
        // padded rows
        assert_eq!(Layout::of([4, 6], [8, 1]), layout(false, 8));
        assert_eq!(Layout::of([4, 6], [1, 4]), layout(true, 4));
        // a view that skips numbers, and one that repeats a row
        assert_eq!(Layout::of([4, 6], [12, 2]), None);
        assert_eq!(Layout::of([4, 6], [0, 1]), None);
    }
}
