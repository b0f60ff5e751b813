//! Reading results without the page: `pipeline samples`, `report` and `diff` after a run that grades
//! given answers, so that no model is needed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const MANIFEST: &str = r#"
name = "reading"
title = "Two arms"
[arm.base]
label = "Base"
[arm.base.grade]
samples = "./base.jsonl"
[arm.lora]
label = "LoRA"
[arm.lora.grade]
samples = "./lora.jsonl"
[stage.grade]
kind = "grade"
foreach = ["arm"]
benchmark = "toy"
[stage.table]
kind = "aggregate"
samples = "@grade[*]"
arms = "${arms}"
base = "base"
[stage.report]
kind = "report"
title = "${title}"
table = "@table"
samples = "@grade[*]"
arms = "${arms}"
publish = "report"
"#;

struct Place(tempfile::TempDir);

impl Place {
    /// A folder in which both arms have answered five questions.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("p.toml", MANIFEST);
        place.answers("base", ["4", "7", "[1,2)", "", "9"]);
        place.answers("lora", ["4", "6", "(1,2]", "8", "5"]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The right answers are 4, 6, [1,2), 8 and 9.
    fn answers(&self, arm: &str, answers: [&str; 5]) {
        let gold = ["4", "6", "[1,2)", "8", "9"];
        let line = |(id, answer): (usize, &&str)| {
            let text = match answer.is_empty() {
                true => "I think, and think".to_owned(),
                false => format!("Let me see.\nSo it is \\boxed{{{answer}}}."),
            };
            json!({"id": format!("q{id}"), "problem": format!("What is number {id}?"), "gold": gold[id],
                   "prompt": format!("Q: What is number {id}?\nA:"), "text": text, "tokens": 10 + id,
                   "finish": if answer.is_empty() { "length" } else { "stop" }})
            .to_string()
        };
        let lines: Vec<String> = answers.iter().enumerate().map(line).collect();
        self.write(&format!("{arm}.jsonl"), &(lines.join("\n") + "\n"));
    }

    fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipeline"));
        for name in
            ["PIPELINE_CACHE", "PIPELINE_RESULTS", "PIPELINE_JOBS", "PIPELINE_OFFLINE", "PIPELINE_MIRROR"]
        {
            command.env_remove(name);
        }
        command.args(args).current_dir(self.0.path()).env("PIPELINE_DEVICE", "cpu").env("TZ", "UTC");
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ids of the samples that a filter leaves.
    fn ids(&self, args: &[&str]) -> Vec<String> {
        let text = self.text(&[&["samples", "--json"], args].concat());
        let id = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            value["graded"]["sample"]["id"].as_str().unwrap().to_owned()
        };
        text.lines().map(id).collect()
    }
}

#[test]
fn samples_are_filtered_and_shown() {
    let place = Place::new();
    place.text(&["run", "p.toml"]);
    let filtered = |filter: &str| place.ids(&["grade[lora]", "--filter", filter]);
    assert_eq!(filtered("right"), ["q0", "q1", "q2", "q3"]);
    assert_eq!(filtered("wrong"), ["q4"]);
    assert_eq!(filtered("gained"), ["q1", "q3"]);
    assert_eq!(filtered("lost"), ["q4"]);
    assert_eq!(filtered("flipped"), ["q1", "q3", "q4"]);
    assert_eq!(filtered("disagree"), ["q2"]);
    assert_eq!(filtered("disagree,right"), ["q2"]);
    assert_eq!(place.ids(&["grade[base]", "--filter", "no-answer"]), ["q3"]);
    assert_eq!(place.ids(&["grade[base]", "--filter", "truncated"]), ["q3"]);
    assert_eq!(place.ids(&["grade", "--search", "number 4"]), ["q4", "q4"]);
    assert_eq!(place.ids(&["grade[lora]", "-n", "2"]), ["q0", "q1"]);
    // Against another arm than the base.
    let against = ["grade[base]", "--filter", "gained", "--against", "grade[lora]"];
    assert_eq!(place.ids(&against), ["q4"]);
    insta::assert_snapshot!(place.text(&["samples", "grade[lora]", "--filter", "flipped", "-n", "2"]));
    for wrong in [&["samples", "train"][..], &["samples", "grade", "--filter", "best"]] {
        assert_eq!(place.output(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let output = place.output(&["samples", "table"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("there are grade[base], grade[lora]"), "{told}");
}

#[test]
fn the_published_page_and_the_runs_tell_how_they_were_made() {
    let place = Place::new();
    place.text(&["run", "p.toml"]);
    let published = fs::read_to_string(place.path("results/reading/report/report.html")).unwrap();
    assert!(published.contains("id=\"made\"") && published.contains("grade[lora]"));
    assert!(!published.contains("from the cache"));
    // A run that has nothing to do changes nothing, and its own page says so.
    place.text(&["run", "p.toml"]);
    assert!(fs::read_to_string(place.path("results/reading/report/report.html")).unwrap() == published);
    let path = place.text(&["report"]);
    let page = fs::read_to_string(place.path(path.trim())).unwrap();
    assert!(page.contains("from the cache") && page.contains(", succeeded in"), "{path}");
    let first = place.text(&["runs", "--json"]).lines().last().map(str::to_owned).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    let args = ["report", first["run"].as_str().unwrap(), "--out", "first"];
    assert_eq!(place.text(&args).trim(), "first/report.html");
    assert!(fs::read_to_string(place.path("first/report.html")).unwrap().contains("✓ computed"));
    assert!(fs::read_to_string(place.path("first/report.md")).unwrap().contains("## How it was made"));
    assert_eq!(place.output(&["report", "nonesuch"]).status.code(), Some(2));
}

/// Three seeds of two arms through the program: mean, spread, each run and the interval over the runs,
/// alike in the table and in the report.
#[test]
fn several_seeds_are_combined_with_their_spread() {
    let place = Place::new();
    let seeds = [("base", ["4", "7", "[1,2)", "", "9"]), ("lora", ["4", "6", "(1,2]", "8", "5"])];
    for (arm, answers) in seeds {
        for seed in 1..4 {
            let mut answers = answers;
            // With each further seed the last answers are right.
            answers[..]
                .iter_mut()
                .zip(["4", "6", "[1,2)", "8", "9"])
                .rev()
                .take(seed - 1)
                .for_each(|(answer, gold)| *answer = gold);
            place.answers(&format!("{arm}-{seed}"), answers);
        }
    }
    let manifest = MANIFEST
        .replace("[stage.grade]", "[matrix]\nseed = [1, 2, 3]\n[stage.grade]")
        .replace("foreach = [\"arm\"]", "foreach = [\"arm\", \"seed\"]")
        .replace("./base.jsonl", "./base-${seed}.jsonl")
        .replace("./lora.jsonl", "./lora-${seed}.jsonl")
        .replace("base = \"base\"", "base = \"base\"\npublish = \"table\"");
    place.write("p.toml", &manifest);
    place.text(&["run", "p.toml"]);
    let table = fs::read_to_string(place.path("results/reading/table/table.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    let lora = &table["benchmarks"][0]["rows"][1];
    assert_eq!((&lora["runs"], &lora["samples"], &lora["questions"]), (&json!(3), &json!(15), &json!(5)));
    let per_run: Vec<f64> =
        lora["per_run"].as_array().unwrap().iter().map(|run| run["accuracy"].as_f64().unwrap()).collect();
    let mean = per_run.iter().sum::<f64>() / 3.0;
    let spread = (per_run.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    assert!((lora["accuracy"].as_f64().unwrap() - mean).abs() < 1e-12);
    assert!((lora["spread"].as_f64().unwrap() - spread).abs() < 1e-12 && spread > 0.0);
    let report = fs::read_to_string(place.path("results/reading/report/report.md")).unwrap();
    let each: Vec<String> =
        per_run.iter().enumerate().map(|(at, one)| format!("seed {}: {:.1}", at + 1, 100.0 * one)).collect();
    let row = format!("| LoRA | {} | {:.1} | {:.1} |", each.join(", "), 100.0 * mean, 100.0 * spread);
    assert!(report.contains(&row), "{row}\n{report}");
    assert!(
        report.contains(&format!("3 runs, standard deviation {:.1} points.", 100.0 * spread)),
        "{report}"
    );
    assert!(report.contains("; over the runs "), "{report}");
    // A stage is named by as many of its axes as one cares to write.
    assert_eq!(place.ids(&["grade[lora]", "-n", "0"]).len(), 15);
    assert_eq!(place.ids(&["grade[seed=2]"]).len(), 10);
    assert_eq!(place.ids(&["grade[lora, seed=2]", "--filter", "right"]).len(), 5);
    assert_eq!(place.output(&["samples", "grade[lora,seed=4]"]).status.code(), Some(2));
}

#[test]
fn a_run_without_a_report_says_why() {
    let place = Place::new();
    place.write("base.jsonl", "{\"id\":1}\n");
    assert_eq!(place.output(&["run", "p.toml"]).status.code(), Some(1));
    let output = place.output(&["report"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("grade[base] failed: ") && told.contains("missing field `gold`"), "{told}");
}

#[test]
fn diff_names_the_params_and_the_numbers_of_the_table() {
    let place = Place::new();
    place.text(&["run", "p.toml"]);
    place.text(&["run", "p.toml", "--set", "stage.grade.verdict=strict"]);
    let runs: Vec<Value> =
        place.text(&["runs", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = place.text(&["diff", runs[1]["run"].as_str().unwrap(), runs[0]["run"].as_str().unwrap()]);
    assert!(text.contains("param verdict: \"qwen\" → \"strict\""), "{text}");
    let number = "table.json: benchmarks[toy].rows[lora].accuracy: 0.8 → 0.6 (−0.2)";
    assert!(text.contains(number), "{text}");
}
