//! exp, sin, cos and π in fixed point, by their series.
//!
//! A number is an integer times `2^-f`. The results need no correct rounding, only a stated bound,
//! which makes these an order of magnitude faster than a library's functions; the bounds that
//! [`super::numeric`] keeps on every value allow for more than the error made here.

use std::sync::LazyLock;

use dashu_int::IBig;

/// Bits kept beyond those asked for: the series lose fewer than half of them.
pub(crate) const GUARD: usize = 96;

/// Fraction bits of the stored constants.
const STORED: usize = 2560 + 2 * GUARD;

static PI: LazyLock<IBig> = LazyLock::new(|| {
    // Machin, 1706.
    (arctan_inverse(5) * IBig::from(16) - arctan_inverse(239) * IBig::from(4)) >> GUARD
});

static LN_2: LazyLock<IBig> = LazyLock::new(|| {
    // ln 2 = 2·artanh(1/3)
    let (mut power, mut sum, mut k) = ((IBig::ONE << (STORED + GUARD + 1)) / IBig::from(3), IBig::ZERO, 1u64);
    while !power.is_zero() {
        sum += &power / IBig::from(k);
        power /= IBig::from(9);
        k += 2;
    }
    sum >> GUARD
});

/// arctan(1/n), with [`GUARD`] more bits than the constants keep.
fn arctan_inverse(n: u64) -> IBig {
    let mut power = (IBig::ONE << (STORED + GUARD)) / IBig::from(n);
    let (mut sum, mut k) = (IBig::ZERO, 0u64);
    while !power.is_zero() {
        let term = &power / IBig::from(2 * k + 1);
        sum = if k.is_multiple_of(2) { sum + term } else { sum - term };
        power /= IBig::from(n * n);
        k += 1;
    }
    sum
}

/// π with `f` fraction bits.
pub(crate) fn pi(f: usize) -> IBig {
    &*PI >> (STORED - f)
}

/// ln 2 with `f` fraction bits.
pub(crate) fn ln_2(f: usize) -> IBig {
    &*LN_2 >> (STORED - f)
}

/// Halvings of the argument before a series: they cost a product each, and save terms.
fn halvings(f: usize) -> usize {
    f.isqrt() / 2
}

/// `x / y` rounded to the nearest integer.
fn nearest(x: &IBig, y: &IBig) -> IBig {
    // Shifts round down, division would round toward zero.
    let twice = (x << 1usize) + y;
    let (q, r) = (&twice / (y << 1usize), &twice % (y << 1usize));
    if r < IBig::ZERO { q - IBig::ONE } else { q }
}

/// `exp(x)` as `(m, k)`: the value is `m·2^(k-f)` with m near one. |x| < 2^24.
pub(crate) fn exp(x: &IBig, f: usize) -> (IBig, IBig) {
    let ln_2 = ln_2(f);
    let k = nearest(x, &ln_2);
    let halved = halvings(f);
    let r = (x - &k * ln_2) >> halved;
    let one = IBig::ONE << f;
    let (mut term, mut sum, mut n) = (one.clone(), one, 1u64);
    loop {
        term = ((term * &r) >> f) / IBig::from(n);
        if term.is_zero() || term == IBig::NEG_ONE {
            break;
        }
        sum += &term;
        n += 1;
    }
    for _ in 0..halved {
        sum = (&sum * &sum) >> f;
    }
    (sum, k)
}

/// `(sin x, cos x)`. |x| < 2^40.
pub(crate) fn sin_cos(x: &IBig, f: usize) -> (IBig, IBig) {
    let quarter = pi(f) >> 1usize;
    let k = nearest(x, &quarter);
    let halved = halvings(f);
    let r = (x - &k * quarter) >> halved;
    let one = IBig::ONE << f;
    let square = (&r * &r) >> f;
    // 1 − cos keeps its digits through the doublings.
    let (mut s_term, mut c_term) = (r.clone(), &square >> 1usize);
    let (mut s, mut c, mut n) = (r, c_term.clone(), 2u64);
    while !c_term.is_zero() && c_term != IBig::NEG_ONE {
        s_term = -((s_term * &square) >> f) / IBig::from(n * (n + 1));
        c_term = -((c_term * &square) >> f) / IBig::from((n + 1) * (n + 2));
        s += &s_term;
        c += &c_term;
        n += 2;
    }
    for _ in 0..halved {
        // sin 2x = 2·sin x·cos x, 1 − cos 2x = 2·sin² x
        let double = (&s * (&one - &c)) >> (f - 1);
        c = (&s * &s) >> (f - 1);
        s = double;
    }
    let c = &one - &c;
    let turn: u8 = (k & IBig::from(3)).try_into().unwrap_or(0);
    match turn {
        0 => (s, c),
        1 => (c, -s),
        2 => (-s, -c),
        _ => (-c, s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known digits, and identities at many arguments.
    #[test]
    fn series_are_good_to_their_bits() {
        let f = 640 + GUARD;
        let near = |a: &IBig, b: &IBig, lost: usize| {
            let d = a - b;
            (if d < IBig::ZERO { -d } else { d }) < IBig::ONE << lost
        };
        // 50 digits of π and ln 2.
        let scale = IBig::from(10).pow(50);
        let digits = |v: IBig| ((v * &scale) >> f).to_string();
        assert_eq!(digits(pi(f)), "314159265358979323846264338327950288419716939937510");
        assert_eq!(digits(ln_2(f)), "69314718055994530941723212145817656807550013436025");
        let one = IBig::ONE << f;
        for v in [-7_654_321i64, -1000, -3, -1, 0, 1, 2, 3, 22, 100, 65_536] {
            // v/64 and its negative
            let x = (IBig::from(v) << f) >> 6usize;
            let ((a, j), (b, k)) = (exp(&x, f), exp(&-&x, f));
            let shift = i64::try_from(j + k).unwrap();
            let product = (a * b) >> (f as i64 - shift) as usize;
            assert!(near(&product, &one, GUARD / 2), "exp {v}");
            let (s, c) = sin_cos(&x, f);
            assert!(near(&((&s * &s + &c * &c) >> f), &one, GUARD / 2), "sin {v}");
            let (s2, _) = sin_cos(&(&x << 1usize), f);
            assert!(near(&((s * c) >> (f - 1)), &s2, GUARD / 2), "sin 2·{v}");
        }
        // exp(1), and sin(π/6) = 1/2.
        let (e, k) = exp(&one, f);
        let e = e << usize::try_from(k).unwrap();
        assert_eq!(digits(e), "271828182845904523536028747135266249775724709369995");
        let (s, _) = sin_cos(&(pi(f) / IBig::from(6)), f);
        assert!(near(&(s << 1usize), &one, GUARD / 2));
    }
}
