//! Text generation for evaluation and rollouts: continuous batching over a slotted cache.
//!
//! | module | what |
//! |---|---|
//! | `request` | what is asked for and what comes back |
//! | `sampling` | from logits to a token, as a function of the request's seed |
//! | `slots` | which sequence sits in which cache slot, and which prefixes can be reused |
//! | `sequence` | one running sequence: its tokens, text and end |
//! | `runner` | what computes a step: the host path on the CPU, kernels or tensors elsewhere |
//! | `tensor_runner` | a step as tensor operations |
//! | `engine` | the loop |
//! | [`memory`] | what it needs of a GPU's memory, beforehand |
//!
//! A sample is a function of its own prompt, seed and parameters. Neither the batch it ran in nor the
//! order of requests shows in it: random numbers are addressed by `(seed, position)`, and every row is
//! computed in an order of operations of its own.

mod engine;
pub mod memory;
mod request;
mod runner;
mod sampling;
mod sequence;
mod slots;
mod tensor_runner;

pub use engine::{Engine, EngineOptions, Event, Generation, Statistics};
pub use request::{ContextPolicy, FinishReason, GenerateError, Request, Sample, SamplingParams};
#[cfg(feature = "cuda")]
pub(crate) use sampling::{Choice, Draw};
