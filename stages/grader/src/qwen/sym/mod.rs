//! `symbolic_equal` of Qwen2.5-Math's `grader.py` without sympy.
//!
//! - `lexer`, `latex`: `parse_latex`
//! - `python`: `parse_expr`
//! - `l2s_lexer`, `l2s`: `latex2sympy2`
//! - `expr`, `relation`: what they build
//! - `eval`, `complex`, `wide`: numeric evaluation
//! - `compare`: equality

mod compare;
mod complex;
mod eval;
mod expr;
mod l2s;
mod l2s_lexer;
mod latex;
mod lexer;
mod python;
mod relation;
mod wide;

pub use compare::{Parser, parser_of, symbolic_equal};
