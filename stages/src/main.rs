//! The `pipeline` binary: the engine's command line with every stage kind, and the commands that need
//! a library of `stages`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let host = engine::cli::Host { devices: lm::device::gpus };
    engine::cli::main(stages::registry(), host, stages::commands::all())
}
