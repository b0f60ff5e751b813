//! A stream of one GPU: memory, launches, copies and graphs.
//!
//! burn's stream is private and every launch through it costs host time, so a step's work goes to a
//! stream of its own, on which products of cuBLASLt can stand between kernels. An error is kept and
//! whatever follows it is left out, until [`Stream::failure`] is asked: a step is hundreds of calls, and
//! nothing is looked at before its end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, PoisonError};

use cubecl::CubeKernel;
use cudarc::driver::{DriverError, result, sys};

use crate::nvidia::kernel::{self, Scalar, Setting};
use crate::nvidia::lt::{Lt, Method};
use crate::nvidia::{enter, total_memory, wait};

/// A kernel: its name and what it is specialised for.
type Variant = (&'static str, [u32; 5]);

/// A loaded kernel.
#[derive(Clone, Copy)]
struct Function {
    /// A `CUfunction`.
    function: usize,
    shared: u32,
}

/// The kernels loaded so far, by GPU. They live as long as the process.
static FUNCTIONS: LazyLock<Mutex<HashMap<(usize, Variant), Function>>> = LazyLock::new(Mutex::default);

/// A GPU's stream.
pub struct Stream {
    gpu: usize,
    stream: sys::CUstream,
    failure: RefCell<Option<String>>,
}

/// Memory of the GPU, freed with this.
pub struct Buffer {
    pub pointer: u64,
    gpu: usize,
}

/// A recorded run of launches.
pub struct Graph {
    graph: sys::CUgraphExec,
    gpu: usize,
}

/// Numbers on their way to the host, in memory that the GPU writes to directly.
pub struct Inbox {
    numbers: *mut u32,
    room: usize,
    arrived: sys::CUevent,
    gpu: usize,
}

/// A launch of a kernel: `cubes` of `units` threads, its buffers and its scalars in the order of its
/// signature.
pub struct Launch<'a> {
    pub name: &'static str,
    pub variant: [u32; 5],
    pub cubes: [u32; 3],
    pub units: u32,
    pub buffers: &'a [u64],
    pub scalars: &'a [Scalar],
}

fn text(error: DriverError) -> String {
    error.to_string()
}

impl Stream {
    pub fn new(gpu: usize) -> Result<Rc<Self>, String> {
        enter(gpu).map_err(text)?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(text)?;
        Ok(Rc::new(Self { gpu, stream, failure: RefCell::default() }))
    }

    /// Which GPU it is.
    pub fn gpu(&self) -> usize {
        self.gpu
    }

    /// Makes the GPU the calling thread's, and waits for all that it was given, by burn too.
    pub fn settle(&self) {
        self.perform("waiting for the GPU", || enter(self.gpu).and_then(|()| wait()).map_err(text));
    }

    /// Multiprocessors of the GPU.
    pub fn processors(&self) -> Option<u32> {
        let device = result::device::get(self.gpu as i32).ok()?;
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: the device was just returned by the driver.
        unsafe { result::device::get_attribute(device, count) }.ok().map(|count| count as u32)
    }

    /// Bytes of the GPU's memory.
    pub fn memory(&self) -> Option<u64> {
        total_memory(self.gpu)
    }

    /// cuBLASLt on the GPU.
    pub fn lt(&self) -> Option<Lt> {
        enter(self.gpu).ok()?;
        Lt::on(self.gpu)
    }

    /// What failed first, once.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow_mut().take()
    }

    /// Does `work` unless something failed before.
    fn perform(&self, what: &str, work: impl FnOnce() -> Result<(), String>) {
        let mut failure = self.failure.borrow_mut();
        if failure.is_none()
            && let Err(error) = work()
        {
            *failure = Some(format!("GPU {}: {what}: {error}", self.gpu));
        }
    }

    /// Room for `bytes` bytes.
    pub fn buffer(&self, bytes: u64) -> Buffer {
        let mut pointer = 0;
        self.perform("allocating memory", || {
            enter(self.gpu).map_err(text)?;
            // SAFETY: nothing reads it before it is written.
            let made = unsafe { result::malloc_sync(bytes.max(16) as usize) };
            pointer = made.map_err(|error| format!("{:.2} GB: {error}", bytes as f64 / 1e9))?;
            Ok(())
        });
        Buffer { pointer, gpu: self.gpu }
    }

    /// Numbers from the host in memory of their own.
    pub fn upload(&self, numbers: &[f32]) -> Buffer {
        let buffer = self.buffer(size_of_val(numbers) as u64);
        self.write(buffer.pointer, numbers);
        buffer
    }

    /// Writes numbers in the order of launches.
    pub fn write<T: Copy>(&self, pointer: u64, numbers: &[T]) {
        // SAFETY: pageable memory has been read when the call returns; the caller's buffer is as large.
        self.perform("writing", || unsafe {
            result::memcpy_htod_async(pointer, numbers, self.stream).map_err(text)
        });
    }

    /// Sets bytes to zero in the order of launches.
    pub fn clear(&self, pointer: u64, bytes: u64) {
        // SAFETY: the caller's buffer is as large.
        self.perform("clearing", || unsafe {
            result::memset_d8_async(pointer, 0, bytes as usize, self.stream).map_err(text)
        });
    }

    /// Waits for everything and brings numbers to the host.
    pub fn read(&self, pointer: u64, count: usize) -> Vec<f32> {
        let mut numbers = vec![0f32; count];
        // SAFETY: the caller's buffer is as large, and the copy is waited for.
        self.perform("reading", || unsafe {
            result::memcpy_dtoh_async(&mut numbers, pointer, self.stream).map_err(text)?;
            result::stream::synchronize(self.stream).map_err(text)
        });
        numbers
    }

    /// Launches a kernel, which `make` makes from its setting when it is first used.
    ///
    /// # Safety
    /// The buffers are on this GPU, as large as the kernel takes them to be, and stay until the stream is
    /// done; buffers and scalars are those of the signature, and `variant` tells what `make` specialises.
    pub unsafe fn launch<K: CubeKernel>(&self, launch: &Launch, make: impl FnOnce(Setting) -> K) {
        let &Launch { name, variant, cubes: [x, y, z], units, buffers, scalars } = launch;
        self.perform(name, || {
            let mut functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (self.gpu, (name, variant));
            let function = match functions.get(&key) {
                Some(&function) => function,
                None => {
                    let function = load(&make(kernel::setting(units)))?;
                    functions.insert(key, function);
                    function
                }
            };
            drop(functions);
            let info = kernel::info(buffers.len(), scalars);
            let mut arguments: Vec<*mut c_void> =
                buffers.iter().map(|pointer| std::ptr::from_ref(pointer).cast_mut().cast()).collect();
            arguments.push(info.as_ptr().cast_mut().cast());
            let (grid, block) = ((x, y, z), (units, 1, 1));
            // SAFETY: the call copies the arguments; the rest is the caller's.
            unsafe {
                result::launch_kernel(
                    function.function as sys::CUfunction,
                    grid,
                    block,
                    function.shared,
                    self.stream,
                    &mut arguments,
                )
            }
            .map_err(text)
        });
    }

    /// A product through cuBLASLt: weights, rows, result.
    ///
    /// # Safety
    /// As for [`Lt::multiply`].
    pub unsafe fn multiply(&self, lt: Lt, method: &Method, operands: [u64; 3], rows: u32) {
        // SAFETY: the caller's.
        self.perform("a product", || unsafe { lt.multiply(method, operands, rows, self.stream) });
    }

    /// Records what `work` launches instead of doing it; `None` where that does not work here, or where
    /// nothing came of it.
    pub fn record(&self, work: impl FnOnce()) -> Option<Graph> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives as long as this; the graph is destroyed once it is instantiated.
        unsafe {
            result::stream::begin_capture(self.stream, mode).ok()?;
            work();
            let graph = result::stream::end_capture(self.stream).ok().filter(|graph| !graph.is_null())?;
            let mut nodes = 0;
            let counted = sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes).result();
            let made = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            (counted.is_ok() && nodes > 0 && self.failure.borrow().is_none()).then_some(())?;
            Some(Graph { graph: made.ok()?, gpu: self.gpu })
        }
    }

    /// Does what was recorded.
    pub fn replay(&self, graph: &Graph) {
        // SAFETY: the graph's buffers are its owner's.
        self.perform("a graph", || unsafe { result::graph::launch(graph.graph, self.stream).map_err(text) });
    }

    /// Room for `room` numbers on their way to the host.
    pub fn inbox(&self, room: usize) -> Inbox {
        let (mut numbers, mut arrived) = (std::ptr::null_mut(), std::ptr::null_mut());
        self.perform("allocating memory of the host", || {
            // SAFETY: freed with the inbox.
            numbers = unsafe { result::malloc_host(4 * room.max(1), 0) }.map_err(text)?.cast();
            arrived = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(text)?;
            Ok(())
        });
        Inbox { numbers, room, arrived, gpu: self.gpu }
    }

    /// Sends the first numbers of a buffer after everything launched so far.
    pub fn post(&self, inbox: &Inbox, pointer: u64, count: usize) {
        self.perform("reading", || {
            if inbox.room < count || inbox.numbers.is_null() {
                return Err(format!("room for {} numbers of {count}", inbox.room));
            }
            // SAFETY: the inbox has room, and is read after the event only.
            unsafe {
                let numbers = std::slice::from_raw_parts_mut(inbox.numbers, count);
                result::memcpy_dtoh_async(numbers, pointer, self.stream).map_err(text)?;
                result::event::record(inbox.arrived, self.stream).map_err(text)
            }
        });
    }

    /// Waits for what was posted last, `count` numbers.
    pub fn receive(&self, inbox: &Inbox, count: usize) -> Vec<u32> {
        let mut received = vec![0u32; count];
        // SAFETY: the event is recorded after the copy of as many numbers.
        self.perform("waiting for a step", || unsafe {
            result::event::synchronize(inbox.arrived).map_err(text)?;
            received.copy_from_slice(std::slice::from_raw_parts(inbox.numbers, count));
            Ok(())
        });
        received
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        let _ = enter(self.gpu).and_then(|()| unsafe {
            result::stream::synchronize(self.stream)?;
            result::stream::destroy(self.stream)
        });
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.pointer != 0 {
            // SAFETY: allocated by `buffer`; freeing waits for the GPU.
            let _ = enter(self.gpu).and_then(|()| unsafe { result::free_sync(self.pointer) });
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `record`.
        let _ = enter(self.gpu).and_then(|()| unsafe { result::graph::exec_destroy(self.graph) });
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.numbers.is_null() || self.arrived.is_null() {
            return;
        }
        // SAFETY: made by `inbox`; what is under way arrives first.
        let _ = enter(self.gpu).and_then(|()| wait()).and_then(|()| unsafe {
            result::event::destroy(self.arrived)?;
            result::free_host(self.numbers.cast())
        });
    }
}

fn load(kernel: &impl CubeKernel) -> Result<Function, String> {
    let compiled = kernel::compile(kernel)?;
    let name = CString::new(compiled.entry.clone()).map_err(|error| error.to_string())?;
    let shared = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the PTX ends with a zero; modules live as long as the process.
    unsafe {
        let module = result::module::load_data(compiled.ptx.as_ptr().cast())
            .map_err(|error| format!("loading {}: {error}", compiled.entry))?;
        let function = result::module::get_function(module, name).map_err(text)?;
        result::function::set_function_attribute(function, shared, compiled.shared as i32).map_err(text)?;
        Ok(Function { function: function as usize, shared: compiled.shared as u32 })
    }
}
