//! Burn's buffers as pointers, and the card itself.
//!
//! Burn keeps its streams to itself. Whoever works on its buffers waits for everything that burn has
//! given to the card, works on a stream of its own, and waits for that too: tens of microseconds, which
//! only work of a millisecond is worth.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

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
pub(super) fn enter(index: usize) -> Result<(), DriverError> {
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
pub(super) fn wait() -> Result<(), DriverError> {
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
