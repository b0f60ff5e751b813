//! What computes a step: the host path on the CPU, tensors elsewhere.

use burn::tensor::Device;

use super::tensor_runner::TensorRunner;
use crate::adapter::Adapter;
use crate::host::{HostRunner, Segment};
use crate::model::Model;

/// A model with a cache of slots.
pub(super) enum Runner {
    Host(Box<HostRunner>),
    Tensor(Box<TensorRunner>),
}

impl Runner {
    /// The host path for a model on the CPU, unless `tensors` asks for the other one.
    pub fn new(model: &Model, adapter: Option<&Adapter>, tensors: bool) -> Self {
        let on_cpu = model.device().without_autodiff() == Device::flex();
        if on_cpu && !tensors {
            Self::Host(Box::new(HostRunner::new(model, adapter)))
        } else {
            Self::Tensor(Box::new(TensorRunner::new(model, adapter)))
        }
    }

    /// Bytes of one cached number.
    pub fn number_size(&self) -> usize {
        match self {
            Self::Host(_) => 4,
            Self::Tensor(runner) => runner.number_size(),
        }
    }

    /// Makes room for `slots` sequences of up to `capacity` tokens. Says whether what was cached
    /// before is still there.
    pub fn reserve(&mut self, slots: usize, capacity: usize) -> bool {
        match self {
            Self::Host(runner) => runner.reserve(slots, capacity),
            Self::Tensor(runner) => runner.reserve(slots, capacity),
        }
    }

    /// Copies the first `len` positions of one slot to another.
    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) {
        match self {
            Self::Host(runner) => runner.copy_prefix(from, to, len),
            Self::Tensor(runner) => runner.copy_prefix(from, to, len),
        }
    }

    /// Computes the segments and returns the logits `[segments that want them, vocab]`.
    pub fn forward(&mut self, segments: &[Segment]) -> Vec<f32> {
        match self {
            Self::Host(runner) => runner.forward(segments),
            Self::Tensor(runner) => runner.forward(segments),
        }
    }
}
