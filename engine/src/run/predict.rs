//! What a run would do, found without doing any of it. Nothing is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use rayon::prelude::*;

use super::attempt::servable;
use super::board::{Board, Known, State, referenced_paths};
use super::reason::{Reason, Reasons};
use super::resolve::{Resolved, Resolver};
use super::{RunError, checks, pins, select};
use crate::key::{Key, KeyParts};
use crate::kind::StageError;
use crate::plan::{Plan, Source};
use crate::run::Options;
use crate::store::Store;
use crate::store::record::Record;

/// What a run would do with a stage.
#[derive(Debug, Clone)]
pub enum Forecast {
    /// Serve it from the store.
    Cached,
    /// Compute it.
    Run(Reason),
    /// Compute it if what these stages put out is not what it was; they run before it.
    IfChanged(Vec<String>),
    /// Fail before it starts.
    Broken(StageError),
}

/// A stage with its forecast.
#[derive(Debug, Clone)]
pub struct Prediction {
    /// Index into the plan.
    pub index: usize,
    /// What a run would do.
    pub forecast: Forecast,
    /// Its key, if that is known before the run.
    pub key: Option<Key>,
    /// What its key is made of, if it would run and that is known.
    pub parts: Option<Box<KeyParts>>,
    /// Where its inputs lie, as far as they exist; empty for what is cached.
    pub inputs: BTreeMap<String, PathBuf>,
}

enum Looked {
    Hit(Box<Record>),
    Miss(Resolved),
    Broken(StageError),
}

/// Predicts a run with these options; only targets, force and devices matter.
///
/// # Errors
/// Unknown stages, too few GPUs, an unreadable lock file.
pub fn predict(plan: &Plan, store: &Store, options: &Options) -> Result<Vec<Prediction>, RunError> {
    let selected = select::selected(plan, &options.targets)?;
    let forced = select::forced(plan, &options.force, &selected)?;
    checks::gpus(plan, &selected, options.devices.len())?;
    let pins = pins::read(&pins::lock_path(&plan.experiment.manifest))?;
    let resolver = Resolver::new(plan, &selected, store, !options.devices.is_empty(), pins);
    let paths = referenced_paths(plan);
    let mut board = Board::new(plan.dependencies(), &selected);
    let mut reasons = Reasons::new(store, plan);
    let mut records: BTreeMap<usize, Box<Record>> = BTreeMap::new();
    let mut found: BTreeMap<usize, (Forecast, Option<Key>)> = BTreeMap::new();
    let mut parts: HashMap<usize, Box<KeyParts>> = HashMap::new();
    loop {
        let wave = board.take_wave();
        if wave.is_empty() {
            break;
        }
        let look_up = |index: &usize| {
            let resolved = match resolver.resolve(*index, |dep| board.known(dep).cloned()) {
                Ok(resolved) => resolved,
                Err(error) => return Looked::Broken(error),
            };
            if forced[*index] || !plan.stages[*index].cache {
                return Looked::Miss(resolved);
            }
            match store.lookup(&resolved.key).ok().flatten().and_then(servable) {
                Some(record) => Looked::Hit(Box::new(record)),
                None => Looked::Miss(resolved),
            }
        };
        let looked: Vec<Looked> = wave.par_iter().map(look_up).collect();
        for (index, looked) in wave.into_iter().zip(looked) {
            match looked {
                Looked::Hit(record) => {
                    board.set_done(index, Known::of(&record, &paths[index]), false);
                    found.insert(index, (Forecast::Cached, Some(record.key)));
                    records.insert(index, record);
                }
                Looked::Miss(resolved) => {
                    let reason = match store.holder(&resolved.key) {
                        Some(holder) => Reason::Running(holder),
                        None => reasons.why(&plan.stages[index], &resolved.parts, forced[index]),
                    };
                    found.insert(index, (Forecast::Run(reason), Some(resolved.key)));
                    parts.insert(index, Box::new(resolved.parts));
                    board.set_failed(index);
                }
                Looked::Broken(error) => {
                    found.insert(index, (Forecast::Broken(error), None));
                    board.set_failed(index);
                }
            }
        }
    }
    for index in (0..plan.stages.len()).filter(|index| board.state(*index) == State::Skipped) {
        found.insert(index, (behind(plan, index, forced[index], &mut reasons), None));
    }
    missing_intermediates(plan, store, &board, &records, &mut found);
    let inputs = |index: usize, forecast: &Forecast| match forecast {
        Forecast::Cached => BTreeMap::new(),
        _ => existing_inputs(plan, store, index, &records),
    };
    Ok(found
        .into_iter()
        .map(|(index, (forecast, key))| Prediction {
            inputs: inputs(index, &forecast),
            parts: parts.remove(&index),
            index,
            forecast,
            key,
        })
        .collect())
}

/// The forecast of a stage behind others that run.
fn behind(plan: &Plan, index: usize, forced: bool, reasons: &mut Reasons) -> Forecast {
    let stage = &plan.stages[index];
    if forced {
        return Forecast::Run(Reason::Forced);
    }
    if !stage.cache {
        return Forecast::Run(Reason::Uncached);
    }
    if reasons.is_new(&stage.name) {
        return Forecast::Run(Reason::New);
    }
    Forecast::IfChanged(stage.depends_on.iter().map(|dep| plan.stages[*dep].name.clone()).collect())
}

/// A cached stage whose content is gone is computed again if its content is needed: because it was
/// asked for itself, or because a stage that runs reads it.
fn missing_intermediates(
    plan: &Plan,
    store: &Store,
    board: &Board,
    records: &BTreeMap<usize, Box<Record>>,
    found: &mut BTreeMap<usize, (Forecast, Option<Key>)>,
) {
    let mut needed: BTreeSet<usize> = BTreeSet::new();
    for index in (0..plan.stages.len()).rev() {
        let Some((forecast, _)) = found.get_mut(&index) else { continue };
        if let (Forecast::Cached, Some(record)) = (&*forecast, records.get(&index))
            && (needed.contains(&index) || board.is_last(index))
            && store.check_content(record).is_err()
        {
            *forecast = Forecast::Run(Reason::Gone);
        }
        if matches!(forecast, Forecast::Run(_)) {
            needed.extend(&plan.stages[index].depends_on);
        }
    }
    // Name in each "if changed" only what may change: stages that run.
    let uncertain: BTreeSet<String> = found
        .iter()
        .filter(|(_, (forecast, _))| {
            matches!(forecast, Forecast::Run(_) | Forecast::IfChanged(_) | Forecast::Broken(_))
        })
        .map(|(index, _)| plan.stages[*index].name.clone())
        .collect();
    for (forecast, _) in found.values_mut() {
        if let Forecast::IfChanged(names) = forecast {
            names.retain(|name| uncertain.contains(name));
        }
    }
}

fn existing_inputs(
    plan: &Plan,
    store: &Store,
    index: usize,
    records: &BTreeMap<usize, Box<Record>>,
) -> BTreeMap<String, PathBuf> {
    let locate = |source: &Source| match source {
        Source::Path(path) => path.exists().then(|| path.clone()),
        Source::Stage { index, path } => {
            let record = records.get(index)?;
            match record.entries.iter().find(|entry| entry.path == *path) {
                Some(entry) => Some(store.blob_path(&entry.digest)).filter(|blob| blob.exists()),
                None => Some(store.existing_view(record)?.join(path)).filter(|path| path.exists()),
            }
        }
    };
    let inputs = plan.stages[index].inputs.iter();
    inputs.filter_map(|(reference, source)| Some((reference.clone(), locate(source)?))).collect()
}
