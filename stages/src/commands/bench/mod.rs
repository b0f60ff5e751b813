//! `pipeline bench`: speed and memory on this machine, and whether a device agrees with the CPU.

mod admission;
mod check;
mod generate;
#[cfg(feature = "cuda")]
mod passes;
mod rollouts;
mod shape;
mod train;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use engine::cli::{CliError, ExtraCommand};

/// Measure generation and training on a device, or check a device against the CPU.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure prefill and decoding with random prompts of equal length that never stop early.
    Generate(generate::Generate),
    /// Measure what it costs sequences that decode when a prompt joins them: steps before, at and after.
    Admission(admission::Admission),
    /// Measure updates of a training run: milliseconds, tokens per second, memory.
    Train(train::Train),
    /// Compare gradients of training's pass beside burn, and of that through burn, with f32. The exit code is 1
    /// if they disagree.
    #[cfg(feature = "cuda")]
    Passes(passes::Passes),
    /// Measure whole updates of reinforcement learning: rollouts, their grading, the update, memory.
    RolloutStep(rollouts::RolloutStep),
    /// Hold generation on a device to the CPU and to itself: tokens, log-probabilities, adapters, and that
    /// no sample depends on others. The exit code is 1 if anything is amiss.
    Check(check::Check),
}

/// The command.
pub fn command() -> ExtraCommand {
    ExtraCommand::new(main)
}

fn main(args: Args) -> Result<ExitCode, CliError> {
    let (result, fine) = match args.what {
        What::Generate(args) => (args.run()?, true),
        What::Admission(args) => (args.run()?, true),
        What::Train(args) => (args.run()?, true),
        What::RolloutStep(args) => (args.run()?, true),
        #[cfg(feature = "cuda")]
        What::Passes(args) => {
            let result = args.run()?;
            let fine = result["agree"] == true;
            (result, fine)
        }
        What::Check(args) => args.run()?,
    };
    let _ = writeln!(std::io::stdout(), "{result}");
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
