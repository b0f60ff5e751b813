//! Sets of real numbers: intervals, unions, inequalities in one variable, set builders.

use super::arith::{Arith, Fast};
use super::ast::{Const, Delim, Expr, Func, Rel, Sep};
use super::identity::{Outcome, same_value};
use super::judge::Judge;
use super::numeric::{Numeric, Point};
use crate::reason::Reason;

/// One interval; an end of `None` is infinite.
#[derive(Clone, Debug)]
struct Interval {
    low: Option<Expr>,
    low_closed: bool,
    high: Option<Expr>,
    high_closed: bool,
}

/// A set with the variable it was written about, if any.
struct RealSet {
    variable: Option<Expr>,
    parts: Vec<Interval>,
}

/// Compares where one side can only be a set of reals and the other can be read as one.
pub(crate) fn compare(j: &mut Judge, a: &Expr, b: &Expr) -> Option<bool> {
    if !(evident(a) || evident(b)) {
        return None;
    }
    let (x, y) = (read(j, a)?, read(j, b)?);
    if let (Some(p), Some(q)) = (&x.variable, &y.variable)
        && p != q
    {
        return Some(j.by(Reason::Inequality, false));
    }
    let reason = if is_inequality(a) || is_inequality(b) { Reason::Inequality } else { Reason::Interval };
    let (x, y) = (merge(j, x.parts)?, merge(j, y.parts)?);
    let equal = x.len() == y.len()
        && x.iter().zip(&y).all(|(p, q)| {
            p.low_closed == q.low_closed
                && p.high_closed == q.high_closed
                && end(j, &p.low, &q.low)
                && end(j, &p.high, &q.high)
        });
    Some(j.by(reason, equal))
}

fn end(j: &mut Judge, a: &Option<Expr>, b: &Option<Expr>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => j.same(a, b),
        _ => false,
    }
}

fn is_inequality(e: &Expr) -> bool {
    matches!(e, Expr::Relation(_, r) if r.iter().any(|r| r.is_order() || *r == Rel::Ne))
}

/// Whether `e` can only be a set of reals.
fn evident(e: &Expr) -> bool {
    match e {
        Expr::Union(_)
        | Expr::Inter(_)
        | Expr::SetMinus(_)
        | Expr::SetBuilder(_)
        | Expr::Const(Const::Reals) => true,
        Expr::Group(open, close, v) if v.len() == 2 && *open != Delim::Brace => {
            open != close || v.iter().any(|e| infinite(e).is_some())
        }
        Expr::Relation(_, r) => r.iter().all(|r| r.is_order() || *r == Rel::Ne) || r[0] == Rel::In,
        Expr::List(_, v) => v.iter().all(is_inequality),
        _ => false,
    }
}

/// The sign of ±∞.
fn infinite(e: &Expr) -> Option<bool> {
    match e {
        Expr::Const(Const::Inf) => Some(true),
        Expr::Neg(x) => infinite(x).map(|s| !s),
        Expr::Add(v) if v.len() == 1 => infinite(&v[0]),
        _ => None,
    }
}

fn bound(e: &Expr) -> Option<Expr> {
    if infinite(e).is_some() { None } else { Some(e.clone()) }
}

fn read(j: &mut Judge, e: &Expr) -> Option<RealSet> {
    let plain = |parts| Some(RealSet { variable: None, parts });
    match e {
        Expr::Group(Delim::Brace, _, v) => plain(v.iter().map(point).collect()),
        // `(\infty, -\infty)` is no interval.
        Expr::Group(_, _, v)
            if v.len() == 2 && (infinite(&v[0]) == Some(true) || infinite(&v[1]) == Some(false)) =>
        {
            None
        }
        Expr::Group(open, close, v) if v.len() == 2 && *open != Delim::Angle => plain(vec![Interval {
            low: bound(&v[0]),
            low_closed: *open == Delim::Square,
            high: bound(&v[1]),
            high_closed: *close == Delim::Square,
        }]),
        Expr::Const(Const::Reals) | Expr::Sym(82) => plain(vec![whole()]),
        Expr::Const(Const::Empty) => plain(vec![]),
        Expr::Union(v) => {
            let mut parts = Vec::new();
            let mut variable = None;
            for e in v {
                let s = read(j, e)?;
                variable = variable.or(s.variable);
                parts.extend(s.parts);
            }
            Some(RealSet { variable, parts })
        }
        Expr::Inter(v) => {
            let mut sets = Vec::new();
            for e in v {
                sets.push(read(j, e)?);
            }
            intersection(j, sets)
        }
        Expr::SetMinus(p) => {
            let s = read(j, &p.0)?;
            let holes = read(j, &p.1)?;
            let outside = complement(j, holes.parts)?;
            intersection(j, vec![s, RealSet { variable: None, parts: outside }])
        }
        Expr::SetBuilder(p) => {
            let (name, domain) = match &p.0 {
                Expr::Relation(v, r) if r.len() == 1 && r[0] == Rel::In => (&v[0], Some(&v[1])),
                e => (e, None),
            };
            let mut s = read(j, &p.1)?;
            if s.variable.as_ref() != Some(name) {
                return None;
            }
            s.variable = None;
            match domain {
                None | Some(Expr::Sym(82)) | Some(Expr::Const(Const::Reals)) => Some(s),
                _ => None,
            }
        }
        Expr::Relation(v, r) => inequality(j, v, r),
        Expr::List(sep, v) => {
            let mut sets = Vec::new();
            for e in v {
                // Intervals joined by commas or `and` are a list, by `or` a union.
                let relation = is_inequality(e) || matches!(e, Expr::Relation(_, r) if r[0] == Rel::In);
                if !relation && *sep != Sep::Or {
                    return None;
                }
                sets.push(read(j, e)?);
            }
            let variable = sets.iter().find_map(|s| s.variable.clone());
            if sets.iter().any(|s| s.variable != variable) {
                return None;
            }
            if *sep == Sep::And {
                return intersection(j, sets);
            }
            let parts = sets.iter().flat_map(|s| s.parts.clone()).collect();
            // `x > 0, x < 5` would say nothing if a comma meant `or`.
            if *sep == Sep::Comma
                && matches!(&merge(j, Vec::clone(&parts))?[..], [i] if i.low.is_none() && i.high.is_none())
            {
                return intersection(j, sets);
            }
            Some(RealSet { variable, parts })
        }
        _ => None,
    }
}

fn whole() -> Interval {
    Interval { low: None, low_closed: false, high: None, high_closed: false }
}

fn point(e: &Expr) -> Interval {
    Interval { low: Some(e.clone()), low_closed: true, high: Some(e.clone()), high_closed: true }
}

/// A chain of comparisons in one variable, as a set.
fn inequality(j: &mut Judge, v: &[Expr], r: &[Rel]) -> Option<RealSet> {
    if r.len() == 1 && r[0] == Rel::In {
        let mut s = read(j, &v[1])?;
        s.variable = Some(v[0].clone());
        return Some(s);
    }
    if v.len() == 2
        && let Some(s) = absolute(j, v, r[0])
    {
        return Some(s);
    }
    // The variable: a bare name among the sides, whose neighbours are bounds.
    let at = if v.len() == 2 {
        match (is_variable(&v[0]), is_variable(&v[1])) {
            (true, false) => 0,
            (false, true) => 1,
            _ => return linear(j, v, r[0]),
        }
    } else if v.len() == 3 && is_variable(&v[1]) {
        1
    } else {
        return None;
    };
    let variable = v[at].clone();
    let mut s = whole();
    for (k, rel) in r.iter().enumerate() {
        // Read with the variable on the left.
        let (other, rel) = if k == at { (&v[k + 1], *rel) } else { (&v[k], rel.flip()?) };
        if other.any(&mut |e| *e == variable) {
            return None;
        }
        match rel {
            Rel::Lt | Rel::Le => {
                s.high = bound(other);
                s.high_closed = rel == Rel::Le && s.high.is_some();
            }
            Rel::Gt | Rel::Ge => {
                s.low = bound(other);
                s.low_closed = rel == Rel::Ge && s.low.is_some();
            }
            Rel::Ne if r.len() == 1 => {
                let parts = complement(j, vec![point(other)])?;
                return Some(RealSet { variable: Some(variable), parts });
            }
            _ => return None,
        }
    }
    if r.len() == 2 && (s.low.is_none() || s.high.is_none()) && !v.iter().any(|e| infinite(e).is_some()) {
        return None; // `0 > r ≤ 1`: not a chain in one direction
    }
    Some(RealSet { variable: Some(variable), parts: vec![s] })
}

/// `|f| < c` as `-c < f < c`, `|f| > c` as `f < -c` or `f > c`, for a constant `c > 0`.
fn absolute(j: &mut Judge, v: &[Expr], rel: Rel) -> Option<RealSet> {
    let (f, c, rel) = match v {
        [Expr::Func(Func::Abs, f), c] if c.is_constant() => (&f[0], c, rel),
        [c, Expr::Func(Func::Abs, f)] if c.is_constant() => (&f[0], c, rel.flip()?),
        _ => return None,
    };
    if !rel.is_order() || number(c)? <= 0.0 {
        return None;
    }
    let above = read(j, &Expr::Relation(vec![f.clone(), Expr::neg(c.clone())], vec![rel.flip()?]))?;
    let below = read(j, &Expr::Relation(vec![f.clone(), c.clone()], vec![rel]))?;
    if matches!(rel, Rel::Lt | Rel::Le) {
        return intersection(j, vec![above, below]);
    }
    let parts = above.parts.into_iter().chain(below.parts).collect();
    Some(RealSet { variable: above.variable, parts })
}

fn is_variable(e: &Expr) -> bool {
    matches!(e, Expr::Sym(_))
        || matches!(e, Expr::Opaque(_, v) if v.iter().any(|x| matches!(x, Expr::Sym(_))))
}

/// `a x + b < c` solved for the one symbol that occurs.
fn linear(j: &mut Judge, v: &[Expr], rel: Rel) -> Option<RealSet> {
    let mut symbol = None;
    let mut several = false;
    let diff = Expr::Add(vec![v[0].clone(), Expr::neg(v[1].clone())]);
    diff.any(&mut |e| {
        match e {
            Expr::Sym(s) if *symbol.get_or_insert(*s) != *s => several = true,
            Expr::Opaque(..) | Expr::Word(_) | Expr::Group(..) => several = true,
            _ => {}
        }
        false
    });
    let symbol = symbol.filter(|_| !several)?;
    let at = |x: u64| substitute(&diff, symbol, &Expr::int(x));
    let (d0, d1, d2) = (at(0), at(1), at(2));
    // Linear: d2 − d1 = d1 − d0, and likewise one point further out.
    let slope = Expr::Add(vec![d1.clone(), Expr::neg(d0.clone())]);
    let d5 = at(5);
    let expected = Expr::Add(vec![d0.clone(), Expr::Mul(vec![Expr::int(5), slope.clone()])]);
    let expected2 = Expr::Add(vec![d0.clone(), Expr::Mul(vec![Expr::int(2), slope.clone()])]);
    if same_value(&d5, &expected, &mut j.work) != Outcome::Equal
        || same_value(&d2, &expected2, &mut j.work) != Outcome::Equal
    {
        return None;
    }
    let sign = number(&slope)?;
    if sign == 0.0 {
        return None;
    }
    let root = Expr::neg(Expr::div(d0, slope));
    let rel = if sign < 0.0 { rel.flip()? } else { rel };
    inequality(j, &[Expr::Sym(symbol), root], &[rel])
}

/// `e` with a symbol replaced.
pub(crate) fn substitute(e: &Expr, symbol: u64, by: &Expr) -> Expr {
    e.rebuild(&mut |x| (*x == Expr::Sym(symbol)).then(|| by.clone()))
}

/// The approximate real value, variables at a fixed point.
fn number(e: &Expr) -> Option<f64> {
    let mut n = Numeric::new(Fast, Point { index: 0, common_log: false }, 20_000);
    let v = n.value(e)?;
    v.real.then(|| n.a.to_f64(&v.re))
}

fn low(i: &Interval) -> Option<f64> {
    i.low.as_ref().map_or(Some(f64::NEG_INFINITY), number)
}

fn high(i: &Interval) -> Option<f64> {
    i.high.as_ref().map_or(Some(f64::INFINITY), number)
}

/// In ascending order, with parts that touch or overlap joined and empty parts dropped.
fn merge(j: &mut Judge, parts: Vec<Interval>) -> Option<Vec<Interval>> {
    if parts.len() == 1 {
        return Some(parts);
    }
    let mut keyed = Vec::with_capacity(parts.len());
    for p in parts {
        keyed.push((low(&p)?, high(&p)?, p));
    }
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.2.low_closed.cmp(&a.2.low_closed)));
    let mut out: Vec<(f64, f64, Interval)> = Vec::new();
    for (lo, hi, p) in keyed {
        if let Some((_, end, q)) = out.last_mut() {
            let touch = (lo - *end).abs() <= 1e-9 * (1.0 + lo.abs()) && {
                let same = match (&p.low, &q.high) {
                    (Some(x), Some(y)) => same_value(x, y, &mut j.work) == Outcome::Equal,
                    _ => false,
                };
                same && (p.low_closed || q.high_closed)
            };
            let apart = (lo - *end).abs() <= 1e-9 * (1.0 + lo.abs());
            if touch || lo < *end && !apart {
                if hi > *end || touch && hi >= *end {
                    q.high_closed = if (hi - *end).abs() < 1e-12 {
                        q.high_closed || p.high_closed
                    } else {
                        p.high_closed
                    };
                    q.high = p.high;
                    *end = hi;
                }
                continue;
            }
        }
        out.push((lo, hi, p));
    }
    Some(out.into_iter().map(|o| o.2).collect())
}

/// What lies outside the parts.
fn complement(j: &mut Judge, parts: Vec<Interval>) -> Option<Vec<Interval>> {
    let parts = merge(j, parts)?;
    let mut out = Vec::new();
    let mut start: Option<(Option<Expr>, bool)> = Some((None, false));
    for p in parts {
        if let (Some((low, low_closed)), Some(end)) = (start.take(), p.low) {
            out.push(Interval { low, low_closed, high: Some(end), high_closed: !p.low_closed });
        }
        start = p.high.map(|h| (Some(h), !p.high_closed));
    }
    if let Some((low, low_closed)) = start {
        out.push(Interval { low, low_closed, high: None, high_closed: false });
    }
    Some(out)
}

/// The common part, by De Morgan.
fn intersection(j: &mut Judge, sets: Vec<RealSet>) -> Option<RealSet> {
    let variable = sets.iter().find_map(|s| s.variable.clone());
    let mut outside = Vec::new();
    for s in sets {
        outside.extend(complement(j, s.parts)?);
    }
    Some(RealSet { variable, parts: complement(j, outside)? })
}
