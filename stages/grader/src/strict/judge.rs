//! The comparison of two parsed answers, by what kind of object each is.

use super::ast::{Const, Delim, Expr, Rel, Sep};
use super::identity::{Outcome, Work, agrees_rounded, rounds_to, same_value};
use super::{lists, matrix, relations, sets, text};
use crate::reason::Reason;

/// Deepest nesting of comparisons.
const MAX_DEPTH: usize = 24;

/// One comparison of two answers: the work left and the rule that decided last.
pub(crate) struct Judge {
    pub work: Work,
    pub reason: Reason,
    depth: usize,
}

impl Judge {
    /// A comparison with an allowance of work.
    pub fn new(work: Work) -> Judge {
        Judge { work, reason: Reason::Kind, depth: 0 }
    }

    /// Notes the deciding rule and passes the verdict on.
    pub fn by(&mut self, reason: Reason, equal: bool) -> bool {
        self.reason = reason;
        equal
    }

    /// Whether two answers are the same.
    pub fn same(&mut self, a: &Expr, b: &Expr) -> bool {
        self.work.left = self.work.left.saturating_sub(20);
        if self.depth >= MAX_DEPTH || self.work.left == 0 {
            self.work.spent = true;
            return false;
        }
        if a == b {
            return true;
        }
        self.depth += 1;
        let equal = self.dispatch(a, b);
        self.depth -= 1;
        equal
    }

    fn dispatch(&mut self, a: &Expr, b: &Expr) -> bool {
        use Expr::*;
        if is_scalar(a) && is_scalar(b) {
            return self.scalar(a, b);
        }
        match (a, b) {
            // A percentage is one only where it is written.
            (Percent(x), Percent(y)) => return self.same(x, y),
            (Percent(_), o) | (o, Percent(_)) if is_scalar(o) => return self.by(Reason::Unit, false),
            // Degrees at the top are a unit; inside a formula they are π/180.
            (Degree(x), Degree(y)) => return self.same(x, y),
            (Degree(x), o) | (o, Degree(x)) if is_scalar(o) => {
                return self.scalar(x, o) || self.scalar(&Degree(x.clone()), o);
            }
            (WithUnit(x, u), WithUnit(y, v)) => {
                if u.ambiguous.is_some() && v.ambiguous.is_some() || text::same_unit(&u.text, &v.text) {
                    if !text::same_unit(&u.text, &v.text) {
                        return self.by(Reason::Unit, false);
                    }
                    return self.same(x, y);
                }
                return match text::conversion(&u.text, &v.text) {
                    Some((n, d)) => {
                        let scaled = Mul(vec![(**x).clone(), Expr::div(Expr::int(n), Expr::int(d))]);
                        self.same(&scaled, y)
                    }
                    None => self.by(Reason::Unit, false),
                };
            }
            (WithUnit(_, u), Degree(_)) | (Degree(_), WithUnit(_, u)) if !text::is_degree(&u.text) => {
                return self.by(Reason::Unit, false);
            }
            (WithUnit(x, u), o) | (o, WithUnit(x, u)) => return self.unit(x, u, o),
            (Based(d, p), Based(e, q)) => {
                let equal = p == q && d.trim_start_matches('0') == e.trim_start_matches('0');
                return self.by(Reason::Numeric, equal);
            }
            // A numeral without its base: the same digits.
            (Based(d, _), Num(n)) | (Num(n), Based(d, _)) => {
                let digits = n.as_u64().map(|v| v.to_string());
                let equal = digits.as_deref() == Some(d.trim_start_matches('0'));
                return self.by(Reason::Numeric, equal);
            }
            _ => {}
        }
        let empty = |e: &Expr| *e == Const(super::ast::Const::Empty) || text::says_empty(e);
        if empty(a) && empty(b) {
            return self.by(Reason::Set, true);
        }
        if let Some(equal) = sets::compare(self, a, b) {
            return equal;
        }
        if let Some(equal) = relations::compare(self, a, b) {
            return equal;
        }
        if let Some(equal) = matrix::compare(self, a, b) {
            return equal;
        }
        if let Some(equal) = lists::compare(self, a, b) {
            return equal;
        }
        match (a, b) {
            (Ratio(x, c), Ratio(y, d)) => {
                if *c && *d {
                    let equal = x.len() == y.len() && x.iter().zip(y).all(|(p, q)| self.same(p, q));
                    return self.by(Reason::Numeric, equal);
                }
                x.len() == y.len()
                    && x.len() >= 2
                    && (1..x.len()).all(|k| {
                        let p = Expr::div(x[k].clone(), x[0].clone());
                        let q = Expr::div(y[k].clone(), y[0].clone());
                        self.scalar(&p, &q)
                    })
            }
            (Ratio(x, _), o) | (o, Ratio(x, _)) if x.len() == 2 && is_scalar(o) && !is_name(&x[0]) => {
                let q = Expr::div(x[0].clone(), x[1].clone());
                self.scalar(&q, o)
            }
            // `x: 5`
            (Ratio(x, false), o) | (o, Ratio(x, false)) if x.len() == 2 && is_name(&x[0]) => {
                self.same(&x[1], o)
            }
            _ if text::is_text(a) || text::is_text(b) => {
                let equal = text::same_text(self, a, b);
                self.by(Reason::Text, equal)
            }
            _ => {
                let equal = same_value(a, b, &mut self.work) == Outcome::Equal;
                if equal { self.by(Reason::Symbolic, true) } else { self.by(Reason::Kind, false) }
            }
        }
    }

    /// Two values.
    pub fn scalar(&mut self, a: &Expr, b: &Expr) -> bool {
        let constant = matches!((a, b), (Expr::Num(_), Expr::Num(_))) || a.is_constant() && b.is_constant();
        self.reason = if constant { Reason::Numeric } else { Reason::Symbolic };
        match same_value(a, b, &mut self.work) {
            Outcome::Equal => true,
            _ => {
                let w = &mut self.work;
                constant && (rounds_to(a, b, w) || rounds_to(b, a, w) || agrees_rounded(a, b, w))
            }
        }
    }

    /// A value with a unit against something without.
    fn unit(&mut self, value: &Expr, unit: &super::ast::Unit, other: &Expr) -> bool {
        if let Some(letter) = unit.ambiguous {
            let product = Expr::Mul(vec![value.clone(), Expr::Sym(letter)]);
            if other.any(&mut |e| matches!(e, Expr::Sym(_))) {
                return self.same(&product, other)
                    || value.any(&mut |e| matches!(e, Expr::Sym(_))) && self.same(value, other);
            }
        }
        if matches!(other, Expr::Word(_) | Expr::Phrase(_) | Expr::Percent(_)) {
            return self.by(Reason::Kind, false);
        }
        let equal = self.same(value, other);
        let reason = if equal && self.reason != Reason::Kind { self.reason } else { Reason::Unit };
        self.by(reason, equal)
    }
}

/// Whether `e` is a plain value: nothing that has parts to be compared one by one.
pub(crate) fn is_scalar(e: &Expr) -> bool {
    use Expr::*;
    match e {
        Num(_) | Sym(_) => true,
        Const(c) => !matches!(c, self::Const::Empty | self::Const::Reals),
        Neg(a) => is_scalar(a),
        Div(p) | Pow(p) => is_scalar(&p.0) && is_scalar(&p.1),
        Add(v) | Mul(v) | Func(_, v) | Opaque(_, v) => v.iter().all(is_scalar),
        // An angle inside a formula.
        Degree(_) => false,
        _ => false,
    }
}

/// The delimiters of a tuple-like group.
pub(crate) fn tuple(e: &Expr) -> Option<(Delim, Delim, &[Expr])> {
    match e {
        Expr::Group(o, c, v) if *o != Delim::Brace => Some((*o, *c, v)),
        _ => None,
    }
}

/// A name such as `x`, `f(x)`, `AB`, `a_1`, `(x, y)`, `\angle A`: what an answer may be called.
pub(crate) fn is_name(e: &Expr) -> bool {
    use Expr::*;
    match e {
        Sym(_) | Word(_) | Opaque(..) => true,
        Const(c) => matches!(c, self::Const::E | self::Const::I),
        Func(super::ast::Func::Det, _) => true,
        Mul(v) | Group(_, _, v) | Ratio(v, _) | Func(_, v) | Phrase(v) | List(Sep::Comma, v) => {
            v.iter().all(is_name)
        }
        Div(p) => is_name(&p.0) && is_name(&p.1),
        // `P-value`
        Add(v) => matches!(&v[..], [Sym(_), Neg(w)] if matches!(**w, Word(_))),
        Pow(p) => {
            is_name(&p.0) && (matches!(&p.1, Neg(one) if **one == Expr::int(1)) || matches!(p.1, Sym(84)))
        }
        _ => false,
    }
}

/// `=` or `≈`.
pub(crate) fn is_equality(r: Rel) -> bool {
    matches!(r, Rel::Eq | Rel::Approx)
}
