//! Training: objectives, optimiser, loops, exact resume.
//!
//! | module | what |
//! |---|---|
//! | [`objective`] | from numbers per token to a loss and its gradient: SFT, PSFT, SPFT, RLOO, entropy |
//! | [`loss`] | the vocabulary head in chunks, differentiated by hand |
//! | [`gradient`] | forward and backward pass over a batch, keeping or recomputing activations |
//! | `pass` | the backward passes of a model's parts |
//! | `direct` | the same on a stream beside burn: bf16 on NVIDIA GPUs |
//! | `fused` | runs of elementwise operations as one kernel each |
//! | `knobs` | environment variables for measurements and for finding faults |
//! | [`memory`] | what a run needs of a device's memory, beforehand |
//! | `flat` | all masters' numbers in a few buffers |
//! | [`parallel`] | the gradient of an update over one or several devices |
//! | [`trainee`] | what trains: a whole model, or an adapter on a frozen one |
//! | [`optim`], [`schedule`] | AdamW with f32 masters, global clipping; learning rate |
//! | [`data`] | sequences, their order, batches |
//! | [`driver`] | the loop around both kinds of training: resume, update, record, save, report |
//! | [`checkpoint`] | resumable state on disk |
//! | [`adapter_io`] | adapters on disk as PEFT has them, merging |
//! | [`export`] | what a trained model says about how to use it |
//! | [`sft`] | training on demonstrations |
//! | [`mod@reference`] | a frozen reference's log-probabilities, computed once and kept |
//! | [`rl`], [`rollout`] | training on the policy's own samples |
//!
//! Data flows one way: sequences → batches → gradients → masters. Losses are normalised by the
//! tokens of the whole update, so neither micro-batches nor devices change a result beyond rounding.

pub mod adapter_io;
pub mod checkpoint;
pub mod data;
#[cfg(feature = "cuda")]
mod direct;
pub mod driver;
mod error;
pub mod export;
mod flat;
mod fused;
pub mod gradient;
mod knobs;
pub mod loss;
pub mod memory;
pub mod objective;
pub mod optim;
pub mod parallel;
mod pass;
pub mod reference;
pub mod rl;
pub mod rollout;
pub mod schedule;
pub mod sft;
pub mod trainee;

#[cfg(feature = "cuda")]
pub use direct::check;
pub use driver::{Control, Metrics, Outcome, Progress, Saving, Watch};
pub use error::TrainError;
