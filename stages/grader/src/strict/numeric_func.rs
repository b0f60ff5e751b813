//! Evaluation of the functions that are built from others: hyperbolic functions, roots,
//! logarithms to a base, integer functions.

use super::arith::{Arith, NEVER};
use super::ast::{Expr, Func};
use super::exact::small_rational;
use super::numeric::{Ball, Numeric};

impl<A: Arith> Numeric<A> {
    /// The value of a function call.
    pub fn function(&mut self, f: Func, args: &[Expr]) -> Option<Ball<A::R>> {
        use Func::*;
        match (f, args) {
            (Log, [x]) => {
                let x = self.value(x)?;
                let l = self.ln(&x)?;
                if self.point().common_log {
                    let ten = self.exact(10.0);
                    let t = self.ln(&ten)?;
                    return self.div(&l, &t);
                }
                Some(l)
            }
            (LogBase, [b, x]) => {
                let (b, x) = (self.value(b)?, self.value(x)?);
                let (lb, lx) = (self.ln(&b)?, self.ln(&x)?);
                self.div(&lx, &lb)
            }
            (Root, [n, x]) => {
                let b = self.value(x)?;
                let e = Expr::div(Expr::int(1), n.clone());
                let y = self.value(&e)?;
                self.pow(&b, &y, &e)
            }
            (Sinh | Cosh | Tanh | Coth | Sech | Csch, [x]) => {
                let x = self.value(x)?;
                let e = self.exp(&x)?;
                let minus = self.neg(&x)?;
                let m = self.exp(&minus)?;
                let (s, d) = (self.add(&e, &m)?, self.sub(&e, &m)?);
                let two = self.exact(2.0);
                match f {
                    Sinh => self.div(&d, &two),
                    Cosh => self.div(&s, &two),
                    Tanh => self.div(&d, &s),
                    Coth => self.div(&s, &d),
                    Sech => self.div(&two, &s),
                    _ => self.div(&two, &d),
                }
            }
            (Asinh | Acosh, [x]) => {
                let x = self.value(x)?;
                let one = self.exact(1.0);
                let q = self.mul(&x, &x)?;
                let q = if f == Asinh { self.add(&q, &one)? } else { self.sub(&q, &one)? };
                let r = self.sqrt(&q)?;
                let s = self.add(&x, &r)?;
                self.ln(&s)
            }
            (Atanh, [x]) => {
                let x = self.value(x)?;
                let one = self.exact(1.0);
                let q = self.div(&self.add(&one, &x)?, &self.sub(&one, &x)?)?;
                let l = self.ln(&q)?;
                self.mul(&l, &self.exact(0.5))
            }
            (Floor | Ceil, [x]) => {
                let x = self.value(x)?;
                self.floor(f, &x)
            }
            (Factorial | DoubleFactorial, [x]) => {
                let n = self.integer(x)?;
                if !(0..=3000).contains(&n) {
                    return None;
                }
                self.spend(n as u64)?;
                let mut r = self.exact(1.0);
                for k in (2..=n).rev().step_by(if f == Factorial { 1 } else { 2 }) {
                    r = self.mul(&r, &self.exact(k as f64))?;
                }
                Some(r)
            }
            (Binom, [n, k]) => {
                let (n, k) = (self.integer(n)?, self.integer(k)?);
                if !(0..=1_000_000).contains(&n) || !(0..=n).contains(&k) {
                    return None;
                }
                let k = k.min(n - k);
                if k > 3000 {
                    return None;
                }
                self.spend(3 * k as u64)?;
                let mut r = self.exact(1.0);
                for j in 0..k {
                    r = self.mul(&r, &self.exact((n - j) as f64))?;
                    r = self.div(&r, &self.exact((j + 1) as f64))?;
                }
                Some(r)
            }
            (Min | Max, [first, rest @ ..]) => {
                let mut best = self.value(first)?;
                for x in rest {
                    let x = self.value(x)?;
                    if !x.real || !best.real {
                        return None;
                    }
                    let less = self.a.negative(&self.a.sub(&x.re, &best.re)?);
                    if less == (f == Min) {
                        best = x;
                    }
                }
                Some(best)
            }
            (Gcd | Lcm, [a, b]) => {
                let (x, y) = (small_rational(a)?, small_rational(b)?);
                if x.1 != 1 || y.1 != 1 || x.0 == 0 || y.0 == 0 || x.0.abs().max(y.0.abs()) > 1 << 50 {
                    return None;
                }
                let (mut p, mut q) = (x.0.abs(), y.0.abs());
                while q != 0 {
                    (p, q) = (q, p % q);
                }
                let v = if f == Gcd { p } else { x.0.abs() / p * y.0.abs() };
                (v < 1 << 53).then(|| self.exact(v as f64))
            }
            (Re | Im, [x]) => {
                let z = self.value(x)?;
                let zero = self.a.float(0.0);
                let re = if f == Re { z.re } else { z.im };
                Some(Ball { re, im: zero, real: true, err: z.err })
            }
            (_, [x]) => {
                let x = self.value(x)?;
                self.elementary(f, &x)
            }
            _ => None,
        }
    }

    fn floor(&mut self, f: Func, x: &Ball<A::R>) -> Option<Ball<A::R>> {
        if !x.real {
            return None;
        }
        let up = f == Func::Ceil;
        let v = if up { self.a.sub(&self.a.float(0.0), &x.re)? } else { x.re.clone() };
        let mut r = self.a.floor(&v);
        // A value within its error of an integer is that integer.
        let gap = self.a.sub(&v, &r)?;
        let rest = self.a.sub(&self.a.float(1.0), &gap)?;
        if x.err > NEVER + 64 {
            if self.a.mag(&rest) <= x.err + 1 {
                r = self.a.add(&r, &self.a.float(1.0))?;
            } else if x.err > -8 {
                return None;
            }
        }
        let r = if up { self.a.sub(&self.a.float(0.0), &r)? } else { r };
        let err = if self.a.mag(&r) < self.a.bits() { NEVER } else { self.a.mag(&r) - self.a.bits() };
        Some(Ball { re: r, im: self.a.float(0.0), real: true, err })
    }

    /// The integer that `x` is at this point.
    fn integer(&mut self, x: &Expr) -> Option<i64> {
        if let Some((n, 1)) = small_rational(x) {
            return i64::try_from(n).ok();
        }
        let b = self.value(x)?;
        let v = self.a.to_f64(&b.re);
        (b.real && b.err < -20 && v.fract() == 0.0 && v.abs() < 1e9).then_some(v as i64)
    }
}
