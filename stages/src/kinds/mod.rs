//! One file or folder per stage kind. Kinds never import each other: artifacts are their contract.

pub mod aggregate;
pub mod chart;
pub mod command;
pub mod fetch;
pub mod grade;
pub mod synth;
pub mod tokenizer;
