//! Matrices and vectors: entry by entry, with scalar factors and sums worked out.

use super::ast::{Const, Delim, Expr, Func, hash_name};
use super::judge::{Judge, is_scalar};
use crate::reason::Reason;

/// Largest matrix, in nodes of its entries, whose determinant is worked out.
const MAX_NODES: usize = 100;

/// Columns and entries, row by row.
type Matrix = (usize, Vec<Expr>);

/// Compares where one side is a matrix.
pub(crate) fn compare(j: &mut Judge, a: &Expr, b: &Expr) -> Option<bool> {
    let (x, y) = (value(a), value(b));
    let equal = match (x, y) {
        (Some(x), Some(y)) => entries(j, &x, &y),
        (Some(m), None) => against(j, &m, b)?,
        (None, Some(m)) => against(j, &m, a)?,
        (None, None) => return None,
    };
    Some(j.by(Reason::Matrix, equal))
}

fn entries(j: &mut Judge, x: &Matrix, y: &Matrix) -> bool {
    x.0 == y.0 && x.1.len() == y.1.len() && x.1.iter().zip(&y.1).all(|(p, q)| j.same(p, q))
}

/// A matrix against a vector in brackets, nested lists, or a name's value.
fn against(j: &mut Judge, m: &Matrix, other: &Expr) -> Option<bool> {
    match other {
        Expr::Group(open, close, v) => {
            if *open == Delim::Square
                && let Some(n) = nested(v)
            {
                return Some(entries(j, m, &n));
            }
            if *open == Delim::Brace || open != close {
                return Some(false);
            }
            let vector = m.0 == 1 || m.0 == m.1.len();
            Some(vector && m.1.len() == v.len() && m.1.iter().zip(v).all(|(p, q)| j.same(p, q)))
        }
        e if is_scalar(e) && components(j, &m.1, e) => Some(true),
        // A 1 × 1 matrix is no number.
        Expr::Relation(..) => None,
        _ => Some(false),
    }
}

/// `3i + 4j` as the vector (3, 4).
pub(crate) fn components(j: &mut Judge, v: &[Expr], sum: &Expr) -> bool {
    let units = [Expr::Const(Const::I), Expr::Sym(b'j' as u64), Expr::Sym(b'k' as u64)];
    if !(2..=3).contains(&v.len()) || !sum.any(&mut |e| *e == units[1]) {
        return false;
    }
    let terms = v.iter().zip(units).map(|(x, u)| Expr::Mul(vec![x.clone(), u])).collect();
    j.same(&Expr::Add(terms), sum)
}

/// `[[a, b], [c, d]]` (rows of one entry lose their brackets in reading).
fn nested(rows: &[Expr]) -> Option<Matrix> {
    let mut columns = None;
    let mut out = Vec::new();
    for r in rows {
        match r {
            Expr::Group(Delim::Square, Delim::Square, v) => {
                if *columns.get_or_insert(v.len()) != v.len() {
                    return None;
                }
                out.extend(v.iter().cloned());
            }
            _ => return None,
        }
    }
    Some((columns?, out))
}

/// The matrix that `e` works out to.
fn value(e: &Expr) -> Option<Matrix> {
    match e {
        Expr::Matrix(columns, v) => Some((*columns, v.clone())),
        Expr::Neg(x) => map(value(x)?, Expr::neg),
        Expr::Pow(p) if is_transpose(&p.1) => match &p.0 {
            Expr::Group(open, close, v) if *open != Delim::Brace && open == close => {
                let (columns, entries) = nested(v).unwrap_or_else(|| (v.len(), v.clone()));
                Some(transposed(columns, entries))
            }
            base => value(base).map(|(columns, entries)| transposed(columns, entries)),
        },
        Expr::Div(p) if !is_matrix(&p.1) => map(value(&p.0)?, |e| Expr::div(e, p.1.clone())),
        Expr::Mul(v) => {
            let at = v.iter().position(is_matrix)?;
            if v.iter().filter(|e| is_matrix(e)).count() != 1 {
                return None;
            }
            let rest: Vec<Expr> =
                v.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, e)| e.clone()).collect();
            map(value(&v[at])?, |e| {
                let mut f = rest.clone();
                f.push(e);
                Expr::Mul(f)
            })
        }
        Expr::Add(v) => {
            let mut sum = value(v.first()?)?;
            for t in &v[1..] {
                let t = value(t)?;
                if t.0 != sum.0 || t.1.len() != sum.1.len() {
                    return None;
                }
                sum.1 = sum.1.into_iter().zip(t.1).map(|(p, q)| Expr::Add(vec![p, q])).collect();
            }
            Some(sum)
        }
        _ => None,
    }
}

/// The determinant of a square matrix, worked out up to three rows.
pub(crate) fn determinant(columns: usize, v: Vec<Expr>) -> Expr {
    // Each entry is written several times: nested determinants would grow without bound.
    let mut nodes = 0;
    for e in &v {
        e.any(&mut |_| {
            nodes += 1;
            nodes > MAX_NODES
        });
    }
    if nodes > MAX_NODES {
        return Expr::Func(Func::Det, vec![Expr::Matrix(columns, v)]);
    }
    let product = |ks: &[usize]| Expr::Mul(ks.iter().map(|k| v[*k].clone()).collect());
    match (columns, v.len()) {
        (1, 1) => v[0].clone(),
        (2, 4) => Expr::Add(vec![product(&[0, 3]), Expr::neg(product(&[1, 2]))]),
        (3, 9) => {
            let plus = [[0, 4, 8], [1, 5, 6], [2, 3, 7]].map(|k| product(&k));
            let minus = [[2, 4, 6], [1, 3, 8], [0, 5, 7]].map(|k| Expr::neg(product(&k)));
            Expr::Add(plus.into_iter().chain(minus).collect())
        }
        _ => Expr::Func(Func::Det, vec![Expr::Matrix(columns, v)]),
    }
}

/// `T`, `\top`, `\intercal` as an exponent.
fn is_transpose(e: &Expr) -> bool {
    let named = |n: &[u8]| *e == Expr::Sym(hash_name(n));
    *e == Expr::Sym(b'T' as u64) || named(b"top") || named(b"intercal")
}

fn transposed(columns: usize, entries: Vec<Expr>) -> Matrix {
    let rows = entries.len() / columns.max(1);
    let turned = (0..columns).flat_map(|c| (0..rows).map(move |r| r * columns + c));
    (rows, turned.map(|k| entries[k].clone()).collect())
}

fn map(m: Matrix, f: impl Fn(Expr) -> Expr) -> Option<Matrix> {
    (m.1.len() <= 400).then(|| (m.0, m.1.into_iter().map(f).collect()))
}

fn is_matrix(e: &Expr) -> bool {
    match e {
        Expr::Matrix(..) => true,
        Expr::Neg(x) => is_matrix(x),
        Expr::Pow(p) => is_transpose(&p.1) && (is_matrix(&p.0) || matches!(p.0, Expr::Group(..))),
        Expr::Div(p) => is_matrix(&p.0),
        Expr::Mul(v) | Expr::Add(v) => v.iter().any(is_matrix),
        _ => false,
    }
}
