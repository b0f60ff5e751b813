//! What `aggregate` writes as `table.json`, and `chart` and `report` read. Shares are from 0 to 1.

use std::collections::BTreeMap;
use std::path::Path;

use engine::kind::StageError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arms::{Claim, Claims, arm_of, base_of};
use crate::stats::Interval;

/// What `table.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The arm that the others are compared with.
    pub base: String,
    /// One table a benchmark, by name.
    pub benchmarks: Vec<Benchmark>,
    /// The manifest's claims.
    pub claims: Value,
    /// The manifest's deviations.
    pub deviations: Value,
}

impl Table {
    /// The claims about rows or benchmarks that were not measured, in words: `lora` on `math500`.
    pub fn unmeasured(&self) -> Vec<String> {
        let measured = |arm: &str, benchmark: &str| {
            let mut there = self.benchmarks.iter().filter(|there| there.name == benchmark);
            there.any(|there| there.rows.iter().any(|row| row.arm == arm))
        };
        let claims = Claims::new(&self.claims).about();
        let missing = claims.into_iter().filter(|(arm, benchmark)| !measured(arm, benchmark));
        let mut told: Vec<String> = missing.map(|(arm, benchmark)| format!("{arm} on {benchmark}")).collect();
        told.sort();
        told
    }

    /// What was measured, in words, for those who look for a claim that was not.
    pub fn measured(&self) -> String {
        let rows = |benchmark: &Benchmark| {
            let arms: Vec<&str> = benchmark.rows.iter().map(|row| row.arm.as_str()).collect();
            format!("{} ({})", benchmark.name, arms.join("; "))
        };
        self.benchmarks.iter().map(rows).collect::<Vec<_>>().join(", ")
    }
}

/// Every arm on one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// Different questions seen over all arms.
    pub questions: usize,
    /// One row an arm, in the order of the arms.
    pub rows: Vec<Row>,
}

/// One arm on one benchmark; an arm evaluated along an axis (`step=10`) has a row for each value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The arm's name, with its axes: `lora,step=10`.
    pub arm: String,
    /// The arm's name for people.
    pub label: String,
    /// Runs (seeds) combined.
    pub runs: usize,
    /// Different questions.
    pub questions: usize,
    /// Generations over all runs.
    pub samples: usize,
    /// Correct generations.
    pub correct: usize,
    /// Mean over questions of the share answered correctly.
    pub accuracy: f64,
    /// 95 % interval of the accuracy.
    pub interval: Interval,
    /// `wilson`, or `bootstrap` by question where questions have several generations.
    pub interval_method: String,
    /// Standard deviation of the accuracy over runs.
    pub spread: Option<f64>,
    /// Each of several runs by itself; empty for one run.
    #[serde(default)]
    pub per_run: Vec<RunRow>,
    /// Comparison with the base arm; none for the base arm itself, and where the two have no question in
    /// common.
    pub versus_base: Option<Comparison>,
    /// What was claimed.
    pub claimed: Claim,
    /// Mean number of tokens generated.
    pub mean_tokens: f64,
    /// Median number of tokens generated.
    pub median_tokens: f64,
    /// Share of generations that hit their token budget.
    pub truncated: f64,
    /// Share of generations that repeat themselves.
    pub repetitive: f64,
    /// Share of generations without an answer.
    pub unanswered: f64,
    /// Generations on which the two graders differ.
    pub disagreements: usize,
    /// Whether the model still writes answers, and different ones.
    #[serde(default)]
    pub collapse: Collapse,
    /// Seconds spent generating, over all runs.
    pub seconds: f64,
    /// By level.
    pub levels: BTreeMap<String, Group>,
    /// By subject.
    pub subjects: BTreeMap<String, Group>,
}

/// Signs of format and of collapse, over the generations of a row. A model that training has ruined
/// writes nothing, loops, or the same whatever it is asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Collapse {
    /// Share with the answer in a box.
    pub boxed: f64,
    /// Share of empty texts.
    pub empty: f64,
    /// Share that ends in a loop.
    pub looping: f64,
    /// Share whose text is, to the letter, that for another question of the same run.
    pub copied: f64,
    /// Different pairs of successive words over all such pairs (distinct-2, Li et al. 2016), pooled
    /// over the generations; none without pairs. Longer texts and more questions lower it.
    pub distinct_2: Option<f64>,
    /// The answer given most often.
    pub commonest: String,
    /// Share of the generations that give it.
    pub commonest_share: f64,
    /// Share of the generations that give it and are right.
    pub commonest_right: f64,
}

/// One of several runs (seeds) of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Name for people: `seed 2`.
    pub label: String,
    /// Different questions.
    pub questions: usize,
    /// Mean over questions of the share answered correctly.
    pub accuracy: f64,
}

/// An arm against the base arm, over the questions that both answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Questions that both answered.
    pub paired: usize,
    /// Difference in accuracy over these.
    pub delta: f64,
    /// 95 % interval of the difference (paired bootstrap by question).
    pub interval: Interval,
    /// Questions that turned from wrong to right, where each has one generation.
    pub gained: Option<u64>,
    /// Questions that turned from right to wrong.
    pub lost: Option<u64>,
    /// p of the exact McNemar test.
    pub mcnemar_p: Option<f64>,
    /// Share of generations that are not the base arm's to the letter, over those that both made once.
    #[serde(default)]
    pub changed: Option<f64>,
    /// Difference of each of several runs (seeds), in their order, to the base arm's run of the same
    /// seed, or to all of its runs if it has none; empty for one run, and where one of them has no
    /// question in common with the base arm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_run: Vec<f64>,
    /// 95 % interval of the mean difference over runs (Student's t): what another training may bring,
    /// which the interval by question does not tell; none for one run, and none where the runs do not
    /// differ: a few that agree by chance say nothing about the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_runs: Option<Interval>,
}

impl Benchmark {
    /// The row that `row` is compared with; none for the base arm's own, and where it has none here.
    pub fn against(&self, row: &Row, base: &str) -> Option<&Row> {
        let name = base_of(&row.arm, self.rows.iter().map(|row| row.arm.as_str()), base)?;
        self.rows.iter().find(|other| other.arm == name).filter(|_| arm_of(&row.arm) != base)
    }
}

impl Row {
    /// Whether the difference to the row `base` covers fewer questions than one of the two has.
    pub fn in_part(&self, base: &Row) -> bool {
        self.versus_base.as_ref().is_some_and(|v| v.paired < self.questions.max(base.questions))
    }
}

impl Comparison {
    /// Whether the difference is more than chance explains: `Some(true)` for a gain. Its intervals
    /// must exclude zero, and the exact test, where there is one, must agree at 5 %.
    pub fn clear(&self) -> Option<bool> {
        let Interval { low, high } = self.reach();
        let agreed = self.mcnemar_p.is_none_or(|p| p < 0.05);
        (agreed && (low > 0.0 || high < 0.0)).then_some(low > 0.0)
    }

    /// Whether several runs lie closer together than chance between the questions alone would tell: they
    /// do not differ, or their interval is narrower than that by question. It is no certainty then about
    /// another training, and the wider interval counts.
    pub fn runs_agree_closely(&self) -> bool {
        let width = |interval: Interval| interval.high - interval.low;
        self.per_run.len() > 1 && self.over_runs.is_none_or(|runs| width(runs) < width(self.interval))
    }

    /// The range that holds both intervals, over questions and over runs.
    pub fn reach(&self) -> Interval {
        let runs = self.over_runs.unwrap_or(self.interval);
        Interval { low: self.interval.low.min(runs.low), high: self.interval.high.max(runs.high) }
    }
}

/// Part of the questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Generations.
    pub samples: usize,
    /// Correct ones.
    pub correct: usize,
}

/// Reads `table.json`, or the one in a folder.
pub fn read(path: &Path) -> Result<Table, StageError> {
    let path = if path.is_dir() { path.join("table.json") } else { path.to_owned() };
    let text = std::fs::read_to_string(&path).map_err(|e| StageError::io(&path, e))?;
    serde_json::from_str(&text).map_err(|e| {
        StageError::input(format!("{}: {e}", path.display()))
            .with_help("it must be the table.json of an `aggregate` stage")
    })
}
