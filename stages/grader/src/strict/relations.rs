//! Equations and inequalities: a named value against the bare value, equations up to a constant
//! factor, inequalities up to a positive one.

use super::arith::{Arith, Fast, Precise};
use super::ast::{Expr, Rel};
use super::exact::small_rational;
use super::field::Fp2;
use super::fingerprint::Eval;
use super::identity::{Outcome, same_value};
use super::judge::{Judge, is_equality, is_name, is_scalar};
use super::lists::has_pm;
use super::numeric::{Ball, Numeric, Point};
use crate::reason::Reason;

/// Compares where one side is a relation.
pub(crate) fn compare(j: &mut Judge, a: &Expr, b: &Expr) -> Option<bool> {
    match (a, b) {
        (Expr::Relation(x, r), Expr::Relation(y, s)) => {
            if has_pm(a) || has_pm(b) {
                return None; // lists take the signs apart
            }
            Some(both(j, (x, r), (y, s)))
        }
        (Expr::Relation(x, r), o) | (o, Expr::Relation(x, r)) => {
            let set = x.len() == 2 && is_name(&x[0]) && (r[0] == Rel::In || matches!(x[1], Expr::Group(..)));
            if matches!(o, Expr::List(..)) && set {
                return Some(j.same(&x[1], o));
            }
            if matches!(o, Expr::List(..)) || has_pm(a) || has_pm(b) {
                return None;
            }
            Some(against_value(j, x, r, o))
        }
        _ => None,
    }
}

/// `x = v` against `v`.
fn against_value(j: &mut Judge, x: &[Expr], r: &[Rel], value: &Expr) -> bool {
    if r.iter().all(|r| is_equality(*r)) {
        let last = &x[x.len() - 1];
        if is_name(&x[0]) {
            // The last exact side, or the approximation after it.
            let exact = r.iter().position(|r| *r == Rel::Approx).map_or(last, |k| &x[k.max(1)]);
            return j.same(exact, value) || exact != last && j.same(last, value);
        }
        if is_name(last) && x.len() == 2 {
            return j.same(&x[0], value);
        }
        // A computation: every side is the value.
        if x.iter().all(|e| is_scalar(e) && e.is_constant()) && is_scalar(value) {
            return x.iter().all(|e| j.scalar(e, value));
        }
        return j.by(Reason::Kind, false);
    }
    if r.len() == 1 && matches!(r[0], Rel::In | Rel::To) && is_name(&x[0]) {
        return j.same(&x[1], value);
    }
    j.by(Reason::Kind, false)
}

type Side<'a> = (&'a [Expr], &'a [Rel]);

fn both(j: &mut Judge, (x, r): Side, (y, s): Side) -> bool {
    if r.iter().all(|r| is_equality(*r)) && s.iter().all(|r| is_equality(*r)) {
        let equal = equations(j, x, y);
        let equal = equal || (x.len() != y.len()) && chains(j, x, r, y, s);
        let reason = if equal && j.reason != Reason::Kind { j.reason } else { Reason::Equation };
        return j.by(reason, equal);
    }
    if r.iter().chain(s).all(|r| r.is_order()) {
        let equal = inequalities(j, x, r, y, s);
        return j.by(Reason::Inequality, equal);
    }
    let straight = r == s && x.len() == y.len() && x.iter().zip(y).all(|(p, q)| j.same(p, q));
    j.by(Reason::Equation, straight)
}

/// `x = a = b` against `x = b`: the name and a common value.
fn chains(j: &mut Judge, x: &[Expr], r: &[Rel], y: &[Expr], s: &[Rel]) -> bool {
    let (long, lr, short) = if x.len() > y.len() { (x, r, y) } else { (y, s, x) };
    if short.len() != 2
        || !is_name(&long[0])
        || same_value(&long[0], &short[0], &mut j.work) != Outcome::Equal
    {
        return false;
    }
    against_value(j, long, lr, &short[1])
}

fn equations(j: &mut Judge, x: &[Expr], y: &[Expr]) -> bool {
    if x.len() != y.len() {
        return false;
    }
    // Side by side, in either direction.
    let lhs = same_value(&x[0], &y[0], &mut j.work) == Outcome::Equal
        || function_of(&x[0], &y[0])
        || function_of(&y[0], &x[0]);
    if lhs && x[1..].iter().zip(&y[1..]).all(|(p, q)| j.same(p, q)) {
        return true;
    }
    let n = x.len() - 1;
    // Either end may be the one that is the same outright, so that the order of the two does not count.
    let mut ends = [(&x[n], &y[0]), (&x[0], &y[n])].into_iter();
    if ends.any(|(p, q)| same_value(p, q, &mut j.work) == Outcome::Equal)
        && x.iter().rev().zip(y).all(|(p, q)| j.same(p, q))
    {
        return true;
    }
    let algebraic = |e: &Expr| is_scalar(e) || !e.any(&mut |x| not_algebra(x));
    if n != 1 || !x.iter().chain(y).all(algebraic) {
        return false;
    }
    // `x = 1` and `y = 1` are different statements, and so are 3 = n and 4 = n.
    let d = |v: &[Expr]| Expr::Add(vec![v[0].clone(), Expr::neg(v[1].clone())]);
    let equal = proportional(j, &d(x), &d(y), false);
    j.by(Reason::Equation, equal)
}

/// What sums and products are not made of.
fn not_algebra(e: &Expr) -> bool {
    use Expr::*;
    matches!(
        e,
        List(..) | Phrase(_) | Relation(..) | WithUnit(..) | Pm(..) | SetBuilder(_) | Union(_) | Inter(_)
    )
}

/// `f(x)` and `y` name the same side of an equation.
fn function_of(f: &Expr, y: &Expr) -> bool {
    *y == Expr::Sym(b'y' as u64)
        && matches!(f, Expr::Opaque(_, v) if v.len() == 1 && v[0] == Expr::Sym(b'x' as u64))
}

fn inequalities(j: &mut Judge, x: &[Expr], r: &[Rel], y: &[Expr], s: &[Rel]) -> bool {
    if x.len() != y.len() {
        return false;
    }
    if r == s && x.iter().zip(y).all(|(p, q)| j.same(p, q)) {
        return true;
    }
    let flipped: Vec<Option<Rel>> = s.iter().rev().map(|r| r.flip()).collect();
    if r.iter().zip(&flipped).all(|(p, q)| Some(*p) == *q)
        && x.iter().zip(y.iter().rev()).all(|(p, q)| j.same(p, q))
    {
        return true;
    }
    if x.len() != 2 || !x.iter().chain(y).all(is_scalar) {
        return false;
    }
    // Both as `d < 0` or `d ≤ 0`.
    let oriented = |v: &[Expr], r: Rel| {
        let up = matches!(r, Rel::Gt | Rel::Ge);
        let (p, q) = if up { (&v[1], &v[0]) } else { (&v[0], &v[1]) };
        Expr::Add(vec![p.clone(), Expr::neg(q.clone())])
    };
    let strict = |r: Rel| matches!(r, Rel::Lt | Rel::Gt);
    strict(r[0]) == strict(s[0]) && proportional(j, &oriented(x, r[0]), &oriented(y, s[0]), true)
}

/// Whether `a = c·b` for a constant `c ≠ 0` (`c > 0` with `positive`).
fn proportional(j: &mut Judge, a: &Expr, b: &Expr, positive: bool) -> bool {
    let mut opaque = false;
    let mut equal = true;
    let mut constant = true;
    for prime in 0..2 {
        let mut at = |seed: u64| {
            let mut e = Eval::new(prime, seed);
            let v = (e.value(a), e.value(b));
            opaque |= e.flags.opaque || e.flags.undefined || e.flags.branch;
            constant &= !e.flags.variable;
            (v, e.field())
        };
        let ((a1, b1), f) = at(0x1111_2222);
        let ((a2, b2), _) = at(0x3333_4444);
        let zero = Fp2 { re: 0, im: 0 };
        let zeros = [a1, b1, a2, b2].contains(&zero);
        equal &= !zeros && f.mul(a1, b2) == f.mul(a2, b1);
    }
    if constant {
        // Two statements without variables: the same terms up to a small factor, unless they are
        // plain numbers.
        let plain = small_rational(a).is_some() || small_rational(b).is_some();
        return !positive && !plain && small_factor(a, b);
    }
    if !opaque && !equal {
        return false;
    }
    if equal && !positive {
        return true;
    }
    ratio_constant(j, a, b, positive, equal)
}

/// Whether `a = (n/d)·b` for small whole numbers n and d, by the laws of fields alone.
fn small_factor(a: &Expr, b: &Expr) -> bool {
    let values = [0, 1].map(|prime| {
        let mut e = Eval::new(prime, 0);
        (e.value(a), e.value(b), e.field())
    });
    (1..=60i128).any(|d| {
        (-60..=60i128).filter(|n| *n != 0).any(|n| {
            values.iter().all(|(x, y, f)| {
                let zero = Fp2 { re: 0, im: 0 };
                *y != zero && f.mul(*x, f.int128(d)) == f.mul(*y, f.int128(n))
            })
        })
    })
}

/// The same numerically: the ratio at several points.
fn ratio_constant(j: &mut Judge, a: &Expr, b: &Expr, positive: bool, proved: bool) -> bool {
    let mut points = Vec::new();
    let mut first: Option<Ball<f64>> = None;
    for index in 0..8u64 {
        let point = Point { index, common_log: false };
        let mut n = Numeric::new(Fast, point, j.work.left);
        let (x, y) = (n.value(a), n.value(b));
        j.work.left -= (j.work.left - n.work).min(j.work.left);
        if n.off_real {
            continue;
        }
        let (Some(x), Some(y)) = (x, y) else { continue };
        let Some(q) = n.div(&x, &y) else { continue };
        if positive && (!q.real || q.re < 0.0) {
            return false;
        }
        match &first {
            None => first = Some(q),
            Some(p) => {
                let Some(d) = n.sub(p, &q) else { continue };
                if n.mag(&d) - 1 > d.err.max(p.err).max(q.err) + 1 {
                    return false;
                }
            }
        }
        points.push(point);
        if points.len() == 4 {
            break;
        }
    }
    if proved {
        return !points.is_empty();
    }
    if points.len() < 3 {
        return false;
    }
    // Make sure with long floats at two points.
    let mut balls = Vec::new();
    for p in &points[..2] {
        let mut n = Numeric::new(Precise::new(256), *p, j.work.left);
        let start = n.work;
        let q = n.value(a).zip(n.value(b)).and_then(|(x, y)| n.div(&x, &y));
        j.work.left = j.work.left.saturating_sub(start - n.work + 50);
        let Some(q) = q else { return false };
        balls.push(q);
    }
    let n = Numeric::new(Precise::new(256), points[0], 100);
    let Some(d) = n.sub(&balls[0], &balls[1]) else { return false };
    n.mag(&d) - 1 <= d.err + 1 && d.err <= n.mag(&balls[0]) - 100 && n.a.bits() > 0
}
