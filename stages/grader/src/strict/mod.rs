//! Strict mode: mathematical equality of two short answers, as a careful person would judge it.

mod announce;
mod arith;
mod ast;
mod brackets;
mod commands;
mod elementary;
mod exact;
mod field;
mod fingerprint;
mod functions;
mod identity;
mod items;
mod judge;
mod lexer;
mod lists;
mod matrix;
mod named;
mod norm;
mod number;
mod numeric;
mod numeric_func;
mod parser;
mod primary;
mod relations;
mod rewrite;
mod series;
mod sets;
mod text;
mod unit;
mod words;

use crate::reason::Reason;
use number::Reading;

/// Verdict of the strict mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrictVerdict {
    /// Whether the answers are mathematically equal.
    pub equal: bool,
    /// The rule that decided.
    pub reason: Reason,
}

/// Whether `pred` and `gold` are the same answer.
pub fn equal(pred: &str, gold: &str) -> StrictVerdict {
    let v = |equal, reason| StrictVerdict { equal, reason };
    let (pred, gold) = (pred.trim(), gold.trim());
    if pred == gold {
        return v(true, Reason::Exact);
    }
    if pred.is_empty() || gold.is_empty() {
        return v(false, Reason::None);
    }
    if pred.len() > MAX_BYTES || gold.len() > MAX_BYTES {
        return v(squeezed(pred) == squeezed(gold), Reason::Budget);
    }
    if let (Some(p), Some(g)) = (plain_integer(pred), plain_integer(gold)) {
        return v(p == g, Reason::Numeric);
    }
    if let Some(equal) = letters(pred, gold) {
        return v(equal, Reason::Choice);
    }
    let (pt, gt) = (norm::prepare(pred), norm::prepare(gold));
    let (p, g) = (parse(&pt, Reading::Usual), parse(&gt, Reading::Usual));
    let (Ok(p), Ok(g)) = (&p, &g) else {
        let equal = squeezed(pred) == squeezed(gold) || same_tokens(&pt, &gt);
        return v(equal, Reason::Unparsable);
    };
    if connective(&pt) != connective(&gt) {
        return v(false, Reason::Kind);
    }
    if p == g {
        return v(true, Reason::Exact);
    }
    let mut work = identity::Work::new();
    let verdict = judge(p, g, &mut work);
    if verdict.equal {
        return verdict;
    }
    // Other readings of what is written ambiguously: `1,234`, `2e-3`, `1234,567`, `a/bc`.
    for reading in [Reading::Apart, Reading::Joined, Reading::Tight] {
        let other = |t: &str| if reading.differs(t) { parse(t, reading).ok() } else { None };
        let (p2, g2) = (other(&pt), other(&gt));
        for (x, y) in [(p2.as_ref(), Some(g)), (Some(p), g2.as_ref()), (p2.as_ref(), g2.as_ref())] {
            if let (Some(x), Some(y)) = (x, y) {
                let again = judge(x, y, &mut work);
                if again.equal {
                    return again;
                }
            }
        }
    }
    verdict
}

/// What joins statements that are no relations: `p \land q` is not `p \lor q`, and neither is a list.
fn connective(text: &str) -> [bool; 2] {
    let mut found = [false; 2];
    for (at, _) in text.match_indices('\\') {
        let begins = |forms: [&str; 2]| forms.iter().any(|form| text[at + 1..].starts_with(form));
        found[0] |= begins(["land", "wedge"]);
        found[1] |= begins(["lor", "vee"]);
    }
    let relations = ["=", "<", ">", "\\le", "\\ge", "\\in", "\\ne", "\\to"];
    if found != [false; 2] && relations.iter().any(|form| text.contains(form)) {
        return [false; 2];
    }
    found
}

/// An integer of up to 18 digits and nothing else.
fn plain_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || digits.len() > 18 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Longest answer read.
const MAX_BYTES: usize = 10_000;

fn judge(p: &ast::Expr, g: &ast::Expr, work: &mut identity::Work) -> StrictVerdict {
    let mut j = judge::Judge::new(work.clone());
    let mut equal = j.same(p, g);
    if !equal && let Some((p, g)) = other_letter(p, g) {
        equal = j.same(&p, &g);
    }
    if !equal && let Some((p, g)) = combinations(p, g) {
        equal = j.same(&p, &g);
    }
    let reason = if !equal && j.work.spent { Reason::Budget } else { j.reason };
    *work = j.work;
    StrictVerdict { equal, reason }
}

/// `j` or `I` for the imaginary unit and `E` for Euler's number, where the other side writes `i` or
/// `e` and knows no such letter.
fn other_letter(p: &ast::Expr, g: &ast::Expr) -> Option<(ast::Expr, ast::Expr)> {
    use ast::{Const, Expr};
    let has = |e: &Expr, x: &Expr| e.any(&mut |y| y == x);
    for (letter, constant) in [(b'j', Const::I), (b'I', Const::I), (b'E', Const::E)] {
        let (symbol, constant) = (Expr::Sym(letter as u64), Expr::Const(constant));
        let swap = |e: &Expr| sets::substitute(e, letter as u64, &constant);
        if has(p, &symbol) && !has(p, &constant) && has(g, &constant) && !has(g, &symbol) {
            return Some((swap(p), g.clone()));
        }
        if has(g, &symbol) && !has(g, &constant) && has(p, &constant) && !has(p, &symbol) {
            return Some((p.clone(), swap(g)));
        }
    }
    None
}

/// `C(n, k)` as a binomial coefficient, where the other side is no tuple that could have that name.
fn combinations(p: &ast::Expr, g: &ast::Expr) -> Option<(ast::Expr, ast::Expr)> {
    use ast::{Delim, Expr, Func};
    let pair =
        |v: &[Expr]| matches!(v, [Expr::Sym(67), Expr::Group(Delim::Paren, Delim::Paren, w)] if w.len() == 2);
    let named = |e: &Expr| e.any(&mut |x| matches!(x, Expr::Mul(v) if v.windows(2).any(pair)));
    let change = |e: &Expr| {
        e.rebuild(&mut |x| match x {
            Expr::Mul(v) => {
                let at = v.windows(2).position(pair)?;
                let Expr::Group(_, _, args) = &v[at + 1] else { return None };
                let mut factors = v.clone();
                factors.splice(at..at + 2, [Expr::Func(Func::Binom, args.clone())]);
                Some(parser::mul(factors))
            }
            _ => None,
        })
    };
    match (named(p), named(g)) {
        (true, false) if judge::is_scalar(g) => Some((change(p), g.clone())),
        (false, true) if judge::is_scalar(p) => Some((p.clone(), change(g))),
        _ => None,
    }
}

/// Multiple choice: one side is nothing but a letter A–H.
fn letters(pred: &str, gold: &str) -> Option<bool> {
    let (p, g) = (text::choice(pred), text::choice(gold));
    match (p, g) {
        (Some((a, true)), Some((b, _))) | (Some((a, _)), Some((b, true))) => {
            // Two lower-case letters are variables.
            let same = a.eq_ignore_ascii_case(&b);
            (a.is_ascii_uppercase() || b.is_ascii_uppercase()).then_some(same)
        }
        _ => None,
    }
}

/// Whether two answers that cannot be read are at least the same tokens.
fn same_tokens(p: &str, g: &str) -> bool {
    let (Ok(x), Ok(y)) = (lexer::lex(p, Reading::Usual), lexer::lex(g, Reading::Usual)) else { return false };
    let text = |s: &'_ str, t: &lexer::Token| s[t.start as usize..t.end as usize].to_owned();
    x.len() == y.len()
        && x.iter().zip(&y).all(|(a, b)| match (a.kind, b.kind) {
            (lexer::Kind::Letter(c, _), lexer::Kind::Letter(d, _)) => c == d,
            (lexer::Kind::Word, lexer::Kind::Word) | (lexer::Kind::Num, lexer::Kind::Num) => {
                text(p, a) == text(g, b)
            }
            (k, l) => k == l,
        })
}

/// Without white space and size commands, for answers that cannot be read.
fn squeezed(t: &str) -> String {
    let mut s: String = norm::prepare(t).chars().filter(|c| !c.is_whitespace()).collect();
    for gone in ["\\left", "\\right", "\\,", "\\!", "\\;", "$"] {
        s = s.replace(gone, "");
    }
    s
}

fn parse(text: &str, reading: Reading) -> Result<ast::Expr, lexer::ParseError> {
    let toks = lexer::lex(text, reading)?;
    parser::parse(text, toks, reading)
}

/// How `text` is read: the tree, or where reading failed. For debugging.
pub fn explain(text: &str) -> String {
    match parse(&norm::prepare(text), Reading::Usual) {
        Ok(e) => format!("{e:?}"),
        Err(e) => e.to_string(),
    }
}
