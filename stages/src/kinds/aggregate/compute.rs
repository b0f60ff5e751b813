//! Computes the table from graded samples.

use std::collections::{BTreeMap, BTreeSet};

use super::collapse::collapse;
use crate::arms::{Arm, Claim, Claims, arm_of, axes_of, base_of};
use crate::repetition;
use crate::samples::Graded;
use crate::stats::{self, Interval};
use crate::table::{Benchmark, Comparison, Group, Row, RunRow};

/// A run's name, and all its samples.
pub type RunSamples = (String, Vec<Graded>);

/// Every run of one row on one benchmark, by name.
pub type Runs<'a> = BTreeMap<&'a str, Vec<&'a Graded>>;

/// The tables of all benchmarks. `runs` holds each arm's runs.
pub fn benchmarks(
    runs: &BTreeMap<String, Vec<RunSamples>>,
    arms: &[Arm],
    base: &str,
    claims: &Claims,
    seed: u64,
) -> Vec<Benchmark> {
    let names: BTreeSet<&str> =
        runs.values().flatten().flat_map(|(_, run)| run).map(|graded| graded.benchmark.as_str()).collect();
    let on = |arm: &str, benchmark: &str| -> Runs<'_> {
        let mut of_row = Runs::new();
        for (name, run) in runs.get(arm).into_iter().flatten() {
            let here: Vec<&Graded> = run.iter().filter(|g| g.benchmark == benchmark).collect();
            if !here.is_empty() {
                of_row.entry(name).or_default().extend(here);
            }
        }
        of_row
    };
    names
        .into_iter()
        .map(|name| {
            let there: Vec<&str> =
                arms.iter().map(|arm| arm.name.as_str()).filter(|arm| !on(arm, name).is_empty()).collect();
            let rows: Vec<Row> = arms
                .iter()
                .map(|arm| (arm, on(&arm.name, name)))
                .filter(|(_, runs)| !runs.is_empty())
                .map(|(arm, runs)| {
                    let against = base_of(&arm.name, there.iter().copied(), base);
                    let claimed = claims.of(&arm.name, name, against.unwrap_or(base));
                    let mut row = row(arm, &runs, claimed, seed);
                    if arm_of(&arm.name) != base {
                        row.versus_base = against.and_then(|base| compare(&on(base, name), &runs, seed));
                    }
                    row
                })
                .collect();
            let questions: BTreeSet<&str> =
                arms.iter().flat_map(|arm| all(&on(&arm.name, name))).map(|g| g.sample.id.as_str()).collect();
            Benchmark { name: name.to_owned(), questions: questions.len(), rows }
        })
        .collect()
}

fn row(arm: &Arm, runs: &Runs, claimed: Claim, seed: u64) -> Row {
    let samples = all(runs);
    let questions = by_question(&samples);
    let accuracies: Vec<f64> = questions.values().map(|q| q.accuracy()).collect();
    let correct = samples.iter().filter(|g| g.correct).count();
    let once = questions.values().all(|q| q.samples == 1);
    let per_run = runs.iter().map(|(name, run)| run_row(name, run)).collect::<Vec<_>>();
    let accuracies_of_runs: Vec<f64> = per_run.iter().map(|run| run.accuracy).collect();
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
        spread: stats::standard_deviation(&accuracies_of_runs),
        per_run: if per_run.len() > 1 { per_run } else { Vec::new() },
        versus_base: None,
        claimed,
        mean_tokens: stats::mean(&tokens),
        median_tokens: stats::quantile(&tokens, 0.5),
        truncated: share(Graded::truncated),
        repetitive: share(|g| g.repetition > repetition::THRESHOLD),
        unanswered: share(Graded::unanswered),
        disagreements: samples.iter().filter(|g| g.qwen != g.strict).count(),
        collapse: collapse(runs),
        seconds: samples.iter().map(|g| g.sample.seconds).sum(),
        levels: groups(&samples, |g| g.sample.level.as_deref()),
        subjects: groups(&samples, |g| g.sample.subject.as_deref()),
    }
}

/// None where the two have no question in common.
fn compare(base: &Runs, arm: &Runs, seed: u64) -> Option<Comparison> {
    let paired = pairs(&all(base), &all(arm));
    if paired.is_empty() {
        return None;
    }
    // Each run beside the base arm's of the same seed, or beside all of them.
    let beside = |name: &str| match base_of(name, base.keys().copied(), arm_of_any(base)) {
        Some(same) if axes_of(same) == axes_of(name) => base[same].clone(),
        _ => all(base),
    };
    let couples: Vec<(Vec<&Graded>, &Vec<&Graded>)> =
        arm.iter().map(|(name, run)| (beside(name), run)).collect();
    let changed = changed(&couples);
    let per_run: Vec<f64> = match couples.as_slice() {
        [_] => Vec::new(),
        // A run without a question in common has no difference, and so there is none over all runs.
        several => several
            .iter()
            .map(|(base, run)| Some(pairs(base, run)).filter(|pairs| !pairs.is_empty()))
            .map(|pairs| pairs.map(|pairs| stats::mean(&differences(&pairs))))
            .collect::<Option<_>>()
            .unwrap_or_default(),
    };
    let differences = differences(&paired);
    let once = paired.iter().all(|(before, after)| before.samples == 1 && after.samples == 1);
    let count = |sign: f64| differences.iter().filter(|d| **d * sign > 0.0).count() as u64;
    let (gained, lost) = (count(1.0), count(-1.0));
    Some(Comparison {
        paired: paired.len(),
        delta: stats::mean(&differences),
        interval: stats::bootstrap_mean(&differences, seed),
        gained: once.then_some(gained),
        lost: once.then_some(lost),
        mcnemar_p: once.then(|| stats::mcnemar_exact(gained, lost)),
        changed,
        // No difference is larger than all questions.
        over_runs: stats::student_mean(&per_run)
            .filter(|runs| runs.high - runs.low > 1e-9)
            .map(|runs| Interval { low: runs.low.max(-1.0), high: runs.high.min(1.0) }),
        per_run,
    })
}

/// The arm whose runs these are.
fn arm_of_any<'a>(runs: &Runs<'a>) -> &'a str {
    runs.keys().next().map_or("", |name| arm_of(name))
}

/// The questions that both answered.
fn pairs(base: &[&Graded], arm: &[&Graded]) -> Vec<(Question, Question)> {
    let base = by_question(base);
    by_question(arm).iter().filter_map(|(id, after)| Some((*base.get(id)?, *after))).collect()
}

fn differences(pairs: &[(Question, Question)]) -> Vec<f64> {
    pairs.iter().map(|(before, after)| after.accuracy() - before.accuracy()).collect()
}

/// Share of the generations for the same question and number whose texts differ, in each of the runs
/// beside the base arm's; none where nothing was generated once by both.
fn changed(couples: &[(Vec<&Graded>, &Vec<&Graded>)]) -> Option<f64> {
    fn texts<'a>(samples: &[&'a Graded]) -> BTreeMap<(&'a str, u32), Option<&'a str>> {
        let mut texts = BTreeMap::new();
        for Graded { sample, .. } in samples {
            let again = texts.contains_key(&(sample.id.as_str(), sample.sample));
            texts.insert((sample.id.as_str(), sample.sample), (!again).then_some(sample.text.as_str()));
        }
        texts
    }
    let mut differs: Vec<bool> = Vec::new();
    for (base, arm) in couples {
        let (base, arm) = (texts(base), texts(arm));
        differs.extend(arm.iter().filter_map(|(key, after)| Some(base.get(key).copied()?? != (*after)?)));
    }
    let changed = differs.iter().filter(|differs| **differs).count();
    (!differs.is_empty()).then(|| changed as f64 / differs.len() as f64)
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

fn all<'a>(runs: &Runs<'a>) -> Vec<&'a Graded> {
    runs.values().flatten().copied().collect()
}

fn run_row(name: &str, run: &[&Graded]) -> RunRow {
    let questions = by_question(run);
    let shares: Vec<f64> = questions.values().map(|q| q.accuracy()).collect();
    let axes: Vec<&str> = axes_of(name).into_iter().filter(|axis| axis.starts_with("seed=")).collect();
    RunRow {
        label: axes.join(", ").replace('=', " "),
        questions: questions.len(),
        accuracy: stats::mean(&shares),
    }
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
