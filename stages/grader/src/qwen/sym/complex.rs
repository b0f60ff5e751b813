//! Complex numbers with sympy's principal branches.

use std::f64::consts::{FRAC_PI_2, PI};
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::expr::Fun;

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct C {
    pub re: f64,
    pub im: f64,
}

impl C {
    pub const ONE: C = C { re: 1.0, im: 0.0 };

    pub fn new(re: f64, im: f64) -> Self {
        C { re, im }
    }

    pub fn real(re: f64) -> Self {
        C { re, im: 0.0 }
    }

    pub fn norm(self) -> f64 {
        if self.im == 0.0 { self.re.abs() } else { self.re.hypot(self.im) }
    }

    /// A cheap bound of the norm: never less, at most √2 times it.
    pub fn size(self) -> f64 {
        self.re.abs() + self.im.abs()
    }

    pub fn is_zero(self) -> bool {
        self.re == 0.0 && self.im == 0.0
    }

    pub fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }

    pub fn is_real(self) -> bool {
        self.im == 0.0
    }

    pub fn conj(self) -> Self {
        C::new(self.re, -self.im)
    }

    /// The principal logarithm; a negative real number has argument π whatever the sign of zero.
    pub fn ln(self) -> Self {
        let im = if self.im == 0.0 { 0.0 } else { self.im };
        C::new(self.norm().ln(), im.atan2(self.re))
    }

    pub fn exp(self) -> Self {
        let r = self.re.exp();
        if self.im == 0.0 { C::real(r) } else { C::new(r * self.im.cos(), r * self.im.sin()) }
    }

    pub fn sqrt(self) -> Self {
        if self.im == 0.0 {
            return if self.re >= 0.0 { C::real(self.re.sqrt()) } else { C::new(0.0, (-self.re).sqrt()) };
        }
        let r = self.norm();
        let re = ((r + self.re) / 2.0).sqrt();
        let im = ((r - self.re) / 2.0).sqrt();
        C::new(re, im.copysign(self.im))
    }

    /// The principal power; `None` for zero to a power that is not positive.
    pub fn pow(self, e: C) -> Option<Self> {
        if e.is_zero() {
            return Some(C::ONE);
        }
        if self.is_zero() {
            return (e.re > 0.0).then_some(C::real(0.0));
        }
        if e.im == 0.0 {
            if e.re == 0.5 {
                return Some(self.sqrt());
            }
            if e.re == e.re.trunc() && e.re.abs() <= 1024.0 {
                return Some(self.powi(e.re as i32));
            }
            if self.im == 0.0 && (self.re > 0.0 || e.re == e.re.trunc()) {
                return Some(C::real(self.re.powf(e.re)));
            }
        }
        Some((self.ln() * e).exp())
    }

    fn powi(self, n: i32) -> Self {
        if self.im == 0.0 {
            return C::real(self.re.powi(n));
        }
        let (mut base, mut left, mut out) = (self, n.unsigned_abs(), C::ONE);
        while left > 0 {
            if left & 1 == 1 {
                out = out * base;
            }
            base = base * base;
            left >>= 1;
        }
        if n < 0 { C::ONE / out } else { out }
    }

    fn sinh(self) -> Self {
        C::new(self.re.sinh() * self.im.cos(), self.re.cosh() * self.im.sin())
    }

    fn cosh(self) -> Self {
        C::new(self.re.cosh() * self.im.cos(), self.re.sinh() * self.im.sin())
    }

    fn times_i(self) -> Self {
        C::new(-self.im, self.re)
    }

    fn sin(self) -> Self {
        if self.im == 0.0 {
            return C::real(self.re.sin());
        }
        -self.times_i().sinh().times_i()
    }

    fn cos(self) -> Self {
        if self.im == 0.0 { C::real(self.re.cos()) } else { self.times_i().cosh() }
    }

    fn inverse(self) -> Option<Self> {
        (!self.is_zero()).then(|| C::ONE / self)
    }

    fn over(self, by: C) -> Option<Self> {
        (!by.is_zero()).then(|| self / by)
    }

    fn asin(self) -> Self {
        if self.im == 0.0 && self.re.abs() <= 1.0 {
            return C::real(self.re.asin());
        }
        // −i ln(iz + √(1 − z²))
        -(self.times_i() + (C::ONE - self * self).sqrt()).ln().times_i()
    }

    fn acos(self) -> Self {
        if self.im == 0.0 && self.re.abs() <= 1.0 {
            return C::real(self.re.acos());
        }
        C::real(FRAC_PI_2) - self.asin()
    }

    fn atan(self) -> Option<Self> {
        if self.im == 0.0 {
            return Some(C::real(self.re.atan()));
        }
        let (a, b) = (C::ONE - self.times_i(), C::ONE + self.times_i());
        if a.is_zero() || b.is_zero() {
            return None;
        }
        Some((a.ln() - b.ln()).times_i() * C::real(0.5))
    }

    fn asinh(self) -> Self {
        if self.im == 0.0 {
            return C::real(self.re.asinh());
        }
        (self + (self * self + C::ONE).sqrt()).ln()
    }

    fn acosh(self) -> Self {
        if self.im == 0.0 && self.re >= 1.0 {
            return C::real(self.re.acosh());
        }
        (self + (self - C::ONE).sqrt() * (self + C::ONE).sqrt()).ln()
    }

    fn atanh(self) -> Option<Self> {
        let (a, b) = (C::ONE + self, C::ONE - self);
        if a.is_zero() || b.is_zero() {
            return None;
        }
        Some((a.ln() - b.ln()) * C::real(0.5))
    }

    /// A function's principal value; `None` at its poles.
    pub fn apply(self, f: Fun) -> Option<Self> {
        Some(match f {
            Fun::Exp => self.exp(),
            Fun::Ln if self.is_zero() => return None,
            Fun::Ln => self.ln(),
            Fun::Sin => self.sin(),
            Fun::Cos => self.cos(),
            Fun::Tan => return self.sin().over(self.cos()),
            Fun::Csc => return self.sin().inverse(),
            Fun::Sec => return self.cos().inverse(),
            Fun::Cot => return self.cos().over(self.sin()),
            Fun::Asin => self.asin(),
            Fun::Acos => self.acos(),
            Fun::Atan => return self.atan(),
            Fun::Acsc => self.inverse()?.asin(),
            Fun::Asec => self.inverse()?.acos(),
            Fun::Acot if self.is_zero() => C::real(FRAC_PI_2),
            Fun::Acot => return self.inverse()?.atan(),
            Fun::Sinh => self.sinh(),
            Fun::Cosh => self.cosh(),
            Fun::Tanh => return self.sinh().over(self.cosh()),
            Fun::Asinh => self.asinh(),
            Fun::Acosh => self.acosh(),
            Fun::Atanh => return self.atanh(),
            Fun::Abs => C::real(self.norm()),
            Fun::Conjugate => self.conj(),
            Fun::Floor => C::new(self.re.floor(), self.im.floor()),
            Fun::Ceiling => C::new(self.re.ceil(), self.im.ceil()),
            Fun::Factorial => return (self + C::ONE).gamma(),
        })
    }

    /// The gamma function by Lanczos' approximation (g = 7, n = 9); exact for small integers.
    pub fn gamma(self) -> Option<Self> {
        if self.im == 0.0 && self.re == self.re.trunc() {
            if self.re <= 0.0 {
                return None;
            }
            if self.re <= 171.0 {
                return Some(C::real((2..self.re as u32).map(f64::from).product()));
            }
            return None;
        }
        if self.re < 0.5 {
            let s = (self * C::real(PI)).sin();
            let other = (C::ONE - self).gamma()?;
            return C::real(PI).over(s * other);
        }
        const G: [f64; 9] = [
            0.999_999_999_999_809_9,
            676.520_368_121_885_1,
            -1_259.139_216_722_402_8,
            771.323_428_777_653_1,
            -176.615_029_162_140_6,
            12.507_343_278_686_905,
            -0.138_571_095_265_720_12,
            9.984_369_578_019_572e-6,
            1.505_632_735_149_311_6e-7,
        ];
        let x = self - C::ONE;
        let t = x + C::real(7.5);
        let mut sum = C::real(G[0]);
        for (i, g) in G.iter().enumerate().skip(1) {
            sum = sum + C::real(*g) / (x + C::real(i as f64));
        }
        let half = x + C::real(0.5);
        Some((half * t.ln() - t).exp() * sum * C::real((2.0 * PI).sqrt()))
    }

    /// Γ(n+1) / Γ(k+1) Γ(n−k+1); a product for small whole k.
    pub fn binomial(self, k: C) -> Option<Self> {
        if k.im == 0.0 && k.re == k.re.trunc() {
            if k.re < 0.0 {
                return Some(C::real(0.0));
            }
            let mut k = k.re;
            if self.im == 0.0 && self.re == self.re.trunc() && self.re >= 0.0 {
                if k > self.re {
                    return Some(C::real(0.0));
                }
                k = k.min(self.re - k);
            }
            if k <= 4096.0 {
                let mut out = C::ONE;
                for i in 1..=k as u32 {
                    let i = f64::from(i);
                    out = out * (self - C::real(k - i)) / C::real(i);
                }
                return Some(out);
            }
        }
        let top = (self + C::ONE).gamma()?;
        let bottom = (k + C::ONE).gamma()? * (self - k + C::ONE).gamma()?;
        top.over(bottom)
    }
}

impl Add for C {
    type Output = C;
    fn add(self, o: C) -> C {
        C::new(self.re + o.re, self.im + o.im)
    }
}

impl Sub for C {
    type Output = C;
    fn sub(self, o: C) -> C {
        C::new(self.re - o.re, self.im - o.im)
    }
}

impl Mul for C {
    type Output = C;
    fn mul(self, o: C) -> C {
        if self.im == 0.0 && o.im == 0.0 {
            return C::real(self.re * o.re);
        }
        C::new(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)
    }
}

impl Div for C {
    type Output = C;
    fn div(self, o: C) -> C {
        if o.im == 0.0 {
            return C::new(self.re / o.re, self.im / o.re);
        }
        let n = o.re * o.re + o.im * o.im;
        let top = self * o.conj();
        C::new(top.re / n, top.im / n)
    }
}

impl Neg for C {
    type Output = C;
    fn neg(self) -> C {
        C::new(-self.re, -self.im)
    }
}
