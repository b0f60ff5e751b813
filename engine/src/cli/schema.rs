//! `pipeline schema`: the JSON Schema of manifests.

use std::process::ExitCode;

use super::CliError;
use crate::docs;
use crate::kind::Registry;
use crate::ui;

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "For completion and checks in an editor, save it and begin a manifest with\n\
    #:schema ./manifest.schema.json")]
pub struct Args {}

/// Prints the schema.
pub fn run(_: &Args, registry: &Registry) -> Result<ExitCode, CliError> {
    ui::out(format!("{:#}", docs::schema::manifest_schema(registry)));
    Ok(ExitCode::SUCCESS)
}
