//! Language-model runtime on burn: checkpoints, the Qwen2 and Llama families, adapters, generation.
//!
//! - [`config`]: hyper-parameters from `config.json`;
//! - [`device`]: devices by name, `cpu` and `cuda:N`;
//! - [`checkpoint`]: weights from safetensors folders and GGUF files, and back;
//! - [`tokenizer`]: text to ids and back; users' texts never become special tokens;
//! - [`template`]: chat templates and the named prompt templates of published results;
//! - [`model`]: the forward pass in pieces, with automatic differentiation where tensors ask for it;
//! - [`adapter`]: biases and LoRA on named projections of a frozen model;
//! - `nvidia`: NVIDIA's own libraries, where they are installed (feature `cuda`);
//! - [`product`]: matrix products, through cuBLAS where it is installed;
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
/// Functions that kernels call on a GPU.
#[cfg(feature = "cuda")]
pub mod kernel_math {
    pub use crate::cuda::kernels::math::{exp, ln};
}
#[cfg(feature = "cuda")]
pub mod nvidia;
pub mod product;
pub mod rng;
pub mod template;
pub mod tokenizer;
