//! Training: objectives, optimiser, loops, exact resume.
//!
//! | module | what |
//! |---|---|
//! | [`objective`] | from numbers per token to a loss and its gradient: SFT, PSFT, SPFT, RLOO, entropy |
//! | [`loss`] | the vocabulary head in chunks, differentiated by hand |
//! | [`gradient`] | forward and backward pass over a batch, keeping or recomputing activations |
//! | [`trainee`] | what trains: a whole model, or an adapter on a frozen one |
//! | [`optim`], [`schedule`] | AdamW with f32 masters, global clipping; learning rate |
//! | [`data`] | sequences, their order, batches |
//! | [`driver`] | the loop around both kinds of training: resume, update, record, save, report |
//! | [`checkpoint`] | resumable state on disk |
//! | [`sft`] | training on demonstrations |
//!
//! Data flows one way: sequences → batches → gradients → masters. Losses are normalised by the
//! tokens of the whole update, so neither micro-batches nor devices change a result beyond rounding.

pub mod checkpoint;
pub mod data;
pub mod driver;
mod error;
pub mod gradient;
pub mod loss;
pub mod objective;
pub mod optim;
pub mod schedule;
pub mod sft;
pub mod trainee;

pub use driver::{Control, Metrics, Outcome, Progress, Saving};
pub use error::TrainError;
