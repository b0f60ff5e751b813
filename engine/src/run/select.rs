//! Which stages are asked for.

use super::{Force, RunError};
use crate::plan::{Plan, PlannedStage};

/// The stages that `targets` name (see [`is_named`]), with everything they depend on. All
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

/// Whether `name` stands for the stage `instance`: it is its base name, its expanded name, or the latter
/// with axes left out, as `eval[lora]` is for `eval[lora,benchmark=math]`.
pub fn is_named(instance: &str, name: &str) -> bool {
    let parts = |text: &str| -> Option<(String, Vec<String>)> {
        let (base, axes) = text.split_once('[')?;
        let axes = axes.strip_suffix(']')?.split(',').map(|axis| axis.trim().to_owned());
        Some((base.to_owned(), axes.collect()))
    };
    match (parts(instance), parts(name)) {
        (Some((base, axes)), Some((named, wanted))) => {
            base == named && wanted.iter().all(|axis| axes.contains(axis))
        }
        (Some((base, _)), None) => base == name,
        (None, _) => instance == name,
    }
}

/// The stages of these names, see [`is_named`].
pub fn named(plan: &Plan, names: &[String]) -> Result<Vec<bool>, RunError> {
    let mut found = vec![false; plan.stages.len()];
    for name in names {
        let mut any = false;
        for (index, stage) in plan.stages.iter().enumerate() {
            if is_named(&stage.name, name) {
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

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn axes_may_be_left_out_but_not_wrong() {
        let instance = "eval[lora,benchmark=math,seed=2]";
        for name in
            ["eval", instance, "eval[lora]", "eval[seed=2]", "eval[lora, seed=2]", "eval[benchmark=math]"]
        {
            assert!(is_named(instance, name), "{name}");
        }
        for name in
            ["eval[base]", "eval[lora,seed=3]", "eva", "train[lora]", "eval[]", "eval[2]", "eval[lora"]
        {
            assert!(!is_named(instance, name), "{name}");
        }
        assert!(is_named("table", "table") && !is_named("table", "table[lora]") && !is_named("table", "tab"));
    }
}
