//! Which stages are asked for.

use super::{Force, RunError};
use crate::plan::{Plan, PlannedStage};

/// The stages that `targets` name (by base or expanded name), with everything they depend on. All
/// stages if there are no targets.
pub fn selected(plan: &Plan, targets: &[String]) -> Result<Vec<bool>, RunError> {
    if targets.is_empty() {
        return Ok(vec![true; plan.stages.len()]);
    }
    let mut selected = named(plan, targets)?;
    // Dependencies come before their dependents, so one pass from the end reaches all of them.
    for index in (0..plan.stages.len()).rev() {
        if selected[index] {
            plan.stages[index].depends_on.iter().for_each(|dep| selected[*dep] = true);
        }
    }
    Ok(selected)
}

/// The selected stages that are to be computed whatever the store has.
pub fn forced(plan: &Plan, force: &Force, selected: &[bool]) -> Result<Vec<bool>, RunError> {
    let forced = match force {
        Force::None => vec![false; plan.stages.len()],
        Force::All => vec![true; plan.stages.len()],
        Force::Stages(names) => named(plan, names)?,
    };
    Ok(forced.into_iter().zip(selected).map(|(forced, selected)| forced && *selected).collect())
}

/// The stages of these base or expanded names.
pub fn named(plan: &Plan, names: &[String]) -> Result<Vec<bool>, RunError> {
    let mut found = vec![false; plan.stages.len()];
    for name in names {
        let mut any = false;
        for (index, stage) in plan.stages.iter().enumerate() {
            if stage.name == *name || stage.base == *name {
                found[index] = true;
                any = true;
            }
        }
        if !any {
            return Err(RunError::UnknownStage { name: name.clone(), help: remedy(&plan.stages, name) });
        }
    }
    Ok(found)
}

/// The stage that may have been meant: for an instance, among those of the same stage.
fn remedy(stages: &[PlannedStage], name: &str) -> String {
    let base = name.split_once('[').map_or(name, |(base, _)| base);
    let siblings: Vec<&str> =
        stages.iter().filter(|stage| stage.base == base).map(|stage| stage.name.as_str()).collect();
    if !siblings.is_empty() {
        return crate::manifest::remedy(name, "its instances", siblings);
    }
    let mut known: Vec<&str> = Vec::new();
    for stage in stages {
        if known.last() != Some(&stage.base.as_str()) {
            known.push(&stage.base);
        }
    }
    known.dedup();
    crate::manifest::remedy(base, "stages", known)
}
