//! `pipeline init`: a commented manifest to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::CliError;
use crate::docs;
use crate::kind::Registry;
use crate::manifest;
use crate::ui;

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to write. It must not exist.
    #[arg(default_value = "experiment.toml")]
    file: PathBuf,
}

/// Writes the manifest. An existing file is never touched.
pub fn run(args: &Args, registry: &Registry) -> Result<ExitCode, CliError> {
    let path = args.file.display();
    let stem = args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = manifest::slug(&stem.unwrap_or_default());
    let text = docs::starter::starter(&name, registry);
    let mut file = match OpenOptions::new().write(true).create_new(true).open(&args.file) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CliError::usage(format!(
                "{path} exists; name another file: pipeline init NAME.toml"
            )));
        }
        Err(error) => return Err(CliError::environment(format!("{path}: {error}"))),
    };
    file.write_all(text.as_bytes()).map_err(|error| CliError::environment(format!("{path}: {error}")))?;
    ui::out(format!("wrote {path}; next: pipeline check {path}"));
    Ok(ExitCode::SUCCESS)
}
