//! The `pipeline` binary: the engine's command line with every stage kind, and `grade`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|command| command == "grade") {
        return stages::commands::grade::main(args);
    }
    engine::cli::main(stages::registry(), engine::cli::Host { devices: lm::device::gpus })
}
