//! `pipeline completions`: tab completion for a shell.

use std::process::ExitCode;

use super::CliError;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell. For bash: `source <(pipeline completions bash)`.
    shell: clap_complete::Shell,
}

/// Prints the completion script.
pub fn run(args: &Args, mut definition: clap::Command) -> Result<ExitCode, CliError> {
    clap_complete::generate(args.shell, &mut definition, "pipeline", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
