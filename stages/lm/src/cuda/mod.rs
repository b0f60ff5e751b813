//! Generation on an NVIDIA GPU: the forward pass and sampling in kernels of our own on a stream of our
//! own, on the buffers of the model's tensors; products through cuBLASLt where it is installed.
//!
//! A decoding step reads every weight and every cached key and value once and does little else, so it
//! is bound by memory if nothing is in its way. Run as tensor operations it is bound by launches and
//! by products that were made for large matrices. Here a layer is eight to eleven launches, recorded once as a
//! CUDA graph for each batch size; tokens are chosen on the device, and the next step is under way
//! while the host looks at the last one's.
//!
//! | module | what |
//! |---|---|
//! | `kernels` | the kernels |
//! | `stream` | memory, launches and graphs on a GPU |
//! | `products` | which algorithm of cuBLASLt computes which product |
//! | `plan` | how a product is divided among the multiprocessors |
//! | `weights` | the model's buffers |
//! | `net` | the forward pass as launches |
//! | `layer` | a layer's projections and attention as launches |
//! | `sampler` | choosing tokens as launches |
//! | `control` | what the host tells a step |
//! | `runner` | steps, graphs, and what runs ahead |
//!
//! Weights and activations are bf16 and every sum is f32, the residual stream too. Prompts go through
//! kernels whose sums do not depend on where a prompt was cut, and decoding through kernels whose
//! sums do not depend on the batch, so a sample is a function of its own prompt, seed and parameters
//! to the bit, on a given GPU with or without cuBLASLt. [`CudaRunner::name`] says which it was.

mod control;
pub(crate) mod kernels;
mod layer;
mod net;
mod plan;
mod products;
mod runner;
mod sampler;
mod stream;
mod weights;

pub(crate) use runner::{CudaRunner, PROMPT_ROWS};
