//! Training metrics: `metrics.jsonl` as `train` writes it, gathered into panels of curves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use engine::kind::{Inputs, StageCtx, StageError};
use serde_json::{Map, Value};

use crate::arms::{self, Arm, Names, arm_of, axes_of, row_of};
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
    let mut labels: Vec<&str> = runs.iter().map(|(label, _)| *label).collect();
    arms::sort(&mut labels, arms);
    runs.sort_by_key(|(label, _)| labels.iter().position(|other| other == label));
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
    let rows: Vec<String> = labels.iter().map(|label| row_of(label)).collect();
    let place = Places { shown: Names::of(&rows, arms), arms: arm_names, rows: &rows };
    let panel = |metric: String| {
        let series = runs.iter().filter_map(|(label, steps)| {
            let points: Vec<(f64, f64)> =
                steps.iter().filter_map(|step| Some((step.step, *step.values.get(&metric)?))).collect();
            (!points.is_empty()).then(|| place.series(label, points))
        });
        Panel { series: series.collect(), title: title(&metric), axis: "Step" }
    };
    let mut panels: Vec<Panel> = chosen.into_iter().map(panel).collect();
    panels.extend(norms(ctx, inputs, &place)?);
    Ok(panels)
}

/// What lines look like: runs that differ in their seed only share a name, a colour and dashes.
struct Places<'a> {
    shown: Names<'a>,
    arms: Vec<&'a str>,
    rows: &'a [String],
}

impl Places<'_> {
    fn series(&self, label: &str, points: Vec<(f64, f64)>) -> Series {
        let row = row_of(label);
        let mut variants: Vec<Vec<&str>> = Vec::new();
        for axes in self.rows.iter().map(|row| axes_of(row)) {
            if !variants.contains(&axes) {
                variants.push(axes);
            }
        }
        Series {
            label: self.shown.show(&row),
            colour: self.arms.iter().position(|name| *name == arm_of(label)).unwrap_or(0),
            variant: variants.iter().position(|axes| *axes == axes_of(&row)).unwrap_or(0),
            points,
        }
    }
}

/// The length of each layer's steering vector, from the `summary.json` beside the metrics.
fn norms(ctx: &StageCtx, inputs: &Inputs, place: &Places) -> Result<Option<Panel>, StageError> {
    let mut series = Vec::new();
    for (label, input) in &inputs.0 {
        let Some(norms) = Summary::read(&ctx.input(input)?)?.and_then(|summary| summary.vector_norms) else {
            continue;
        };
        let points = norms.into_iter().enumerate().map(|(layer, norm)| (layer as f64, norm)).collect();
        series.push((label, place.series(label, points)));
    }
    series.sort_by_key(|(label, series)| (series.colour, label.to_owned()));
    let series: Vec<Series> = series.into_iter().map(|(_, series)| series).collect();
    let title = "Length of the steering vector".to_owned();
    Ok((!series.is_empty()).then_some(Panel { title, series, axis: "Layer" }))
}

/// What is read of the `summary.json` that `train` writes beside its metrics.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct Summary {
    /// Updates done.
    pub updates: u64,
    /// Numbers trained.
    pub trained_parameters: u64,
    /// Seconds by activity.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
    /// Answers generated for learning.
    #[serde(default)]
    pub rollouts: Option<f64>,
    /// Tokens generated for learning.
    #[serde(default)]
    pub generated_tokens: Option<f64>,
    /// Length of each layer's steering vector.
    #[serde(default)]
    pub vector_norms: Option<Vec<f64>>,
}

impl Summary {
    /// The summary in a folder of metrics; none for a bare metrics file, or a kind that writes none.
    pub fn read(folder: &Path) -> Result<Option<Self>, StageError> {
        let path = folder.join("summary.json");
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| StageError::input(format!("{}: {error}", path.display())))
    }
}

/// Where time went is told in a table, not in curves.
fn is_time(name: &str) -> bool {
    name.contains("seconds") || name.contains("time") || name.contains("tokens_per")
}

/// Names for people, with units, of the metrics that `train` writes; `mean_length` → `Mean length`
/// for others.
fn title(metric: &str) -> String {
    let known = match metric {
        "reward" => "Reward (mean over rollouts)",
        "loss" => "Loss",
        "entropy" => "Entropy (nats per token)",
        "length" => "Response length (tokens)",
        "held_out_loss" => "Held-out cross-entropy (nats per token)",
        "initial_held_out_loss" => "Held-out cross-entropy before training (nats per token)",
        "grad_norm" => "Gradient norm before clipping",
        "lr" => "Learning rate",
        "kl" => "KL to the reference (nats per token)",
        "approx_kl" => "KL estimator r − 1 − ln r (mean over tokens)",
        "ratio" => "Probability ratio r to the reference (mean)",
        "clip_fraction" => "Tokens clipped (share)",
        "weight" => "Weight of the tokens (mean)",
        "distance" => "Distance Δ to the reference (mean)",
        "logprob_difference" => "Log-probability, training − sampling (nats)",
        "tokens" => "Tokens learnt from (per update)",
        "truncated" => "Truncated (share of rollouts)",
        "repetitive" => "Repetitive (share of rollouts)",
        "zero_variance" => "Groups without a reward signal (number)",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
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
            assert_eq!(titles, ["Reward (mean over rollouts)", "Loss"]);
            let labels: Vec<&str> = panels[0].series.iter().map(|s| s.label.as_str()).collect();
            assert_eq!(labels, ["STEER", "LORA"]);
            assert_eq!(panels[0].series[0].points, [(1.0, -0.5), (2.0, 0.5)]);
            assert_eq!(panels[1].series.len(), 1);
            assert_eq!(panels[1].series[0].points, [(2.0, 0.25)]);
        });
    }

    /// Seeds are one line's company; learning rates are lines of their own, told apart by dashes.
    #[test]
    fn rows_have_their_own_lines_and_seeds_share_one() {
        let labels = ["a,lr=1e-6,seed=1", "a,lr=1e-6,seed=2", "a,lr=1e-5,seed=1", "b,lr=1e-5,seed=1"];
        let rows: Vec<String> = labels.iter().map(|label| row_of(label)).collect();
        let place = Places { shown: Names::of(&rows, &[]), arms: vec!["a", "b"], rows: &rows };
        let told = labels.map(|label| {
            let series = place.series(label, Vec::new());
            (series.label, series.colour, series.variant)
        });
        let expected =
            [("a · lr 1e-6", 0, 0), ("a · lr 1e-6", 0, 0), ("a · lr 1e-5", 0, 1), ("b · lr 1e-5", 1, 1)];
        assert_eq!(told, expected.map(|(label, colour, variant)| (label.to_owned(), colour, variant)));
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
