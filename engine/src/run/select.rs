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

fn named(plan: &Plan, names: &[String]) -> Result<Vec<bool>, RunError> {
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
            return Err(RunError::UnknownStage { name: name.clone(), near: nearest(&plan.stages, name) });
        }
    }
    Ok(found)
}

fn nearest(stages: &[PlannedStage], name: &str) -> Option<String> {
    stages
        .iter()
        .flat_map(|stage| [&stage.name, &stage.base])
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known.clone())
}
