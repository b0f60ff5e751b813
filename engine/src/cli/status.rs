//! `pipeline status`: where the stages of a manifest stand; without one, what runs now.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use super::common::{CacheArgs, DeviceArgs, ManifestArgs};
use super::plan::looking;
use super::{CliError, Host};
use crate::history::{self, Fate, Run, StageHistory, Standing};
use crate::kind::Registry;
use crate::run::Force;
use crate::run::predict::{Forecast, predict};
use crate::store::Store;
use crate::ui::table::Table;
use crate::ui::{self, text};

/// How many runs are looked through for what is running or has failed.
const RUNS_READ: usize = 20;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The manifest; without one, every run in progress is shown.
    manifest: Option<PathBuf>,
    /// Override a value, as in `run`.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Runs the command.
pub fn run(args: &Args, registry: &Registry, host: &Host) -> Result<ExitCode, CliError> {
    let store = Store::open_read_only(&args.cache.cache);
    match &args.manifest {
        Some(manifest) => {
            let cache = &args.cache;
            let manifest = ManifestArgs { manifest: manifest.clone(), sets: args.sets.clone() };
            of_manifest(&manifest, cache, &store, registry, args.device.devices(host)?)
        }
        None => of_machine(&store),
    }
}

fn of_machine(store: &Store) -> Result<ExitCode, CliError> {
    let runs = store.runs_dir();
    let mut any = false;
    for id in history::ids(&runs).into_iter().take(RUNS_READ) {
        let Ok(summary) = history::summary(&runs, &id) else { continue };
        if summary.standing != Standing::Running {
            continue;
        }
        any = true;
        let run = history::load(&runs, &id)?;
        ui::out(format!("{id}: {} ({})", summary.experiment, summary.manifest));
        for (name, stage) in &run.stages {
            if let Some(words) = under_way(stage) {
                ui::out(format!("  {name}  {words}"));
            }
        }
    }
    if !any {
        ui::out("nothing is running");
    }
    Ok(ExitCode::SUCCESS)
}

fn of_manifest(
    manifest: &ManifestArgs,
    cache: &CacheArgs,
    store: &Store,
    registry: &Registry,
    devices: Vec<String>,
) -> Result<ExitCode, CliError> {
    let plan = manifest.load(registry)?;
    cache.hint(&plan);
    let predictions = predict(&plan, store, &looking(Vec::new(), Force::None, devices))?;
    let history = latest(store, &plan.experiment.name);
    let mut table = Table::new(&["STAGE", "STATE", "DETAIL"]);
    for prediction in &predictions {
        let name = &plan.stages[prediction.index].name;
        let (run, stage) = history.get(name).map_or((None, None), |(run, stage)| (Some(run), Some(stage)));
        let alive = run.is_some_and(|run| run.summary.standing == Standing::Running);
        let (state, detail) = match (&prediction.forecast, stage) {
            (Forecast::Cached, stage) => {
                let took = stage.and_then(|stage| stage.seconds).map(text::seconds);
                ("done", took.map_or(String::new(), |took| format!("took {took}")))
            }
            (_, Some(stage)) if alive && under_way(stage).is_some() => {
                ("running", under_way(stage).unwrap_or_default())
            }
            (Forecast::Broken(error), _) => ("broken", error.message.clone()),
            (_, Some(StageHistory { fate: Fate::Failed(error), .. })) => {
                let why = error.message.lines().next().unwrap_or_default();
                ("failed", format!("{why} (`pipeline log {name}`)"))
            }
            (_, Some(StageHistory { fate: Fate::Started { .. }, .. })) => {
                ("killed", "its run was killed; `run` carries on".to_owned())
            }
            (_, Some(StageHistory { fate: Fate::Stopped, .. })) => ("stopped", "`run` carries on".to_owned()),
            (Forecast::Run(reason), _) => ("to run", reason.to_string()),
            (Forecast::IfChanged(names), _) => ("waiting", format!("for {}", names.join(", "))),
        };
        table.row([name.clone(), state.to_owned(), detail]);
    }
    ui::out(table);
    Ok(ExitCode::SUCCESS)
}

/// What each stage of an experiment did in the latest run that has anything to say of it.
fn latest(store: &Store, experiment: &str) -> HashMap<String, (std::sync::Arc<Run>, StageHistory)> {
    let runs = store.runs_dir();
    let mut latest = HashMap::new();
    for id in history::ids(&runs).into_iter().take(RUNS_READ) {
        if !history::summary(&runs, &id).is_ok_and(|summary| summary.experiment == experiment) {
            continue;
        }
        let Ok(run) = history::load(&runs, &id) else { continue };
        let run = std::sync::Arc::new(run);
        for (name, stage) in &run.stages {
            // Being served from the store tells nothing new; an earlier run tells how long it took.
            if !matches!(stage.fate, Fate::Cached | Fate::Skipped { .. }) {
                latest.entry(name.clone()).or_insert_with(|| (run.clone(), stage.clone()));
            }
        }
    }
    latest
}

fn under_way(stage: &StageHistory) -> Option<String> {
    match &stage.fate {
        Fate::Started { progress, since } => {
            let now = jiff::Timestamp::now();
            let ran = text::seconds(now.duration_since(*since).as_secs_f64());
            Some(match progress {
                Some((done, total, unit)) => format!("{done}/{total} {unit}, for {ran}"),
                None => format!("for {ran}"),
            })
        }
        Fate::Waiting { holder } => Some(format!("waits for {holder}")),
        _ => None,
    }
}
