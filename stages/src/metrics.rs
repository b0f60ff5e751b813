//! Training metrics: `metrics.jsonl` as `train` writes it, gathered into panels of curves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use engine::kind::{Inputs, StageCtx, StageError};
use serde_json::{Map, Value};

use crate::arms::{Arm, arm_of};
use crate::chart::curves::{Panel, Series};
use crate::samples::read_lines;

/// The values of one training step by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Number of the step.
    pub step: f64,
    /// Values by name; those of nested tables are named `table.value`.
    pub values: BTreeMap<String, f64>,
}

/// Metrics shown first, in this order; others follow by name.
const FIRST: [&str; 6] = ["reward", "loss", "entropy", "length", "kl", "grad_norm"];

/// What a value measured before the update of its line is called: `initial_held_out_loss`.
const INITIAL: &str = "initial_";

/// Reads a metrics file, or the one in a folder. Lines without a step are numbered. Values measured
/// before a line's update become values of the step before it.
pub fn read(path: &Path) -> Result<Vec<Step>, StageError> {
    let rows: Vec<Map<String, Value>> = read_lines(path, "metrics.jsonl")?;
    let steps = rows.into_iter().enumerate().map(|(number, row)| {
        let mut values = BTreeMap::new();
        flatten("", &row, &mut values);
        let step = values.remove("step").unwrap_or(number as f64);
        Step { step, values }
    });
    let mut all = Vec::new();
    for mut step in steps {
        let names: Vec<String> =
            step.values.keys().filter(|name| name.starts_with(INITIAL)).cloned().collect();
        let before = names.into_iter().filter_map(|name| {
            let value = step.values.remove(&name)?;
            Some((name[INITIAL.len()..].to_owned(), value))
        });
        let before: BTreeMap<String, f64> = before.collect();
        if !before.is_empty() {
            all.push(Step { step: step.step - 1.0, values: before });
        }
        all.push(step);
    }
    Ok(all)
}

fn flatten(prefix: &str, row: &Map<String, Value>, values: &mut BTreeMap<String, f64>) {
    for (name, value) in row {
        match value {
            Value::Object(inner) => flatten(&format!("{prefix}{name}."), inner, values),
            other => {
                if let Some(number) = other.as_f64() {
                    values.insert(format!("{prefix}{name}"), number);
                }
            }
        }
    }
}

/// The curves of all labelled metrics files, one panel a metric. `wanted` chooses and orders the
/// metrics; empty means all but times.
pub fn panels(
    ctx: &StageCtx,
    inputs: &Inputs,
    arms: &[Arm],
    wanted: &[String],
) -> Result<Vec<Panel>, StageError> {
    let mut runs = Vec::new();
    for (label, input) in &inputs.0 {
        runs.push((label.as_str(), read(&ctx.input(input)?)?));
    }
    let order = |label: &str| {
        let place = arms.iter().position(|arm| arm.name == arm_of(label));
        place.unwrap_or(arms.len())
    };
    runs.sort_by_key(|(label, _)| order(label));
    let mut arm_names: Vec<&str> = Vec::new();
    for (label, _) in &runs {
        if !arm_names.contains(&arm_of(label)) {
            arm_names.push(arm_of(label));
        }
    }
    let names: BTreeSet<&String> =
        runs.iter().flat_map(|(_, steps)| steps).flat_map(|step| step.values.keys()).collect();
    if let Some(missing) = wanted.iter().find(|name| !names.contains(name)) {
        let known: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        return Err(StageError::input(format!("there is no metric `{missing}`"))
            .with_help(format!("the metrics are {}", known.join(", "))));
    }
    let mut chosen: Vec<String> = wanted.to_vec();
    if chosen.is_empty() {
        chosen = names.into_iter().filter(|name| !is_time(name)).cloned().collect();
        chosen.sort_by_key(|name| FIRST.iter().position(|f| name.starts_with(f)).unwrap_or(FIRST.len()));
    }
    let panel = |metric: String| {
        let series = runs.iter().filter_map(|(label, steps)| {
            let points: Vec<(f64, f64)> =
                steps.iter().filter_map(|step| Some((step.step, *step.values.get(&metric)?))).collect();
            let arm = arm_of(label);
            let known = arms.iter().find(|known| known.name == arm).map_or(arm, Arm::label);
            (!points.is_empty()).then(|| Series {
                label: label.replacen(arm, known, 1),
                colour: arm_names.iter().position(|name| *name == arm).unwrap_or(0),
                points,
            })
        });
        Panel { series: series.collect(), title: title(&metric) }
    };
    Ok(chosen.into_iter().map(panel).collect())
}

/// Where time went is told in a table, not in curves.
fn is_time(name: &str) -> bool {
    name.contains("seconds") || name.contains("time") || name.contains("tokens_per")
}

/// `mean_length` → `Mean length`.
fn title(metric: &str) -> String {
    let words = metric.replace(['_', '.'], " ");
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::kind::Input;

    fn with_runs<T>(check: impl FnOnce(&StageCtx, &Inputs, &[Arm]) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let mut paths = BTreeMap::new();
        let mut inputs = Inputs::default();
        for (label, lines) in [
            (
                "steer",
                "{\"step\":1,\"reward\":-0.5,\"loss\":null,\"time\":{\"rollout\":2}}\n{\"step\":2,\"reward\":0.5,\"loss\":0.25}",
            ),
            ("lora,seed=1", "{\"step\":1,\"reward\":0}"),
        ] {
            let folder = dir.path().join(label);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("metrics.jsonl"), lines).unwrap();
            paths.insert(label.to_owned(), folder);
            inputs.0.insert(label.to_owned(), Input::new(label));
        }
        let arms = ["steer", "lora"].map(|name| Arm { name: name.into(), label: name.to_uppercase() });
        check(&StageCtx::detached(dir.path(), dir.path(), paths), &inputs, &arms)
    }

    #[test]
    fn panels_follow_the_arms_and_leave_missing_values_out() {
        with_runs(|ctx, inputs, arms| {
            let panels = panels(ctx, inputs, arms, &[]).unwrap();
            let titles: Vec<&str> = panels.iter().map(|p| p.title.as_str()).collect();
            assert_eq!(titles, ["Reward", "Loss"]);
            let labels: Vec<&str> = panels[0].series.iter().map(|s| s.label.as_str()).collect();
            assert_eq!(labels, ["STEER", "LORA,seed=1"]);
            assert_eq!(panels[0].series[0].points, [(1.0, -0.5), (2.0, 0.5)]);
            assert_eq!(panels[1].series.len(), 1);
            assert_eq!(panels[1].series[0].points, [(2.0, 0.25)]);
        });
    }

    #[test]
    fn what_was_measured_before_the_first_update_is_step_0() {
        let dir = tempfile::tempdir().unwrap();
        let lines = "{\"step\":1,\"loss\":2,\"initial_held_out_loss\":3}\n{\"step\":2,\"held_out_loss\":1}\n";
        std::fs::write(dir.path().join("metrics.jsonl"), lines).unwrap();
        let steps = read(dir.path()).unwrap();
        assert_eq!((steps[0].step, steps[0].values["held_out_loss"]), (0.0, 3.0));
        assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
        assert_eq!(steps[1].values.len(), 1);
    }

    #[test]
    fn an_unknown_metric_is_an_error_with_the_known_ones() {
        with_runs(|ctx, inputs, arms| {
            let error = panels(ctx, inputs, arms, &["rewards".into()]).unwrap_err();
            assert_eq!(error.help.unwrap(), "the metrics are loss, reward, time.rollout");
        });
    }
}
