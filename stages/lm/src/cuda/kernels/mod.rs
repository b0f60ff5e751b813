//! The kernels, written in cubecl's `#[cube]` Rust and compiled for the GPU at hand when first used.
//!
//! | module | what |
//! |---|---|
//! | `fragment` | the tensor-core instruction and how 16-byte loads feed it |
//! | `product` | activations times weights that are streamed once |
//! | `attention` | attention over the cache |
//! | `rows` | embedding, RMSNorm, rotary embedding and cache writes |
//! | `lora` | low-rank products beside a frozen projection |
//! | `math` | exponential and logarithm |
//! | `sample` | from logits to tokens |
//! | `make` | every kernel from what it is specialised for |
//!
//! Index arithmetic is 32-bit and counted in 16-byte lines where possible; launches are unchecked,
//! and the callers keep every buffer large enough.

pub mod attention;
pub mod fragment;
pub mod lora;
pub mod make;
pub mod math;
pub mod product;
pub mod rows;
pub mod sample;
#[cfg(test)]
mod tests;

/// Units of a plane (an NVIDIA warp).
pub const PLANE: u32 = 32;
