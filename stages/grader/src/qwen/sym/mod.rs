//! `symbolic_equal` of Qwen2.5-Math's `grader.py` without sympy.
//!
//! - [`lexer`], [`latex`]: `parse_latex`
//! - [`python`]: `parse_expr`
//! - [`lists`]: what `latex2sympy` reads beyond them: lists and matrices
//! - [`expr`], [`relation`]: what they build
//! - [`eval`], [`complex`]: numeric evaluation
//! - [`compare`]: equality

mod compare;
mod complex;
mod eval;
mod expr;
mod latex;
mod lexer;
mod lists;
mod python;
mod relation;

pub use compare::symbolic_equal;
