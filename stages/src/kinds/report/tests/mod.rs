//! The report of made-up results.

mod browser;
mod pages;

use std::collections::BTreeMap;
use std::path::Path;

use engine::facts::{Facts, Made, StageFacts, StageState};
use engine::kind::{Input, Stage, StageCtx};

use super::*;
use crate::samples::{Graded, Sample};
use crate::samples_of_tests::{example_metrics, example_table};

const ARMS: [(&str, &str); 5] = [
    ("base", "Base"),
    ("steer", "Steering vectors"),
    ("lora", "LoRA"),
    ("random", "Random reward"),
    ("prefix", "Base + “To” prefix"),
];

fn graded(arm: usize, id: usize, questions: usize) -> Graded {
    let correct = (id * 7 + arm * 3) % 10 < 5 + arm;
    let problem = format!(
        "Amy has ${id}$ apples & buys 5 more; one costs $3, and the other $4. Is <b>{id}</b> + 5 < 100? \
         Let $x = \\sqrt{{{id}}}$. How many has she now?"
    );
    let truncated = id % 40 == 3;
    let answer = if correct { id + 5 } else { id + 6 };
    let text = match truncated {
        true => "And so on. ".repeat(60),
        false => {
            let work = if questions > 1000 { work(id, arm) } else { String::new() };
            format!(
                "{work}Größe: to solve this,\n\\[{id} + 5 = \\frac{{{answer}}}{{1}}.\\]\n</script> The $\\broken{{$ rest is \
                 easy. The answer is \\boxed{{{answer}}}."
            )
        }
    };
    let span = text.find("boxed{").map(|at| (at + 6, at + 6 + answer.to_string().len()));
    Graded {
        benchmark: if id * 5 < questions { "amc23" } else { "word problems" }.into(),
        sample: Sample {
            id: format!("test-{id}"),
            sample: 0,
            prompt: format!("<|user|>{problem}<|assistant|>"),
            problem,
            gold: (id + 5).to_string(),
            tokens: 30,
            finish: if truncated { "length" } else { "stop" }.into(),
            seconds: 0.1,
            level: Some((id % 3 + 1).to_string()),
            subject: None,
            retry: None,
            text,
        },
        extracted: if truncated { String::new() } else { answer.to_string() },
        method: if truncated { "none" } else { "boxed" }.into(),
        span,
        qwen: correct && !truncated,
        strict: correct && !truncated && !id.is_multiple_of(17),
        reasons: ("numeric".into(), "exact".into()),
        correct: correct && !truncated,
        repetition: if truncated { 0.9 } else { 0.0 },
    }
}

/// As much text as models write, no two alike.
fn work(id: usize, arm: usize) -> String {
    let mut seed = (id * 5 + arm) as u64 + 1;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 54
    };
    let words = ["First", "then", "so", "the number of", "apples", "each", "costs", "twice", "as", "before"];
    let mut line = || {
        let said: Vec<&str> = (0..8).map(|_| words[next() as usize % words.len()]).collect();
        format!("{} \\({} + {} = {}\\).\n", said.join(" "), next(), next(), next())
    };
    (0..8).map(|_| line()).collect()
}

/// Runs the stage over five arms that answered this many questions.
fn report(out: &Path, questions: usize) -> Report {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("table.json"), serde_json::to_string(&example_table()).unwrap()).unwrap();
    let mut inputs = BTreeMap::from([("@table".to_owned(), dir.path().to_owned())]);
    let mut samples = Inputs::default();
    for (arm, (name, _)) in ARMS.iter().enumerate() {
        let path = dir.path().join(format!("{name}-graded.jsonl"));
        let lines: Vec<String> =
            (0..questions).map(|id| serde_json::to_string(&graded(arm, id, questions)).unwrap()).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        inputs.insert(format!("@grade[{name}]"), path);
        samples.0.insert((*name).into(), Input::new(format!("@grade[{name}]")));
    }
    let mut metrics = Inputs::default();
    for (label, lines) in example_metrics() {
        let path = dir.path().join(format!("{label}-trained"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("metrics.jsonl"), lines).unwrap();
        std::fs::write(path.join("summary.json"), SUMMARY).unwrap();
        inputs.insert(format!("@train[{label}]"), path);
        metrics.0.insert(label.clone(), Input::new(format!("@train[{label}]")));
    }
    let made =
        [("@data/counts.json", "counts.json", COUNTS), ("@convert[steer]", "equivalence.json", EQUIVALENCE)];
    for (reference, name, text) in made {
        std::fs::write(dir.path().join(name), text).unwrap();
        inputs.insert(reference.into(), dir.path().join(name));
    }
    let timing = dir.path().join("timing.json");
    std::fs::write(&timing, r#"{"samples":200,"tokens":6280,"seconds":12.5,"tokens_per_second":502.4}"#)
        .unwrap();
    inputs.insert("@eval[base]/timing.json".into(), timing);
    let timings = Inputs([("base".into(), Input::new("@eval[base]/timing.json"))].into());
    let stage = Report {
        title: "Five arms on a <tiny> model".into(),
        summary: "Do steering vectors alone reach what LoRA reaches?".into(),
        table: Input::new("@table"),
        samples,
        metrics,
        timings,
        data: Inputs([("data".into(), Input::new("@data/counts.json"))].into()),
        conversions: Inputs([("steer".into(), Input::new("@convert[steer]"))].into()),
        budget: Budget { updates: Some(200.0), ..Budget::default() },
        curves: Vec::new(),
        arms: ARMS.map(|(name, label)| Arm { name: name.into(), label: label.into() }).to_vec(),
        deviations: Value::Null,
    };
    stage.run(&StageCtx::detached(out, out, inputs)).unwrap();
    stage
}

const COUNTS: &str = r#"{"read":7473,"train":4800,"held_out":128,"dropped":{"beyond_limit":2541,
    "contaminated_words":4,"duplicate":0},"benchmarks":{"amc23":{"exact":0,"template":0,"words":4,"questions":3}},
    "boxes_added":7469,"tokens":null}"#;

const EQUIVALENCE: &str = r#"{"probes":4,"positions":90,"max_logit_difference":0.000031,"tolerance":0.001,
    "serving_dtype":"bfloat16","argmax_flips":1,"argmax_ties":1}"#;

const SUMMARY: &str = r#"{"updates":80,"trained_parameters":512,"generated_tokens":96000,
    "vector_norms":[0.5,0.75,1.25,1.0],"seconds":{"rollout":60.0,"update":18.0,"grading":2.0}}"#;

/// A run of the five arms.
fn facts() -> Facts {
    let mut stages: Vec<StageFacts> = Vec::new();
    let mut add = |name: String, kind: &str, arm: Option<&str>, needs: Vec<usize>| {
        stages.push(StageFacts {
            name,
            kind: kind.into(),
            arm: arm.map(str::to_owned),
            needs,
            state: StageState::Done,
            error: None,
            made: Some(made(kind)),
        });
        stages.len() - 1
    };
    let data = add("data".into(), "synth", None, vec![]);
    let mut grades = Vec::new();
    for (arm, _) in ARMS {
        let mut needs = vec![data];
        if !["base", "prefix"].contains(&arm) {
            let train = add(format!("train[{arm}]"), "train", Some(arm), vec![data]);
            needs.push(add(format!("convert[{arm}]"), "convert", Some(arm), vec![train]));
        }
        let eval = add(format!("eval[{arm}]"), "eval", Some(arm), needs);
        grades.push(add(format!("grade[{arm}]"), "grade", Some(arm), vec![eval]));
    }
    let table = add("table".into(), "aggregate", None, grades.clone());
    add("report".into(), "report", None, [grades, vec![table]].concat());
    Facts {
        experiment: "five-arms".into(),
        manifest: "manifests/five-arms.toml".into(),
        manifest_digest: "ab".repeat(32),
        sets: vec!["vars.title=two words".into()],
        run: None,
        stages,
    }
}

fn made(kind: &str) -> Made {
    let gpus = u32::from(["train", "eval"].contains(&kind));
    Made {
        key: "0123456789abcdef".repeat(4),
        output: "fedcba9876543210".repeat(4),
        size: 123_456,
        code_version: 1,
        params: serde_json::json!({"seed": 11, "limit": null}),
        inputs: BTreeMap::from([("@data".to_owned(), "cd".repeat(32))]),
        environment: BTreeMap::from([("dtype".to_owned(), "bf16".to_owned())]),
        pins: BTreeMap::from([("hf:org/model".to_owned(), "ef".repeat(32))]),
        run: "20261130-142932-123abc".into(),
        started: "2026-11-30T14:29:32Z".into(),
        seconds: 83.2,
        device: if gpus > 0 { "cuda:0" } else { "cpu" }.into(),
        gpus,
        peak_memory: 2_345_678_901,
        peak_gpu_memory: u64::from(gpus) * 5_432_100_000,
        machine: BTreeMap::from([("cpu".to_owned(), "2 × A Processor".to_owned())]),
        tool_version: "0.1.0".into(),
    }
}

/// The page's data, as its script parses it.
fn data_of(html: &str) -> Value {
    let (_, after) = html.split_once("<script type=\"application/gzip\" id=\"data\">").unwrap();
    let (packed, _) = after.split_once("</script>").unwrap();
    serde_json::from_str(&pack::unpack(packed).unwrap()).unwrap()
}

#[test]
fn the_page_holds_everything_and_asks_for_nothing() {
    // `REPORT_OUT` keeps the page for a look, `REPORT_QUESTIONS` makes it larger.
    let kept = std::env::var_os("REPORT_OUT");
    let temporary = tempfile::tempdir().unwrap();
    let out = kept.as_ref().map_or(temporary.path(), Path::new);
    let questions = std::env::var("REPORT_QUESTIONS").map_or(100, |n| n.parse().unwrap());
    report(out, questions);
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("<h1>Five arms on a &lt;tiny&gt; model</h1>"));
    for needle in ["more than chance explains", "8 × 8 rollouts", "show=gained", "Accuracy by level", "<svg"]
    {
        assert!(html.contains(needle), "{needle}");
    }
    // Nothing is loaded: no address in an attribute that loads, no import, no url().
    for loading in ["src=", "@import", "url(", "<link rel=\"stylesheet\"", "fetch("] {
        assert!(!html.contains(loading), "{loading}");
    }
    let data = data_of(&html);
    let all = data["questions"].as_array().unwrap();
    assert_eq!(all.len(), questions);
    assert_eq!(data["prompts"], serde_json::json!(["<|user|>\u{0}<|assistant|>"]));
    assert_eq!(data["runs"][0]["base"], Value::Null);
    assert_eq!(data["runs"][2], serde_json::json!({"arm": "lora", "label": "LoRA", "base": 0}));
    for question in all {
        assert_eq!(question["answers"].as_array().unwrap().len(), 5);
    }
    // Spans count UTF-16 units, as scripts do: the text has letters of two bytes before it.
    let answer = &all[1]["answers"][0][0];
    let units: Vec<u16> = answer["text"].as_str().unwrap().encode_utf16().collect();
    let [start, end] = [0, 1].map(|i| answer["span"][i].as_u64().unwrap() as usize);
    assert_eq!(String::from_utf16(&units[start..end]).unwrap(), answer["extracted"].as_str().unwrap());
}

#[test]
fn a_page_without_mathematics_carries_no_typesetter() {
    let out = tempfile::tempdir().unwrap();
    report(out.path(), 10);
    let html = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(html.contains("id=\"katex-script\"") && html.contains("name=\"math\""));
    let stage: Report = serde_json::from_value(serde_json::json!({"title": "t", "table": "@table"})).unwrap();
    let table = out.path().join("table.json");
    std::fs::write(&table, serde_json::to_string(&example_table()).unwrap()).unwrap();
    let inputs = BTreeMap::from([("@table".to_owned(), table)]);
    stage.run(&StageCtx::detached(out.path(), out.path(), inputs)).unwrap();
    let html = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(!html.contains("katex-script\"") && !html.contains("name=\"math\""));
}

#[test]
fn the_same_inputs_and_the_same_facts_give_the_same_files() {
    let [one, two] = [(); 2].map(|()| {
        let out = tempfile::tempdir().unwrap();
        let stage = report(out.path(), 20);
        stage.complete(out.path(), &facts()).unwrap();
        ["report.html", "report.md"].map(|name| std::fs::read(out.path().join(name)).unwrap())
    });
    assert!(one == two);
    let html = String::from_utf8_lossy(&one[0]);
    assert!(
        html.contains("<a href=\"#made\">") && html.contains("eval[steer]") && !html.contains("<!--made")
    );
    assert!(
        html.contains("pipeline run manifests&#x2f;five-arms.toml --set &#x27;vars.title=two words&#x27;")
    );
}

#[test]
fn the_markdown_is_whole() {
    let out = tempfile::tempdir().unwrap();
    report(out.path(), 10).complete(out.path(), &facts()).unwrap();
    let text = std::fs::read_to_string(out.path().join("report.md")).unwrap();
    insta::assert_snapshot!(text);
}
