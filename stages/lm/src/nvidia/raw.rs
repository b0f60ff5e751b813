//! Burn's buffers as pointers, and the card itself.
//!
//! Burn keeps its streams to itself. Whoever works on its buffers waits for everything that burn has
//! given to the card, works on a stream of its own, and waits for that too: tens of microseconds, which
//! only work of a millisecond is worth.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{LazyLock, Mutex};

use burn::backend::Cuda;
use burn::tensor::{DType, Device as BurnDevice, Tensor};
use burn_cubecl::cubecl::Device;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::{DriverError, result, sys};

type Server = <CudaRuntime as Runtime>::Server;

/// Contexts by device index; a primary context lives as long as the process.
static CONTEXTS: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

/// Which GPU a tensor is on, where it is on one.
pub(super) fn index(tensor: &CubeTensor) -> Option<usize> {
    match &tensor.device {
        Device::Cuda(device) => Some(device.index),
        _ => None,
    }
}

/// Makes the GPU's context, which burn uses too, the calling thread's.
pub(crate) fn enter(index: usize) -> Result<(), DriverError> {
    let mut contexts = CONTEXTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let context = match contexts.get(&index) {
        Some(&context) => context,
        None => {
            result::init()?;
            let device = result::device::get(index as i32)?;
            // SAFETY: the device was just returned by the driver.
            let context = unsafe { result::primary_ctx::retain(device)? } as usize;
            contexts.insert(index, context);
            context
        }
    };
    // SAFETY: a primary context, retained above and never released.
    unsafe { result::ctx::set_current(context as sys::CUcontext) }
}

/// Waits for everything that the current context's GPU was given.
pub(crate) fn wait() -> Result<(), DriverError> {
    result::ctx::synchronize()
}

/// The address of a tensor's first number, valid while `hold` runs, after all that burn was asked to do
/// with the tensor was given to the GPU.
pub(super) fn with_pointers<const N: usize, T>(
    tensors: [&CubeTensor; N],
    hold: impl FnOnce([u64; N]) -> T,
) -> Option<T> {
    let mut resources = Vec::with_capacity(N);
    for tensor in tensors {
        resources.push(tensor.client.get_resource::<Server>(tensor.handle.clone()).ok()?);
    }
    let mut pointers = resources.iter().map(|resource| resource.resource().ptr);
    let pointers = std::array::from_fn(|_| pointers.next().unwrap_or_default());
    Some(hold(pointers))
}

/// What keeps a tensor's buffer where it is.
pub(crate) type Held = Box<dyn std::any::Any + Send>;

/// GPU, address and numbers from row to row of a tensor whose rows are whole, for as long as what comes
/// with them is kept.
pub(crate) fn hold<const D: usize>(tensor: &Tensor<D>) -> Option<(usize, u64, usize, Held)> {
    let tensor = tensor.clone().without_autodiff().try_into_primitive::<Cuda>().ok()?;
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let dense = |dim: usize| shape[dim] == 1 || strides[dim] == strides[dim + 1] * shape[dim + 1];
    // further dimensions must follow from the last two
    if strides[D - 1] != 1 || !(0..D.saturating_sub(2)).all(dense) {
        return None;
    }
    let leading = if D == 1 { shape[0] } else { strides[D - 2] };
    let gpu = index(&tensor)?;
    let resource = tensor.client.get_resource::<Server>(tensor.handle.clone()).ok()?;
    let pointer = resource.resource().ptr;
    Some((gpu, pointer, leading, Box::new((resource, tensor.handle))))
}

/// GPU and addresses of tensors on it without gaps; those that are views of one buffer cost one question.
pub(crate) fn hold_all(tensors: &[Tensor<1>]) -> Option<(usize, Vec<u64>, Held)> {
    let (mut bases, mut held) = (HashMap::new(), Vec::new());
    let mut pointers = Vec::with_capacity(tensors.len());
    let mut gpu = None;
    for tensor in tensors {
        let tensor = tensor.clone().without_autodiff().try_into_primitive::<Cuda>().ok()?;
        if tensor.meta.strides()[0] != 1 || *gpu.get_or_insert(index(&tensor)?) != index(&tensor)? {
            return None;
        }
        let offset = tensor.handle.offset_start.unwrap_or_default();
        let base = match bases.entry(tensor.handle.clone().binding().memory.id()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let resource = tensor.client.get_resource::<Server>(tensor.handle.clone()).ok()?;
                let base = *place.insert(resource.resource().ptr - offset);
                held.push((resource, tensor.handle));
                base
            }
        };
        pointers.push(base + offset);
    }
    Some((gpu?, pointers, Box::new(held)))
}

/// Puts `values` where a tensor on a GPU lies, whoever holds it; false, and nothing done, for another one.
pub fn overwrite(tensor: &Tensor<1>, values: &[f32]) -> bool {
    let Some((gpu, pointer, _, _held)) = hold(tensor) else { return false };
    if tensor.dtype() != DType::F32 || tensor.dims()[0] != values.len() {
        return false;
    }
    // SAFETY: the buffer is as long and is kept until the copy is done; burn's work on it is waited for.
    enter(gpu)
        .and_then(|()| wait())
        .and_then(|()| unsafe { result::memcpy_htod_sync(pointer, values) })
        .is_ok()
}

/// The numbers `start..start + len` of a tensor on a GPU, as a view whatever the length; `None` for another
/// device, or a start that is no multiple of 512 bytes.
pub fn view(tensor: &Tensor<1>, start: usize, len: usize) -> Option<Tensor<1>> {
    let size = tensor.dtype().size();
    let rest = tensor.dims()[0].checked_sub(start + len)?;
    if !(start * size).is_multiple_of(512) {
        return None;
    }
    let whole = tensor.clone().try_into_primitive::<Cuda>().ok()?;
    let handle = whole.handle.offset_start((start * size) as u64).offset_end((rest * size) as u64);
    let part = CubeTensor::new_contiguous(whole.client, whole.device, [len].into(), handle, whole.dtype);
    Some(Tensor::from_primitive::<Cuda>(part))
}

/// Does `work`, which asks for the addresses of many tensors on the GPU of `tensor`, in the thread that burn's
/// work on that GPU goes through. There [`hold`] is a call; from any other thread each is a message to and fro,
/// tens of microseconds.
///
/// # Panics
/// When `work` does, or burn's thread is gone.
pub fn near<const D: usize, T: Send + 'static>(tensor: &Tensor<D>, work: impl FnOnce() -> T + Send) -> T {
    match tensor.clone().without_autodiff().try_into_primitive::<Cuda>() {
        Ok(tensor) => tensor.client.exclusive(work).unwrap_or_else(|error| panic!("burn's thread: {error}")),
        Err(_) => work(),
    }
}

/// A tensor of these bytes on a GPU, copied from where they lie (a mapped file, say) with no copy on the
/// host in between; `None` for a device that is no GPU, or where that does not work.
pub(crate) fn from_bytes<const D: usize>(
    bytes: &[u8],
    shape: [usize; D],
    device: &BurnDevice,
    dtype: DType,
) -> Option<Tensor<D>> {
    if device.clone().without_autodiff() == BurnDevice::flex() {
        return None;
    }
    let tensor = Tensor::empty(shape, (device, dtype));
    let (gpu, pointer, leading, _held) = hold(&tensor)?;
    // Rows that are padded, or a size that is none of this shape's, are left to others.
    let dense = D == 1 || leading == shape[D - 1];
    (dense && shape.iter().product::<usize>() * dtype.size() == bytes.len()).then_some(())?;
    enter(gpu).ok()?;
    wait().ok()?;
    // SAFETY: the tensor's buffer is as long, and is kept until the copy is done.
    unsafe { result::memcpy_htod_sync(pointer, bytes) }.ok()?;
    Some(tensor)
}

/// Bytes of a GPU's memory, where there is such a GPU. Takes none of it.
pub fn total_memory(index: usize) -> Option<u64> {
    // the driver's bindings panic where there is no driver
    if index >= crate::device::gpus().len() {
        return None;
    }
    result::init().ok()?;
    let device = result::device::get(index as i32).ok()?;
    // SAFETY: the device was just returned by the driver.
    unsafe { result::device::total_mem(device) }.ok().map(|bytes| bytes as u64)
}

/// Free and total bytes of a GPU's memory, where there is such a GPU. The process takes some of it for
/// as long as it lives.
pub fn memory(index: usize) -> Option<(u64, u64)> {
    let total = total_memory(index)?;
    enter(index).ok()?;
    let (free, _) = result::mem_get_info().ok()?;
    Some((free as u64, total))
}
