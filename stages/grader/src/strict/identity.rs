//! Are two expressions the same value? Fingerprints first, then evaluation at seeded points:
//! machine floats to find a difference, long floats to make sure that there is none.

use super::arith::{Arith, Fast, Precise};
use super::ast::{Const, Digits, Expr, Func};
use super::exact::small_rational;
use super::fingerprint::{Eval, Flags};
use super::numeric::{Ball, LONG_DECIMAL, Numeric, Point};

/// The outcome of a comparison of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Equal,
    Different,
    /// Neither shown within the work allowed.
    Unknown,
}

/// Work left for one pair of answers, over all its comparisons. One unit is about ten
/// nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub left: u64,
    /// It ran out in the middle of a comparison.
    pub spent: bool,
}

impl Work {
    /// The allowance of one pair.
    pub fn new() -> Work {
        Work { left: 500_000, spent: false }
    }

    fn take(&mut self, n: u64) -> bool {
        if n > self.left {
            self.left = 0;
            self.spent = true;
            return false;
        }
        self.left -= n;
        true
    }
}

/// Points at which both sides must agree.
const AGREE: usize = 5;

/// Points that are enough where the real domain is narrow.
const ENOUGH: usize = 3;

/// Whether `a` and `b` are the same value for every value of their variables.
pub(crate) fn same_value(a: &Expr, b: &Expr, work: &mut Work) -> Outcome {
    if !work.take(20) {
        return Outcome::Unknown;
    }
    if a == b {
        return Outcome::Equal;
    }
    if let (Some(x), Some(y)) = (small_rational(a), small_rational(b)) {
        return if x == y { Outcome::Equal } else { Outcome::Different };
    }
    let (mut x, mut y) = (Eval::new(0, 0), Eval::new(0, 0));
    let mut same = x.value(a) == y.value(b);
    work.take(x.steps + y.steps);
    let (mut la, mut lb) = (x.flags, y.flags);
    if la.undefined || lb.undefined {
        return Outcome::Different;
    }
    // The second prime only has to confirm.
    if same {
        let (mut x, mut y) = (Eval::new(1, 0), Eval::new(1, 0));
        same = x.value(a) == y.value(b);
        work.take(x.steps + y.steps);
        la.opaque |= x.flags.opaque;
        lb.opaque |= y.flags.opaque;
    }
    if same && !(la.branch || lb.branch) {
        return Outcome::Equal;
    }
    if !(same || la.opaque || lb.opaque) {
        return Outcome::Different;
    }
    if unvalued(a) || unvalued(b) {
        return if same { Outcome::Equal } else { Outcome::Different };
    }
    let first = evaluate(a, b, la, lb, false, work);
    if first != Outcome::Equal && has_log(a) | has_log(b) {
        let second = evaluate(a, b, la, lb, true, work);
        if second == Outcome::Equal {
            return second;
        }
    }
    first
}

/// Constructs without a numerical value: only their form can be compared.
fn unvalued(e: &Expr) -> bool {
    matches!(
        e,
        Expr::Const(Const::Inf | Const::Empty | Const::Reals)
            | Expr::Phrase(_)
            | Expr::Group(..)
            | Expr::Relation(..)
            | Expr::List(..)
            | Expr::Matrix(..)
    )
}

fn has_log(e: &Expr) -> bool {
    e.any(&mut |x| matches!(x, Expr::Func(Func::Log, _)))
}

fn evaluate(a: &Expr, b: &Expr, la: Flags, lb: Flags, common_log: bool, work: &mut Work) -> Outcome {
    let variable = la.variable || lb.variable || a.any(&mut is_opaque) || b.any(&mut is_opaque);
    if !variable {
        let point = Point { index: 0, common_log };
        return match fast(a, b, point, work).map(|f| f.0) {
            Some(Outcome::Different) => Outcome::Different,
            _ => precise(a, b, point, work),
        };
    }
    let absolute = a.any(&mut is_abs) != b.any(&mut is_abs);
    // Real points first; whole numbers where an expression such as (−1)ⁿ needs them; complex
    // values at real points as the last resort.
    for (range, complex) in [(0..14u64, false), (100..106, false), (0..6, true)] {
        let mut agreed = Vec::with_capacity(AGREE);
        for index in range {
            let point = Point { index, common_log };
            let Some((outcome, off_a, off_b)) = fast(a, b, point, work) else {
                if work.spent {
                    return Outcome::Unknown;
                }
                continue;
            };
            if !complex && (off_a || off_b) {
                // |x| written on one side only: it is there to widen the domain.
                if absolute && off_a != off_b {
                    return Outcome::Different;
                }
                continue;
            }
            match outcome {
                Outcome::Different => return Outcome::Different,
                _ => agreed.push(point),
            }
            if agreed.len() == AGREE {
                break;
            }
        }
        if agreed.len() >= ENOUGH {
            // One point in long floats: analytic expressions that differ agree almost nowhere.
            for p in &agreed {
                match precise(a, b, *p, work) {
                    Outcome::Unknown => {}
                    known => return known,
                }
            }
            return Outcome::Unknown;
        }
    }
    Outcome::Unknown
}

fn is_opaque(e: &Expr) -> bool {
    matches!(e, Expr::Opaque(..) | Expr::Word(_) | Expr::WithUnit(..))
}

fn is_abs(e: &Expr) -> bool {
    matches!(e, Expr::Func(Func::Abs, _))
}

/// Compares at one point in machine floats; also whether each side left the real numbers.
fn fast(a: &Expr, b: &Expr, point: Point, work: &mut Work) -> Option<(Outcome, bool, bool)> {
    let mut n = Numeric::new(Fast, point, work.left);
    let x = n.value(a);
    let off_a = n.off_real;
    n.off_real = false;
    let y = n.value(b);
    let off_b = n.off_real;
    work.take(work.left - n.work + 4);
    let (x, y) = (x?, y?);
    Some((compare(&n, &x, &y), off_a, off_b))
}

fn compare<A: Arith>(n: &Numeric<A>, x: &Ball<A::R>, y: &Ball<A::R>) -> Outcome {
    let Some(d) = n.sub(x, y) else { return Outcome::Unknown };
    let err = d.err.max(x.err).max(y.err).saturating_add(1);
    if n.mag(&d) - 1 > err {
        return Outcome::Different;
    }
    // Equal as far as 100 bits beyond the error bound can tell.
    let size = n.mag(x).max(n.mag(y));
    if err <= size.saturating_sub(100) || err <= -400 { Outcome::Equal } else { Outcome::Unknown }
}

fn precise(a: &Expr, b: &Expr, point: Point, work: &mut Work) -> Outcome {
    for bits in [192usize, 640, 2560] {
        let mut n = Numeric::new(Precise::new(bits), point, work.left);
        let start = n.work;
        let x = n.value(a);
        let y = n.value(b);
        // A step at this precision costs about eight units.
        work.take(start - n.work + 50);
        if work.left == 0 {
            work.spent = true;
            return Outcome::Unknown;
        }
        match (x, y) {
            (Some(x), Some(y)) => match compare(&n, &x, &y) {
                Outcome::Unknown => {}
                known => return known,
            },
            // No value here (a division by zero, most likely): once more is enough.
            _ if bits > 192 => return Outcome::Unknown,
            _ => {}
        }
    }
    Outcome::Unknown
}

/// Whether a decimal literal is `exact` to the digits written, at least five of them.
pub(crate) fn rounds_to(decimal: &Expr, exact: &Expr, work: &mut Work) -> bool {
    let (num, negative) = match decimal {
        Expr::Num(n) => (n, false),
        Expr::Neg(e) => match &**e {
            Expr::Num(n) => (n, true),
            _ => return false,
        },
        _ => return false,
    };
    let digits = num.significant();
    if !num.decimal || digits < 5 || plain_decimal(exact) {
        return false;
    }
    // An integer that is written out is not rounded to a few digits (`1.23457e6`).
    if num.exp10 >= 0 && matches!(exact, Expr::Num(_)) {
        return false;
    }
    let shown = match &num.digits {
        Digits::Small(v) => format!("{v}e{}", num.exp10).parse::<f64>(),
        Digits::Big(s) => format!("{s}e{}", num.exp10).parse::<f64>(),
    };
    let Ok(shown) = shown else { return false };
    let point = Point { index: 0, common_log: false };
    let mut n = Numeric::new(Fast, point, work.left);
    let value = n.value(exact);
    work.take(work.left - n.work + 4);
    let shown = if negative { -shown } else { shown };
    let ulp = 10f64.powi(num.exp10.clamp(-300, 300));
    match value {
        Some(v) if v.real && num.exp10.abs() < 300 && (v.err as f64).exp2() < ulp * 1e-4 => {
            within((v.re - shown) / ulp, shown < 0.0, digits)
        }
        // Too long or too large for machine floats.
        Some(v) if !v.real => false,
        _ => rounds_to_far(num, negative, exact, work),
    }
}

/// The same in long floats.
fn rounds_to_far(num: &super::ast::Num, negative: bool, exact: &Expr, work: &mut Work) -> bool {
    let mut n = Numeric::new(Precise::new(192), Point { index: 0, common_log: false }, work.left);
    let start = n.work;
    let unit = Expr::Num(super::ast::Num { digits: Digits::Small(1), exp10: num.exp10, decimal: false });
    let shown = Expr::Num(num.clone());
    let shown = if negative { Expr::neg(shown) } else { shown };
    let q = n.value(&Expr::div(Expr::Add(vec![exact.clone(), Expr::neg(shown)]), unit));
    work.take(start - n.work + 50);
    q.is_some_and(|q| q.real && q.err < -20 && within(n.a.to_f64(&q.re), negative, num.significant()))
}

/// Whether two constants agree when the long decimals inside them are taken as rounded.
pub(crate) fn agrees_rounded(a: &Expr, b: &Expr, work: &mut Work) -> bool {
    let long = &mut |e: &Expr| matches!(e, Expr::Num(n) if n.decimal && n.significant() >= LONG_DECIMAL);
    // Between two plain decimals nothing is rounded.
    if plain_decimal(a) || plain_decimal(b) || !(a.any(long) || b.any(long)) {
        return false;
    }
    let mut n = Numeric::new(Fast, Point { index: 0, common_log: false }, work.left);
    n.soft = true;
    let values = n.value(a).zip(n.value(b));
    work.take(work.left - n.work + 4);
    let Some((x, y)) = values else { return false };
    let Some(d) = n.sub(&x, &y) else { return false };
    let err = x.err.max(y.err).saturating_add(1);
    n.mag(&d) <= err && err <= n.mag(&x) - 26
}

/// Whether a decimal may stand for a value that is larger by `off` units of its last digit: five
/// digits must be rounded, six and more may be cut off, fifteen and more may be a machine float
/// printed in full.
fn within(off: f64, negative: bool, digits: usize) -> bool {
    let beyond = if negative { -off } else { off }; // away from zero
    let rounded = off.abs() <= 0.5 + 1e-9;
    match digits {
        0..6 => rounded,
        6..15 => rounded || (0.0..1.0).contains(&beyond),
        d => off.abs() <= 1.0 + 5.0 * 10f64.powi(d as i32 - 15),
    }
}

/// A literal with a decimal point or repeating digits, signed or not.
pub(crate) fn plain_decimal(e: &Expr) -> bool {
    match e {
        Expr::Num(n) => n.decimal,
        Expr::Neg(e) => plain_decimal(e),
        // Repeating digits.
        Expr::Div(p) => matches!(&p.1, Expr::Num(n) if n.decimal && n.exp10 == 0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fourth_roots() {
        let e = Expr::div(Expr::int(1), Expr::int(4));
        let a = Expr::pow(Expr::int(7), e);
        let b = Expr::Func(Func::Root, vec![Expr::int(4), Expr::int(7)]);
        assert_eq!(same_value(&a, &b, &mut Work::new()), Outcome::Equal);
    }
}
