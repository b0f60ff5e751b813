//! The `pipeline` binary: the engine's command line with every stage kind.

use std::process::ExitCode;

fn main() -> ExitCode {
    engine::cli::main(stages::registry(), engine::cli::Host { devices: lm::device::gpus })
}
