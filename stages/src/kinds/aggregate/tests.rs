use std::path::PathBuf;

use engine::kind::{Input, Stage, StageCtx};
use serde_json::json;

use super::*;
use crate::samples::{Graded, Sample};

/// A graded question of the benchmark `toy`.
pub fn graded(id: usize, correct: bool, level: u32) -> Graded {
    Graded {
        benchmark: "toy".into(),
        sample: Sample {
            id: id.to_string(),
            sample: 0,
            problem: "?".into(),
            gold: "1".into(),
            prompt: "?".into(),
            text: "x".into(),
            tokens: 10 + id as u32,
            finish: if id == 0 { "length" } else { "stop" }.into(),
            seconds: 0.5,
            level: Some(level.to_string()),
            subject: None,
            retry: None,
        },
        extracted: "1".into(),
        method: "boxed".into(),
        span: None,
        qwen: correct,
        strict: correct,
        reasons: ("exact".into(), "exact".into()),
        correct,
        repetition: 0.0,
    }
}

/// Questions 0.. of which the listed ones are right.
fn run_of(n: usize, right: impl Fn(usize) -> bool) -> Vec<Graded> {
    (0..n).map(|id| graded(id, right(id), (id % 2) as u32 + 1)).collect()
}

fn aggregate(files: &[(&str, Vec<Graded>)], claims: Value) -> (Table, String, String) {
    outcome(files, claims).unwrap()
}

/// `table.json`, as `report` reads it, `table.csv` and `table.md`.
fn outcome(files: &[(&str, Vec<Graded>)], claims: Value) -> Result<(Table, String, String), StageError> {
    let dir = tempfile::tempdir().unwrap();
    let mut inputs = BTreeMap::<String, PathBuf>::new();
    let mut samples = Inputs::default();
    for (label, rows) in files {
        let folder = dir.path().join(label);
        std::fs::create_dir(&folder).unwrap();
        let lines: Vec<String> = rows.iter().map(|r| serde_json::to_string(r).unwrap()).collect();
        std::fs::write(folder.join("graded.jsonl"), lines.join("\n")).unwrap();
        let reference = format!("@grade[{label}]");
        inputs.insert(reference.clone(), folder);
        samples.0.insert((*label).to_owned(), Input::new(reference));
    }
    let stage = Aggregate {
        samples,
        arms: ["base", "lora"].map(|name| Arm { name: name.into(), label: name.to_uppercase() }).to_vec(),
        base: None,
        claims,
        deviations: json!(["Fewer steps"]),
        seed: 0,
    };
    assert_eq!(Stage::check(&stage), []);
    let out = tempfile::tempdir().unwrap();
    stage.run(&StageCtx::detached(out.path(), out.path(), inputs))?;
    let read = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
    Ok((crate::table::read(out.path()).unwrap(), read("table.csv"), read("table.md")))
}

#[test]
fn two_arms_are_paired_by_question() {
    // 100 questions: base has the first 50 right; lora gains 50..70 and loses 0..5.
    let (table, csv, markdown) = aggregate(
        &[("base", run_of(100, |id| id < 50)), ("lora", run_of(100, |id| (5..70).contains(&id)))],
        json!({"source": "a paper", "base": {"toy": 40.0}, "lora": {"toy": 60.0}}),
    );
    let [base, lora] = &table.benchmarks[0].rows[..] else { panic!() };
    assert_eq!((base.accuracy, lora.accuracy), (0.5, 0.65));
    assert_eq!(base.interval, crate::stats::wilson(50, 100));
    assert_eq!(base.versus_base, None);
    let versus = lora.versus_base.as_ref().unwrap();
    assert_eq!((versus.gained, versus.lost, versus.paired), (Some(20), Some(5), 100));
    assert_eq!(versus.changed, Some(0.0), "the texts of this test are all alike");
    assert!((versus.delta - 0.15).abs() < 1e-12);
    // Normal approximation: 0.15 ± 1.96 · 0.0477; the bootstrap moves in steps of 0.01.
    assert!((versus.interval.low - 0.0565).abs() < 0.012, "{:?}", versus.interval);
    assert!((versus.interval.high - 0.2435).abs() < 0.012, "{:?}", versus.interval);
    // scipy.stats.binomtest(5, 25).pvalue
    assert!((versus.mcnemar_p.unwrap() - 0.004_077_315_330_505_371).abs() < 1e-12);
    assert!((lora.claimed.delta.unwrap() - 0.2).abs() < 1e-12);
    assert_eq!((base.truncated, base.mean_tokens, base.median_tokens), (0.01, 59.5, 59.5));
    assert_eq!((base.levels["1"].samples, base.levels["1"].correct), (50, 25));
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.lines().all(|l| l.split(',').count() == super::render::COLUMNS.len()), "{csv}");
    assert!(markdown.contains("| LORA | 100 | 65.0 [55.3, 73.6] | 60.0 | +15.0 ["), "{markdown}");
    assert!(markdown.contains("- Fewer steps") && markdown.contains("- source: a paper"));
}

#[test]
fn seeds_are_combined_by_question() {
    let (table, _, markdown) = aggregate(
        &[
            ("base", run_of(10, |id| id < 5)),
            ("lora,seed=1", run_of(10, |id| id < 6)),
            ("lora,seed=2", run_of(10, |id| id < 8)),
        ],
        Value::Null,
    );
    let lora = &table.benchmarks[0].rows[1];
    assert_eq!((lora.runs, lora.questions, lora.samples, lora.correct), (2, 10, 20, 14));
    assert!((lora.accuracy - 0.7).abs() < 1e-12);
    assert_eq!(lora.interval_method, "bootstrap");
    assert!((lora.spread.unwrap() - 0.02f64.sqrt()).abs() < 1e-12);
    let versus = lora.versus_base.as_ref().unwrap();
    assert_eq!((versus.mcnemar_p, versus.gained), (None, None));
    assert!((versus.delta - 0.2).abs() < 1e-12);
    assert!(markdown.contains("± 14.1 over 2 runs"), "{markdown}");
    // The base arm has no such seeds: each run stands beside all of it.
    assert!(close(&versus.per_run, &[0.1, 0.3]), "{:?}", versus.per_run);
}

fn close(got: &[f64], expected: &[f64]) -> bool {
    got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
}

#[test]
fn runs_are_compared_with_the_base_of_their_seed() {
    let base = |right: usize| run_of(20, move |id| id < right);
    let other_text = |mut rows: Vec<Graded>| {
        rows[0].sample.text = "y".into();
        rows
    };
    let files = [
        ("base,seed=1", base(10)),
        ("base,seed=2", base(8)),
        ("base,seed=3", base(12)),
        ("lora,seed=1", other_text(base(13))),
        ("lora,seed=2", base(12)),
        ("lora,seed=3", base(14)),
    ];
    let (table, csv, markdown) = aggregate(&files, Value::Null);
    let [base_row, lora] = &table.benchmarks[0].rows[..] else { panic!() };
    assert!(base_row.versus_base.is_none() && base_row.per_run.len() == 3);
    let versus = lora.versus_base.as_ref().unwrap();
    assert!(close(&versus.per_run, &[0.15, 0.2, 0.1]), "{:?}", versus.per_run);
    assert_eq!(versus.changed, Some(1.0 / 60.0), "one text of three runs of twenty");
    // scipy.stats.ttest_1samp([0.15, 0.2, 0.1], 0).confidence_interval()
    let over_runs = versus.over_runs.unwrap();
    assert!((over_runs.low - 0.025_793_114).abs() < 1e-6, "{over_runs:?}");
    assert!((over_runs.high - 0.274_206_886).abs() < 1e-6, "{over_runs:?}");
    assert_eq!(versus.clear(), Some(true));
    assert!(markdown.contains("over runs [+2.6, +27.4] |"), "{markdown}");
    assert_eq!(csv.lines().count(), 3);

    // Trainings that differ as much as this show nothing, however sure each question is.
    let files =
        [("base", base(10)), ("lora,seed=1", base(20)), ("lora,seed=2", base(10)), ("lora,seed=3", base(20))];
    let versus = aggregate(&files, Value::Null).0.benchmarks[0].rows[1].versus_base.clone().unwrap();
    assert!(versus.interval.low > 0.0 && versus.over_runs.unwrap().low < 0.0, "{versus:?}");
    assert_eq!((versus.clear(), versus.reach().low), (None, versus.over_runs.unwrap().low));
    assert_eq!(versus.over_runs.unwrap().high, 1.0, "no more than every question");
}

#[test]
fn only_shared_questions_are_paired() {
    let (table, _, markdown) =
        aggregate(&[("base", run_of(10, |_| true)), ("lora", run_of(4, |id| id < 2))], Value::Null);
    let versus = table.benchmarks[0].rows[1].versus_base.as_ref().unwrap();
    assert_eq!((versus.paired, versus.delta, versus.lost), (4, -0.5, Some(2)));
    assert_eq!(table.benchmarks[0].questions, 10);
    assert!(markdown.contains("−50.0 [−100.0, +0.0], over 4 common questions |"), "{markdown}");
    assert!(markdown.contains("Over common questions: "), "{markdown}");

    let (.., markdown) =
        aggregate(&[("base", run_of(4, |_| true)), ("lora", run_of(4, |_| true))], Value::Null);
    assert!(!markdown.contains("common questions"), "{markdown}");
}

#[test]
fn without_a_common_question_there_is_no_difference() {
    let later = |n: usize| run_of(n + 3, |_| true).split_off(3);
    let (table, csv, markdown) = aggregate(
        &[("base", run_of(3, |_| true)), ("lora", later(2))],
        json!({"lora": {"toy": {"delta": 10.0}}}),
    );
    assert!(table.benchmarks[0].rows[1].versus_base.is_none());
    assert!(!csv.contains("NaN") && !markdown.contains("NaN"), "{csv}{markdown}");
    assert!(markdown.contains("|  | – |  |  |  |"), "{markdown}");
    assert!(markdown.contains("–: no question (by id) in common with `base`"), "{markdown}");

    // One of two runs has no question of the base arm's: nothing is said over the runs.
    let files =
        [("base", run_of(3, |_| true)), ("lora,seed=1", run_of(3, |_| false)), ("lora,seed=2", later(2))];
    let (table, csv, markdown) = aggregate(&files, Value::Null);
    let versus = table.benchmarks[0].rows[1].versus_base.as_ref().unwrap();
    assert_eq!((versus.paired, versus.delta, versus.per_run.len(), versus.over_runs), (3, -1.0, 0, None));
    assert!(!csv.contains("NaN") && !markdown.contains("NaN"), "{csv}{markdown}");
}

#[test]
fn arms_that_were_asked_other_questions_are_refused() {
    let mut lora = run_of(3, |_| true);
    lora[2].sample.problem = "another".into();
    let error = outcome(&[("base", run_of(3, |_| true)), ("lora", lora)], Value::Null).unwrap_err();
    assert!(error.message.contains("base and lora have another question each under the id `2`"), "{error}");
    assert!(error.help.unwrap().contains("read the same `questions`"));
}

#[test]
fn texts_that_differ_are_counted_by_question_and_sample() {
    let text = |rows: Vec<Graded>, texts: &[&str]| -> Vec<Graded> {
        rows.into_iter()
            .zip(texts)
            .map(|(mut row, text)| {
                row.sample.text = (*text).to_owned();
                row
            })
            .collect()
    };
    let base = text(run_of(4, |_| true), &["a", "b", "c", "d"]);
    let lora = text(run_of(4, |_| true), &["a", "B", "C", "d"]);
    let (table, ..) = aggregate(&[("base", base), ("lora", lora)], Value::Null);
    assert_eq!(table.benchmarks[0].rows[1].versus_base.as_ref().unwrap().changed, Some(0.5));
}

#[test]
fn check_wants_samples_and_a_known_base() {
    let stage: Aggregate =
        serde_json::from_value(json!({"samples": {}, "base": "gone", "arms": [{"name": "a"}]})).unwrap();
    let found: Vec<String> = Stage::check(&stage).into_iter().map(|p| p.param).collect();
    assert_eq!(found, ["base", "samples"]);
}

#[test]
fn runs_that_agree_by_chance_get_no_interval() {
    let right = |first: usize| run_of(20, move |id| (first..first + 8).contains(&id));
    let files = [("base", run_of(20, |id| id < 14)), ("lora,seed=1", right(0)), ("lora,seed=2", right(2))];
    let (table, _, markdown) = aggregate(&files, Value::Null);
    let lora = &table.benchmarks[0].rows[1];
    let versus = lora.versus_base.as_ref().unwrap();
    assert_eq!((lora.spread, versus.over_runs), (Some(0.0), None));
    assert!(close(&versus.per_run, &[-0.3, -0.3]) && versus.runs_agree_closely(), "{versus:?}");
    assert_eq!(versus.reach(), versus.interval);
    assert!(markdown.contains(", over runs no difference |"), "{markdown}");
}

#[test]
fn claims_about_what_is_not_measured_are_told() {
    let claims = json!({
        "source": "a paper",
        "lora": {"toy": {"direction": "up"}, "toys": {"direction": "up"}},
        "base,step=1": {"toy": 40.0},
    });
    let (table, _, markdown) =
        aggregate(&[("base", run_of(4, |_| true)), ("lora", run_of(4, |_| true))], claims);
    assert_eq!(table.unmeasured(), ["base,step=1 on toy", "lora on toys"]);
    let told = "not measured here\n\n- base,step=1 on toy\n- lora on toys\n\nMeasured: toy (base; lora).";
    assert!(markdown.contains(told), "{markdown}");
}

#[test]
fn claims_for_an_arm_that_has_no_samples_are_refused() {
    let stage = json!({"samples": {"base": "@g[base]", "lora": "@g[lora]"}, "claims": {"lroa": {"toy": 1}}});
    let stage: Aggregate = serde_json::from_value(stage).unwrap();
    let found: Vec<String> = Stage::check(&stage).into_iter().map(|p| p.param).collect();
    assert_eq!(found, ["claims.lroa"]);
}
