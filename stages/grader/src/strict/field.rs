//! Arithmetic in F_p[i], the quadratic extension of a 62-bit safe prime field.
//!
//! `p = 2q + 1` with `q` prime and `p ≡ 7 (mod 8)`: −1 is no square, so `i² = −1` spans the
//! extension; every odd root exists and is unique; and exactly one of `a`, `−a` is a square, so
//! square roots can be fixed once and for all. A ring homomorphism from the algebraic numbers of
//! an answer into this field decides equality without growing coefficients.

/// A prime with its Montgomery constants (R = 2^64).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prime {
    p: u64,
    /// −p⁻¹ mod 2^64.
    neg_inv: u64,
    /// 2^128 mod p.
    r2: u64,
}

/// `re + im·i`, both in Montgomery form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fp2 {
    pub re: u64,
    pub im: u64,
}

/// Two independent safe primes: an accidental agreement needs both.
pub(crate) const PRIMES: [Prime; 2] =
    [Prime::new(3_955_046_125_492_947_383), Prime::new(4_216_664_899_646_096_279)];

impl Prime {
    const fn new(p: u64) -> Prime {
        let mut inv: u64 = 1;
        let mut k = 0;
        while k < 6 {
            inv = inv.wrapping_mul(2u64.wrapping_sub(p.wrapping_mul(inv)));
            k += 1;
        }
        let r = ((1u128 << 64) % p as u128) as u64;
        let r2 = ((r as u128 * r as u128) % p as u128) as u64;
        Prime { p, neg_inv: inv.wrapping_neg(), r2 }
    }

    #[inline]
    fn reduce(&self, t: u128) -> u64 {
        let m = (t as u64).wrapping_mul(self.neg_inv);
        let r = ((t + m as u128 * self.p as u128) >> 64) as u64;
        if r >= self.p { r - self.p } else { r }
    }

    #[inline]
    fn m(&self, a: u64, b: u64) -> u64 {
        self.reduce(a as u128 * b as u128)
    }

    #[inline]
    fn a(&self, a: u64, b: u64) -> u64 {
        let s = a + b;
        if s >= self.p { s - self.p } else { s }
    }

    #[inline]
    fn s(&self, a: u64, b: u64) -> u64 {
        if a >= b { a - b } else { a + self.p - b }
    }

    fn pow_u(&self, mut b: u64, mut e: u64) -> u64 {
        let mut r = self.one().re;
        while e > 0 {
            if e & 1 == 1 {
                r = self.m(r, b);
            }
            b = self.m(b, b);
            e >>= 1;
        }
        r
    }

    /// One.
    pub fn one(&self) -> Fp2 {
        self.int(1)
    }

    /// A non-negative integer.
    pub fn int(&self, v: u64) -> Fp2 {
        Fp2 { re: self.m(v % self.p, self.r2), im: 0 }
    }

    /// A signed 128-bit integer.
    pub fn int128(&self, v: i128) -> Fp2 {
        let r = self.int((v.unsigned_abs() % self.p as u128) as u64);
        if v < 0 { self.neg(r) } else { r }
    }

    /// i.
    pub fn i(&self) -> Fp2 {
        Fp2 { re: 0, im: self.one().re }
    }

    pub fn add(&self, x: Fp2, y: Fp2) -> Fp2 {
        Fp2 { re: self.a(x.re, y.re), im: self.a(x.im, y.im) }
    }

    pub fn sub(&self, x: Fp2, y: Fp2) -> Fp2 {
        Fp2 { re: self.s(x.re, y.re), im: self.s(x.im, y.im) }
    }

    pub fn neg(&self, x: Fp2) -> Fp2 {
        self.sub(Fp2 { re: 0, im: 0 }, x)
    }

    pub fn mul(&self, x: Fp2, y: Fp2) -> Fp2 {
        if x.im == 0 && y.im == 0 {
            return Fp2 { re: self.m(x.re, y.re), im: 0 };
        }
        Fp2 {
            re: self.s(self.m(x.re, y.re), self.m(x.im, y.im)),
            im: self.a(self.m(x.re, y.im), self.m(x.im, y.re)),
        }
    }

    /// The inverse; `None` for zero.
    pub fn inv(&self, x: Fp2) -> Option<Fp2> {
        if x.im == 0 {
            return (x.re != 0).then(|| Fp2 { re: self.pow_u(x.re, self.p - 2), im: 0 });
        }
        // The norm of a non-zero element is never zero, since −1 is no square.
        let n = self.pow_u(self.a(self.m(x.re, x.re), self.m(x.im, x.im)), self.p - 2);
        Some(Fp2 { re: self.m(x.re, n), im: self.m(self.s(0, x.im), n) })
    }

    /// `x^e`; `None` for a negative power of zero.
    pub fn pow(&self, x: Fp2, e: i128) -> Option<Fp2> {
        let mut b = if e < 0 { self.inv(x)? } else { x };
        let mut n = e.unsigned_abs();
        let mut r = self.one();
        while n > 0 {
            if n & 1 == 1 {
                r = self.mul(r, b);
            }
            b = self.mul(b, b);
            n >>= 1;
        }
        Some(r)
    }

    /// Whether `x` lies in the base field and is a square there (zero included).
    pub fn is_square(&self, x: Fp2) -> bool {
        x.im == 0 && (x.re == 0 || self.pow_u(x.re, (self.p - 1) / 2) == self.one().re)
    }

    /// The fixed `n`-th root of a base-field element: for odd `n` the unique one, for even `n`
    /// the root that is itself a square, with a factor i where only `−x` is a square. `None`
    /// outside the base field, and for fourth and higher even roots of non-squares.
    pub fn root(&self, x: Fp2, n: u32) -> Option<Fp2> {
        if x.im != 0 || n == 0 {
            return None;
        }
        let twos = n.trailing_zeros();
        let odd = (n >> twos) as u64;
        let mut v = x.re;
        if odd > 1 {
            v = self.pow_u(v, inverse_mod(odd, self.p - 1)?);
        }
        if twos == 0 || v == 0 {
            return Some(Fp2 { re: v, im: 0 });
        }
        let quarter = self.p / 4 + 1; // (p + 1) / 4
        if self.is_square(Fp2 { re: v, im: 0 }) {
            for _ in 0..twos {
                v = self.pow_u(v, quarter);
            }
            Some(Fp2 { re: v, im: 0 })
        } else if twos == 1 {
            Some(Fp2 { re: 0, im: self.pow_u(self.s(0, v), quarter) })
        } else {
            None
        }
    }

    /// A pseudo-random element of the base field.
    pub fn random(&self, seed: u64) -> Fp2 {
        self.int(mix(seed) | 1)
    }

    /// A pseudo-random non-zero square of the base field.
    pub fn random_square(&self, seed: u64) -> Fp2 {
        let r = self.random(seed);
        self.mul(r, r)
    }

    /// A pseudo-random element of the extension.
    pub fn random2(&self, seed: u64) -> Fp2 {
        Fp2 { re: self.random(seed).re, im: self.random(seed ^ 0x5bf0_3635).re }
    }
}

/// The SplitMix64 finaliser (Steele, Lea and Flood, 2014).
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `a⁻¹ mod m` by the extended Euclidean algorithm; `None` unless coprime.
fn inverse_mod(a: u64, m: u64) -> Option<u64> {
    let (mut r0, mut r1) = (m as i128, (a % m) as i128);
    let (mut t0, mut t1) = (0i128, 1i128);
    while r1 != 0 {
        let q = r0 / r1;
        (r0, r1) = (r1, r0 - q * r1);
        (t0, t1) = (t1, t0 - q * t1);
    }
    (r0 == 1).then(|| t0.rem_euclid(m as i128) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_square_back_and_odd_roots_are_multiplicative() {
        for f in PRIMES {
            for n in [2u64, 3, 5, 7, 11, 1009] {
                let x = f.int(n);
                let r = f.root(x, 2).unwrap();
                assert_eq!(f.mul(r, r), x);
                let c = f.root(x, 3).unwrap();
                assert_eq!(f.pow(c, 3).unwrap(), x);
                let six = f.mul(f.root(f.int(2), 3).unwrap(), f.root(f.int(3), 3).unwrap());
                assert_eq!(six, f.root(f.int(6), 3).unwrap());
            }
            assert_eq!(f.mul(f.i(), f.i()), f.int128(-1));
            assert_eq!(f.mul(f.int(7), f.inv(f.int(7)).unwrap()), f.one());
            let z = Fp2 { re: f.int(3).re, im: f.int(4).re };
            assert_eq!(f.mul(z, f.inv(z).unwrap()), f.one());
        }
    }
}
