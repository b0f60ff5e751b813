//! Sums and copies between GPUs of one machine through NCCL, on burn's buffers.
//!
//! Not burn's own all-reduce, which opens NCCL under names that its packages do not use and knows no
//! broadcast. Every GPU's part is called from a thread of its own and waits for the others'.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch};
use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::{result, sys};
use libloading::os::unix::{Library, Symbol};

use super::{library, raw};

type Communicator = *mut c_void;
type Status = c_int;
type InitAll = unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> Status;
type Reduce =
    unsafe extern "C" fn(u64, u64, usize, c_int, c_int, c_int, Communicator, sys::CUstream) -> Status;
type Broadcast = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, Communicator, sys::CUstream) -> Status;

// Values of `nccl.h`.
const F32: c_int = 7;
const BF16: c_int = 9;
const SUM: c_int = 0;
const ROOT: c_int = 0;

struct Nccl {
    init_all: Symbol<InitAll>,
    reduce: Symbol<Reduce>,
    broadcast: Symbol<Broadcast>,
    _library: Library,
}

static NCCL: LazyLock<Option<Nccl>> = LazyLock::new(Nccl::open);
static TEAMS: LazyLock<Mutex<HashMap<u64, Arc<Members>>>> = LazyLock::new(Mutex::default);

/// Each GPU's communicator and stream.
type Members = HashMap<usize, (usize, usize)>;

impl Nccl {
    fn open() -> Option<Self> {
        let library = library::open(&["libnccl.so.2", "libnccl.so"])?;
        // SAFETY: the types are those of nccl.h, unchanged within version 2.
        unsafe {
            Some(Self {
                init_all: library.get(b"ncclCommInitAll\0").ok()?,
                reduce: library.get(b"ncclReduce\0").ok()?,
                broadcast: library.get(b"ncclBroadcast\0").ok()?,
                _library: library,
            })
        }
    }
}

/// GPUs that exchange tensors. The first one collects sums and hands out copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Team {
    id: u64,
}

impl Team {
    /// A team of the GPUs with these indices, or why there is none.
    ///
    /// # Errors
    /// NCCL is not installed, or cannot connect the GPUs.
    pub fn new(gpus: &[usize]) -> Result<Self, String> {
        let nccl = NCCL.as_ref().ok_or_else(|| {
            let variable = library::FOLDER_VARIABLE;
            format!(
                "NCCL (libnccl.so.2) was not found; install it (it comes with `pip install torch` and with \
                 NVIDIA's CUDA packages), or name its folder in {variable}"
            )
        })?;
        let indices: Vec<c_int> = gpus.iter().map(|&gpu| gpu as c_int).collect();
        let mut communicators: Vec<Communicator> = vec![std::ptr::null_mut(); gpus.len()];
        // SAFETY: both lists are as long as said.
        let status =
            unsafe { (nccl.init_all)(communicators.as_mut_ptr(), gpus.len() as c_int, indices.as_ptr()) };
        if status != 0 {
            return Err(format!(
                "NCCL could not connect GPUs {gpus:?} (error {status}); set NCCL_DEBUG=WARN"
            ));
        }
        let mut members = Members::new();
        for (&gpu, communicator) in gpus.iter().zip(communicators) {
            raw::enter(gpu).map_err(|error| format!("GPU {gpu}: {error:?}"))?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(|error| format!("GPU {gpu}: {error:?}"))?;
            members.insert(gpu, (communicator as usize, stream as usize));
        }
        let mut teams = TEAMS.lock().unwrap_or_else(PoisonError::into_inner);
        let id = teams.len() as u64;
        teams.insert(id, Arc::new(members));
        Ok(Self { id })
    }

    fn members(self) -> Arc<Members> {
        let teams = TEAMS.lock().unwrap_or_else(PoisonError::into_inner);
        teams.get(&self.id).cloned().unwrap_or_default()
    }

    /// The sum of all members' `part`s (f32, of equal length) on the first; what the others get back
    /// has no meaning. Every member calls this, each from a thread of its own.
    pub fn sum(self, part: Tensor<1>, first: bool) -> Tensor<1> {
        Tensor::from_dispatch(<Dispatch as Exchange>::team_sum(part.into_dispatch(), self.id as usize, first))
    }

    /// The first member's `part` on every member; the others' give shape and dtype. Every member calls
    /// this, each from a thread of its own.
    pub fn copy(self, part: Tensor<1>, first: bool) -> Tensor<1> {
        Tensor::from_dispatch(<Dispatch as Exchange>::team_copy(
            part.into_dispatch(),
            self.id as usize,
            first,
        ))
    }
}

/// Exchanges as burn's backends offer them to [`Team`].
#[backend_extension(Cube)]
trait Exchange: Backend {
    /// See [`Team::sum`].
    fn team_sum(part: FloatTensor<Self>, team: usize, first: bool) -> FloatTensor<Self>;
    /// See [`Team::copy`].
    fn team_copy(part: FloatTensor<Self>, team: usize, first: bool) -> FloatTensor<Self>;
}

impl Exchange for CubeBackend {
    fn team_sum(part: CubeTensor, team: usize, first: bool) -> CubeTensor {
        let part = into_contiguous(part);
        // in place, unless somebody else holds what would be overwritten
        let result = if first && !part.can_mut() { empty_like(&part) } else { part.clone() };
        exchange(&part, &result, team, "sum", |nccl, [from, to], len, kind, (communicator, stream)| {
            // SAFETY: `exchange` holds both buffers, of `len` numbers each.
            unsafe { (nccl.reduce)(from, to, len, kind, SUM, ROOT, communicator, stream) }
        });
        result
    }

    fn team_copy(part: CubeTensor, team: usize, first: bool) -> CubeTensor {
        let part = into_contiguous(part);
        let result = if first { part.clone() } else { empty_like(&part) };
        exchange(&part, &result, team, "copy", |nccl, [from, to], len, kind, (communicator, stream)| {
            // SAFETY: as above; the root sends and receives in place.
            unsafe { (nccl.broadcast)(from, to, len, kind, ROOT, communicator, stream) }
        });
        result
    }
}

fn empty_like(tensor: &CubeTensor) -> CubeTensor {
    let shape = tensor.meta.shape().clone();
    empty_device_contiguous_dtype(tensor.client.clone(), tensor.device.clone(), shape, tensor.dtype)
}

/// Calls NCCL on the buffers of `from` and `to` and waits for it.
fn exchange(
    from: &CubeTensor,
    to: &CubeTensor,
    team: usize,
    what: &str,
    call: impl FnOnce(&Nccl, [u64; 2], usize, c_int, (Communicator, sys::CUstream)) -> Status,
) {
    let kind = if from.dtype == DType::BF16 { BF16 } else { F32 };
    let len = from.meta.shape().num_elements();
    let gpu = raw::index(from).unwrap_or_default();
    let member = Team { id: team as u64 }.members().get(&gpu).copied();
    let done = NCCL.as_ref().zip(member).and_then(|(nccl, (communicator, stream))| {
        raw::with_pointers([from, to], |pointers| {
            let on = (communicator as Communicator, stream as sys::CUstream);
            raw::enter(gpu).ok()?;
            raw::wait().ok()?;
            (call(nccl, pointers, len, kind, on) == 0).then_some(())?;
            // SAFETY: the stream was made with the team and lives as long as the process.
            unsafe { result::stream::synchronize(on.1) }.ok()
        })
        .flatten()
    });
    // going on would compute with numbers that never arrived
    assert!(
        done.is_some(),
        "NCCL failed to {what} {len} numbers on GPU {gpu}; set NCCL_DEBUG=WARN to see why"
    );
}
