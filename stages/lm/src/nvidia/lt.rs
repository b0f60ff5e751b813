//! Products of activations with weights through cuBLASLt, by an algorithm of the caller's choice.
//!
//! cuBLAS itself chooses by the number of rows, and with the algorithm may change the order of a sum: a
//! row's numbers would then depend on how many rows are computed beside it. Only algorithms without a
//! workspace and without a split of the shared dimension are taken here: one cube makes a sum, in one
//! order, so that an algorithm gives a row the same bits among however many others and at whatever place.
//! Which algorithms agree with each other is for the caller to try (`cuda::products`); `pipeline bench
//! check` holds a device to it all.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use cudarc::driver::sys;
use libloading::os::unix::{Library, Symbol};

use super::library;

type Opaque = *mut c_void;
type Status = c_int;
type Create = unsafe extern "C" fn(*mut Opaque) -> Status;
type Destroy = unsafe extern "C" fn(Opaque) -> Status;
type DescribeProduct = unsafe extern "C" fn(*mut Opaque, c_int, c_int) -> Status;
type DescribeMatrix = unsafe extern "C" fn(*mut Opaque, c_int, u64, u64, i64) -> Status;
type SetAttribute = unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> Status;
type GetAttribute = unsafe extern "C" fn(*const Algorithm, c_int, *mut c_void, usize, *mut usize) -> Status;
type Heuristic = unsafe extern "C" fn(
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    c_int,
    *mut Found,
    *mut c_int,
) -> Status;
type Multiply = unsafe extern "C" fn(
    Opaque,
    Opaque,
    *const f32,
    u64,
    Opaque,
    u64,
    Opaque,
    *const f32,
    u64,
    Opaque,
    u64,
    Opaque,
    *const Algorithm,
    u64,
    usize,
    sys::CUstream,
) -> Status;

// Values of `cublasLt.h`, `cublas_api.h` and `library_types.h`.
const BF16: c_int = 14;
const F32: c_int = 0;
const COMPUTE_F32: c_int = 68;
const TRANSPOSE_A: c_int = 3;
static TRANSPOSE: c_int = 1;
const LARGEST_WORKSPACE: c_int = 1;
const REDUCTIONS: c_int = 3;
/// Of A, B, C and D.
const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
const SPLITS: c_int = 2;
const REDUCTION: c_int = 3;

/// `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Found {
    algorithm: Algorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

struct Functions {
    describe_product: Symbol<DescribeProduct>,
    describe_matrix: Symbol<DescribeMatrix>,
    forget_matrix: Symbol<Destroy>,
    set_product: Symbol<SetAttribute>,
    preference: Symbol<Create>,
    set_preference: Symbol<SetAttribute>,
    forget_preference: Symbol<Destroy>,
    heuristic: Symbol<Heuristic>,
    configured: Symbol<GetAttribute>,
    multiply: Symbol<Multiply>,
    create: Symbol<Create>,
    _library: Library,
}

static LIBRARY: LazyLock<Option<Functions>> = LazyLock::new(Functions::open);

impl Functions {
    fn open() -> Option<Self> {
        let lt = library::open(&["libcublasLt.so.13", "libcublasLt.so.12"])?;
        // SAFETY: the types are those of cublasLt.h, unchanged from CUDA 12 to 13.
        unsafe {
            Some(Self {
                describe_product: lt.get(b"cublasLtMatmulDescCreate\0").ok()?,
                describe_matrix: lt.get(b"cublasLtMatrixLayoutCreate\0").ok()?,
                forget_matrix: lt.get(b"cublasLtMatrixLayoutDestroy\0").ok()?,
                set_product: lt.get(b"cublasLtMatmulDescSetAttribute\0").ok()?,
                preference: lt.get(b"cublasLtMatmulPreferenceCreate\0").ok()?,
                set_preference: lt.get(b"cublasLtMatmulPreferenceSetAttribute\0").ok()?,
                forget_preference: lt.get(b"cublasLtMatmulPreferenceDestroy\0").ok()?,
                heuristic: lt.get(b"cublasLtMatmulAlgoGetHeuristic\0").ok()?,
                configured: lt.get(b"cublasLtMatmulAlgoConfigGetAttribute\0").ok()?,
                multiply: lt.get(b"cublasLtMatmul\0").ok()?,
                create: lt.get(b"cublasLtCreate\0").ok()?,
                _library: lt,
            })
        }
    }
}

/// cuBLASLt on one GPU. It lives as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Lt {
    /// A `cublasLtHandle_t`.
    handle: usize,
    /// A `cublasLtMatmulDesc_t`.
    product: usize,
}

/// By GPU, made on first use.
static ON_GPUS: LazyLock<Mutex<HashMap<usize, Lt>>> = LazyLock::new(Mutex::default);

/// A product's shape: bf16 weights `[outs, k]`, rows `stride` numbers apart, with dense bf16 rows of `k`
/// numbers, into rows `pitch` numbers apart, f32 if `wide`, else bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub outs: u32,
    pub k: u32,
    pub stride: u32,
    pub pitch: u32,
    pub wide: bool,
}

/// How a product is computed; it serves any number of rows.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Method {
    shape: Shape,
    algorithm: Algorithm,
}

/// A matrix's description, for the time of a call.
struct Matrix<'l>(&'l Functions, Opaque);

impl<'l> Matrix<'l> {
    fn new(library: &'l Functions, kind: c_int, [down, across]: [u32; 2], leading: u32) -> Option<Self> {
        let mut made = std::ptr::null_mut();
        // SAFETY: `made` receives the description.
        let status =
            unsafe { (library.describe_matrix)(&mut made, kind, down.into(), across.into(), leading.into()) };
        (status == 0).then_some(Self(library, made))
    }
}

impl Drop for Matrix<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        unsafe { (self.0.forget_matrix)(self.1) };
    }
}

/// A search's wishes, for the time of a call.
struct Preference<'l>(&'l Functions, Opaque);

impl Preference<'_> {
    fn set(&self, what: c_int, value: &[u8]) -> Option<()> {
        // SAFETY: the value is as long as said.
        let status = unsafe { (self.0.set_preference)(self.1, what, value.as_ptr().cast(), value.len()) };
        (status == 0).then_some(())
    }
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `choose`.
        unsafe { (self.0.forget_preference)(self.1) };
    }
}

impl Lt {
    /// cuBLASLt for this GPU, whose context is current, where it is installed and not switched off.
    pub fn on(gpu: usize) -> Option<Self> {
        if !super::blas_available() {
            return None;
        }
        let mut all = ON_GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&lt) = all.get(&gpu) {
            return Some(lt);
        }
        let lt = Self::new()?;
        all.insert(gpu, lt);
        Some(lt)
    }

    fn new() -> Option<Self> {
        let library = LIBRARY.as_ref()?;
        let (mut handle, mut product) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: both receive what is made; the attribute is an int32 of the new description.
        let made = unsafe {
            (library.create)(&mut handle) == 0
                && (library.describe_product)(&mut product, COMPUTE_F32, F32) == 0
                && (library.set_product)(product, TRANSPOSE_A, std::ptr::from_ref(&TRANSPOSE).cast(), 4) == 0
        };
        made.then_some(Self { handle: handle as usize, product: product as usize })
    }

    /// The operands' descriptions. cuBLAS is column-major: it computes `yᵀ = w·xᵀ` on the same memory.
    fn matrices(library: &Functions, shape: Shape, rows: u32) -> Option<[Matrix<'_>; 3]> {
        let Shape { outs, k, stride, pitch, wide } = shape;
        Some([
            Matrix::new(library, BF16, [k, outs], stride)?,
            Matrix::new(library, BF16, [k, rows], k)?,
            Matrix::new(library, if wide { F32 } else { BF16 }, [outs, rows], pitch)?,
        ])
    }

    /// How to compute a product whose operands all begin at multiples of `alignment` bytes: what suits
    /// `rows` rows. `None` where cuBLASLt has nothing that sums in one order.
    pub fn choose(self, shape: Shape, rows: u32, alignment: u32) -> Option<Method> {
        let library = LIBRARY.as_ref()?;
        let mut preference = std::ptr::null_mut();
        // SAFETY: it receives what is made.
        (unsafe { (library.preference)(&mut preference) } == 0).then_some(())?;
        let preference = Preference(library, preference);
        preference.set(LARGEST_WORKSPACE, &0u64.to_ne_bytes())?;
        preference.set(REDUCTIONS, &0u32.to_ne_bytes())?;
        for what in ALIGNMENTS {
            preference.set(what, &alignment.to_ne_bytes())?;
        }
        let [w, x, y] = Self::matrices(library, shape, rows)?;
        let mut found = [Found::default(); 8];
        let mut count = 0;
        // SAFETY: `found` has room for as many as are asked for.
        let status = unsafe {
            (library.heuristic)(
                self.handle as Opaque,
                self.product as Opaque,
                w.1,
                x.1,
                y.1,
                y.1,
                preference.1,
                found.len() as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        let found = found.into_iter().take(if status == 0 { count as usize } else { 0 });
        let mut fit =
            found.filter(|f| f.state == 0 && f.workspace == 0 && in_one_order(library, &f.algorithm));
        fit.next().map(|f| Method { shape, algorithm: f.algorithm })
    }

    /// Gives a product of `rows` rows `x` with weights `w` to the stream.
    ///
    /// # Safety
    /// The operands' memory is on the GPU, as large as the shape says, aligned as it was chosen for, and
    /// stays until the stream is done.
    pub unsafe fn multiply(
        self,
        method: &Method,
        [w, x, y]: [u64; 3],
        rows: u32,
        stream: sys::CUstream,
    ) -> Result<(), String> {
        let refused =
            |status| format!("cuBLASLt refused {:?} for {rows} rows (status {status})", method.shape);
        let library = LIBRARY.as_ref().ok_or("cuBLASLt is gone")?;
        let [of_w, of_x, of_y] = Self::matrices(library, method.shape, rows).ok_or_else(|| refused(0))?;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the caller's.
        let status = unsafe {
            (library.multiply)(
                self.handle as Opaque,
                self.product as Opaque,
                &one,
                w,
                of_w.1,
                x,
                of_x.1,
                &zero,
                y,
                of_y.1,
                y,
                of_y.1,
                &method.algorithm,
                0,
                0,
                stream,
            )
        };
        if status == 0 { Ok(()) } else { Err(refused(status)) }
    }
}

/// Whether the shared dimension is not split.
fn in_one_order(library: &Functions, algorithm: &Algorithm) -> bool {
    let read = |what: c_int| {
        let mut value = 0u32;
        // SAFETY: both attributes have 32 bits.
        let status = unsafe {
            (library.configured)(algorithm, what, (&raw mut value).cast(), 4, std::ptr::null_mut())
        };
        (status == 0).then_some(value)
    };
    read(SPLITS).is_some_and(|splits| splits <= 1) && read(REDUCTION) == Some(0)
}
