//! `pipeline kinds`: what stage kinds there are, and their params.

use std::process::ExitCode;

use serde_json::json;

use super::CliError;
use crate::docs;
use crate::kind::{KindEntry, Registry};
use crate::manifest;
use crate::ui;

/// Arguments of `kinds`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The kinds to describe in full. Without any, all are listed.
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
    /// Print the params as JSON Schema.
    #[arg(long)]
    json: bool,
}

/// Prints the documentation of kinds.
pub fn run(args: &Args, registry: &Registry) -> Result<ExitCode, CliError> {
    let named: Vec<&KindEntry> =
        args.kinds.iter().map(|name| find(name, registry)).collect::<Result<_, _>>()?;
    if args.json {
        let kinds: Vec<&KindEntry> = if named.is_empty() { registry.iter().collect() } else { named };
        let kinds: Vec<_> = kinds.into_iter().map(docs::kinds::kind_json).collect();
        ui::out(format!("{:#}", json!(kinds)));
    } else if named.is_empty() {
        ui::out(docs::kinds::overview(registry).trim_end());
    } else {
        let kinds: Vec<String> = named.into_iter().map(docs::kinds::describe_kind).collect();
        ui::out(kinds.join("\n").trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn find<'r>(name: &str, registry: &'r Registry) -> Result<&'r KindEntry, CliError> {
    registry.get(name).ok_or_else(|| {
        let known = registry.iter().map(|kind| kind.name);
        CliError::usage(format!(
            "there is no stage kind `{name}`; {}",
            manifest::remedy(name, "kinds", known)
        ))
    })
}
