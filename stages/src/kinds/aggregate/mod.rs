//! `aggregate`: one table of every arm on every benchmark.
//!
//! [`same`] looks whether arms were asked the same; [`compute`] computes the table, with the signs of
//! [`collapse`]; [`render`] writes it as JSON, CSV and Markdown.

mod collapse;
mod compute;
mod render;
mod same;

use std::collections::BTreeMap;

use engine::kind::{Inputs, ParamProblem, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arms::{Arm, Claims, arm_of, row_of, run_of};
use crate::samples::read_lines;
use crate::table::Table;
use compute::RunSamples;

/// Compares the arms: accuracy with intervals, differences to the base arm with paired tests, and
/// the claimed values beside the measured ones.
///
/// For each arm and benchmark: accuracy with Wilson's 95 % interval; difference to the base arm
/// with a 95 % interval of the paired bootstrap (10,000 resamples by question) and the p of the
/// exact McNemar test; the share of generations that changed; token counts; shares of truncated,
/// repetitive and unanswered samples; signs of collapse (boxed, empty, looping and copied texts,
/// distinct-2, the commonest answer); and accuracy by level and subject. Where an arm has several runs
/// (seeds) or several samples a question, accuracy is averaged by question first, intervals are
/// bootstrapped by question, the spread over runs is given, and McNemar's test is left out; with several
/// runs a second interval of the difference, Student's t over the runs, says what another training may
/// bring; where that is the narrower one, or the runs do not differ, the wider one counts. Claims about
/// arms or benchmarks that were not measured are listed. Only the axis `seed` makes runs of one row; an arm evaluated along another axis (`step`, `model`) has a row for each of its values, and is
/// compared with the base arm's row of the same values.
///
/// Arms are paired by the ids of questions. One id with two questions or correct answers in a benchmark
/// is refused. A difference covers the questions that both arms have, and the table says so where an
/// arm has more; with none in common there is no difference.
///
/// Writes `table.json`, `table.csv` and `table.md`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// Graded samples of every arm, such as `"@grade[*]"`.
    pub samples: Inputs,
    /// The arms in the order of the table: `"${arms}"`. Left out: every label, sorted.
    #[serde(default)]
    pub arms: Vec<Arm>,
    /// The arm that the others are compared with. Left out: the first.
    #[serde(default)]
    pub base: Option<String>,
    /// The claims under test, `"${claims}"`: for each arm a table of benchmark → accuracy in
    /// percent, or benchmark → `{ accuracy = …, delta = … }` with `delta` in percentage points
    /// over base. Other entries (source, text) are passed on.
    #[serde(default)]
    pub claims: Value,
    /// What the recipe does differently: `"${deviations}"`. Passed on.
    #[serde(default)]
    pub deviations: Value,
    /// Seed of the bootstrap.
    #[serde(default)]
    pub seed: u64,
}

impl Aggregate {
    /// Graded samples by row (see [`row_of`]), and in it by run.
    fn read(&self, ctx: &StageCtx) -> Result<BTreeMap<String, Vec<RunSamples>>, StageError> {
        let mut arms: BTreeMap<String, Vec<RunSamples>> = BTreeMap::new();
        let total = self.samples.0.len() as u64;
        for (done, (label, input)) in self.samples.0.iter().enumerate() {
            let rows = read_lines(&ctx.input(input)?, "graded.jsonl")?;
            arms.entry(row_of(label)).or_default().push((run_of(label), rows));
            ctx.progress(done as u64 + 1, total, "files");
        }
        Ok(arms)
    }
}

impl Stage for Aggregate {
    const KIND: &'static str = "aggregate";
    const VERSION: u32 = 8;

    fn outputs(&self) -> Vec<String> {
        vec!["table.json".into(), "table.csv".into(), "table.md".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let arms = match self.arms.is_empty() {
            true => self.samples.0.keys().map(|label| Arm::named(arm_of(label))).collect(),
            false => self.arms.clone(),
        };
        let mut problems = Claims::new(&self.claims).problems(&arms);
        let known = |name: &str| {
            self.arms.iter().any(|arm| arm.name == name)
                || self.samples.0.keys().any(|label| arm_of(label) == name)
        };
        if let Some(base) = self.base.as_deref().filter(|base| !known(base)) {
            problems.push(ParamProblem {
                param: "base".into(),
                message: format!("there is no arm `{base}`"),
                help: "name one of the arms".into(),
            });
        }
        if self.samples.0.is_empty() {
            problems.push(ParamProblem {
                param: "samples".into(),
                message: "no samples".into(),
                help: "refer to graded samples, such as \"@grade[*]\"".into(),
            });
        }
        problems
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let runs = self.read(ctx)?;
        same::same_questions(&runs)?;
        let arms = crate::arms::in_order(&self.arms, runs.keys());
        let base = self.base.as_deref().unwrap_or(arm_of(&arms[0].name));
        let table = Table {
            base: base.to_owned(),
            benchmarks: compute::benchmarks(&runs, &arms, base, &Claims::new(&self.claims), self.seed),
            claims: self.claims.clone(),
            deviations: self.deviations.clone(),
        };
        render::write(&table, ctx.out())
    }
}

#[cfg(test)]
mod tests;
