//! The table itself: what is known of each arm on each benchmark. Shares are from 0 to 1.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arms::{Arm, Claim, Claims};
use crate::repetition;
use crate::samples::Graded;
use crate::stats::{self, Interval};

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

/// One arm on one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The arm's name.
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
    /// Comparison with the base arm; none for the base arm itself.
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
    /// Seconds spent generating, over all runs.
    pub seconds: f64,
    /// By level.
    pub levels: BTreeMap<String, Group>,
    /// By subject.
    pub subjects: BTreeMap<String, Group>,
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
}

/// Part of the questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Generations.
    pub samples: usize,
    /// Correct ones.
    pub correct: usize,
}

/// Every run of one arm on one benchmark.
type Runs<'a> = Vec<Vec<&'a Graded>>;

/// The tables of all benchmarks. `runs` holds each arm's runs.
pub fn benchmarks(
    runs: &BTreeMap<String, Vec<Vec<Graded>>>,
    arms: &[Arm],
    base: &str,
    claims: &Claims,
    seed: u64,
) -> Vec<Benchmark> {
    let names: BTreeSet<&str> =
        runs.values().flatten().flatten().map(|graded| graded.benchmark.as_str()).collect();
    let on = |arm: &str, benchmark: &str| -> Runs<'_> {
        runs.get(arm)
            .into_iter()
            .flatten()
            .map(|run| run.iter().filter(|g| g.benchmark == benchmark).collect::<Vec<_>>())
            .filter(|run| !run.is_empty())
            .collect()
    };
    names
        .into_iter()
        .map(|name| {
            let base_runs = on(base, name);
            let rows: Vec<Row> = arms
                .iter()
                .map(|arm| (arm, on(&arm.name, name)))
                .filter(|(_, runs)| !runs.is_empty())
                .map(|(arm, runs)| {
                    let claimed = claims.of(&arm.name, name, base);
                    let mut row = row(arm, &runs, claimed, seed);
                    if arm.name != base && !base_runs.is_empty() {
                        row.versus_base = Some(compare(&base_runs, &runs, seed));
                    }
                    row
                })
                .collect();
            let questions: BTreeSet<&str> = arms
                .iter()
                .flat_map(|arm| on(&arm.name, name).concat())
                .map(|g| g.sample.id.as_str())
                .collect();
            Benchmark { name: name.to_owned(), questions: questions.len(), rows }
        })
        .collect()
}

fn row(arm: &Arm, runs: &Runs, claimed: Claim, seed: u64) -> Row {
    let samples: Vec<&Graded> = runs.concat();
    let questions = by_question(&samples);
    let accuracies: Vec<f64> = questions.values().map(|q| q.accuracy()).collect();
    let correct = samples.iter().filter(|g| g.correct).count();
    let once = questions.values().all(|q| q.samples == 1);
    let per_run: Vec<f64> = runs.iter().map(|run| accuracy(&by_question(run))).collect();
    let mut tokens: Vec<f64> = samples.iter().map(|g| f64::from(g.sample.tokens)).collect();
    tokens.sort_by(f64::total_cmp);
    let share = |holds: fn(&Graded) -> bool| {
        samples.iter().filter(|g| holds(g)).count() as f64 / samples.len() as f64
    };
    Row {
        arm: arm.name.clone(),
        label: arm.label().to_owned(),
        runs: runs.len(),
        questions: questions.len(),
        samples: samples.len(),
        correct,
        accuracy: stats::mean(&accuracies),
        interval: if once {
            stats::wilson(correct as u64, samples.len() as u64)
        } else {
            stats::bootstrap_mean(&accuracies, seed)
        },
        interval_method: if once { "wilson" } else { "bootstrap" }.to_owned(),
        spread: stats::standard_deviation(&per_run),
        versus_base: None,
        claimed,
        mean_tokens: stats::mean(&tokens),
        median_tokens: stats::quantile(&tokens, 0.5),
        truncated: share(Graded::truncated),
        repetitive: share(|g| g.repetition > repetition::THRESHOLD),
        unanswered: share(Graded::unanswered),
        disagreements: samples.iter().filter(|g| g.qwen != g.strict).count(),
        seconds: samples.iter().map(|g| g.sample.seconds).sum(),
        levels: groups(&samples, |g| g.sample.level.as_deref()),
        subjects: groups(&samples, |g| g.sample.subject.as_deref()),
    }
}

fn compare(base: &Runs, arm: &Runs, seed: u64) -> Comparison {
    let (base, arm) = (by_question(&base.concat()), by_question(&arm.concat()));
    let pairs: Vec<(Question, Question)> =
        arm.iter().filter_map(|(id, after)| Some((*base.get(id)?, *after))).collect();
    let differences: Vec<f64> =
        pairs.iter().map(|(before, after)| after.accuracy() - before.accuracy()).collect();
    let once = pairs.iter().all(|(before, after)| before.samples == 1 && after.samples == 1);
    let count = |sign: f64| differences.iter().filter(|d| **d * sign > 0.0).count() as u64;
    let (gained, lost) = (count(1.0), count(-1.0));
    Comparison {
        paired: pairs.len(),
        delta: stats::mean(&differences),
        interval: stats::bootstrap_mean(&differences, seed),
        gained: once.then_some(gained),
        lost: once.then_some(lost),
        mcnemar_p: once.then(|| stats::mcnemar_exact(gained, lost)),
    }
}

/// Generations for one question.
#[derive(Clone, Copy, Default)]
struct Question {
    samples: usize,
    correct: usize,
}

impl Question {
    fn accuracy(self) -> f64 {
        self.correct as f64 / self.samples as f64
    }
}

fn by_question<'a>(samples: &[&'a Graded]) -> BTreeMap<&'a str, Question> {
    let mut questions: BTreeMap<&str, Question> = BTreeMap::new();
    for graded in samples {
        let question = questions.entry(&graded.sample.id).or_default();
        question.samples += 1;
        question.correct += usize::from(graded.correct);
    }
    questions
}

fn accuracy(questions: &BTreeMap<&str, Question>) -> f64 {
    let shares: Vec<f64> = questions.values().map(|q| q.accuracy()).collect();
    stats::mean(&shares)
}

fn groups(samples: &[&Graded], of: fn(&Graded) -> Option<&str>) -> BTreeMap<String, Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for graded in samples {
        let Some(name) = of(graded) else { continue };
        let group = groups.entry(name.to_owned()).or_default();
        group.samples += 1;
        group.correct += usize::from(graded.correct);
    }
    groups
}
