//! What training cost: parameters trained, updates, tokens, where the time went, and the share of
//! what the paper spent; from the `summary.json` that `train` leaves beside its metrics. And how fast
//! evaluations generated, from their `timing.json`.

use engine::kind::{Inputs, StageCtx, StageError};
use engine::ui::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arms::{self, Arm, Names};
use crate::metrics::Summary;

/// What the paper spent on each arm, for comparison.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Updates of the parameters.
    pub updates: Option<f64>,
    /// Answers generated to learn from.
    pub rollouts: Option<f64>,
    /// Answers generated for one update, where the number of updates is not known.
    pub rollouts_per_update: Option<f64>,
    /// Tokens generated to learn from.
    pub generated_tokens: Option<f64>,
}

/// One training run's cost.
#[derive(Debug, PartialEq, Serialize)]
pub struct Cost {
    label: String,
    parameters: String,
    updates: u64,
    /// Tokens generated for learning.
    generated: String,
    /// Tokens generated per second of generation.
    rate: String,
    took: String,
    /// Activity and its share of the time in percent, the largest first.
    shares: Vec<(String, u32)>,
    /// What was spent as a share of the paper's, in words.
    budget: String,
}

/// How fast an evaluation generated.
#[derive(Debug, PartialEq, Serialize)]
pub struct Speed {
    label: String,
    samples: u64,
    tokens: String,
    took: String,
    rate: String,
}

/// The costs of the runs whose metrics lie in a folder with a summary, in the order of the arms.
pub fn gather(
    ctx: &StageCtx,
    inputs: &Inputs,
    arms: &[Arm],
    budget: &Budget,
) -> Result<Vec<Cost>, StageError> {
    let mut labels: Vec<&String> = inputs.0.keys().collect();
    arms::sort(&mut labels, arms);
    let mut costs = Vec::new();
    let names = Names::of(&labels, arms);
    for label in labels {
        if let Some(summary) = Summary::read(&ctx.input(&inputs.0[label])?)? {
            costs.push(cost(names.show(label), &summary, budget));
        }
    }
    Ok(costs)
}

fn cost(label: String, summary: &Summary, budget: &Budget) -> Cost {
    let total: f64 = summary.seconds.values().sum();
    let mut shares: Vec<(String, u32)> = summary
        .seconds
        .iter()
        .map(|(activity, seconds)| (activity.clone(), (100.0 * seconds / total).round() as u32))
        .filter(|(_, share)| *share > 0)
        .collect();
    shares.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
    let rollout = summary.seconds.get("rollout").copied().filter(|seconds| *seconds > 0.0);
    let rate = summary.generated_tokens.zip(rollout).map(|(tokens, seconds)| tokens / seconds);
    let each = summary.rollouts.map(|rollouts| rollouts / summary.updates as f64);
    let parts = [
        ("updates", Some(summary.updates as f64), budget.updates),
        ("rollouts", summary.rollouts, budget.rollouts),
        ("rollouts of an update", each, budget.rollouts_per_update),
        ("generated tokens", summary.generated_tokens, budget.generated_tokens),
    ];
    let budget = parts.into_iter().filter_map(|(what, spent, paper)| {
        Some(format!("{} % of the {what}", share(spent? / paper.filter(|paper| *paper > 0.0)?)))
    });
    Cost {
        label,
        parameters: grouped(summary.trained_parameters),
        updates: summary.updates,
        generated: summary.generated_tokens.map(|tokens| grouped(tokens as u64)).unwrap_or_default(),
        rate: rate.map(|rate| grouped(rate.round() as u64)).unwrap_or_default(),
        took: text::seconds(total),
        shares,
        budget: budget.collect::<Vec<_>>().join(", "),
    }
}

/// What is read of `timing.json`.
#[derive(Deserialize)]
struct Timing {
    samples: u64,
    tokens: f64,
    seconds: f64,
    tokens_per_second: Option<f64>,
}

/// The speed of the evaluations whose timings are given, in the order of the arms.
pub fn speeds(ctx: &StageCtx, inputs: &Inputs, arms: &[Arm]) -> Result<Vec<Speed>, StageError> {
    let mut labels: Vec<&String> = inputs.0.keys().collect();
    arms::sort(&mut labels, arms);
    let mut speeds = Vec::new();
    let names = Names::of(&labels, arms);
    for label in labels {
        let path = ctx.input(&inputs.0[label])?;
        let path = if path.is_dir() { path.join("timing.json") } else { path };
        let text = std::fs::read_to_string(&path).map_err(|error| StageError::io(&path, error))?;
        let timing: Timing = serde_json::from_str(&text)
            .map_err(|error| StageError::input(format!("{}: {error}", path.display())))?;
        speeds.push(Speed {
            label: names.show(label),
            samples: timing.samples,
            tokens: grouped(timing.tokens as u64),
            took: text::seconds(timing.seconds),
            rate: timing.tokens_per_second.map(|rate| grouped(rate.round() as u64)).unwrap_or_default(),
        });
    }
    Ok(speeds)
}

/// A share in percent, with two digits that tell something.
fn share(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 10.0 { format!("{percent:.0}") } else { format!("{percent:.2}") }
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
    fn costs_have_shares_rates_and_budgets() {
        let summary: Summary = serde_json::from_str(
            r#"{"updates":20,"trained_parameters":1234567,"method":"lora","generated_tokens":180000,
                "seconds":{"update":30,"rollout":90,"grading":0.1}}"#,
        )
        .unwrap();
        let budget = Budget {
            updates: Some(100.0),
            rollouts: Some(5.0),
            rollouts_per_update: Some(256.0),
            generated_tokens: Some(9e6),
        };
        let cost = cost("LoRA".into(), &summary, &budget);
        assert_eq!((cost.rate.as_str(), cost.took.as_str()), ("2\u{202f}000", "2 min 0 s"));
        assert_eq!(cost.parameters, "1\u{202f}234\u{202f}567");
        assert_eq!(cost.shares, [("rollout".to_owned(), 75), ("update".to_owned(), 25)]);
        assert_eq!(cost.budget, "20 % of the updates, 2.00 % of the generated tokens");
        let each = Budget { rollouts_per_update: Some(256.0), ..Budget::default() };
        let summary = Summary { rollouts: Some(1280.0), ..summary };
        assert_eq!(super::cost("LoRA".into(), &summary, &each).budget, "25 % of the rollouts of an update");
        assert_eq!(grouped(7), "7");
    }
}
