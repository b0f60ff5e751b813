//! `symbolic_equal` of Qwen2.5-Math's `grader.py` without sympy.
//!
//! - `latex`: `parse_latex`
//! - `python`: `parse_expr`
//! - `l2s`: `latex2sympy2`
//! - `expr`, `relation`: what they build
//! - `eval`, `complex`, `wide`: numeric evaluation
//! - `compare`: equality

mod compare;
mod complex;
mod eval;
mod expr;
mod l2s;
mod latex;
mod python;
mod relation;
mod wide;

pub use compare::{Parser, parser_of, symbolic_equal};
