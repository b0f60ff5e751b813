//! `pipeline accept`: takes a stage's last result for good although its params or its kind's code
//! have changed, when the change cannot have changed the result.

use std::process::ExitCode;

use super::common::{CacheArgs, DeviceArgs, ManifestArgs};
use super::plan::looking;
use super::{CliError, Host};
use crate::explain::Change;
use crate::history;
use crate::kind::Registry;
use crate::plan::Plan;
use crate::run::predict::{Forecast, Prediction, predict};
use crate::run::reason::Reason;
use crate::run::{Force, select};
use crate::store::Store;
use crate::ui;

/// How many earlier runs are read to find a stage's last result.
const RUNS_READ: usize = 20;

/// Arguments of `accept`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Stages whose last result still stands: `train[lora]`, or `train` for all its instances.
    #[arg(required = true)]
    stages: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Runs the command. Exit code 2 if any of the stages cannot be accepted.
pub fn run(args: &Args, registry: &Registry, host: &Host) -> Result<ExitCode, CliError> {
    let plan = args.manifest.load(registry)?;
    let store = Store::open(&args.cache.cache)?;
    let devices = args.device.devices(host)?;
    let last = history::last_keys(&store.runs_dir(), &plan.experiment.name, RUNS_READ, plan.stages.len());
    let wanted = select::named(&plan, &args.stages)?;
    let mut all_right = true;
    for index in (0..plan.stages.len()).filter(|index| wanted[*index]) {
        let name = &plan.stages[index].name;
        // Anew each time: what was accepted before may have brought this one up to date.
        let options = looking(vec![name.clone()], Force::None, devices.clone());
        let predictions = predict(&plan, &store, &options)?;
        let Some(prediction) = predictions.into_iter().find(|one| one.index == index) else { continue };
        match accept(&plan, &store, last.finished.get(name), prediction) {
            Ok(said) => ui::out(format!("{name}: {said}")),
            Err(why) => {
                all_right = false;
                ui::note(format!("{name}: {why}"));
            }
        }
    }
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn accept(
    plan: &Plan,
    store: &Store,
    last: Option<&crate::key::Key>,
    prediction: Prediction,
) -> Result<String, String> {
    let changes = match prediction.forecast {
        Forecast::Cached => return Ok("is up to date".to_owned()),
        Forecast::Run(Reason::Changed(changes)) => changes,
        Forecast::Run(Reason::New) => return Err("has no earlier result to accept".to_owned()),
        Forecast::Run(reason) => return Err(format!("would not run because of a change: {reason}")),
        Forecast::IfChanged(names) => {
            return Err(format!(
                "depends on stages that would run: accept these first ({})",
                names.join(", ")
            ));
        }
        Forecast::Broken(error) => return Err(error.message),
    };
    let may = |change: &&Change| {
        matches!(change, Change::Param { .. } | Change::CodeVersion { .. } | Change::Schema { .. })
    };
    if let Some(change) = changes.iter().find(|change| !may(change)) {
        return Err(format!("another input gives another result, so it has to run ({change})"));
    }
    let record = last.and_then(|key| store.lookup(key).ok().flatten());
    let (Some(record), Some(parts)) = (record, prediction.parts) else {
        return Err("its earlier result is not in the cache any more".to_owned());
    };
    let stage = &plan.stages[prediction.index];
    let said: Vec<String> = changes.iter().map(Change::to_string).collect();
    store.accept(&record, *parts, &stage.name).map_err(|error| error.to_string())?;
    Ok(format!("key {} stands for this one too ({})", record.key.short(), said.join("; ")))
}
