//! What was checked on the way: how training data came about, from the `counts.json` of `prepare`, and
//! whether converted models compute the same, from the `equivalence.json` of `convert`.

use std::collections::BTreeMap;
use std::path::Path;

use engine::kind::{Inputs, StageCtx, StageError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::arms::{self, Arm, Names};

/// One training set.
#[derive(Debug, PartialEq, Serialize)]
pub struct Data {
    label: String,
    read: u64,
    train: u64,
    held_out: u64,
    /// Reason and rows, without those that stopped none.
    dropped: Vec<(String, u64)>,
    /// What of it repeats a benchmark's questions, in words.
    repeats: Vec<String>,
    boxes_added: u64,
}

/// One converted model.
#[derive(Debug, PartialEq, Serialize)]
pub struct Conversion {
    label: String,
    positions: u64,
    difference: String,
    tolerance: String,
    dtype: String,
    flips: u64,
    /// Those of the flips that rounding explains.
    ties: u64,
}

/// What is read of `counts.json`.
#[derive(Deserialize)]
struct Counts {
    read: u64,
    train: u64,
    held_out: u64,
    dropped: BTreeMap<String, u64>,
    benchmarks: BTreeMap<String, Repeated>,
    boxes_added: u64,
}

#[derive(Deserialize)]
struct Repeated {
    exact: u64,
    template: u64,
    words: u64,
    questions: u64,
}

/// What is read of `equivalence.json`.
#[derive(Deserialize)]
struct Equivalence {
    positions: u64,
    max_logit_difference: f64,
    tolerance: f64,
    serving_dtype: String,
    argmax_flips: u64,
    argmax_ties: u64,
}

/// The training sets whose counts are given.
pub fn data(ctx: &StageCtx, inputs: &Inputs) -> Result<Vec<Data>, StageError> {
    read_all(ctx, inputs, &[], "counts.json", told)
}

fn told(label: String, counts: Counts) -> Data {
    let dropped = counts.dropped.into_iter().filter(|(_, rows)| *rows > 0);
    let repeats = |(name, repeated): (String, Repeated)| {
        let Repeated { exact, template, words, questions } = repeated;
        match exact + template + words {
            0 => format!("{name}: none"),
            rows => format!(
                "{name}: {rows} rows repeat {questions} questions ({exact} exactly, {template} with other \
                 numbers, {words} by a run of words)"
            ),
        }
    };
    Data {
        label,
        read: counts.read,
        train: counts.train,
        held_out: counts.held_out,
        dropped: dropped.map(|(reason, rows)| (reason.replace('_', " "), rows)).collect(),
        repeats: counts.benchmarks.into_iter().map(repeats).collect(),
        boxes_added: counts.boxes_added,
    }
}

/// The conversions whose figures are given, in the order of the arms.
pub fn conversions(ctx: &StageCtx, inputs: &Inputs, arms: &[Arm]) -> Result<Vec<Conversion>, StageError> {
    read_all(ctx, inputs, arms, "equivalence.json", |label, found: Equivalence| Conversion {
        label,
        positions: found.positions,
        difference: format!("{:.1e}", found.max_logit_difference),
        tolerance: format!("{:.0e}", found.tolerance),
        dtype: found.serving_dtype,
        flips: found.argmax_flips,
        ties: found.argmax_ties,
    })
}

fn read_all<F: DeserializeOwned, T>(
    ctx: &StageCtx,
    inputs: &Inputs,
    arms: &[Arm],
    file: &str,
    tell: impl Fn(String, F) -> T,
) -> Result<Vec<T>, StageError> {
    let mut labels: Vec<&String> = inputs.0.keys().collect();
    arms::sort(&mut labels, arms);
    let names = Names::of(&labels, arms);
    let one = |label: &&String| Ok(tell(names.show(label), read(&ctx.input(&inputs.0[*label])?, file)?));
    labels.iter().map(one).collect()
}

fn read<F: DeserializeOwned>(path: &Path, file: &str) -> Result<F, StageError> {
    let path = if path.is_dir() { path.join(file) } else { path.to_owned() };
    let text = std::fs::read_to_string(&path).map_err(|error| StageError::io(&path, error))?;
    serde_json::from_str(&text).map_err(|error| StageError::input(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_told_by_benchmark() {
        let counts: Counts = serde_json::from_str(
            r#"{"read":20,"train":9,"held_out":2,"dropped":{"contaminated_words":4,"duplicate":0,"too_long":5},
                "benchmarks":{"gsm8k":{"exact":1,"template":0,"words":3,"questions":2},
                "math500":{"exact":0,"template":0,"words":0,"questions":0}},"boxes_added":7,"tokens":null}"#,
        )
        .unwrap();
        let data = told("rows".into(), counts);
        assert_eq!(data.dropped, [("contaminated words".to_owned(), 4), ("too long".to_owned(), 5)]);
        let repeat =
            "gsm8k: 4 rows repeat 2 questions (1 exactly, 0 with other numbers, 3 by a run of words)";
        assert_eq!(data.repeats, [repeat, "math500: none"]);
    }
}
