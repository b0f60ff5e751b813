//! Equality of two parsed strings: `str(a) == str(b)`, `a.equals(b)`, `simplify(a - b) == 0`,
//! `|lhs − rhs|` of relations, numbers to 1e-4, matrices to three decimals.

use super::complex::C;
use super::eval::{Evaluator, Value};
use super::expr::{Arena, Id, Node, Object};
use super::{l2s, latex, python, wide};
use crate::qwen::equal::close;

/// Points at which two expressions must agree.
const POINTS: u32 = 5;

/// Multiple of the error bound that counts as no difference.
const SLACK: f64 = 24.0;

/// The same for expressions with floats and symbols, whose coefficients must be the same floats.
const FLOAT_SLACK: f64 = 0.18;

/// Whether sympy would find two strings equal.
pub fn symbolic_equal(a: &str, b: &str) -> bool {
    let mut arena = Arena::with_room_for(a.len() + b.len());
    let (_, a) = parse(a, &mut arena);
    let (_, b) = parse(b, &mut arena);
    objects_equal(&mut arena, &a, &b)
}

/// The parser that read a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parser {
    /// `sympy.parsing.latex.parse_latex`
    Latex,
    /// `sympy.parsing.sympy_parser.parse_expr`
    Python,
    /// `latex2sympy2.latex2sympy`
    L2s,
    /// None: the string stays a string.
    Text,
}

/// Which parser reads `s`: the first that does wins, and each tries it with `\\` as `\` first.
pub fn parser_of(s: &str) -> Parser {
    parse(s, &mut Arena::default()).0
}

fn parse(s: &str, arena: &mut Arena) -> (Parser, Object) {
    type Parse = fn(&str, &mut Arena) -> Option<Object>;
    let parsers: [(Parser, Parse); 3] = [
        (Parser::Latex, latex::parse_latex),
        (Parser::Python, python::parse_expr),
        (Parser::L2s, l2s::latex2sympy),
    ];
    let single = s.contains("\\\\").then(|| s.replace("\\\\", "\\"));
    for (name, parser) in parsers {
        for text in [single.as_deref(), Some(s)].into_iter().flatten() {
            let (nodes, args) = (arena.nodes.len(), arena.args.len());
            if let Some(object) = parser(text, arena) {
                return (name, object);
            }
            arena.nodes.truncate(nodes);
            arena.args.truncate(args);
        }
    }
    (Parser::Text, Object::Text(s.to_string()))
}

fn objects_equal(arena: &mut Arena, a: &Object, b: &Object) -> bool {
    match (a, b) {
        (&Object::Expr(a), &Object::Expr(b)) => expressions_equal(arena, a, b),
        (&Object::Rel(_, a, b), &Object::Rel(_, c, d)) => relations_equal(arena, (a, b), (c, d)),
        (Object::Bool(a), Object::Bool(b)) => a == b,
        (Object::Chain(a), Object::Chain(b)) => a == b && *a != 0,
        (Object::Text(a), Object::Text(b)) => {
            a == b
                || match (sympified(arena, a), sympified(arena, b)) {
                    (Some(a), Some(b)) => numbers_close(arena, a, b),
                    _ => false,
                }
        }
        // `a.equals(b)` reads a text as sympy would; `N` does on either side.
        (&Object::Expr(a), Object::Text(b)) => {
            printed(arena, a).is_some_and(|s| s == *b)
                || sympified(arena, b).is_some_and(|b| expressions_equal(arena, a, b))
        }
        (Object::Text(a), &Object::Expr(b)) => {
            printed(arena, b).is_some_and(|s| s == *a)
                || sympified(arena, a).is_some_and(|a| numbers_close(arena, a, b))
        }
        (Object::Tuple(a), Object::Tuple(b)) | (Object::List(a), Object::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(arena, a, b))
        }
        (Object::Set(a), Object::Set(b)) => sets_equal(arena, a, b),
        (
            Object::Matrix { cols: c, plain: p, entries: a },
            Object::Matrix { cols: d, plain: q, entries: b },
        ) => {
            // Only written-out matrices are rounded.
            let rounded = *p && *q;
            c == d
                && a.len() == b.len()
                && a.iter().zip(b).all(|(&a, &b)| entries_equal(arena, a, b, rounded))
        }
        _ => false,
    }
}

/// `str()` of a plain integer.
fn printed(arena: &Arena, id: Id) -> Option<String> {
    match arena.nodes[id as usize] {
        Node::Num(n) if n == n.trunc() && n.abs() < 9e15 => Some(format!("{n}")),
        Node::Neg(inner) => printed(arena, inner).map(|s| format!("-{s}")),
        _ => None,
    }
}

/// The expression that sympy reads from a text.
fn sympified(arena: &mut Arena, text: &str) -> Option<Id> {
    match python::sympify(text, arena)? {
        Object::Expr(id) => Some(id),
        _ => None,
    }
}

/// `a.equals(b)`, or both are numbers that agree to 1e-4.
fn expressions_equal(arena: &Arena, a: Id, b: Id) -> bool {
    let mut eval = Evaluator::new(arena);
    if !eval.symbolic(a) && !eval.symbolic(b) {
        return numbers_equal(arena, a, b);
    }
    let slack = if eval.float(a) || eval.float(b) { FLOAT_SLACK } else { SLACK };
    (0..POINTS).all(|point| {
        eval.at(point, a.max(b));
        match (eval.again(a), eval.again(b)) {
            (Value::Number { z: x, err: ex }, Value::Number { z: y, err: ey }) => {
                (x - y).norm() <= slack * (ex + ey)
            }
            _ => false,
        }
    })
}

fn numbers_equal(arena: &Arena, a: Id, b: Id) -> bool {
    let mut eval = Evaluator::new(arena);
    eval.at(0, a.max(b));
    match (eval.again(a), eval.again(b)) {
        (Value::Number { z: x, err: ex }, Value::Number { z: y, err: ey }) => {
            (x - y).norm() <= SLACK * (ex + ey) || (real(x, ex) && real(y, ey) && close(x.re, y.re))
        }
        _ => wide_close(arena, a, b),
    }
}

/// `float(N(a))` and `float(N(b))` agree to 1e-4.
fn numbers_close(arena: &Arena, a: Id, b: Id) -> bool {
    let mut eval = Evaluator::new(arena);
    if eval.symbolic(a) || eval.symbolic(b) {
        return false;
    }
    eval.at(0, a.max(b));
    match (eval.again(a), eval.again(b)) {
        (Value::Number { z: x, err: ex }, Value::Number { z: y, err: ey }) => {
            real(x, ex) && real(y, ey) && close(x.re, y.re)
        }
        _ => wide_close(arena, a, b),
    }
}

fn wide_close(arena: &Arena, a: Id, b: Id) -> bool {
    match (wide::evaluate(arena, a), wide::evaluate(arena, b)) {
        (Some(a), Some(b)) => a.close(b),
        _ => false,
    }
}

fn real(z: C, err: f64) -> bool {
    z.im.abs() <= SLACK * err
}

fn relations_equal(arena: &mut Arena, (a, b): (Id, Id), (c, d): (Id, Id)) -> bool {
    let minus = arena.push(Node::Neg(b));
    let left = arena.push(Node::Add(a, minus));
    let minus = arena.push(Node::Neg(d));
    let right = arena.push(Node::Add(c, minus));
    let mut eval = Evaluator::new(arena);
    (0..POINTS).all(|point| {
        eval.at(point, right);
        match (eval.again(left), eval.again(right)) {
            (Value::Number { z: x, err: ex }, Value::Number { z: y, err: ey }) => {
                (x.norm() - y.norm()).abs() <= SLACK * (ex + ey)
            }
            _ => false,
        }
    })
}

/// Python's `==` between elements: equal value, and a float only equals a float.
fn identical(arena: &mut Arena, a: &Object, b: &Object) -> bool {
    match (a, b) {
        (&Object::Expr(a), &Object::Expr(b)) => {
            let mut eval = Evaluator::new(arena);
            if eval.float(a) != eval.float(b) {
                return false;
            }
            (0..POINTS).all(|point| {
                eval.at(point, a.max(b));
                match (eval.again(a), eval.again(b)) {
                    (Value::Number { z: x, err: ex }, Value::Number { z: y, err: ey }) => {
                        (x - y).norm() <= SLACK * (ex + ey)
                    }
                    _ => false,
                }
            })
        }
        (&Object::Rel(p, a, b), &Object::Rel(q, c, d)) => {
            p == q
                && identical(arena, &Object::Expr(a), &Object::Expr(c))
                && identical(arena, &Object::Expr(b), &Object::Expr(d))
        }
        _ => objects_equal(arena, a, b),
    }
}

fn sets_equal(arena: &mut Arena, a: &[Object], b: &[Object]) -> bool {
    let mut inside = |x: &Object, set: &[Object]| set.iter().any(|y| identical(arena, x, y));
    a.iter().all(|x| inside(x, b)) && b.iter().all(|x| inside(x, a))
}

/// Entries equal as expressions, or (if `rounded`) as numbers of three decimals.
fn entries_equal(arena: &Arena, a: Id, b: Id, rounded: bool) -> bool {
    let mut eval = Evaluator::new(arena);
    let numeric = !eval.symbolic(a) && !eval.symbolic(b);
    if !numeric {
        return expressions_equal(arena, a, b);
    }
    eval.at(0, a.max(b));
    match (eval.again(a), eval.again(b)) {
        (Value::Number { z: x, err: ex }, Value::Number { z: y, err: ey }) => {
            let round = |v: f64| (v * 1e3).round_ties_even();
            (x - y).norm() <= SLACK * (ex + ey)
                || (rounded && x.is_real() && y.is_real() && round(x.re) == round(y.re))
        }
        _ => false,
    }
}
