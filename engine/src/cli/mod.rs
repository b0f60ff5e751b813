//! The command line. Each command is a file with its arguments and a `run`; only these files and
//! [`crate::ui`] print.
//!
//! Exit codes: 0 everything asked for is there; 1 a stage failed; 2 bad usage or manifest;
//! 3 the environment (cache, device) does not allow it; 130 interrupted.

mod accept;
mod cache;
mod check;
pub mod common;
mod completions;
mod diff;
mod explain;
mod extra;
mod graph;
mod init;
mod kinds;
mod log;
mod plan;
mod run;
mod runs;
mod schema;
mod status;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::history::HistoryError;
use crate::kind::Registry;
use crate::manifest::ManifestErrors;
use crate::run::RunError;
use crate::run::pins::PinsError;
use crate::store::StoreError;
use crate::ui;

pub use extra::ExtraCommand;

/// What the binary knows of the machine and the engine does not.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// The GPUs that stages can use, as `cuda:0`, `cuda:1`, …; empty without any.
    pub devices: fn() -> Vec<String>,
}

/// Declarative pipelines for language-model experiments.
#[derive(Debug, Parser)]
#[command(name = "pipeline", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 everything asked for is there; 1 a stage failed; \
2 bad usage or manifest; 3 the environment does not allow it; 130 interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring everything a manifest asks for up to date.
    Run(run::Args),
    /// Show what `run` would do and why, and do nothing.
    Plan(plan::Args),
    /// Say why a stage would run, or why it did, down to what changed.
    Explain(explain::Args),
    /// Keep a stage's result although its params or code changed, when the change cannot matter.
    Accept(accept::Args),
    /// Show where the stages of a manifest stand, or what runs now.
    Status(status::Args),
    /// Show what a stage's worker printed.
    Log(log::Args),
    /// List runs, newest first.
    Runs(runs::Args),
    /// Compare two runs: what changed, and what came of it.
    Diff(diff::Args),
    /// Check manifests and list every problem.
    Check(check::Args),
    /// Draw the stages of a manifest and what they depend on.
    Graph(graph::Args),
    /// Describe the stage kinds and their params.
    Kinds(kinds::Args),
    /// Print the JSON Schema of manifests, for editors.
    Schema(schema::Args),
    /// Write a commented manifest to begin with.
    Init(init::Args),
    /// List, verify, pin and collect what the cache holds.
    Cache(cache::Args),
    /// Print a completion script for a shell.
    Completions(completions::Args),
    /// Run one stage as a worker (internal).
    #[command(hide = true)]
    ExecStage(ExecArgs),
}

#[derive(Debug, clap::Args)]
struct ExecArgs {
    /// Standard input is the engine's event socket.
    #[arg(long)]
    attached: bool,
    /// The job file.
    job: PathBuf,
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Bad usage.
    #[error("{0}")]
    Usage(String),
    /// The machine does not allow it.
    #[error("{0}")]
    Environment(String),
    /// A manifest with problems, all of them listed.
    #[error(transparent)]
    Manifest(#[from] ManifestErrors),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run that cannot begin.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An earlier run that cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl CliError {
    /// Bad usage, with the remedy in the message.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// The machine does not allow it.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::Environment(message.into())
    }

    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Manifest(_) => 2,
            Self::History(
                HistoryError::None
                | HistoryError::Unknown(_)
                | HistoryError::Ambiguous { .. }
                | HistoryError::NoneBefore { .. },
            ) => 2,
            Self::Run(RunError::UnknownStage { .. } | RunError::Untrusted(_)) => 2,
            Self::Run(RunError::Pins(PinsError::Parse { .. })) => 2,
            Self::Environment(_) | Self::Store(_) | Self::Run(_) | Self::History(_) => 3,
        }
    }

    fn print(self) {
        match self {
            Self::Manifest(errors) => ui::note(errors.render(std::io::stderr().is_terminal(), 100)),
            other => ui::note(format!("error: {other}")),
        }
    }
}

/// The `pipeline` program: parses the command line, runs the command (one of the engine's, or one
/// of `extra`), returns the exit code.
pub fn main(registry: Registry, host: Host, extra: Vec<ExtraCommand>) -> ExitCode {
    let definition = command(&extra);
    let matches = definition.clone().get_matches();
    let chosen = matches.subcommand().and_then(|(name, of_command)| {
        Some((extra.iter().find(|command| command.name() == name)?, of_command))
    });
    let result = match chosen {
        Some((command, of_command)) => command.run(of_command),
        None => match Cli::from_arg_matches(&matches) {
            Ok(cli) => dispatch(cli.command, &registry, &host, definition),
            Err(error) => error.exit(),
        },
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            let code = error.code();
            error.print();
            ExitCode::from(code)
        }
    }
}

fn dispatch(
    command: Command,
    registry: &Registry,
    host: &Host,
    definition: clap::Command,
) -> Result<ExitCode, CliError> {
    match command {
        Command::Run(args) => run::run(&args, registry, host),
        Command::Plan(args) => plan::run(&args, registry, host),
        Command::Explain(args) => explain::run(&args, registry, host),
        Command::Accept(args) => accept::run(&args, registry, host),
        Command::Cache(args) => cache::run(&args),
        Command::Status(args) => status::run(&args, registry, host),
        Command::Log(args) => log::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => check::run(&args, registry),
        Command::Graph(args) => graph::run(&args, registry),
        Command::Kinds(args) => kinds::run(&args, registry),
        Command::Schema(args) => schema::run(&args, registry),
        Command::Init(args) => init::run(&args, registry),
        Command::Completions(args) => completions::run(&args, definition),
        Command::ExecStage(args) => Ok(crate::run::exec::main(&args.job, args.attached, registry)),
    }
}

/// The command line's definition: the engine's commands, and then the binary's own.
fn command(extra: &[ExtraCommand]) -> clap::Command {
    Cli::command().subcommands(extra.iter().map(|command| command.definition.clone()))
}
