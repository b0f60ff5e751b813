//! cuBLAS itself: its functions, found at run time, and products on raw pointers.

use std::ffi::{c_int, c_void};
use std::sync::LazyLock;

use cudarc::driver::{result, sys};
use libloading::os::unix::{Library, Symbol};

use super::library;

type RawHandle = *mut c_void;
type Status = c_int;
type Create = unsafe extern "C" fn(*mut RawHandle) -> Status;
type SetStream = unsafe extern "C" fn(RawHandle, sys::CUstream) -> Status;
type SetWorkspace = unsafe extern "C" fn(RawHandle, u64, usize) -> Status;
type GemmEx = unsafe extern "C" fn(
    RawHandle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    u64,
    c_int,
    c_int,
    u64,
    c_int,
    c_int,
    *const f32,
    u64,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Status;
type GemmBatched = unsafe extern "C" fn(
    RawHandle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    u64,
    c_int,
    c_int,
    i64,
    u64,
    c_int,
    c_int,
    i64,
    *const f32,
    u64,
    c_int,
    c_int,
    i64,
    c_int,
    c_int,
    c_int,
) -> Status;

// Values of `cublas_api.h` and `library_types.h`.
const NO_TRANSPOSE: c_int = 0;
const TRANSPOSE: c_int = 1;
const BF16: c_int = 14;
const F32: c_int = 0;
/// Sums in f32, and factors that are f32 are multiplied as such, never as TF32.
const COMPUTE_F32: c_int = 68;
const DEFAULT_ALGORITHM: c_int = -1;

/// Bytes that cuBLAS may use beside the operands; what NVIDIA recommends for Hopper. Given at the start,
/// so that it never allocates behind burn's back.
const WORKSPACE: usize = 32 << 20;

/// cuBLAS's functions.
pub(super) struct Blas {
    create: Symbol<Create>,
    set_stream: Symbol<SetStream>,
    set_workspace: Symbol<SetWorkspace>,
    gemm: Symbol<GemmEx>,
    gemm_batched: Symbol<GemmBatched>,
    _libraries: [Library; 2],
}

/// cuBLAS's state for one stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle(usize);

pub(super) static BLAS: LazyLock<Option<Blas>> = LazyLock::new(Blas::open);

/// Whether cuBLAS is used. `PIPELINE_CUBLAS=off` leaves every product to burn.
pub fn available() -> bool {
    static WANTED: LazyLock<bool> =
        LazyLock::new(|| std::env::var("PIPELINE_CUBLAS").as_deref() != Ok("off"));
    *WANTED && BLAS.is_some()
}

/// A matrix in memory, of bf16 or, if `wide`, f32 numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Address of its first number.
    pub pointer: u64,
    /// Numbers from one row (one column, if `transposed`) to the next.
    pub leading: usize,
    /// Whether columns lie one after the other rather than rows.
    pub transposed: bool,
    /// Numbers from one matrix of a stack to the next.
    pub step: usize,
    /// f32 instead of bf16; the same for both operands of a product.
    pub wide: bool,
}

impl Operand {
    /// Rows of `leading` numbers in bf16.
    pub fn rows(pointer: u64, leading: usize) -> Self {
        Self { pointer, leading, transposed: false, step: 0, wide: false }
    }

    /// The same memory read as the transposed matrix.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// The first of a stack of matrices, `step` numbers apart.
    #[must_use]
    pub fn stacked(self, step: usize) -> Self {
        Self { step, ..self }
    }

    fn operation(self) -> c_int {
        if self.transposed { TRANSPOSE } else { NO_TRANSPOSE }
    }
}

/// cuBLAS's name of a number format.
fn format(wide: bool) -> c_int {
    if wide { F32 } else { BF16 }
}

/// Where a product goes: rows, in f32 if `wide`, else in bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Address of the first number.
    pub pointer: u64,
    /// Numbers from one row to the next.
    pub leading: usize,
    /// Numbers from one matrix of a stack to the next.
    pub step: usize,
    /// f32 instead of bf16.
    pub wide: bool,
}

impl Target {
    /// Rows of `leading` numbers in bf16.
    pub fn rows(pointer: u64, leading: usize) -> Self {
        Self { pointer, leading, step: 0, wide: false }
    }

    /// The same in f32.
    #[must_use]
    pub fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// The first of a stack of matrices, `step` numbers apart.
    #[must_use]
    pub fn stacked(self, step: usize) -> Self {
        Self { step, ..self }
    }
}

/// `c = alpha·a·b + beta·c`, summed in f32, `count` times over stacks of matrices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// `m`, `k`, `n`: `a` is `[m, k]`, `b` is `[k, n]`.
    pub size: [usize; 3],
    /// How many products.
    pub count: usize,
    /// The left operand.
    pub a: Operand,
    /// The right operand.
    pub b: Operand,
    /// The result.
    pub c: Target,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what `c` holds already; not read when 0.
    pub beta: f32,
}

impl Product {
    /// One product `c = a·b`.
    pub fn new(size: [usize; 3], [a, b]: [Operand; 2], c: Target) -> Self {
        Self { size, count: 1, a, b, c, alpha: 1.0, beta: 0.0 }
    }
}

impl Blas {
    fn open() -> Option<Self> {
        // cuBLAS looks its other half up by name: opened first, it is found
        let lt = library::open(&["libcublasLt.so.13", "libcublasLt.so.12"])?;
        let blas = library::open(&["libcublas.so.13", "libcublas.so.12"])?;
        // SAFETY: the types are those of cublas_v2.h, unchanged from CUDA 11 to 13.
        unsafe {
            Some(Self {
                create: blas.get(b"cublasCreate_v2\0").ok()?,
                set_stream: blas.get(b"cublasSetStream_v2\0").ok()?,
                set_workspace: blas.get(b"cublasSetWorkspace_v2\0").ok()?,
                gemm: blas.get(b"cublasGemmEx\0").ok()?,
                gemm_batched: blas.get(b"cublasGemmStridedBatchedEx\0").ok()?,
                _libraries: [lt, blas],
            })
        }
    }

    /// A handle for a stream of the GPU whose context is current. It lives as long as the process.
    pub fn handle(&self, stream: sys::CUstream) -> Option<Handle> {
        let mut handle: RawHandle = std::ptr::null_mut();
        // SAFETY: the context is current; the workspace is allocated here and never freed.
        let made = unsafe {
            let workspace = result::malloc_sync(WORKSPACE).ok()?;
            (self.create)(&mut handle) == 0
                && (self.set_stream)(handle, stream) == 0
                && (self.set_workspace)(handle, workspace, WORKSPACE) == 0
        };
        made.then_some(Handle(handle as usize))
    }

    /// Gives a product to the handle's stream.
    ///
    /// # Safety
    /// The operands' memory is on the handle's GPU, large enough, and stays until the stream is done.
    pub unsafe fn multiply(&self, Handle(handle): Handle, product: &Product) -> Option<()> {
        let Product { size: [m, k, n], count, a, b, c, alpha, beta } = product;
        let [kind_a, kind_b, kind_c] = [a.wide, b.wide, c.wide].map(format);
        let [m, k, n, lda, ldb, ldc] =
            [*m, *k, *n, a.leading, b.leading, c.leading].map(|size| size as c_int);
        let handle = handle as RawHandle;
        let (of_a, of_b) = (a.operation(), b.operation());
        // cuBLAS is column-major: it computes cᵀ = bᵀ·aᵀ on the same memory
        // SAFETY: the caller's.
        let status = unsafe {
            if *count == 1 {
                (self.gemm)(
                    handle,
                    of_b,
                    of_a,
                    n,
                    m,
                    k,
                    alpha,
                    b.pointer,
                    kind_b,
                    ldb,
                    a.pointer,
                    kind_a,
                    lda,
                    beta,
                    c.pointer,
                    kind_c,
                    ldc,
                    COMPUTE_F32,
                    DEFAULT_ALGORITHM,
                )
            } else {
                (self.gemm_batched)(
                    handle,
                    of_b,
                    of_a,
                    n,
                    m,
                    k,
                    alpha,
                    b.pointer,
                    kind_b,
                    ldb,
                    b.step as i64,
                    a.pointer,
                    kind_a,
                    lda,
                    a.step as i64,
                    beta,
                    c.pointer,
                    kind_c,
                    ldc,
                    c.step as i64,
                    *count as c_int,
                    COMPUTE_F32,
                    DEFAULT_ALGORITHM,
                )
            }
        };
        (status == 0).then_some(())
    }
}
