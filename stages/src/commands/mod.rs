//! Commands of the binary that need a library of `stages`, beside those of the engine.
//!
//! To add one: a file with a struct that derives `clap::Parser` and a `command()`, and its line in
//! [`all`].

pub mod grade;

use engine::cli::ExtraCommand;

/// Every command, in the order of `--help`.
pub fn all() -> Vec<ExtraCommand> {
    vec![grade::command()]
}
