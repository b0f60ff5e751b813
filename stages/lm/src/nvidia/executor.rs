//! Work on a stream of our own, beside burn: products, kernels and copies on raw pointers, without the
//! host time that a launch through burn takes and without waiting in between.
//!
//! An error is kept and whatever follows it is left out, until [`Executor::finish`] or a download says
//! so: a pass is hundreds of calls in a row, and none of its results is looked at before the end.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use burn::tensor::Tensor;
use cubecl::CubeKernel;
use cudarc::driver::{DriverError, result, sys};

use super::arena::{Arena, Mark};
use super::cublas::{self, BLAS, Handle, Product};
use super::kernel::{self, Scalar, Setting};
use super::raw;

/// A kernel, by its name and what it was specialised for.
pub type Variant = (&'static str, u32);

/// A loaded kernel.
#[derive(Clone, Copy)]
struct Function {
    pointer: usize,
    shared: u32,
}

/// Where an executor's work goes.
#[derive(Clone, Copy)]
struct OnGpu {
    gpu: usize,
    stream: usize,
    blas: Handle,
}

impl OnGpu {
    fn stream(self) -> sys::CUstream {
        self.stream as sys::CUstream
    }
}

/// A stream of one GPU, with memory of its own.
pub struct Executor {
    /// None for one that only compiles and counts.
    on: Option<OnGpu>,
    arena: Arena,
    functions: HashMap<Variant, Function>,
    failure: Option<String>,
    profile: Option<HashMap<&'static str, (u64, f64)>>,
}

type Shared = Arc<Mutex<Executor>>;

static EXECUTORS: LazyLock<Mutex<HashMap<usize, Shared>>> = LazyLock::new(Mutex::default);

/// A GPU's executor, made on first use; none without cuBLAS.
pub fn executor(gpu: usize) -> Option<Shared> {
    let mut all = EXECUTORS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.get(&gpu) {
        return Some(found.clone());
    }
    if !cublas::available() {
        return None;
    }
    let made = Arc::new(Mutex::new(Executor::new(gpu)?));
    all.insert(gpu, made.clone());
    Some(made)
}

/// A burn tensor's buffer, kept while this lives.
pub struct Borrowed {
    /// Address of the first number.
    pub pointer: u64,
    /// Numbers from one row to the next.
    pub leading: usize,
    /// The GPU it is on.
    pub gpu: usize,
    _held: raw::Held,
}

/// Borrows the buffer of a tensor on a GPU, if its rows are whole.
pub fn borrow<const D: usize>(tensor: &Tensor<D>) -> Option<Borrowed> {
    raw::hold(tensor).map(|(gpu, pointer, leading, held)| Borrowed { pointer, leading, gpu, _held: held })
}

/// Buffers of burn tensors of one GPU, kept while this lives.
pub struct BorrowedAll {
    /// Addresses of the first numbers, in the tensors' order.
    pub pointers: Vec<u64>,
    /// The GPU they are on.
    pub gpu: usize,
    _held: Box<dyn std::any::Any + Send>,
}

/// Borrows the buffers of tensors without gaps, if all are on one GPU. Views of a few long buffers cost little
/// more than the buffers.
pub fn borrow_all(tensors: &[Tensor<1>]) -> Option<BorrowedAll> {
    raw::hold_all(tensors).map(|(gpu, pointers, held)| BorrowedAll { pointers, gpu, _held: held })
}

impl Executor {
    fn new(gpu: usize) -> Option<Self> {
        let total = raw::total_memory(gpu)?;
        raw::enter(gpu).ok()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).ok()?;
        let blas = BLAS.as_ref()?.handle(stream)?;
        let arena = Arena::new(gpu, total as usize).ok()?;
        let on = OnGpu { gpu, stream: stream as usize, blas };
        let profile = std::env::var_os("PIPELINE_PROFILE").map(|_| HashMap::new());
        Some(Self { on: Some(on), arena, functions: HashMap::new(), failure: None, profile })
    }

    /// One without a GPU: it compiles every kernel, counts calls and memory, and computes nothing; what is
    /// downloaded is zero.
    pub fn dry() -> Self {
        let profile = Some(HashMap::new());
        Self { on: None, arena: Arena::counting(), functions: HashMap::new(), failure: None, profile }
    }

    /// Takes the executor for one pass: makes its GPU the thread's, and waits for what burn was asked to
    /// do before.
    pub fn enter(shared: &Shared) -> MutexGuard<'_, Self> {
        let mut executor = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(on) = executor.on {
            let entered = raw::enter(on.gpu).and_then(|()| raw::wait());
            executor.check("entering", entered);
        }
        executor
    }

    fn check(&mut self, what: &str, done: Result<(), DriverError>) {
        if let Err(error) = done {
            self.fail(|| format!("{what}: {error}"));
        }
    }

    fn fail(&mut self, why: impl FnOnce() -> String) {
        self.failure.get_or_insert_with(why);
    }

    /// Unless `holds`, leaves out what follows, and makes [`Executor::finish`] say why.
    pub fn require(&mut self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            self.fail(why);
        }
    }

    /// Does `work` unless something failed before; in a profile, waits for it.
    fn perform(&mut self, name: &'static str, work: impl FnOnce(OnGpu) -> Result<(), String>) {
        if self.failure.is_some() {
            return;
        }
        let start = self.profile.is_some().then(Instant::now);
        if let Some(on) = self.on
            && let Err(error) = work(on)
        {
            self.fail(|| format!("{name}: {error}"));
        }
        if let (Some(start), Some(mut profile)) = (start, self.profile.take()) {
            self.wait();
            let entry = profile.entry(name).or_insert((0, 0.0));
            entry.0 += 1;
            entry.1 += start.elapsed().as_secs_f64();
            self.profile = Some(profile);
        }
    }

    fn wait(&mut self) {
        if let Some(on) = self.on {
            // SAFETY: the stream lives as long as the process.
            let done = unsafe { result::stream::synchronize(on.stream()) };
            self.check("the stream", done);
        }
    }

    /// Room for `count` numbers of `bytes` bytes on top of the arena.
    pub fn take(&mut self, count: usize, bytes: usize) -> u64 {
        match self.arena.take(count * bytes) {
            Ok(pointer) => pointer,
            Err(error) => {
                let held = self.arena.held() as f64 / 1e9;
                self.fail(|| format!("no memory for the pass beyond {held:.1} GB: {error}"));
                0
            }
        }
    }

    /// The present height of the arena.
    pub fn mark(&self) -> Mark {
        self.arena.mark()
    }

    /// Gives up what was taken since `mark`; work already given to the stream may still use it.
    pub fn release(&mut self, mark: Mark) {
        self.arena.release(mark);
    }

    /// Bytes of the GPU's memory behind the arena.
    pub fn held(&self) -> usize {
        self.arena.held()
    }

    /// Bytes of the GPU's memory that nobody holds.
    pub fn free(&self) -> Option<u64> {
        self.on?;
        result::mem_get_info().ok().map(|(free, _)| free as u64)
    }

    /// The most bytes of the arena that were ever taken at once.
    pub fn peak(&self) -> usize {
        self.arena.peak()
    }

    /// Gives the arena's memory back to the GPU.
    pub fn give_back(&mut self) {
        self.wait();
        let done = self.arena.clear();
        self.check("giving memory back", done);
    }

    /// A product.
    ///
    /// # Safety
    /// The operands' memory is on this GPU, large enough, and stays until the stream is done.
    pub unsafe fn product(&mut self, name: &'static str, product: &Product) {
        if product.size.contains(&0) || product.count == 0 {
            return;
        }
        self.perform(name, |on| {
            let blas = BLAS.as_ref().ok_or("no cuBLAS")?;
            // SAFETY: the caller's.
            unsafe { blas.multiply(on.blas, product) }.ok_or_else(|| format!("cuBLAS refused {product:?}"))
        });
    }

    /// Launches a kernel: `cubes` of `units` threads, its buffers and its scalars in the order of its
    /// signature. `make` makes it from its setting, once.
    ///
    /// # Safety
    /// The buffers are on this GPU, as large as the kernel takes them to be, and stay until the stream is
    /// done; buffers and scalars are those of the signature.
    pub unsafe fn launch<K: CubeKernel>(
        &mut self,
        variant: Variant,
        (cubes, units): ([usize; 3], u32),
        buffers: &[u64],
        scalars: &[Scalar],
        make: impl FnOnce(Setting) -> K,
    ) {
        if cubes.contains(&0) {
            return;
        }
        let function = match self.functions.get(&variant) {
            Some(&function) => function,
            None => match load(&make(kernel::setting(units)), self.on.is_some()) {
                Ok(function) => *self.functions.entry(variant).or_insert(function),
                Err(error) => return self.fail(|| format!("{}: {error}", variant.0)),
            },
        };
        self.perform(variant.0, |on| {
            let info = kernel::info(buffers.len(), scalars);
            let mut arguments: Vec<*mut c_void> =
                buffers.iter().map(|pointer| std::ptr::from_ref(pointer).cast_mut().cast()).collect();
            arguments.push(info.as_ptr().cast_mut().cast());
            let [x, y, z] = cubes.map(|count| count as u32);
            // SAFETY: the arguments live until the call returns, which copies them; the rest is the
            // caller's.
            unsafe {
                result::launch_kernel(
                    function.pointer as sys::CUfunction,
                    (x, y, z),
                    (units, 1, 1),
                    function.shared,
                    on.stream(),
                    &mut arguments,
                )
            }
            .map_err(|error| error.to_string())
        });
    }

    /// Numbers from the host on top of the arena.
    pub fn upload<T: Copy>(&mut self, values: &[T]) -> u64 {
        let pointer = self.take(values.len(), size_of::<T>());
        self.write(pointer, values);
        pointer
    }

    /// Numbers from the host to `pointer`, inside what was taken.
    fn write<T: Copy>(&mut self, pointer: u64, values: &[T]) {
        // SAFETY: pageable memory has been read when the call returns; `pointer` was just taken.
        self.perform("upload", |on| unsafe {
            result::memcpy_htod_async(pointer, values, on.stream()).map_err(|error| error.to_string())
        });
    }

    /// Waits for the stream and brings numbers to the host.
    ///
    /// # Panics
    /// When something failed since [`Executor::enter`]: the numbers would be wrong.
    pub fn download<T: Copy + Default>(&mut self, pointer: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        // SAFETY: the caller took as much; the stream is waited for below.
        self.perform("download", |on| unsafe {
            result::memcpy_dtoh_async(&mut values, pointer, on.stream()).map_err(|error| error.to_string())
        });
        self.finish();
        values
    }

    /// Copies `bytes` from one place to another.
    ///
    /// # Safety
    /// Both are on this GPU, large enough, and stay until the stream is done.
    pub unsafe fn copy(&mut self, from: u64, to: u64, bytes: usize) {
        // SAFETY: the caller's.
        self.perform("copy", |on| unsafe {
            result::memcpy_dtod_async(to, from, bytes, on.stream()).map_err(|error| error.to_string())
        });
    }

    /// Sets `bytes` to zero.
    ///
    /// # Safety
    /// The memory is on this GPU, large enough, and stays until the stream is done.
    pub unsafe fn clear(&mut self, pointer: u64, bytes: usize) {
        // SAFETY: the caller's.
        self.perform("clear", |on| unsafe {
            result::memset_d8_async(pointer, 0, bytes, on.stream()).map_err(|error| error.to_string())
        });
    }

    /// Waits until everything is done, after which burn may use the results.
    ///
    /// # Panics
    /// When something failed since [`Executor::enter`]: going on would compute with wrong numbers.
    pub fn finish(&mut self) {
        self.wait();
        if let Some(failure) = self.failure.take() {
            let gpu = self.on.map(|on| on.gpu).unwrap_or_default();
            panic!("a pass on GPU {gpu} failed ({failure}); set PIPELINE_PASS=burn to do without it");
        }
    }

    /// Calls and seconds by name since the last time, where `PIPELINE_PROFILE` is set; slowest first.
    pub fn profile(&mut self) -> Vec<(&'static str, u64, f64)> {
        let taken = self.profile.as_mut().map(std::mem::take).unwrap_or_default();
        let mut all: Vec<_> =
            taken.into_iter().map(|(name, (calls, seconds))| (name, calls, seconds)).collect();
        all.sort_by(|a, b| b.2.total_cmp(&a.2));
        all
    }
}

fn load(kernel: &impl CubeKernel, on_gpu: bool) -> Result<Function, String> {
    let compiled = kernel::compile(kernel)?;
    if !on_gpu {
        return Ok(Function { pointer: 0, shared: 0 });
    }
    let name = CString::new(compiled.entry.clone()).map_err(|error| error.to_string())?;
    // SAFETY: the PTX ends with a zero; modules live as long as the process.
    let pointer = unsafe {
        let module = result::module::load_data(compiled.ptx.as_ptr().cast())
            .map_err(|error| format!("loading {}: {error}", compiled.entry))?;
        result::module::get_function(module, name)
            .map_err(|error| format!("finding {}: {error}", compiled.entry))?
    };
    Ok(Function { pointer: pointer as usize, shared: compiled.shared as u32 })
}
