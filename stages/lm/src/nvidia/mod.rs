//! What NVIDIA's own libraries do better than burn's kernels, where they are installed.
//!
//! | module | what |
//! |---|---|
//! | `library` | finding and opening them at run time |
//! | `raw` | burn's buffers as pointers, and waiting for the device |
//! | `cublas` | cuBLAS itself, on raw pointers |
//! | `blas` | matrix products of burn's tensors through it: large ones, and all in f32 |
//! | [`kernel`] | kernels of our own compiled and launched outside burn |
//! | `arena`, [`executor`] | memory and a stream of our own, beside burn |
//! | `lt` | products of rows with weights through cuBLASLt, the same for any number of rows |
//! | [`nccl`] | sums and copies between GPUs |
//!
//! Nothing of this is needed at build time, and where a library is missing burn's own kernels do the
//! same work, slower and with other low bits; in f32 they round the factors of products to TF32.

mod arena;
mod blas;
mod cublas;
pub mod executor;
pub mod kernel;
pub mod library;
pub(crate) mod lt;
pub mod nccl;
mod raw;

pub use arena::Mark;
pub use blas::{product, products};
pub use cublas::{Operand, Product, Target, available as blas_available};
pub(crate) use raw::{Held, enter, from_bytes, hold, wait};
pub use raw::{memory, near, overwrite, total_memory, view};
