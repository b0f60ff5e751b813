//! Language-model runtime on burn: checkpoints, the Qwen2 and Llama families, adapters, generation.
//!
//! - [`config`]: hyper-parameters from `config.json`;
//! - [`device`]: devices by name, `cpu` and `cuda:N`;
//! - [`checkpoint`]: weights from safetensors folders and GGUF files, and back;
//! - [`tokenizer`]: text to ids and back; users' texts never become special tokens;
//! - [`template`]: chat templates and the named prompt templates of published results;
//! - [`model`]: the forward pass in pieces, with automatic differentiation where tensors ask for it;
//! - [`adapter`]: biases and LoRA on named projections of a frozen model;
//! - [`generate`]: continuous batching, sampling, stop conditions, log-probabilities;
//! - [`rng`]: random numbers by address, so that results do not depend on who else draws.

pub mod adapter;
pub mod checkpoint;
pub mod config;
#[cfg(feature = "cuda")]
mod cuda;
pub mod device;
pub mod generate;
mod host;
pub mod model;
pub mod rng;
pub mod template;
pub mod tokenizer;
