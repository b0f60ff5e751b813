//! What a finished training leaves behind.

use std::fs;
use std::path::Path;

use engine::kind::{StageCtx, StageError};
use serde_json::{Value, json};
use trainer::Outcome;

use super::Train;
use crate::model::{OpenModel, save_model};

/// Writes the trained model or adapter, the curves and a summary.
pub fn write(train: &Train, ctx: &StageCtx, opened: &OpenModel, outcome: &Outcome) -> Result<(), StageError> {
    let current = outcome.trainee.current();
    match &current.adapter {
        Some(adapter) => {
            let base = opened.checkpoint.config().architecture.model_type();
            trainer::adapter_io::write(&ctx.out().join("adapter"), adapter, base)
                .map_err(StageError::environment)?;
        }
        None => save_model(&current.model, opened, &ctx.out().join("model"))?,
    }
    write_lines(&ctx.out().join("metrics.jsonl"), &outcome.metrics)?;
    write_lines(&ctx.out().join("timing.jsonl"), &outcome.timing)?;
    let summary = json!({
        "updates": outcome.step,
        "trained_parameters": outcome.trainee.len(),
        "method": serde_json::to_value(&train.method).map_err(StageError::environment)?["type"],
        "seconds": seconds(&outcome.timing),
    });
    let path = ctx.out().join("summary.json");
    fs::write(&path, format!("{summary:#}\n")).map_err(|error| StageError::io(&path, error))
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
        for (activity, seconds) in line.iter().filter(|(name, _)| *name != "step") {
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
    fn activities_are_summed_without_the_step() {
        let timing = [r#"{"step":1,"rollout":1.5,"update":1.0}"#, r#"{"step":2,"rollout":0.5}"#];
        assert_eq!(seconds(&timing.map(str::to_owned)), json!({"rollout": 2.0, "update": 1.0}));
    }
}
