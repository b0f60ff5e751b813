//! Inner loops of the CPU forward pass over f32 slices.
//!
//! Every number a kernel returns is computed by the same operations in the same order however many
//! rows are computed with it: each product has one vector accumulator that runs along the shared
//! dimension. So a sequence's results do not depend, to the last bit, on who shares its batch.

// Plain counted loops are what the compiler unrolls into registers here.
#![allow(clippy::needless_range_loop)]

use pulp::{Arch, Simd, WithSimd};

/// A block of `y = x·wᵀ`: `x` is `[rows, k]`, `w` is `[outs, k]`; `store(row, out, value)` takes
/// each product.
pub(super) struct Products<'a, F: FnMut(usize, usize, f32)> {
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub k: usize,
    pub store: F,
}

impl<F: FnMut(usize, usize, f32)> WithSimd for Products<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // The tile is what fits the registers: accumulators plus one operand of each row of x and w.
        if S::F32_LANES >= 16 {
            self.run::<S, 4, 6>(simd);
        } else {
            self.run::<S, 3, 4>(simd);
        }
    }
}

impl<F: FnMut(usize, usize, f32)> Products<'_, F> {
    #[inline(always)]
    fn run<S: Simd, const M: usize, const N: usize>(mut self, simd: S) {
        let (rows, outs) = (self.x.len() / self.k, self.w.len() / self.k);
        let mut o = 0;
        while o + N <= outs {
            self.column::<S, M, N>(simd, rows, o);
            o += N;
        }
        while o < outs {
            self.column::<S, M, 1>(simd, rows, o);
            o += 1;
        }
    }

    #[inline(always)]
    fn column<S: Simd, const M: usize, const N: usize>(&mut self, simd: S, rows: usize, o: usize) {
        let k = self.k;
        let mut w: [&[f32]; N] = [&[]; N];
        for n in 0..N {
            w[n] = &self.w[(o + n) * k..][..k];
        }
        // The first passes over these rows of w also fetch the rows after them, so that memory is
        // read while the core computes.
        let mut t;
        if rows >= 2 * M {
            self.block::<S, M, N, EVEN>(simd, w, 0, o);
            self.block::<S, M, N, ODD>(simd, w, M, o);
            t = 2 * M;
        } else if rows >= M {
            self.block::<S, M, N, ALL>(simd, w, 0, o);
            t = M;
        } else {
            self.block::<S, 1, N, ALL>(simd, w, 0, o);
            t = 1;
        }
        while t + M <= rows {
            self.block::<S, M, N, NONE>(simd, w, t, o);
            t += M;
        }
        while t < rows {
            self.block::<S, 1, N, NONE>(simd, w, t, o);
            t += 1;
        }
    }

    #[inline(always)]
    fn block<S: Simd, const M: usize, const N: usize, const FETCH: u64>(
        &mut self,
        simd: S,
        w: [&[f32]; N],
        t: usize,
        o: usize,
    ) {
        let mut x: [&[f32]; M] = [&[]; M];
        for m in 0..M {
            x[m] = &self.x[(t + m) * self.k..][..self.k];
        }
        let sums = tile::<S, M, N, FETCH>(simd, x, w);
        for m in 0..M {
            for n in 0..N {
                (self.store)(t + m, o + n, sums[m][n]);
            }
        }
    }
}

/// Which rows of w a pass fetches the successors of, as bits.
const NONE: u64 = 0;
const ALL: u64 = u64::MAX;
const EVEN: u64 = 0x5555_5555_5555_5555;
const ODD: u64 = !EVEN;

/// All products of `M` rows with `N` rows of one length. Loops rather than iterator closures: only
/// what is inlined here is compiled for the instruction set at hand.
#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize, const FETCH: u64>(
    simd: S,
    x: [&[f32]; M],
    w: [&[f32]; N],
) -> [[f32; N]; M] {
    let (first, rest) = S::as_simd_f32s(x[0]);
    let (steps, rest) = (first.len(), rest.len());
    let mut xs: [&[S::f32s]; M] = [&[]; M];
    let mut ws: [&[S::f32s]; N] = [&[]; N];
    for m in 0..M {
        xs[m] = &S::as_simd_f32s(x[m]).0[..steps];
    }
    for n in 0..N {
        ws[n] = &S::as_simd_f32s(w[n]).0[..steps];
    }
    let zero = simd.splat_f32s(0.0);
    let mut acc = [[zero; N]; M];
    for i in 0..steps {
        let mut wv = [zero; N];
        for n in 0..N {
            // SAFETY: every slice was cut to `steps`.
            wv[n] = unsafe { *ws[n].get_unchecked(i) };
            if FETCH >> n & 1 == 1 {
                prefetch(w[n].as_ptr().wrapping_add(N * w[n].len() + i * S::F32_LANES));
            }
        }
        for m in 0..M {
            // SAFETY: as above.
            let xv = unsafe { *xs[m].get_unchecked(i) };
            for n in 0..N {
                acc[m][n] = simd.mul_add_f32s(xv, wv[n], acc[m][n]);
            }
        }
    }
    if rest > 0 {
        let from = steps * S::F32_LANES;
        for m in 0..M {
            let xv = simd.partial_load_f32s(&x[m][from..]);
            for n in 0..N {
                let wv = simd.partial_load_f32s(&w[n][from..]);
                acc[m][n] = simd.mul_add_f32s(xv, wv, acc[m][n]);
            }
        }
    }
    let mut sums = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            sums[m][n] = simd.reduce_sum_f32s(acc[m][n]);
        }
    }
    sums
}

/// Asks for the cache line at `address`, which need not be valid.
#[inline(always)]
fn prefetch(address: *const f32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has the instruction, and a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// `out = Σ_j weights[j] · rows[j]`, `rows` `[weights, out]`.
pub(super) struct WeightedSum<'a> {
    pub weights: &'a [f32],
    pub rows: &'a [f32],
    pub out: &'a mut [f32],
}

impl WithSimd for WeightedSum<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let dim = self.out.len();
        let mut start = 0;
        // Four vectors at a time stay in registers over all rows.
        while start + 4 * S::F32_LANES <= dim {
            self.block::<S, 4>(simd, start, dim);
            start += 4 * S::F32_LANES;
        }
        while start + S::F32_LANES <= dim {
            self.block::<S, 1>(simd, start, dim);
            start += S::F32_LANES;
        }
        for d in start..dim {
            let column = self.rows[d..].iter().step_by(dim);
            self.out[d] = self.weights.iter().zip(column).map(|(p, v)| p * v).sum();
        }
    }
}

impl WeightedSum<'_> {
    #[inline(always)]
    fn block<S: Simd, const C: usize>(&mut self, simd: S, start: usize, dim: usize) {
        let span = start..start + C * S::F32_LANES;
        let mut acc = [simd.splat_f32s(0.0); C];
        for (&p, row) in self.weights.iter().zip(self.rows.chunks_exact(dim)) {
            let p = simd.splat_f32s(p);
            let (row, _) = S::as_simd_f32s(&row[span.clone()]);
            for c in 0..C {
                acc[c] = simd.mul_add_f32s(p, row[c], acc[c]);
            }
        }
        let (out, _) = S::as_mut_simd_f32s(&mut self.out[span]);
        out.copy_from_slice(&acc);
    }
}

/// Runs a loop compiled for the instruction set at hand. `f` must be `#[inline(always)]`, or it is
/// compiled for the lowest one. (pulp takes closures itself, but as `FnOnce`, whose call is a shim
/// that is not inlined: fused multiply-adds became library calls, a quarter of a decoding step.)
pub(super) fn vectorized<R>(f: impl FnMut() -> R) -> R {
    struct Loop<F>(F);
    impl<R, F: FnMut() -> R> WithSimd for Loop<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Loop(f))
}

/// e^x to about 1 ulp (Cephes' `expf` polynomial), 0 below -87.3; compiles to vector code.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to a whole number
    let clamped = x.clamp(-87.3, 88.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, clamped);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p.mul_add(r, c);
    }
    let p = (p * r).mul_add(r, r) + 1.0;
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.3 { 0.0 } else { p * scale }
}

/// Sums in sixteen strands, so that the order is the same on every machine.
#[inline(always)]
fn strands(values: &[f32], mut f: impl FnMut(f32) -> f32) -> f32 {
    let mut acc = [0.0f32; 16];
    let (head, tail) = values.as_chunks::<16>();
    for chunk in head {
        for (a, &v) in acc.iter_mut().zip(chunk) {
            *a += f(v);
        }
    }
    for (a, &v) in acc.iter_mut().zip(tail) {
        *a += f(v);
    }
    acc.iter().sum()
}

#[inline(always)]
fn maximum(values: &[f32]) -> f32 {
    let mut acc = [f32::NEG_INFINITY; 16];
    let (head, tail) = values.as_chunks::<16>();
    for chunk in head {
        for (a, &v) in acc.iter_mut().zip(chunk) {
            *a = if v > *a { v } else { *a };
        }
    }
    for (a, &v) in acc.iter_mut().zip(tail) {
        *a = if v > *a { v } else { *a };
    }
    acc.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Writes `exp(scale · (x - max x))` of `values` to `out` and returns the sum and the maximum.
pub(crate) fn exponentials(values: &[f32], scale: f32, out: &mut [f32]) -> (f32, f32) {
    vectorized(
        #[inline(always)]
        || {
            let max = maximum(values);
            for (o, &v) in out.iter_mut().zip(values) {
                *o = exp(scale * (v - max));
            }
            (strands(out, |v| v), max)
        },
    )
}

/// Softmax of `scale · values` in place.
#[inline(always)]
pub(super) fn softmax(values: &mut [f32], scale: f32) {
    let max = maximum(values);
    for v in values.iter_mut() {
        *v = exp(scale * (*v - max));
    }
    let inverse = 1.0 / strands(values, |v| v);
    for v in values.iter_mut() {
        *v *= inverse;
    }
}

/// `out = x / rms(x) · weight`, see [`crate::model::RmsNorm`].
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || {
            let mean_square = strands(x, |v| v * v) / x.len() as f32;
            let inverse = 1.0 / (mean_square + eps).sqrt();
            for ((o, &v), &w) in out.iter_mut().zip(x).zip(weight) {
                *o = v * inverse * w;
            }
        },
    );
}

/// `gate = silu(gate) · up`.
pub(super) fn silu_mul(gate: &mut [f32], up: &[f32]) {
    vectorized(
        #[inline(always)]
        || {
            for (g, &u) in gate.iter_mut().zip(up) {
                *g = *g / (1.0 + exp(-*g)) * u;
            }
        },
    );
}

/// Rotates `heads` `[n, head_dim]` in place, all at one position, see [`crate::model::Rope`].
pub(super) fn rotate(heads: &mut [f32], cos: &[f32], sin: &[f32]) {
    vectorized(
        #[inline(always)]
        || {
            for head in heads.chunks_exact_mut(2 * cos.len()) {
                let (low, high) = head.split_at_mut(cos.len());
                for (((a, b), &c), &s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                    (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let stream = crate::rng::Stream::new(seed, 0);
        (0..n as u64).map(|i| stream.normal(i) as f32).collect()
    }

    fn products(x: &[f32], w: &[f32], k: usize) -> Vec<f32> {
        let outs = w.len() / k;
        let mut y = vec![0.0; x.len() / k * outs];
        let store = |t: usize, o: usize, v| y[t * outs + o] = v;
        Arch::new().dispatch(Products { x, w, k, store });
        y
    }

    /// Against f64 sums, for lengths with and without a remainder; f32 rounding of a sum of k
    /// products of unit normals stays below k · 2e-7.
    #[test]
    fn products_are_dot_products_and_rows_are_independent() {
        for (rows, outs, k) in [(1, 1, 1), (4, 6, 16), (5, 7, 50), (11, 13, 100), (3, 20, 576)] {
            let (x, w) = (numbers(rows * k, 1), numbers(outs * k, 2));
            let y = products(&x, &w, k);
            for t in 0..rows {
                let alone = products(&x[t * k..][..k], &w, k);
                assert_eq!(alone, y[t * outs..][..outs]);
                for o in 0..outs {
                    let pairs = x[t * k..][..k].iter().zip(&w[o * k..][..k]);
                    let exact: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let error = (f64::from(y[t * outs + o]) - exact).abs();
                    assert!(error < k as f64 * 2e-7 + 1e-6, "{rows}x{outs}x{k}: {error}");
                }
            }
        }
    }

    #[test]
    fn weighted_sums_match_f64() {
        for (n, dim) in [(1, 1), (5, 64), (9, 80), (7, 19), (300, 128)] {
            let (weights, rows) = (numbers(n, 3), numbers(n * dim, 4));
            let mut out = vec![9.0; dim];
            Arch::new().dispatch(WeightedSum { weights: &weights, rows: &rows, out: &mut out });
            for d in 0..dim {
                let exact: f64 = (0..n).map(|j| f64::from(weights[j]) * f64::from(rows[j * dim + d])).sum();
                assert!((f64::from(out[d]) - exact).abs() < n as f64 * 1e-6);
            }
        }
    }

    #[test]
    fn exponential_is_within_two_ulp_and_vanishes() {
        let values: Vec<f32> = (-8700..=8000).map(|i| i as f32 * 0.01).collect();
        for v in values {
            let exact = f64::from(v).exp();
            let error = (f64::from(exp(v)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "{v}: {error}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn exponentials_of_a_masked_row() {
        let mut out = [0.0; 3];
        let (sum, max) = exponentials(&[2.0, f32::NEG_INFINITY, 2.0], 0.5, &mut out);
        assert_eq!((sum, max, out), (2.0, 2.0, [1.0, 0.0, 1.0]));
    }
}
