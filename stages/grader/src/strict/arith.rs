//! Real arithmetic at two precisions behind one interface: machine floats for a first look, and
//! binary floats of any length to tell a near miss from equality.

use dashu_float::{ConstCache, Context, FBig, round::mode::Zero};

/// Real numbers of one precision. Operations return `None` outside their domain or range.
pub(crate) trait Arith {
    type R: Clone;
    /// Bits of precision.
    fn bits(&self) -> i32;
    fn float(&self, v: f64) -> Self::R;
    /// A decimal integer of any length.
    fn digits(&mut self, text: &str) -> Option<Self::R>;
    fn add(&self, a: &Self::R, b: &Self::R) -> Option<Self::R>;
    fn sub(&self, a: &Self::R, b: &Self::R) -> Option<Self::R>;
    fn mul(&self, a: &Self::R, b: &Self::R) -> Option<Self::R>;
    fn div(&self, a: &Self::R, b: &Self::R) -> Option<Self::R>;
    fn sqrt(&self, a: &Self::R) -> Option<Self::R>;
    fn exp(&mut self, a: &Self::R) -> Option<Self::R>;
    fn ln(&mut self, a: &Self::R) -> Option<Self::R>;
    fn sin_cos(&mut self, a: &Self::R) -> Option<(Self::R, Self::R)>;
    fn atan2(&mut self, y: &Self::R, x: &Self::R) -> Option<Self::R>;
    fn pi(&mut self) -> Self::R;
    fn floor(&self, a: &Self::R) -> Self::R;
    fn to_f64(&self, a: &Self::R) -> f64;
    /// The least `e` with `|a| < 2^e`; `i32::MIN / 2` for zero.
    fn mag(&self, a: &Self::R) -> i32;
    fn negative(&self, a: &Self::R) -> bool;
}

/// The exponent of zero.
pub(crate) const NEVER: i32 = i32::MIN / 4;

/// Machine floats.
pub(crate) struct Fast;

fn finite(v: f64) -> Option<f64> {
    v.is_finite().then_some(v)
}

impl Arith for Fast {
    type R = f64;

    fn bits(&self) -> i32 {
        52
    }
    fn float(&self, v: f64) -> f64 {
        v
    }
    fn digits(&mut self, text: &str) -> Option<f64> {
        text.parse().ok().and_then(finite)
    }
    fn add(&self, a: &f64, b: &f64) -> Option<f64> {
        finite(a + b)
    }
    fn sub(&self, a: &f64, b: &f64) -> Option<f64> {
        finite(a - b)
    }
    fn mul(&self, a: &f64, b: &f64) -> Option<f64> {
        finite(a * b)
    }
    fn div(&self, a: &f64, b: &f64) -> Option<f64> {
        finite(a / b)
    }
    fn sqrt(&self, a: &f64) -> Option<f64> {
        finite(a.sqrt())
    }
    fn exp(&mut self, a: &f64) -> Option<f64> {
        finite(a.exp())
    }
    fn ln(&mut self, a: &f64) -> Option<f64> {
        finite(a.ln())
    }
    fn sin_cos(&mut self, a: &f64) -> Option<(f64, f64)> {
        finite(*a).map(f64::sin_cos)
    }
    fn atan2(&mut self, y: &f64, x: &f64) -> Option<f64> {
        finite(y.atan2(*x))
    }
    fn pi(&mut self) -> f64 {
        std::f64::consts::PI
    }
    fn floor(&self, a: &f64) -> f64 {
        a.floor()
    }
    fn to_f64(&self, a: &f64) -> f64 {
        *a
    }
    fn mag(&self, a: &f64) -> i32 {
        if *a == 0.0 { NEVER } else { ((a.to_bits() >> 52) & 0x7ff) as i32 - 1022 }
    }
    fn negative(&self, a: &f64) -> bool {
        *a < 0.0
    }
}

/// Binary floats of `p` bits.
pub(crate) struct Precise {
    ctx: Context<Zero>,
    p: usize,
    cache: ConstCache,
}

/// Largest exponent (base 2) of an argument of exp, sin or cos.
const MAX_ARGUMENT: i32 = 40;

impl Precise {
    /// Arithmetic of `p` bits.
    pub fn new(p: usize) -> Precise {
        Precise { ctx: Context::new(p), p, cache: ConstCache::new() }
    }

    fn checked(&self, r: Result<dashu_float::round::Rounded<Big>, dashu_float::FpError>) -> Option<Big> {
        let v = r.ok()?.value();
        (v.repr().is_finite() && self.mag(&v).abs() < 1 << 24 || v.repr().significand().is_zero())
            .then_some(v)
    }
}

type Big = FBig<Zero, 2>;

impl Arith for Precise {
    type R = Big;

    fn bits(&self) -> i32 {
        self.p as i32
    }
    fn float(&self, v: f64) -> Big {
        FBig::<Zero, 2>::try_from(v).unwrap_or(FBig::ZERO).with_precision(self.p).value()
    }
    fn digits(&mut self, text: &str) -> Option<Big> {
        let mut acc = self.float(0.0);
        for c in text.as_bytes().chunks(18) {
            let v = c.iter().fold(0u64, |v, d| v * 10 + (d - b'0') as u64);
            let scale = FBig::<Zero, 2>::from(10u64.pow(c.len() as u32));
            acc = self.add(&self.mul(&acc, &scale)?, &FBig::from(v))?;
        }
        Some(acc)
    }
    fn add(&self, a: &Big, b: &Big) -> Option<Big> {
        self.checked(self.ctx.add(a.repr(), b.repr()))
    }
    fn sub(&self, a: &Big, b: &Big) -> Option<Big> {
        self.checked(self.ctx.sub(a.repr(), b.repr()))
    }
    fn mul(&self, a: &Big, b: &Big) -> Option<Big> {
        self.checked(self.ctx.mul(a.repr(), b.repr()))
    }
    fn div(&self, a: &Big, b: &Big) -> Option<Big> {
        if b.repr().significand().is_zero() {
            return None;
        }
        self.checked(self.ctx.div(a.repr(), b.repr()))
    }
    fn sqrt(&self, a: &Big) -> Option<Big> {
        if self.negative(a) {
            return None;
        }
        self.checked(self.ctx.sqrt(a.repr()))
    }
    fn exp(&mut self, a: &Big) -> Option<Big> {
        if self.mag(a) > 24 {
            return None;
        }
        let r = self.ctx.exp(a.repr(), Some(&mut self.cache));
        self.checked(r)
    }
    fn ln(&mut self, a: &Big) -> Option<Big> {
        if self.negative(a) || a.repr().significand().is_zero() {
            return None;
        }
        let r = self.ctx.ln(a.repr(), Some(&mut self.cache));
        self.checked(r)
    }
    fn sin_cos(&mut self, a: &Big) -> Option<(Big, Big)> {
        if self.mag(a) > MAX_ARGUMENT {
            return None;
        }
        let s = self.ctx.sin(a.repr(), Some(&mut self.cache));
        let c = self.ctx.cos(a.repr(), Some(&mut self.cache));
        Some((self.checked(s)?, self.checked(c)?))
    }
    fn atan2(&mut self, y: &Big, x: &Big) -> Option<Big> {
        let r = self.ctx.atan2(y.repr(), x.repr(), Some(&mut self.cache));
        self.checked(r)
    }
    fn pi(&mut self) -> Big {
        self.ctx.pi::<2>(Some(&mut self.cache)).value()
    }
    fn floor(&self, a: &Big) -> Big {
        a.floor()
    }
    fn to_f64(&self, a: &Big) -> f64 {
        a.to_f64().value()
    }
    fn mag(&self, a: &Big) -> i32 {
        let r = a.repr();
        if r.significand().is_zero() {
            return NEVER;
        }
        (r.exponent() + r.digits() as isize).clamp(-(1 << 28), 1 << 28) as i32
    }
    fn negative(&self, a: &Big) -> bool {
        a < &Big::ZERO
    }
}
