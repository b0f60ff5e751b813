//! `pipeline plan`: what `run` would do and why. Writes nothing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::common::{CacheArgs, DeviceArgs, ManifestArgs};
use super::{CliError, Host};
use crate::kind::{Access, Registry};
use crate::plan::Plan;
use crate::run::predict::{Forecast, Prediction, predict};
use crate::run::reason::Reason;
use crate::run::{Force, Options};
use crate::store::Store;
use crate::ui::table::Table;
use crate::ui::{self, text};

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Stages to have, with what they depend on; all if none.
    targets: Vec<String>,
    /// As in `run`.
    #[arg(long, value_name = "STAGE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    force: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Print a JSON line per stage.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args, registry: &Registry, host: &Host) -> Result<ExitCode, CliError> {
    let plan = args.manifest.load(registry)?;
    args.cache.hint(&plan);
    let store = Store::open_read_only(&args.cache.cache);
    let options = looking(args.targets.clone(), super::run::force(&args.force), args.device.devices(host)?);
    let predictions = predict(&plan, &store, &options)?;
    let device = options.devices.first().map_or("cpu", String::as_str);
    if args.json {
        predictions.iter().for_each(|prediction| ui::out(json(&plan, prediction, device)));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["STAGE", "KIND", "FORECAST", "WHY"]);
    for prediction in &predictions {
        let stage = &plan.stages[prediction.index];
        let (word, why) = words(&prediction.forecast);
        table.row([stage.name.clone(), stage.kind.name.to_owned(), word.to_owned(), why]);
    }
    ui::out(&table);
    let attempts: Vec<String> = predictions.iter().filter_map(|one| last_attempt(&plan, one)).collect();
    if !attempts.is_empty() {
        ui::out(format!("\nLast attempts\n{}", attempts.join("\n")));
    }
    let line = |one: &Prediction| {
        let estimate = estimate(&plan, one, device)?;
        Some(format!("  {}: {estimate}", plan.stages[one.index].name))
    };
    let estimates: Vec<String> = predictions.iter().filter_map(line).collect();
    if !estimates.is_empty() {
        ui::out(format!("\nEstimates\n{}", estimates.join("\n")));
    }
    let count = |wanted: &str| predictions.iter().filter(|one| words(&one.forecast).0 == wanted).count();
    let devices = if options.devices.is_empty() { "cpu".to_owned() } else { options.devices.join(",") };
    ui::out(format!(
        "\n{} on {devices}: {} cached, {} to run, {} to run if their inputs change{}",
        text::counted(predictions.len(), "stage"),
        count("cached"),
        count("run"),
        count("if changed"),
        ["running", "broken"]
            .map(|word| match count(word) {
                0 => String::new(),
                found => format!(", {found} {word}"),
            })
            .concat()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Options for a look at what a run would do.
pub fn looking(targets: Vec<String>, force: Force, devices: Vec<String>) -> Options {
    Options {
        targets,
        force,
        devices,
        keep_going: false,
        jobs: 1,
        access: Access::default(),
        allow_commands: false,
        results: PathBuf::new(),
        sets: Vec::new(),
        program: PathBuf::new(),
        grace: Duration::ZERO,
        retry_delay: Duration::ZERO,
    }
}

fn words(forecast: &Forecast) -> (&'static str, String) {
    match forecast {
        Forecast::Cached => ("cached", String::new()),
        Forecast::Run(reason @ Reason::Running(_)) => ("running", reason.to_string()),
        Forecast::Run(reason) => ("run", reason.to_string()),
        Forecast::IfChanged(names) => {
            let shown = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(3);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            ("if changed", format!("after {shown}{more}"))
        }
        Forecast::Broken(error) => ("broken", error.message.clone()),
    }
}

/// How the last attempt at a stage that runs again came to its end.
fn last_attempt(plan: &Plan, prediction: &Prediction) -> Option<String> {
    let Forecast::Run(reason) = &prediction.forecast else { return None };
    let details = reason.details();
    let name = &plan.stages[prediction.index].name;
    (!details.is_empty()).then(|| format!("  {name}: {}", details.join("; ")))
}

/// The kind's own estimate, for stages that are not cached.
fn estimate(plan: &Plan, prediction: &Prediction, device: &str) -> Option<String> {
    if matches!(prediction.forecast, Forecast::Cached | Forecast::Broken(_)) {
        return None;
    }
    plan.stages[prediction.index].stage.estimate(&prediction.inputs, device)
}

fn json(plan: &Plan, prediction: &Prediction, device: &str) -> serde_json::Value {
    let stage = &plan.stages[prediction.index];
    let (word, why) = words(&prediction.forecast);
    serde_json::json!({
        "stage": stage.name,
        "kind": stage.kind.name,
        "forecast": word,
        "why": why,
        "last_attempt": last_attempt(plan, prediction),
        "key": prediction.key,
        "estimate": estimate(plan, prediction, device),
    })
}
