//! Language-model runtime on burn: checkpoints, the Qwen2 and Llama families, adapters, generation.
//!
//! - [`config`]: hyper-parameters from `config.json`;
//! - [`checkpoint`]: weights from safetensors folders and GGUF files, and back;
//! - [`model`]: the forward pass in pieces, with automatic differentiation where tensors ask for it;
//! - [`adapter`]: biases and LoRA on named projections of a frozen model;
//! - [`rng`]: random numbers by address, so that results do not depend on who else draws.

pub mod adapter;
pub mod checkpoint;
pub mod config;
pub mod model;
pub mod rng;
