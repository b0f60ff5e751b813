//! What computes a step: the host path on the CPU; on a GPU kernels of our own, or tensors for what
//! those do not take.

use burn::tensor::Device;
use rayon::prelude::*;

use super::sampling::{Choice, Draw};
use super::tensor_runner::TensorRunner;
use super::{EngineOptions, GenerateError};
use crate::adapter::Adapter;
#[cfg(feature = "cuda")]
use crate::cuda::CudaRunner;
use crate::host::{HostRunner, Segment};
use crate::model::Model;

/// A model with a cache of slots.
pub(super) enum Runner {
    Host(Box<HostRunner>),
    #[cfg(feature = "cuda")]
    Cuda(Box<CudaRunner>),
    Tensor(Box<TensorRunner>),
}

impl Runner {
    /// The host path for a model on the CPU, unless `tensors` asks for the other one.
    pub fn new(model: &Model, adapter: Option<&Adapter>, options: &EngineOptions) -> Self {
        let on_cpu = model.device().without_autodiff() == Device::flex();
        if on_cpu && !options.tensors {
            return Self::Host(Box::new(HostRunner::new(model, adapter)));
        }
        #[cfg(feature = "cuda")]
        if !options.tensors
            && let Some(runner) = CudaRunner::new(model, adapter)
        {
            return Self::Cuda(Box::new(runner));
        }
        Self::Tensor(Box::new(TensorRunner::new(model, adapter)))
    }

    /// Which one this is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => runner.name(),
            Self::Tensor(_) => "tensors",
        }
    }

    /// Whether decoding a token gives the same bits as the same token in a prompt.
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Host(_))
    }

    /// Bytes of one cached number.
    pub fn number_size(&self) -> usize {
        match self {
            Self::Host(_) => 4,
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => runner.number_size(),
            Self::Tensor(runner) => runner.number_size(),
        }
    }

    /// Bytes of keys and values that suit the device.
    pub fn cache_bytes(&self) -> u64 {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => runner.cache_bytes(),
            _ => 4 << 30,
        }
    }

    /// Prompt tokens of a step that suit the device.
    pub fn prefill_tokens(&self) -> usize {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => crate::cuda::PROMPT_ROWS as usize,
            _ => 512,
        }
    }

    /// Makes room for `slots` sequences of up to `capacity` tokens. Says whether what was cached
    /// before is still there.
    pub fn reserve(&mut self, slots: usize, capacity: usize) -> bool {
        match self {
            Self::Host(runner) => runner.reserve(slots, capacity),
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => runner.reserve(slots, capacity),
            Self::Tensor(runner) => runner.reserve(slots, capacity),
        }
    }

    /// Copies the first `len` positions of one slot to another.
    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) {
        match self {
            Self::Host(runner) => runner.copy_prefix(from, to, len),
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => runner.copy_prefix(from, to, len),
            Self::Tensor(runner) => runner.copy_prefix(from, to, len),
        }
    }

    /// Computes the segments and chooses a token, one of the first `usable`, for each that wants
    /// logits: one of `draws` each, in order. `None` where the logits are not finite.
    ///
    /// # Errors
    /// A device that failed.
    pub fn step(
        &mut self,
        segments: &[Segment],
        draws: &[Draw],
        usable: usize,
    ) -> Result<Vec<Option<Choice>>, GenerateError> {
        let mut logits = match self {
            Self::Host(runner) => runner.forward(segments),
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => {
                return runner.step(segments, draws, usable).map_err(GenerateError::Device);
            }
            Self::Tensor(runner) => runner.forward(segments),
        };
        if draws.is_empty() {
            return Ok(Vec::new());
        }
        let vocab = logits.len() / draws.len();
        let rows = logits.par_chunks_mut(vocab).zip(draws);
        Ok(rows.map(|(row, draw)| draw.choose(row, usable)).collect())
    }

    /// CUDA graphs recorded so far.
    pub fn graphs(&self) -> usize {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(runner) => runner.graphs(),
            _ => 0,
        }
    }
}
