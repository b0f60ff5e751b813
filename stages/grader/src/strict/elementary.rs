//! Trigonometric functions and their inverses on balls.

use super::arith::{Arith, NEVER};
use super::ast::Func;
use super::numeric::{Ball, Numeric};

type B<A> = Ball<<A as Arith>::R>;

impl<A: Arith> Numeric<A> {
    fn sin_cos(&mut self, z: &B<A>) -> Option<(B<A>, B<A>)> {
        self.spend(8)?;
        if z.err > 0 {
            return None;
        }
        let (s, c) = self.a.sin_cos(&z.re)?;
        // The argument's own rounding in reduction by π.
        let err = z.err.max(NEVER);
        if z.real {
            let zero = z.im.clone();
            let floor = err.max(-self.a.bits() + 1);
            return Some((self.rounded(s, zero.clone(), true, floor), self.rounded(c, zero, true, floor)));
        }
        let e = self.a.exp(&z.im)?;
        let f = self.a.div(&self.a.float(1.0), &e)?;
        let half = self.a.float(0.5);
        let cosh = self.a.mul(&self.a.add(&e, &f)?, &half)?;
        let sinh = self.a.mul(&self.a.sub(&e, &f)?, &half)?;
        let floor = err.max(-self.a.bits()).saturating_add(self.a.mag(&cosh)).saturating_add(2);
        let sin = self.rounded(self.a.mul(&s, &cosh)?, self.a.mul(&c, &sinh)?, false, floor);
        let minus = self.a.sub(&self.a.float(0.0), &self.a.mul(&s, &sinh)?)?;
        let cos = self.rounded(self.a.mul(&c, &cosh)?, minus, false, floor);
        Some((sin, cos))
    }

    /// atan2 of real balls.
    fn atan2(&mut self, y: &B<A>, x: &B<A>) -> Option<B<A>> {
        self.spend(8)?;
        if !(x.real && y.real) {
            return None;
        }
        let low = self.low(x).unwrap_or(NEVER).max(self.low(y).unwrap_or(NEVER));
        if low == NEVER {
            return None;
        }
        let r = self.a.atan2(&y.re, &x.re)?;
        let err = x.err.max(y.err).saturating_sub(low).max(-self.a.bits());
        Some(self.rounded(r, x.im.clone(), true, err))
    }

    /// The arc functions of real arguments in [−1, 1].
    fn arc(&mut self, f: Func, x: &B<A>) -> Option<B<A>> {
        let one = self.exact(1.0);
        if !x.real {
            return None;
        }
        match f {
            Func::Atan => self.atan2(x, &one),
            Func::Acot => {
                let pi = self.pi();
                let half = self.mul(&pi, &self.exact(0.5))?;
                let t = self.atan2(x, &one)?;
                self.sub(&half, &t)
            }
            _ => {
                let s = self.mul(&self.sub(&one, x)?, &self.add(&one, x)?)?;
                let was = self.off_real;
                let c = self.sqrt(&s)?;
                if !c.real {
                    self.off_real = true;
                    return None;
                }
                self.off_real = was;
                if f == Func::Asin { self.atan2(x, &c) } else { self.atan2(&c, x) }
            }
        }
    }

    /// Elementary functions of one argument.
    pub fn elementary(&mut self, f: Func, x: &B<A>) -> Option<B<A>> {
        use Func::*;
        let one = self.exact(1.0);
        match f {
            Sin => self.sin_cos(x).map(|r| r.0),
            Cos => self.sin_cos(x).map(|r| r.1),
            Tan => {
                let (s, c) = self.sin_cos(x)?;
                self.div(&s, &c)
            }
            Cot => {
                let (s, c) = self.sin_cos(x)?;
                self.div(&c, &s)
            }
            Sec => {
                let (_, c) = self.sin_cos(x)?;
                self.div(&one, &c)
            }
            Csc => {
                let (s, _) = self.sin_cos(x)?;
                self.div(&one, &s)
            }
            Asin | Acos | Atan | Acot => self.arc(f, x),
            Asec | Acsc => {
                let y = self.div(&one, x)?;
                self.arc(if f == Asec { Acos } else { Asin }, &y)
            }
            Ln => self.ln(x),
            Sqrt => self.sqrt(x),
            Abs => self.abs(x),
            _ => None,
        }
    }
}
