//! What keeps a run from beginning, found before anything runs.

use std::fs;
use std::path::Path;

use super::predict::{Forecast, predict};
use super::slots::Need;
use super::{Options, RunError};
use crate::plan::Plan;
use crate::store::{Store, may_write};

/// Programs that the manifest names run only with leave.
pub(super) fn consent(plan: &Plan, selected: &[bool], allowed: bool) -> Result<(), RunError> {
    let asking: Vec<String> = plan
        .stages
        .iter()
        .zip(selected)
        .filter(|(stage, selected)| **selected && stage.stage.needs_trust())
        .map(|(stage, _)| stage.name.clone())
        .collect();
    if asking.is_empty() || allowed { Ok(()) } else { Err(RunError::Untrusted(asking)) }
}

/// No stage needs more GPUs than there are.
pub(super) fn gpus(plan: &Plan, selected: &[bool], have: usize) -> Result<(), RunError> {
    for (stage, _) in plan.stages.iter().zip(selected).filter(|(_, selected)| **selected) {
        let need = Need::of(stage, have > 0).gpus;
        if need > have {
            return Err(RunError::TooFewGpus { stage: stage.name.clone(), need, have });
        }
    }
    Ok(())
}

/// Whether what is published can be written, asked before anything runs and without a trace.
pub(super) fn results(plan: &Plan, selected: &[bool], results: &Path) -> Result<(), RunError> {
    let root = results.join(&plan.experiment.name);
    let selected = plan.stages.iter().zip(selected).filter(|(_, selected)| **selected);
    for publish in selected.filter_map(|(stage, _)| stage.publish.as_ref()) {
        let folder = root.join(publish);
        // The nearest thing that is there decides.
        for path in folder.ancestors().map(|path| if path == Path::new("") { Path::new(".") } else { path }) {
            let wrong = |what: &str| RunError::Results { path: path.to_owned(), what: what.to_owned() };
            match fs::metadata(path) {
                Ok(meta) if !meta.is_dir() => return Err(wrong("is not a folder")),
                Ok(_) if !may_write(path) => return Err(wrong("you may not write there")),
                Ok(_) => break,
                Err(_) if fs::symlink_metadata(path).is_ok() => return Err(wrong("is a link to nothing")),
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Asks every stage that would run on a GPU whether something is in its way.
pub(super) fn obstacles(plan: &Plan, store: &Store, options: &Options) -> Result<(), RunError> {
    let Some(device) = options.devices.first() else { return Ok(()) };
    for prediction in predict(plan, store, options)? {
        let stage = &plan.stages[prediction.index];
        let runs = matches!(prediction.forecast, Forecast::Run(_) | Forecast::IfChanged(_));
        if runs
            && Need::of(stage, true).gpus > 0
            && let Some(error) = stage.stage.obstacle(&prediction.inputs, device)
        {
            return Err(RunError::Obstacle { stage: stage.name.clone(), error });
        }
    }
    Ok(())
}
