//! What NVIDIA's own libraries do better than burn's kernels, where they are installed.
//!
//! | module | what |
//! |---|---|
//! | `library` | finding and opening them at run time |
//! | `raw` | burn's buffers as pointers, and waiting for the device |
//! | `blas` | large matrix products through cuBLAS |
//! | [`kernel`] | kernels of our own compiled and launched outside burn |
//! | `lt` | products of rows with weights through cuBLASLt, the same for any number of rows |
//! | [`nccl`] | sums and copies between GPUs |
//!
//! Nothing of this is needed at build time, and where a library is missing burn's own kernels do the
//! same work, slower and with other low bits.

mod blas;
pub mod kernel;
pub mod library;
pub(crate) mod lt;
pub mod nccl;
mod raw;

pub use blas::{available as blas_available, product, products};
pub(crate) use raw::{Held, enter, hold, wait};
pub use raw::{memory, total_memory};
