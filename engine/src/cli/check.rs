//! `pipeline check`: is everything in a manifest right?

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::CliError;
use crate::kind::Registry;
use crate::manifest;
use crate::plan::Plan;
use crate::ui;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The manifests (TOML).
    #[arg(required = true, value_name = "MANIFEST")]
    manifests: Vec<PathBuf>,
    /// Override a value, as for `run`.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Print the result as JSON, with the line and column of each problem.
    #[arg(long)]
    json: bool,
}

/// Checks each manifest and says what is wrong. Exit code 2 if anything is.
pub fn run(args: &Args, registry: &Registry) -> Result<ExitCode, CliError> {
    let mut all_right = true;
    let mut results = Vec::new();
    for path in &args.manifests {
        match manifest::load(path, &args.sets, registry) {
            Ok(plan) if args.json => results.push(summary_json(&plan)),
            Ok(plan) => ui::out(summary(&plan)),
            Err(errors) => {
                all_right = false;
                if args.json {
                    results.push(errors.json());
                } else {
                    ui::note(errors.render(std::io::stderr().is_terminal(), 100));
                }
            }
        }
    }
    if args.json {
        ui::out(format!("{:#}", json!(results)));
    }
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn kinds(plan: &Plan) -> BTreeSet<&str> {
    plan.stages.iter().map(|stage| stage.kind.name).collect()
}

fn summary(plan: &Plan) -> String {
    let count = |count: usize, noun: &str| ui::text::counted(count, noun);
    let mut parts = vec![count(plan.stages.len(), "stage")];
    if !plan.experiment.arms.is_empty() {
        parts.push(count(plan.experiment.arms.len(), "arm"));
    }
    let kinds: Vec<&str> = kinds(plan).into_iter().collect();
    format!("{}: in order; {} ({})", plan.experiment.manifest.display(), parts.join(", "), kinds.join(", "))
}

fn summary_json(plan: &Plan) -> serde_json::Value {
    json!({
        "manifest": plan.experiment.manifest,
        "problems": [],
        "name": plan.experiment.name,
        "digest": plan.experiment.digest,
        "arms": plan.experiment.arms.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "stages": plan.stages.iter().map(|stage| &stage.name).collect::<Vec<_>>(),
        "kinds": kinds(plan),
    })
}
