//! Language-model runtime on burn.
//!
//! - [`config`]: hyper-parameters from `config.json`;
//! - [`checkpoint`]: weights from safetensors folders and GGUF files, and back.

pub mod checkpoint;
pub mod config;
