//! What training cost: parameters trained, updates, and where the time went, from the
//! `summary.json` that `train` leaves beside its metrics.

use std::collections::BTreeMap;

use engine::kind::{Inputs, StageCtx, StageError};
use serde::{Deserialize, Serialize};

use crate::arms::{Arm, arm_of};

/// What is read of `summary.json`.
#[derive(Deserialize)]
struct Summary {
    updates: u64,
    trained_parameters: u64,
    #[serde(default)]
    seconds: BTreeMap<String, f64>,
}

/// One run's cost.
#[derive(Debug, PartialEq, Serialize)]
pub struct Cost {
    label: String,
    parameters: String,
    updates: u64,
    minutes: String,
    /// Activity and its share of the time in percent, the largest first.
    shares: Vec<(String, u32)>,
}

/// The costs of the runs whose metrics lie in a folder with a summary, in the order of the arms.
pub fn gather(ctx: &StageCtx, inputs: &Inputs, arms: &[Arm]) -> Result<Vec<Cost>, StageError> {
    let mut costs = Vec::new();
    for (label, input) in &inputs.0 {
        let path = ctx.input(input)?.join("summary.json");
        // A bare metrics file, or a kind that writes no summary: nothing to tell.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let summary: Summary =
            serde_json::from_str(&text).map_err(|e| StageError::input(format!("{}: {e}", path.display())))?;
        let place = arms.iter().position(|arm| arm.name == arm_of(label));
        costs.push((place.unwrap_or(arms.len()), cost(label, arms, &summary)));
    }
    costs.sort_by_key(|(place, _)| *place);
    Ok(costs.into_iter().map(|(_, cost)| cost).collect())
}

fn cost(label: &str, arms: &[Arm], summary: &Summary) -> Cost {
    let arm = arm_of(label);
    let name = arms.iter().find(|known| known.name == arm).map_or(arm, Arm::label);
    let total: f64 = summary.seconds.values().sum();
    let mut shares: Vec<(String, u32)> = summary
        .seconds
        .iter()
        .map(|(activity, seconds)| (activity.clone(), (100.0 * seconds / total).round() as u32))
        .filter(|(_, share)| *share > 0)
        .collect();
    shares.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
    Cost {
        label: label.replacen(arm, name, 1),
        parameters: grouped(summary.trained_parameters),
        updates: summary.updates,
        minutes: format!("{:.1}", total / 60.0),
        shares,
    }
}

/// `1234567` → `1 234 567`, with narrow no-break spaces.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_shares_and_grouped_numbers() {
        let summary: Summary = serde_json::from_str(
            r#"{"updates":20,"trained_parameters":1234567,"method":"lora","seconds":{"update":30,"rollout":90,"grading":0.1}}"#,
        )
        .unwrap();
        let arms = [Arm { name: "lora".into(), label: "LoRA".into() }];
        let cost = cost("lora,seed=1", &arms, &summary);
        assert_eq!((cost.label.as_str(), cost.minutes.as_str()), ("LoRA,seed=1", "2.0"));
        assert_eq!(cost.parameters, "1\u{202f}234\u{202f}567");
        assert_eq!(cost.shares, [("rollout".to_owned(), 75), ("update".to_owned(), 25)]);
        assert_eq!(grouped(7), "7");
    }
}
