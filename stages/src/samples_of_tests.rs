//! Example results for the tests of charts and reports.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use crate::arms::Claim;
use crate::stats::{mcnemar_exact, wilson};
use crate::table::{Benchmark, Collapse, Comparison, Group, Row, Table};

/// An arm's row on 200 questions; the base arm has `base` right.
fn row(arm: &str, label: &str, correct: usize, base: usize, claimed: Option<f64>) -> Row {
    let n = 200;
    let versus = (arm != "base").then(|| {
        let gained = correct.saturating_sub(base) as u64 + 6;
        let delta = (correct as f64 - base as f64) / n as f64;
        Comparison {
            paired: n,
            delta,
            interval: crate::stats::Interval { low: delta - 0.06, high: delta + 0.06 },
            gained: Some(gained),
            lost: Some(6),
            mcnemar_p: Some(mcnemar_exact(gained, 6)),
            changed: Some(0.25),
            per_run: Vec::new(),
            over_runs: None,
        }
    });
    Row {
        arm: arm.into(),
        label: label.into(),
        runs: 1,
        questions: n,
        samples: n,
        correct,
        accuracy: correct as f64 / n as f64,
        interval: wilson(correct as u64, n as u64),
        interval_method: "wilson".into(),
        spread: None,
        per_run: Vec::new(),
        versus_base: versus,
        claimed: Claim { accuracy: claimed, delta: claimed.map(|c| c - 0.5), direction: None },
        mean_tokens: 31.4,
        median_tokens: 29.0,
        truncated: 0.015,
        repetitive: 0.005,
        unanswered: 0.02,
        disagreements: 1,
        collapse: Collapse {
            boxed: 0.98,
            empty: 0.005,
            looping: 0.01,
            copied: 0.0,
            distinct_2: Some(0.31),
            commonest: "7".into(),
            commonest_share: 0.085,
            commonest_right: 0.07,
        },
        seconds: 12.5,
        levels: BTreeMap::from([
            ("1".to_owned(), Group { samples: 100, correct: correct * 6 / 10 }),
            ("2".to_owned(), Group { samples: 100, correct: correct * 4 / 10 }),
        ]),
        subjects: BTreeMap::new(),
    }
}

/// Five arms on a benchmark, two on another.
pub fn example_table() -> Table {
    Table {
        base: "base".into(),
        benchmarks: vec![
            Benchmark {
                name: "word problems".into(),
                questions: 200,
                rows: vec![
                    row("base", "Base", 104, 104, Some(0.5)),
                    row("steer", "Steering vectors", 141, 104, Some(0.6)),
                    row("lora", "LoRA", 148, 104, Some(0.65)),
                    row("random", "Random reward", 101, 104, None),
                    row("prefix", "Base + “To” prefix", 139, 104, None),
                ],
            },
            Benchmark {
                name: "amc23".into(),
                questions: 200,
                rows: vec![row("base", "Base", 20, 20, None), row("steer", "Steering vectors", 31, 20, None)],
            },
        ],
        claims: json!({"source": "https://example.org/paper", "base": {"word problems": 50}}),
        deviations: json!(["8 × 8 rollouts instead of 16 × 16", "20 steps"]),
    }
}

/// Metrics of three arms, by label.
pub fn example_metrics() -> BTreeMap<String, String> {
    ["steer", "lora", "random"]
        .into_iter()
        .enumerate()
        .map(|(arm, label)| {
            let mut lines = String::new();
            for step in 1..=80 {
                let t = f64::from(step) / 80.0;
                let wave = 0.12 * (f64::from(step) * (1.7 + arm as f64)).sin();
                let gain = if label == "random" { 0.0 } else { 0.8 * (1.0 - (-4.0 * t).exp()) };
                let values = json!({
                    "step": step, "reward": gain - 0.1 + wave, "loss": 0.02 * wave,
                    "entropy": 0.9 - 0.4 * gain + 0.2 * wave, "mean_length": 30.0 + 5.0 * wave,
                    "grad_norm": 1.0 + wave.abs(), "time": {"rollout": 1.5},
                });
                let _ = writeln!(lines, "{values}");
            }
            (label.to_owned(), lines)
        })
        .collect()
}
