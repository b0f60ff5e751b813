//! Commands of the binary that need a library of `stages`, beside those of the engine.
//!
//! To add one: a file with a struct that derives `clap::Parser` and a `command()`, and its line in
//! [`all`].

pub mod bench;
pub mod generate;
pub mod grade;
pub mod logits;
mod model;
pub mod report;
pub mod samples;

use engine::cli::{CliError, ExtraCommand};

/// Every command, in the order of `--help`.
pub fn all() -> Vec<ExtraCommand> {
    vec![
        report::command(),
        samples::command(),
        generate::command(),
        logits::command(),
        bench::command(),
        grade::command(),
    ]
}

/// An error of the environment, from any.
fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::environment(error.to_string())
}
