//! Evaluation in the complex plane with an error bound on every value.
//!
//! A value is known to within `2^err`; the bound follows each operation (first order, rounded
//! up), so "different" is proved and "equal" is said only when the bound is far below the values.

use super::arith::{Arith, NEVER};
use super::ast::{Const, Digits, Expr, Num};
use super::field::mix;
use super::fingerprint;

/// A complex ball: centre and the base-2 exponent of its radius.
#[derive(Clone, Debug)]
pub(crate) struct Ball<R> {
    pub re: R,
    pub im: R,
    /// The imaginary part is exactly zero.
    pub real: bool,
    pub err: i32,
}

/// How to evaluate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Number of the point; variables depend on it.
    pub index: u64,
    /// `log` without a base is the common logarithm.
    pub common_log: bool,
}

pub(crate) struct Numeric<A: Arith> {
    pub a: A,
    point: Point,
    /// A root or logarithm of a negative number, or the like, occurred.
    pub off_real: bool,
    /// Steps left.
    pub work: u64,
    /// What one step costs here.
    cost: u64,
}

type B<A> = Ball<<A as Arith>::R>;

impl<A: Arith> Numeric<A> {
    /// An evaluation that may cost up to `work`.
    pub fn new(a: A, point: Point, work: u64) -> Self {
        let words = (a.bits() as u64).div_ceil(64);
        Numeric { a, point, off_real: false, work, cost: words * words }
    }

    pub fn spend(&mut self, steps: u64) -> Option<()> {
        self.work = self.work.checked_sub(self.cost * steps)?;
        Some(())
    }

    fn real(&self, v: A::R, err: i32) -> B<A> {
        Ball { re: v, im: self.a.float(0.0), real: true, err }
    }

    /// An exact small value.
    pub fn exact(&self, v: f64) -> B<A> {
        self.real(self.a.float(v), NEVER)
    }

    pub fn rounded(&self, re: A::R, im: A::R, real: bool, err: i32) -> B<A> {
        let top = self.a.mag(&re).max(if real { NEVER } else { self.a.mag(&im) });
        Ball { re, im, real, err: err.max(top.saturating_sub(self.a.bits())).saturating_add(2) }
    }

    /// The exponent of |z|, from above.
    pub fn mag(&self, z: &B<A>) -> i32 {
        if z.real { self.a.mag(&z.re) } else { self.a.mag(&z.re).max(self.a.mag(&z.im)) + 1 }
    }

    /// The exponent of |z|, from below; `None` where the ball contains zero.
    pub fn low(&self, z: &B<A>) -> Option<i32> {
        let m = self.a.mag(&z.re).max(if z.real { NEVER } else { self.a.mag(&z.im) }) - 1;
        (m > NEVER && z.err < m - 1).then_some(m - 1)
    }

    fn num(&mut self, n: &Num) -> Option<B<A>> {
        let m = match &n.digits {
            Digits::Small(v) if *v < 1 << 53 => self.a.float(*v as f64),
            Digits::Small(v) => self.a.digits(&v.to_string())?,
            Digits::Big(s) => self.a.digits(s)?,
        };
        let big = !matches!(n.digits, Digits::Small(v) if v < 1 << 53);
        let err = if big { self.a.mag(&m) - self.a.bits() + 8 } else { NEVER };
        let m = self.real(m, err);
        if n.exp10 == 0 {
            return Some(m);
        }
        let ten = self.exact(10.0);
        let scale = self.powi(&ten, n.exp10.unsigned_abs() as u64)?;
        if n.exp10 > 0 { self.mul(&m, &scale) } else { self.div(&m, &scale) }
    }

    pub fn add(&self, x: &B<A>, y: &B<A>) -> Option<B<A>> {
        let real = x.real && y.real;
        let im = if real { x.im.clone() } else { self.a.add(&x.im, &y.im)? };
        Some(self.rounded(self.a.add(&x.re, &y.re)?, im, real, x.err.max(y.err)))
    }

    pub fn sub(&self, x: &B<A>, y: &B<A>) -> Option<B<A>> {
        let real = x.real && y.real;
        let im = if real { x.im.clone() } else { self.a.sub(&x.im, &y.im)? };
        Some(self.rounded(self.a.sub(&x.re, &y.re)?, im, real, x.err.max(y.err)))
    }

    pub fn mul(&self, x: &B<A>, y: &B<A>) -> Option<B<A>> {
        let a = &self.a;
        let err = (self.mag(x).saturating_add(y.err))
            .max(self.mag(y).saturating_add(x.err))
            .max(x.err.saturating_add(y.err))
            .max(NEVER);
        if x.real && y.real {
            return Some(self.rounded(a.mul(&x.re, &y.re)?, x.im.clone(), true, err));
        }
        let re = a.sub(&a.mul(&x.re, &y.re)?, &a.mul(&x.im, &y.im)?)?;
        let im = a.add(&a.mul(&x.re, &y.im)?, &a.mul(&x.im, &y.re)?)?;
        let floor = self.mag(x) + self.mag(y) - a.bits();
        Some(self.rounded(re, im, false, err.max(floor)))
    }

    pub fn div(&self, x: &B<A>, y: &B<A>) -> Option<B<A>> {
        let a = &self.a;
        let low = self.low(y)?;
        let (re, im, real) = if y.real {
            let im = if x.real { x.im.clone() } else { a.div(&x.im, &y.re)? };
            (a.div(&x.re, &y.re)?, im, x.real)
        } else {
            let n = a.add(&a.mul(&y.re, &y.re)?, &a.mul(&y.im, &y.im)?)?;
            let re = a.add(&a.mul(&x.re, &y.re)?, &a.mul(&x.im, &y.im)?)?;
            let im = a.sub(&a.mul(&x.im, &y.re)?, &a.mul(&x.re, &y.im)?)?;
            (a.div(&re, &n)?, a.div(&im, &n)?, false)
        };
        let size = self.mag(x).saturating_sub(low);
        let err = x.err.saturating_sub(low).max(size.saturating_add(y.err).saturating_sub(low)).max(NEVER);
        let floor = if real { NEVER } else { size - a.bits() + 1 };
        Some(self.rounded(re, im, real, err.max(floor)))
    }

    pub fn neg(&self, x: &B<A>) -> Option<B<A>> {
        self.sub(&self.exact(0.0), x)
    }

    pub fn powi(&mut self, x: &B<A>, mut n: u64) -> Option<B<A>> {
        let mut r = self.exact(1.0);
        let mut b = x.clone();
        while n > 0 {
            self.spend(1)?;
            if n & 1 == 1 {
                r = self.mul(&r, &b)?;
            }
            n >>= 1;
            if n > 0 {
                b = self.mul(&b, &b)?;
            }
        }
        Some(r)
    }

    /// |z|
    pub fn abs(&self, z: &B<A>) -> Option<B<A>> {
        let a = &self.a;
        if z.real {
            return if a.negative(&z.re) { self.neg(z) } else { Some(z.clone()) };
        }
        let n = a.add(&a.mul(&z.re, &z.re)?, &a.mul(&z.im, &z.im)?)?;
        let r = a.sqrt(&n)?;
        Some(self.rounded(r, a.float(0.0), true, z.err.max(self.mag(z) - a.bits() + 1)))
    }

    pub fn sqrt(&mut self, z: &B<A>) -> Option<B<A>> {
        let zero = self.a.float(0.0);
        if z.real {
            let negative = self.a.negative(&z.re);
            let size = if negative { self.a.sub(&zero, &z.re)? } else { z.re.clone() };
            let r = self.a.sqrt(&size)?;
            let err = match self.low(z) {
                Some(low) => z.err.saturating_sub(low.div_euclid(2)),
                None if z.err <= NEVER + 64 => NEVER,
                None => z.err.div_euclid(2) + 2,
            };
            if negative && self.low(z).is_some() {
                self.off_real = true;
                return Some(self.rounded(zero, r, false, err));
            }
            return Some(self.rounded(r, zero, true, err));
        }
        // Principal root by its polar form.
        let half = self.exact(0.5);
        let l = self.ln(z)?;
        let h = self.mul(&l, &half)?;
        self.exp(&h)
    }

    pub fn exp(&mut self, z: &B<A>) -> Option<B<A>> {
        self.spend(8)?;
        if z.err > 0 {
            return None;
        }
        let e = self.a.exp(&z.re)?;
        let err = self.a.mag(&e).saturating_add(z.err).saturating_add(1).max(NEVER);
        if z.real {
            return Some(self.rounded(e, z.im.clone(), true, err));
        }
        let (s, c) = self.a.sin_cos(&z.im)?;
        let (re, im) = (self.a.mul(&e, &c)?, self.a.mul(&e, &s)?);
        let floor = self.a.mag(&e) - self.a.bits();
        Some(self.rounded(re, im, false, err.max(floor)))
    }

    /// The principal logarithm.
    pub fn ln(&mut self, z: &B<A>) -> Option<B<A>> {
        self.spend(8)?;
        let low = self.low(z)?;
        let err = z.err.saturating_sub(low).saturating_add(1).max(NEVER);
        if z.real && !self.a.negative(&z.re) {
            let r = self.a.ln(&z.re)?;
            let zero = self.a.float(0.0);
            return Some(self.rounded(r, zero, true, err.max(-self.a.bits())));
        }
        self.off_real = true;
        let r = self.abs(z)?;
        let re = self.a.ln(&r.re)?;
        // On the negative axis a rounding error must not choose the branch.
        let on_axis = z.real || self.a.mag(&z.im) <= z.err;
        let im = if on_axis { self.a.float(0.0) } else { z.im.clone() };
        let arg = self.a.atan2(&im, &z.re)?;
        Some(self.rounded(re, arg, false, err.max(2 - self.a.bits())))
    }

    /// π.
    pub fn pi(&mut self) -> B<A> {
        let v = self.a.pi();
        self.real(v, 2 - self.a.bits())
    }

    pub fn pow(&mut self, x: &B<A>, y: &B<A>, exponent: &Expr) -> Option<B<A>> {
        let rational = super::exact::small_rational(exponent);
        if let Some((n, 1)) = rational
            && n.unsigned_abs() <= 1 << 20
        {
            let r = self.powi(x, n.unsigned_abs() as u64)?;
            return if n < 0 { self.div(&self.exact(1.0), &r) } else { Some(r) };
        }
        // A whole-numbered exponent at this point.
        if y.real && self.a.mag(&self.a.sub(&y.re, &self.a.floor(&y.re))?) == NEVER {
            let v = self.a.to_f64(&y.re);
            if v.abs() < 1048576.0 {
                let r = self.powi(x, v.abs() as u64)?;
                return if v < 0.0 { self.div(&self.exact(1.0), &r) } else { Some(r) };
            }
        }
        if let Some((n, d)) = rational {
            if d == 2 && n.unsigned_abs() < 1 << 16 {
                let s = self.sqrt(x)?;
                let r = self.powi(&s, n.unsigned_abs() as u64)?;
                return if n < 0 { self.div(&self.exact(1.0), &r) } else { Some(r) };
            }
            // Odd roots of negative numbers are the real ones.
            if d % 2 == 1 && x.real && self.a.negative(&x.re) {
                let p = self.neg(x)?;
                let l = self.ln(&p)?;
                let r = self.exp(&self.mul(&l, y)?)?;
                return if n % 2 == 0 { Some(r) } else { self.neg(&r) };
            }
        }
        if x.real && self.a.mag(&x.re) == NEVER && x.err <= NEVER + 64 {
            let positive = y.real && self.low(y).is_some() && !self.a.negative(&y.re);
            return positive.then(|| self.exact(0.0));
        }
        let l = self.ln(x)?;
        let r = self.exp(&self.mul(&l, y)?)?;
        Some(r)
    }

    /// The value of a variable at this point.
    fn variable(&self, id: u64) -> B<A> {
        let h = mix(id ^ mix(self.point.index));
        let u = (h >> 44) as f64 / (1u64 << 20) as f64; // 20 bits in [0, 1)
        let k = self.point.index;
        let v = if k >= 100 {
            (2 + h % 6) as f64
        } else {
            match k % 6 {
                0 => 1.0 + 3.0 * u,
                1 => 0.125 + 0.75 * u,
                2 => (0.25 + 3.0 * u) * if h & 1 == 0 { -1.0 } else { 1.0 },
                3 => 5.0 + 25.0 * u,
                4 => -(0.125 + 0.75 * u),
                _ => -(1.0 + 4.0 * u),
            }
        };
        self.exact(v)
    }

    /// The value of `e`; `None` where it has none here or the work has run out.
    pub fn value(&mut self, e: &Expr) -> Option<B<A>> {
        self.spend(1)?;
        match e {
            Expr::Num(n) => self.num(n),
            Expr::Sym(s) => Some(self.variable(mix(*s))),
            Expr::Const(Const::Pi) => Some(self.pi()),
            Expr::Const(Const::E) => {
                let one = self.exact(1.0);
                self.exp(&one)
            }
            Expr::Const(Const::I) => {
                Some(Ball { re: self.a.float(0.0), im: self.a.float(1.0), real: false, err: NEVER })
            }
            Expr::Const(_) => None,
            Expr::Add(v) => {
                let mut s = self.value(v.first()?)?;
                for t in &v[1..] {
                    let t = self.value(t)?;
                    s = self.add(&s, &t)?;
                }
                Some(s)
            }
            Expr::Mul(v) => {
                let mut s = self.value(v.first()?)?;
                for t in &v[1..] {
                    let t = self.value(t)?;
                    s = self.mul(&s, &t)?;
                }
                Some(s)
            }
            Expr::Neg(x) => {
                let x = self.value(x)?;
                self.neg(&x)
            }
            Expr::Div(p) => {
                let n = self.value(&p.0)?;
                let d = self.value(&p.1)?;
                self.div(&n, &d)
            }
            Expr::Pow(p) => {
                let b = self.value(&p.0)?;
                if p.0 == Expr::Const(Const::E) {
                    let e = self.value(&p.1)?;
                    return self.exp(&e);
                }
                let e = self.value(&p.1)?;
                self.pow(&b, &e, &p.1)
            }
            Expr::Percent(x) => {
                let x = self.value(x)?;
                self.div(&x, &self.exact(100.0))
            }
            Expr::Degree(x) => {
                let x = self.value(x)?;
                let pi = self.pi();
                self.div(&self.mul(&x, &pi)?, &self.exact(180.0))
            }
            Expr::Func(f, args) => self.function(*f, args),
            Expr::Opaque(..) | Expr::WithUnit(..) | Expr::Word(_) => {
                let (v, _) = fingerprint::fingerprint(e);
                Some(self.variable(v[0].re ^ v[0].im))
            }
            _ => None,
        }
    }

    /// The point at which this evaluates.
    pub fn point(&self) -> Point {
        self.point
    }
}
