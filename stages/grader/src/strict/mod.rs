//! Strict mode: mathematical equality of two short answers, as a careful person would judge it.

#![allow(missing_docs)]
mod ast;
mod commands;
mod exact;
mod field;
mod fingerprint;
mod functions;
mod lexer;
mod norm;
mod parser;
mod primary;
mod unit;
mod words;

use crate::reason::Reason;

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
    if pred == gold {
        return v(true, Reason::Exact);
    }
    let (p, g) = (parse(pred), parse(gold));
    match (p, g) {
        (Ok(p), Ok(g)) => v(fingerprint::fingerprint(&p).0 == fingerprint::fingerprint(&g).0, Reason::Symbolic),
        _ => v(false, Reason::Unparsable),
    }
}

fn parse(text: &str) -> Result<ast::Expr, lexer::ParseError> {
    let text = norm::prepare(text);
    let toks = lexer::lex(&text, true)?;
    parser::parse(&text, toks)
}

/// How `text` is read, for debugging.
pub fn explain(text: &str) -> String {
    match parse(text) {
        Ok(e) => format!("{e:?}"),
        Err(e) => e.to_string(),
    }
}
