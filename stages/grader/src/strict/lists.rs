//! Lists, sets and tuples: bare lists in any order, tuples in theirs, `±` as two values.

use super::ast::{Const, Delim, Expr, Rel, Sep};
use super::judge::{Judge, is_equality, is_name, is_scalar, tuple};
use crate::reason::Reason;

/// Longest list compared in any order.
const MAX_ITEMS: usize = 200;

/// Compares where one side is a list, a set, a tuple or a value with `±`.
pub(crate) fn compare(j: &mut Judge, a: &Expr, b: &Expr) -> Option<bool> {
    let (a, b) = (point(a), point(b));
    if let (Some(x), Some(y)) = (tuple(a), tuple(b)) {
        return Some(tuples(j, x, y));
    }
    for (t, other) in [(a, b), (b, a)] {
        if let Some((Delim::Paren | Delim::Angle, _, v)) = tuple(t)
            && is_scalar(other)
            && super::matrix::components(j, v, other)
        {
            return Some(j.by(Reason::Tuple, true));
        }
    }
    // `1 and 1/4`
    for (list, other) in [(a, b), (b, a)] {
        if let Expr::List(Sep::And, v) = list
            && let [Expr::Num(whole), Expr::Div(p)] = &v[..]
            && let (Expr::Num(n), Expr::Num(d)) = (&p.0, &p.1)
            && n.as_u64().zip(d.as_u64()).is_some_and(|(n, d)| n < d)
            && whole.as_u64().is_some()
            && is_scalar(other)
        {
            return Some(j.same(&Expr::Add(v.clone()), other));
        }
    }
    match (kind(a), kind(b)) {
        (None, None) => None,
        (Some(Kind::Set), Some(Kind::Set)) => {
            let (x, y) = (items(a), items(b));
            let equal = covered(j, &x, &y) && covered(j, &y, &x);
            Some(j.by(Reason::Set, equal))
        }
        _ => {
            // A bare list against a tuple keeps its order.
            for (list, other) in [(a, b), (b, a)] {
                if let Some((open, close, parts)) = tuple(other) {
                    // `(1, 3]` is an interval and nothing else.
                    if open != close {
                        return Some(j.by(Reason::Kind, false));
                    }
                    // `\{(1, 2)\}`, and `(\pm 1, 0)` against two points.
                    let only = match list {
                        Expr::Group(Delim::Brace, _, v) if v.len() == 1 => tuple(&v[0]).is_some(),
                        Expr::List(_, v) => has_pm(other) && v.iter().all(|e| tuple(e).is_some()),
                        _ => false,
                    };
                    if only {
                        let (x, y) = (items(list), items(other));
                        let equal =
                            unordered(j, &x, &y) || independent(other).is_some_and(|y| unordered(j, &x, &y));
                        return Some(j.by(Reason::Set, equal));
                    }
                    if kind(list) == Some(Kind::Set) {
                        return Some(j.by(Reason::Kind, false));
                    }
                    let x = items(list);
                    let parts: Vec<Expr> = parts.iter().flat_map(expand).collect();
                    let equal =
                        x.len() == parts.len() && x.iter().zip(&parts).all(|(p, q)| same_item(j, p, q));
                    return Some(j.by(Reason::Tuple, equal));
                }
            }
            let (x, y) = (items(a), items(b));
            let equal = if distinct_names(&x) != distinct_names(&y) {
                x.len() == y.len() && x.iter().zip(&y).all(|(p, q)| same_item(j, p, q))
            } else {
                unordered(j, &x, &y)
            };
            if equal {
                return Some(j.by(Reason::Set, true));
            }
            // ± signs that vary independently.
            let (x, y) = (independent(a), independent(b));
            let equal = match (x, y) {
                (None, None) => false,
                (x, y) => {
                    let (x, y) = (x.unwrap_or_else(|| items(a)), y.unwrap_or_else(|| items(b)));
                    unordered(j, &x, &y)
                }
            };
            Some(j.by(Reason::Set, equal))
        }
    }
}

/// `P(1, 2)` is the point (1, 2).
fn point(e: &Expr) -> &Expr {
    match e {
        Expr::Mul(v) => match &v[..] {
            [Expr::Sym(65..=90), g @ Expr::Group(Delim::Paren, Delim::Paren, w)] if w.len() > 1 => g,
            _ => e,
        },
        e => e,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Braces.
    Set,
    /// Items with separators, or a value with `±`.
    List,
}

fn kind(e: &Expr) -> Option<Kind> {
    match e {
        Expr::Group(Delim::Brace, _, _) | Expr::Const(Const::Empty) => Some(Kind::Set),
        Expr::List(..) => Some(Kind::List),
        e if has_pm(e) => Some(Kind::List),
        _ => None,
    }
}

pub(crate) fn has_pm(e: &Expr) -> bool {
    e.any(&mut |x| matches!(x, Expr::Pm(..)))
}

/// The items of a list or set, `±` written out with signs that go together; anything else is
/// one item.
fn items(e: &Expr) -> Vec<Expr> {
    let parts: &[Expr] = match e {
        Expr::Group(Delim::Brace, _, v) | Expr::List(_, v) => v,
        Expr::Const(Const::Empty) => &[],
        e => std::slice::from_ref(e),
    };
    let mut out = Vec::with_capacity(parts.len());
    for p in parts {
        match p {
            Expr::List(_, v) => out.extend(v.iter().flat_map(expand)),
            p => out.extend(expand(p)),
        }
    }
    out
}

fn expand(e: &Expr) -> Vec<Expr> {
    if has_pm(e) { vec![signs(e, true), signs(e, false)] } else { vec![e.clone()] }
}

/// `e` with every `±` as plus (or every one as minus).
fn signs(e: &Expr, plus: bool) -> Expr {
    e.rebuild(&mut |x| match x {
        Expr::Pm(up, x) => {
            let x = signs(x, plus);
            Some(if *up == plus { x } else { Expr::neg(x) })
        }
        _ => None,
    })
}

/// The values of a sum or tuple with two or three independent `±` terms.
fn independent(e: &Expr) -> Option<Vec<Expr>> {
    let (name, value) = match e {
        Expr::Relation(v, r) if v.len() == 2 && r[0] == Rel::Eq && is_name(&v[0]) => (Some(&v[0]), &v[1]),
        e => (None, e),
    };
    let (terms, brackets) = match value {
        Expr::Add(v) => (v, None),
        Expr::Group(open, close, v) => (v, Some((*open, *close))),
        _ => return None,
    };
    let n = terms.iter().filter(|t| has_pm(t)).count();
    if !(2..=3).contains(&n) {
        return None;
    }
    let mut out = Vec::new();
    for mask in 0..1u32 << n {
        let mut k = 0;
        let parts: Vec<Expr> = terms
            .iter()
            .map(|t| {
                if !has_pm(t) {
                    return t.clone();
                }
                k += 1;
                signs(t, mask >> (k - 1) & 1 == 0)
            })
            .collect();
        let sum = match brackets {
            Some((open, close)) => Expr::Group(open, close, parts),
            None => Expr::Add(parts),
        };
        out.push(match name {
            Some(n) => Expr::Relation(vec![n.clone(), sum], vec![Rel::Eq]),
            None => sum,
        });
    }
    Some(out)
}

/// `x = v` as a name and a value.
fn named(e: &Expr) -> (Option<&Expr>, &Expr) {
    match e {
        Expr::Relation(v, r) if r.iter().all(|r| is_equality(*r)) && v[..v.len() - 1].iter().all(is_name) => {
            (Some(&v[v.len() - 2]), &v[v.len() - 1])
        }
        e => (None, e),
    }
}

/// Whether the items carry at least two different names: then their order tells which is which.
fn distinct_names(v: &[Expr]) -> bool {
    let names: Vec<&Expr> = v.iter().filter_map(|e| named(e).0).collect();
    names.iter().any(|n| *n != names[0])
}

fn same_item(j: &mut Judge, a: &Expr, b: &Expr) -> bool {
    match (named(a), named(b)) {
        ((Some(_), _), (None, e)) | ((None, e), (Some(_), _)) if matches!(e, Expr::Relation(..)) => {
            j.same(a, b)
        }
        ((Some(_), x), (None, y)) | ((None, x), (Some(_), y)) => j.same(x, y),
        // `x = n = 3` is n = 3 under another name.
        ((Some(m), x), (Some(n), y)) if m == n => j.same(x, y),
        _ => j.same(a, b),
    }
}

/// Whether every item of `x` occurs in `y`.
fn covered(j: &mut Judge, x: &[Expr], y: &[Expr]) -> bool {
    x.len() <= MAX_ITEMS
        && y.len() <= MAX_ITEMS
        && x.iter().all(|p| y.contains(p) || y.iter().any(|q| same_item(j, p, q)))
}

/// Whether the items agree one to one in some order.
fn unordered(j: &mut Judge, x: &[Expr], y: &[Expr]) -> bool {
    if x.len() != y.len() || x.len() > MAX_ITEMS {
        return false;
    }
    let mut free: Vec<usize> = (0..y.len()).collect();
    x.iter().all(|p| match find(&free, j, p, y) {
        Some(at) => {
            free.remove(at);
            true
        }
        None => false,
    })
}

/// The place among `free` of an item of `y` that is `p`; the same tree is looked for first.
fn find(free: &[usize], j: &mut Judge, p: &Expr, y: &[Expr]) -> Option<usize> {
    free.iter().position(|&k| y[k] == *p).or_else(|| free.iter().position(|&k| same_item(j, p, &y[k])))
}

type Tuple<'a> = (Delim, Delim, &'a [Expr]);

fn tuples(j: &mut Judge, x: Tuple, y: Tuple) -> bool {
    let interval =
        x.2.len() == 2 && (x.0 != x.1 || x.0 == Delim::Square || y.0 != y.1 || y.0 == Delim::Square);
    let reason = if interval { Reason::Interval } else { Reason::Tuple };
    let equal = x.0 == y.0
        && x.1 == y.1
        && x.2.len() == y.2.len()
        && x.2.iter().zip(y.2).all(|(p, q)| same_item(j, p, q));
    j.by(reason, equal)
}
