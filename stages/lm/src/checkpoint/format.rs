//! Stored number formats: plain floats and ggml's block formats, decoded to f32.
//!
//! Block layouts and the order of operations follow `gguf-py/gguf/quants.py`
//! (`dequantize_blocks`), so that values equal that package's bit for bit.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::config::FloatType;

/// Values in a K-quant super-block.
const QK_K: usize = 256;

/// How the values of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Format {
    /// The format of a ggml type number, or that type's name if it is not readable.
    pub(super) fn from_ggml(number: u32) -> Result<Self, String> {
        let name = match number {
            0 => return Ok(Format::F32),
            1 => return Ok(Format::F16),
            2 => return Ok(Format::Q4_0),
            3 => return Ok(Format::Q4_1),
            6 => return Ok(Format::Q5_0),
            7 => return Ok(Format::Q5_1),
            8 => return Ok(Format::Q8_0),
            12 => return Ok(Format::Q4K),
            13 => return Ok(Format::Q5K),
            14 => return Ok(Format::Q6K),
            30 => return Ok(Format::BF16),
            9 => "Q8_1",
            10 => "Q2_K",
            11 => "Q3_K",
            15 => "Q8_K",
            16..=23 | 29 => "an IQ type",
            24..=27 => "an integer type",
            28 => "F64",
            34 | 35 => "a ternary type",
            39 => "MXFP4",
            _ => "an unknown type",
        };
        Err(format!("{name} (ggml type {number})"))
    }

    /// Values in one block and bytes that it takes.
    pub(super) fn block(self) -> (usize, usize) {
        match self {
            Format::F32 => (1, 4),
            Format::F16 | Format::BF16 => (1, 2),
            Format::Q4_0 => (32, 18),
            Format::Q4_1 => (32, 20),
            Format::Q5_0 => (32, 22),
            Format::Q5_1 => (32, 24),
            Format::Q8_0 => (32, 34),
            Format::Q4K => (QK_K, 144),
            Format::Q5K => (QK_K, 176),
            Format::Q6K => (QK_K, 210),
        }
    }

    /// The float format that values of this format are given out in.
    pub(super) fn float(self) -> FloatType {
        match self {
            Format::F16 => FloatType::F16,
            Format::BF16 => FloatType::BF16,
            _ => FloatType::F32,
        }
    }

    /// Decodes whole blocks to f32; `bytes` and `out` describe the same number of blocks.
    pub(super) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Format::F32 => {
                for (out, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *out = f32::from_le_bytes(*b);
                }
            }
            Format::BF16 => {
                for (out, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *out = bf16::from_le_bytes(*b).to_f32();
                }
            }
            Format::F16 => decode_f16(bytes, out),
            Format::Q4_0 => blocks(bytes, out, q4_0),
            Format::Q4_1 => blocks(bytes, out, q4_1),
            Format::Q5_0 => blocks(bytes, out, q5_0),
            Format::Q5_1 => blocks(bytes, out, q5_1),
            Format::Q8_0 => blocks(bytes, out, q8_0),
            Format::Q4K => blocks(bytes, out, q4_k),
            Format::Q5K => blocks(bytes, out, q5_k),
            Format::Q6K => blocks(bytes, out, q6_k),
        }
    }
}

/// Through `half`'s slice conversion, which uses the processor's own instruction.
fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    let mut halves = [f16::ZERO; 256];
    for (out, bytes) in out.chunks_mut(256).zip(bytes.chunks(512)) {
        let halves = &mut halves[..out.len()];
        for (half, b) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*b);
        }
        halves.convert_to_f32_slice(out);
    }
}

fn blocks<const BYTES: usize, const VALUES: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; VALUES]),
) {
    for (bytes, out) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<VALUES>().0) {
        decode(bytes, out);
    }
}

/// The half-precision number at a place of a block.
fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn q4_0(b: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    for (i, q) in b[2..].iter().enumerate() {
        out[i] = d * f32::from((q & 0xf) as i8 - 8);
        out[i + 16] = d * f32::from((q >> 4) as i8 - 8);
    }
}

fn q4_1(b: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    for (i, q) in b[4..].iter().enumerate() {
        out[i] = d * f32::from(q & 0xf) + m;
        out[i + 16] = d * f32::from(q >> 4) + m;
    }
}

fn q5_0(b: &[u8; 22], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    let high = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
    for (i, q) in b[6..].iter().enumerate() {
        let (low, top) = five_bits(*q, high, i);
        out[i] = d * f32::from(low as i8 - 16);
        out[i + 16] = d * f32::from(top as i8 - 16);
    }
}

fn q5_1(b: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
    for (i, q) in b[8..].iter().enumerate() {
        let (low, top) = five_bits(*q, high, i);
        out[i] = d * f32::from(low) + m;
        out[i + 16] = d * f32::from(top) + m;
    }
}

/// Values `i` and `i + 16` of a block of 32: four bits from `q`, the fifth from `high`.
fn five_bits(q: u8, high: u32, i: usize) -> (u8, u8) {
    let bit = |place: usize| ((high >> place & 1) as u8) << 4;
    (q & 0xf | bit(i), q >> 4 | bit(i + 16))
}

fn q8_0(b: &[u8; 34], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    for (out, q) in out.iter_mut().zip(&b[2..]) {
        *out = f32::from(*q as i8) * d;
    }
}

/// Six-bit scale and minimum of each of the 8 sub-blocks of a Q4_K or Q5_K block.
fn scales_and_minima(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 0xf | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4)
    }
}

fn q4_k(b: &[u8; 144], out: &mut [f32; QK_K]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    let (scales, qs) = (&b[4..16], &b[16..]);
    for j in 0..8 {
        let (scale, minimum) = scales_and_minima(scales, j);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        let shift = 4 * (j % 2);
        for (out, q) in out[32 * j..][..32].iter_mut().zip(&qs[32 * (j / 2)..]) {
            *out = scale * f32::from(q >> shift & 0xf) - minimum;
        }
    }
}

fn q5_k(b: &[u8; 176], out: &mut [f32; QK_K]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    let (scales, high, qs) = (&b[4..16], &b[16..48], &b[48..]);
    for j in 0..8 {
        let (scale, minimum) = scales_and_minima(scales, j);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        let shift = 4 * (j % 2);
        for ((out, q), h) in out[32 * j..][..32].iter_mut().zip(&qs[32 * (j / 2)..]).zip(high) {
            *out = scale * f32::from(q >> shift & 0xf | (h >> j & 1) << 4) - minimum;
        }
    }
}

fn q6_k(b: &[u8; 210], out: &mut [f32; QK_K]) {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half_at(b, 208));
    // Runs of 32 values: two 64-byte halves of `low`, each read by nibble, `high` by bit pair.
    for run in 0..8 {
        let (part, within) = (run / 4, run % 4);
        let low = &low[64 * part + 32 * (within % 2)..];
        let high = &high[32 * part..];
        for i in 0..32 {
            let q = low[i] >> (4 * (within / 2)) & 0xf | (high[i] >> (2 * within) & 3) << 4;
            let scale = d * f32::from(scales[2 * run + i / 16] as i8);
            out[32 * run + i] = scale * f32::from(q as i8 - 32);
        }
    }
}
