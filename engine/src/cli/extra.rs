//! Commands that the binary adds to the engine's own: parsed, listed in `--help` and completed
//! like these.

use std::fmt;
use std::process::ExitCode;

use clap::{ArgMatches, Parser};

use super::CliError;

/// What runs a command once its arguments are parsed.
type Runner = Box<dyn Fn(&ArgMatches) -> Result<ExitCode, CliError>>;

/// A command of the binary's own. Its arguments are a struct that derives [`clap::Parser`], whose
/// `#[command(name = "…")]` names the command and whose doc comment becomes its help.
pub struct ExtraCommand {
    pub(super) definition: clap::Command,
    run: Runner,
}

impl ExtraCommand {
    /// A command with the arguments `Args`. Errors of `run` are printed, and give the exit code.
    pub fn new<Args: Parser + 'static>(run: fn(Args) -> Result<ExitCode, CliError>) -> Self {
        let parse = move |matches: &ArgMatches| match Args::from_arg_matches(matches) {
            Ok(args) => run(args),
            Err(error) => error.exit(),
        };
        Self { definition: Args::command(), run: Box::new(parse) }
    }

    /// The name that the user types.
    pub fn name(&self) -> &str {
        self.definition.get_name()
    }

    pub(super) fn run(&self, matches: &ArgMatches) -> Result<ExitCode, CliError> {
        (self.run)(matches)
    }
}

impl fmt::Debug for ExtraCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtraCommand").field(&self.name()).finish()
    }
}
