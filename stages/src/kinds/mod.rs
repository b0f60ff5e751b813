//! One file or folder per stage kind. Kinds never import each other: artifacts are their contract.

pub mod aggregate;
pub mod chart;
pub mod command;
pub mod convert;
pub mod eval;
pub mod fetch;
pub mod grade;
pub mod init;
pub mod prepare;
pub mod reference;
pub mod report;
pub mod synth;
pub mod tokenizer;
pub mod train;
