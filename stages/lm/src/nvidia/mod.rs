//! What NVIDIA's own libraries do better than burn's kernels, where they are installed.
//!
//! | module | what |
//! |---|---|
//! | `library` | finding and opening them at run time |
//! | `raw` | burn's buffers as pointers, and waiting for the device |
//! | `blas` | large matrix products through cuBLAS |
//! | [`nccl`] | sums and copies between GPUs |
//!
//! Nothing of this is needed at build time, and where a library is missing burn's own kernels do the
//! same work, slower and with other low bits.

mod blas;
pub mod library;
pub mod nccl;
mod raw;

pub use blas::{available as blas_available, product, products};
pub use raw::{memory, total_memory};
