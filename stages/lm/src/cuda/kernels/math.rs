//! Exponential and logarithm from arithmetic alone: cubecl takes them from the CUDA toolkit's
//! libdevice, which users of the driver alone do not have.

#![allow(missing_docs, reason = "the modules that `#[cube]` makes have none")]

use std::f32::consts::{LN_2, LOG2_E};

use cubecl::prelude::*;

/// `e^x`, relative error below 1e-6 (range reduction by ln 2, degree-six polynomial); 0 below the
/// normal range, infinite above.
#[cube]
pub fn exp(x: f32) -> f32 {
    let k = (x * f32::new(LOG2_E) + 0.5f32).floor();
    // ln 2 in two parts, so that the reduced argument is exact.
    let r = fma(k, -0.693_359_4f32, x);
    let r = fma(k, 2.121_944_4e-4f32, r);
    let p = fma(r, 1.388_9e-3f32, 8.333_34e-3f32);
    let p = fma(r, p, 4.166_664_5e-2f32);
    let p = fma(r, p, 1.666_666_5e-1f32);
    let p = fma(r, p, 0.5f32);
    let p = fma(r, p, 1.0f32);
    let p = fma(r, p, 1.0f32);
    let k = i32::cast_from(max(min(k, 127.0f32), -126.0f32));
    let scale = f32::reinterpret(u32::cast_from(k + 127) << 23u32);
    let value = select(x < -87.0f32, 0.0f32, p * scale);
    select(x > 88.0f32, f32::new(f32::INFINITY), value)
}

/// Natural logarithm of a positive normal number, absolute error below 1e-6 plus that of f32.
#[cube]
pub fn ln(x: f32) -> f32 {
    let bits = u32::reinterpret(x);
    // The mantissa in [1/√2, √2).
    let shifted = bits + 0x004A_FB0Du32;
    let exponent = f32::cast_from(shifted >> 23u32) - 127.0f32;
    let mantissa = f32::reinterpret((shifted & 0x007F_FFFFu32) + 0x3F35_04F3u32);
    // ln m = 2 artanh((m - 1) / (m + 1))
    let s = (mantissa - 1.0f32) / (mantissa + 1.0f32);
    let q = s * s;
    let p = fma(q, 0.222_222_22f32, 0.285_714_3f32);
    let p = fma(q, p, 0.4f32);
    let p = fma(q, p, 0.666_666_7f32);
    let p = fma(q, p, 2.0f32);
    fma(exponent, f32::new(LN_2), s * p)
}
