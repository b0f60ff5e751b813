//! What a finished training leaves behind.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use burn::tensor::Tensor;
use engine::kind::{StageCtx, StageError};
use lm::adapter::Adapter;
use lm::checkpoint::{TensorSpec, WriteOptions, write_folder};
use lm::config::FloatType;
use serde_json::{Value, json};
use trainer::Outcome;
use trainer::optim::Master;
use trainer::trainee::Current;

use super::{Method, Train};
use crate::model::{OpenModel, save_model};

/// Writes the trained model or adapter, the curves and a summary.
pub fn write(train: &Train, ctx: &StageCtx, opened: &OpenModel, outcome: &Outcome) -> Result<(), StageError> {
    let current = outcome.trainee.current();
    let name = if current.adapter.is_some() { "adapter" } else { "model" };
    save(train, &current, opened, &ctx.out().join(name))?;
    if train.masters {
        save_masters(outcome, opened, &ctx.out().join("masters"))?;
    }
    for step in &train.snapshots {
        let [from, to] = [ctx.state(), ctx.out()].map(|folder| folder.join(Train::snapshot(*step)));
        copy_folder(&from, &to)?;
    }
    write_lines(&ctx.out().join("metrics.jsonl"), &outcome.metrics)?;
    write_lines(&ctx.out().join("timing.jsonl"), &outcome.timing)?;
    let summary = json!({
        "updates": outcome.step,
        "trained_parameters": outcome.trainee.len(),
        "rollouts": train.method.rollouts().map(|each| (each.prompts * each.group) as u64 * outcome.step),
        "generated_tokens": generated(&outcome.metrics),
        "vector_norms": current.adapter.as_ref().and_then(vector_norms),
        "method": serde_json::to_value(&train.method).map_err(StageError::environment)?["type"],
        "seconds": seconds(&outcome.timing),
    });
    let path = ctx.out().join("summary.json");
    fs::write(&path, format!("{summary:#}\n")).map_err(|error| StageError::io(&path, error))
}

/// Writes a model, or the adapter on it, into a folder.
pub fn save(train: &Train, current: &Current, opened: &OpenModel, folder: &Path) -> Result<(), StageError> {
    match &current.adapter {
        Some(adapter) => {
            let base = opened.checkpoint.config().architecture.model_type();
            trainer::adapter_io::write(folder, adapter, base).map_err(StageError::environment)
        }
        None => {
            let end = match train.method {
                Method::Sft(_) | Method::Psft(_) | Method::Spft(_) => {
                    Some(opened.turn_end(train.prompt.template)?)
                }
                Method::Rloo(_) | Method::Entropy(_) => None,
            };
            save_model(&current.model, opened, end, folder)
        }
    }
}

/// Writes the f32 masters of a model that trained whole, as a checkpoint.
fn save_masters(outcome: &Outcome, opened: &OpenModel, folder: &Path) -> Result<(), StageError> {
    let config = outcome.trainee.base().config();
    let masters: HashMap<&str, &Master> =
        outcome.trainee.masters().iter().map(|master| (master.name.as_str(), master)).collect();
    let options = WriteOptions { source: Some(&opened.checkpoint), ..WriteOptions::default() };
    let bytes = |spec: &TensorSpec| {
        let master = masters.get(spec.name.as_str());
        let data = master.map(|master| master.value.clone().into_data().convert::<f32>().as_bytes().to_vec());
        Ok(data.unwrap_or_default().into())
    };
    write_folder(folder, config, &TensorSpec::all(config, FloatType::F32), &options, bytes)
        .map_err(StageError::environment)
}

/// Copies a folder of files.
fn copy_folder(from: &Path, to: &Path) -> Result<(), StageError> {
    fs::create_dir_all(to).map_err(|error| StageError::io(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| StageError::io(from, error))? {
        let path = entry.map_err(|error| StageError::io(from, error))?.path();
        let name = path.file_name().unwrap_or_default();
        fs::copy(&path, to.join(name)).map_err(|error| StageError::io(&path, error))?;
    }
    Ok(())
}

/// Euclidean length of the steering vector of each layer, the first layer first.
fn vector_norms(adapter: &Adapter) -> Option<Vec<f64>> {
    let Adapter::Bias(bias) = adapter else { return None };
    let norm = |vector: &Tensor<1>| {
        let values = vector.clone().into_data().convert::<f32>().try_into_vec::<f32>();
        let squares = values.unwrap_or_default().into_iter().map(|value| f64::from(value).powi(2));
        squares.sum::<f64>().sqrt()
    };
    Some(bias.biases.iter().map(norm).collect())
}

/// Tokens generated for learning: what rollouts cost. None where the method draws no rollouts.
fn generated(metrics: &[String]) -> Option<f64> {
    let rollouts = metrics.iter().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line.get("length")?;
        line.get("tokens")?.as_f64()
    });
    rollouts.fold(None, |sum, tokens| Some(sum.unwrap_or(0.0) + tokens))
}

fn write_lines(path: &Path, lines: &[String]) -> Result<(), StageError> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).map_err(|error| StageError::io(path, error))
}

/// Seconds by activity, summed over the updates.
fn seconds(timing: &[String]) -> Value {
    let mut sums = serde_json::Map::new();
    for line in timing {
        let Ok(Value::Object(line)) = serde_json::from_str(line) else { continue };
        // what has a dot is a part of another activity
        for (activity, seconds) in line.iter().filter(|(name, _)| *name != "step" && !name.contains('.')) {
            let before = sums.get(activity).and_then(Value::as_f64).unwrap_or(0.0);
            sums.insert(activity.clone(), json!(before + seconds.as_f64().unwrap_or(0.0)));
        }
    }
    Value::Object(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rollouts_count_as_generated() {
        let rollouts = [r#"{"step":1,"tokens":10,"length":5.0}"#, r#"{"step":2,"tokens":7,"length":3.5}"#];
        assert_eq!(generated(&rollouts.map(str::to_owned)), Some(17.0));
        assert_eq!(generated(&[r#"{"step":1,"tokens":10}"#.to_owned()]), None);
    }

    #[test]
    fn activities_are_summed_without_the_step() {
        let timing =
            [r#"{"step":1,"rollout":1.5,"update":1.0,"update.passes":0.9}"#, r#"{"step":2,"rollout":0.5}"#];
        assert_eq!(seconds(&timing.map(str::to_owned)), json!({"rollout": 2.0, "update": 1.0}));
    }
}
