//! The kind `reference`: against `transformers`, and as what trainings share.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use engine::kind::{Stage, StageCtx};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use stages::kinds::reference::Reference;
use stages::kinds::train::Train;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math")
}

/// The rows of `scripts/reference.py`.
fn rows(count: u32) -> String {
    let row = |n: u32| {
        let (a, b) = (3 + n, 2 + n % 3);
        let c = a * b;
        json!({
            "problem": format!("Amy has {a} bags of {b} pens and loses 1 pen. How many pens does Amy have?"),
            "solution": format!("To find it, {a} * {b} = {c}. {c} - 1 = {}. \\boxed{{{}}}", c - 1, c - 1),
            "answer": (c - 1).to_string(),
        })
    };
    (0..count).map(|n| format!("{}\n", row(n))).collect()
}

/// A stage's folder, run on the tiny model, `rows`, and a reference.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(count: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rows.jsonl"), rows(count)).unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn inputs(&self) -> BTreeMap<String, PathBuf> {
        let inputs =
            [("model", model()), ("rows", self.at("rows.jsonl")), ("reference", self.at("reference"))];
        inputs.map(|(name, path)| (name.to_owned(), path)).into()
    }

    fn run<S: Stage>(&self, params: Value, out: &str) -> Result<(), String> {
        let stage: S = serde_json::from_value(params).unwrap();
        assert_eq!(stage.check(), []);
        let state = self.at(&format!("{out}.state"));
        for folder in [&self.at(out), &state] {
            fs::create_dir_all(folder).unwrap();
        }
        let ctx = StageCtx::detached(&self.at(out), &state, self.inputs());
        stage.run(&ctx).map_err(|error| error.message)
    }

    fn reference(&self, more: Value) {
        let mut params = json!({"model": "model", "data": "rows", "prompt": {"template": "question-answer"}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.run::<Reference>(params, "reference").unwrap();
    }

    fn values(&self) -> Vec<f32> {
        let bytes = fs::read(self.at("reference/reference.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor("log_probs").unwrap().data();
        data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

fn training(method: Value, more: Value) -> Value {
    let mut params = json!({"model": "model", "data": "rows", "lr": 1e-3, "seed": 5,
        "prompt": {"template": "question-answer"}, "method": method});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

/// Within 5e-5 of `transformers`, whether sequences are packed, padded or go through alone.
#[test]
fn log_probabilities_are_those_of_transformers() {
    let expected: Vec<Vec<f64>> = serde_json::from_str(include_str!("data/reference.json")).unwrap();
    for how in [json!({}), json!({"pack": false}), json!({"micro_tokens": 1, "pack": false})] {
        let bench = Bench::new(8);
        bench.reference(how.clone());
        let values = bench.values();
        assert_eq!(values.len(), expected.iter().map(Vec::len).sum::<usize>());
        let pairs = values.iter().zip(expected.iter().flatten());
        let worst = pairs.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        println!("{how}: {worst:e}");
        assert!(worst < 5e-5, "{how}: {worst:e}");
        let summary: Value =
            serde_json::from_slice(&fs::read(bench.at("reference/summary.json")).unwrap()).unwrap();
        assert_eq!((&summary["rows"], &summary["tokens"]), (&json!(8), &json!(values.len())));
    }
}

/// A training against the stage's reference is, to the last bit, the training that computes its own.
#[test]
fn a_training_does_the_same_with_a_reference_that_was_computed_before() {
    let demonstrations = json!({"steps": 4, "batch": 2});
    let methods = [
        json!({"type": "psft", "demonstrations": demonstrations}),
        json!({"type": "spft", "lambda": 0.5, "demonstrations": demonstrations}),
        json!({"type": "spft", "lambda": 2.0, "distance": "log_odds", "demonstrations": demonstrations}),
    ];
    for method in methods {
        for more in [json!({}), json!({"adapter": {"type": "lora", "rank": 2, "alpha": 2.0}})] {
            let bench = Bench::new(8);
            bench.reference(json!({}));
            let mut with = method.clone();
            with["reference"] = json!("reference");
            bench.run::<Train>(training(method.clone(), more.clone()), "own").unwrap();
            bench.run::<Train>(training(with, more.clone()), "shared").unwrap();
            let read = |name: &str| fs::read_to_string(bench.at(name)).unwrap();
            assert_eq!(read("own/metrics.jsonl"), read("shared/metrics.jsonl"), "{method} {more}");
            let weights = if more.get("adapter").is_some() {
                "adapter/adapter_model.safetensors"
            } else {
                "model/model.safetensors"
            };
            let bytes = |run: &str| fs::read(bench.at(run).join(weights)).unwrap();
            assert_eq!(bytes("own"), bytes("shared"), "{method} {more}");
        }
    }
}

#[test]
fn a_reference_for_other_rows_is_refused() {
    let bench = Bench::new(8);
    bench.reference(json!({"limit": 7}));
    let method = json!({"type": "psft", "reference": "reference"});
    let error = bench.run::<Train>(training(method.clone(), json!({})), "train").unwrap_err();
    assert!(error.contains("other sequences") && error.contains("reference.safetensors"), "{error}");
    bench.run::<Train>(training(method.clone(), json!({"limit": 7})), "train").unwrap();
    // and so is one that is to be taken anew
    let mut refreshed = method;
    refreshed["refresh_reference"] = json!(2);
    let stage: Train = serde_json::from_value(training(refreshed, json!({}))).unwrap();
    let params: Vec<String> = stage.check().into_iter().map(|problem| problem.param).collect();
    assert_eq!(params, ["method.refresh_reference"]);
}

/// What the program says when it runs or plans the sweep.
fn pipeline(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipeline"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PIPELINE_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(folder).env("XDG_CONFIG_HOME", folder.join("config"));
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

/// The key that `plan` foresees for the reference, and its forecast.
fn forecast(folder: &Path, set: &[&str]) -> (Value, Value) {
    let text = pipeline(folder, &[&["plan", "sweep.toml", "--device", "cpu", "--json"], set].concat());
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |stage: &str| lines.iter().find(|line| line["stage"] == stage).unwrap();
    assert!(of("train")["estimate"].is_null(), "a CPU has no GPU memory to speak of");
    let line = of("reference");
    (line["key"].clone(), line["forecast"].clone())
}

/// Learning rates and λ are swept over one reference: computed in the first run, cached in all others.
#[test]
fn a_sweep_computes_its_reference_once() {
    let bench = Bench::new(6);
    let folder = bench.folder.path();
    let manifest = format!(
        r#"
        name = "sweep"
        [vars]
        lr = 1e-3
        lambda = 1.0
        [stage.reference]
        kind = "reference"
        model = {model:?}
        data = "./rows.jsonl"
        prompt = {{ template = "question-answer" }}
        publish = "reference"
        [stage.train]
        kind = "train"
        model = {model:?}
        data = "./rows.jsonl"
        prompt = {{ template = "question-answer" }}
        lr = "${{lr}}"
        method = {{ type = "spft", lambda = "${{lambda}}", reference = "@reference", demonstrations = {{ steps = 3, batch = 2 }} }}
        publish = "train"
        "#,
        model = model().canonicalize().unwrap()
    );
    fs::write(folder.join("sweep.toml"), manifest).unwrap();
    let run = |set: &[&str]| pipeline(folder, &[&["run", "sweep.toml", "--device", "cpu"], set].concat());
    let published = |name: &str| fs::read(folder.join("results/sweep").join(name)).unwrap();
    let first = run(&[]);
    assert!(first.contains("2 ran"), "{first}");
    let reference = published("reference/reference.safetensors");
    let losses = published("train/metrics.jsonl");
    let (key, word) = forecast(folder, &[]);
    assert_eq!(word, "cached");
    for set in [["--set", "vars.lr=2e-3"], ["--set", "vars.lambda=0.5"]] {
        assert_eq!(forecast(folder, &set), (key.clone(), json!("cached")));
        let text = run(&set);
        assert!(text.contains("1 ran") && text.contains("1 cached"), "{text}");
        assert_eq!(published("reference/reference.safetensors"), reference);
        assert_ne!(published("train/metrics.jsonl"), losses);
    }
}
