//! `train` and `eval` on the tiny model that the repository keeps.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use engine::kind::{Stage, StageCtx};
use serde_json::{Value, json};
use stages::kinds::eval::Eval;
use stages::kinds::init::Init;
use stages::kinds::prepare::Prepare;
use stages::kinds::reference::Reference;
use stages::kinds::synth::Synth;
use stages::kinds::tokenizer::Tokenizer;
use stages::kinds::train::Train;
use tempfile::TempDir;

/// Eight problems like those that the model knows.
fn rows() -> String {
    let row = |n: u32| {
        let (a, b) = (3 + n, 2 + n % 3);
        json!({
            "problem": format!("Amy has {a} bags of {b} pens and loses 1 pen. How many pens does Amy have?"),
            "solution": format!("To find it, {a} * {b} = {}. {} - 1 = {}. \\boxed{{{}}}", a * b, a * b, a * b - 1, a * b - 1),
            "answer": (a * b - 1).to_string(),
        })
        .to_string()
    };
    (0..8).map(|n| row(n) + "\n").collect()
}

struct Ran {
    out: TempDir,
    state: TempDir,
}

impl Ran {
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.out.path().join(name)).unwrap()
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        self.text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.out.path().join(name)).unwrap()
    }
}

/// Runs a stage on the tiny model and eight rows, going on from `state`.
fn run<S: Stage>(params: &Value, state: TempDir) -> Ran {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("rows.jsonl");
    fs::write(&file, rows()).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
    let inputs: BTreeMap<String, PathBuf> = [("model".to_owned(), model), ("rows".to_owned(), file)].into();
    let stage: S = serde_json::from_value(params.clone()).unwrap();
    assert_eq!(stage.check(), []);
    let out = tempfile::tempdir().unwrap();
    stage.run(&StageCtx::detached(out.path(), state.path(), inputs)).unwrap();
    for name in stage.outputs() {
        assert!(out.path().join(&name).exists(), "{name}");
    }
    Ran { out, state }
}

fn fresh() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn with(mut params: Value, more: Value) -> Value {
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

fn training(method: Value) -> Value {
    json!({"model": "model", "data": "rows", "held_out": "rows", "held_out_limit": 3, "lr": 1e-4,
        "prompt": {"template": "question-answer"}, "method": method})
}

fn demonstrations(steps: u64) -> Value {
    json!({"steps": steps, "batch": 2, "eval_at": [0]})
}

#[test]
fn a_snapshot_is_what_a_shorter_training_ends_with() {
    let method = |steps: u64| with(json!({"type": "sft"}), demonstrations(steps));
    let long =
        run::<Train>(&with(training(method(3)), json!({"snapshots": [1, 2], "masters": true})), fresh());
    let short = run::<Train>(&training(method(2)), fresh());
    assert_eq!(long.bytes("snapshots/2/model.safetensors"), short.bytes("model/model.safetensors"));
    assert_ne!(long.bytes("snapshots/1/model.safetensors"), short.bytes("model/model.safetensors"));
    // On a CPU the model is f32, as its masters are.
    assert_eq!(long.bytes("masters/model.safetensors"), long.bytes("model/model.safetensors"));
}

#[test]
fn a_snapshot_of_an_adapter_outlives_a_killed_run() {
    let adapter = json!({"adapter": {"type": "bias"}, "snapshots": [1]});
    let rollouts =
        json!({"steps": 2, "prompts": 2, "group": 2, "sampling": {"temperature": 1.0, "max_new_tokens": 8}});
    let params = with(training(json!({"type": "rloo", "rollouts": rollouts})), adapter);
    let whole = run::<Train>(&params, fresh());
    // What a run that was killed after its last save leaves: the state, and the snapshot in it.
    let again = run::<Train>(&params, whole.state);
    for file in ["snapshots/1/bias.safetensors", "adapter/bias.safetensors"] {
        assert_eq!(fs::read(whole.out.path().join(file)).unwrap(), again.bytes(file));
    }
    let summary: Value = serde_json::from_str(&again.text("summary.json")).unwrap();
    assert_eq!(summary["vector_norms"].as_array().unwrap().len(), 4);
    assert_eq!(summary["rollouts"], 8);
    assert!(summary["generated_tokens"].as_f64().unwrap() > 0.0);
}

#[test]
fn rollouts_may_follow_worked_examples() {
    let tokens = |more: Value| {
        let sampling = json!({"temperature": 1.0, "max_new_tokens": 8});
        let rollouts = with(json!({"steps": 1, "prompts": 2, "group": 2, "sampling": sampling}), more);
        let method = json!({"type": "entropy", "rollouts": rollouts});
        let ran = run::<Train>(&with(training(method), json!({"adapter": {"type": "bias"}})), fresh());
        ran.lines("metrics.jsonl")[0]["entropy"].as_f64().unwrap()
    };
    let plain = tokens(json!({}));
    // The same seeds and questions: only the examples before them can move the distributions.
    assert_ne!(plain, tokens(json!({"examples": "rows", "shots": 2})));
}

#[test]
fn methods_start_from_the_same_bits() {
    let start = |method: Value| {
        let ran = run::<Train>(&training(method), fresh());
        ran.lines("metrics.jsonl")[0]["initial_held_out_loss"].as_f64().unwrap().to_bits()
    };
    let sft = start(with(json!({"type": "sft"}), demonstrations(1)));
    let psft = start(json!({"type": "psft", "demonstrations": demonstrations(1)}));
    let spft = start(json!({"type": "spft", "demonstrations": demonstrations(1)}));
    assert_eq!((sft, sft), (psft, spft));
}

#[test]
fn a_trained_model_stops_where_it_was_taught_to() {
    let method = with(json!({"type": "sft"}), demonstrations(1));
    let chat = with(training(method), json!({"prompt": {"template": "chat"}}));
    let ran = run::<Train>(&chat, fresh());
    let config: Value = serde_json::from_str(&ran.text("model/generation_config.json")).unwrap();
    let tokenizer: Value = serde_json::from_str(&ran.text("model/tokenizer.json")).unwrap();
    let tokens = tokenizer["added_tokens"].as_array().unwrap();
    let end = tokens.iter().find(|token| token["content"] == "<|im_end|>").unwrap();
    assert_eq!(config["eos_token_id"][0], end["id"]);
}

#[test]
fn who_gave_no_box_is_asked_once_more() {
    let params = json!({"model": "model", "questions": "rows", "prompt": {"template": "question-answer"},
        "sampling": {"max_new_tokens": 4}, "retry": {"text": "\nSo \\boxed{", "max_new_tokens": 6}});
    let first = run::<Eval>(&params, fresh());
    let samples = first.lines("samples.jsonl");
    assert_eq!(samples.len(), 8);
    for sample in &samples {
        assert_eq!(sample["finish"], "length");
        assert!(sample.get("seconds").is_none(), "the same samples are the same bytes");
        let retry = sample["retry"]["text"].as_str().unwrap();
        assert!(retry.starts_with("\nSo \\boxed{") && retry.len() > 12, "{retry}");
    }
    let timing: Value = serde_json::from_str(&first.text("timing.json")).unwrap();
    assert_eq!(timing["retries"]["samples"], 8);
    assert_eq!(timing["computed_by"], "host");
    // Nothing is generated again, and nothing is lost.
    let text = first.text("samples.jsonl");
    assert_eq!(run::<Eval>(&params, first.state).text("samples.jsonl"), text);
}

#[test]
fn a_recipe_may_set_variables_of_the_chat_template() {
    let folder = fresh();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
    for file in fs::read_dir(tiny).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let template = "Today is {{ date_string }}. {{ messages[0]['content'] }}";
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    fs::write(folder.path().join("rows.jsonl"), rows()).unwrap();
    let inputs: BTreeMap<String, PathBuf> = [
        ("model".to_owned(), folder.path().to_owned()),
        ("rows".to_owned(), folder.path().join("rows.jsonl")),
    ]
    .into();
    let params = json!({"model": "model", "questions": "rows", "limit": 1, "sampling": {"max_new_tokens": 1},
        "prompt": {"template": "chat", "variables": {"date_string": "30 November"}}});
    let stage: Eval = serde_json::from_value(params).unwrap();
    let out = fresh();
    stage.run(&StageCtx::detached(out.path(), out.path(), inputs)).unwrap();
    let sample = fs::read_to_string(out.path().join("samples.jsonl")).unwrap();
    assert!(sample.contains("Today is 30 November. Amy has"), "{sample}");
}

/// What an evaluation needs of a GPU is said from its inputs alone, and not said of a CPU.
#[test]
fn an_evaluation_says_beforehand_what_it_needs_of_a_gpu() {
    let folder = fresh();
    fs::write(folder.path().join("rows.jsonl"), rows()).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
    let inputs = [("model".to_owned(), model), ("rows".to_owned(), folder.path().join("rows.jsonl"))].into();
    let params = json!({"model": "model", "questions": "rows", "samples": 3, "batch": 16,
        "sampling": {"max_new_tokens": 200, "temperature": 1.0}, "prompt": {"template": "question-answer"}});
    let stage: Eval = serde_json::from_value(params).unwrap();
    let line = stage.estimate(&inputs, "cuda:0").unwrap();
    assert!(line.starts_with("needs 0.7 GB of GPU memory for 16 sequences of 2"), "{line}");
    assert_eq!(stage.estimate(&inputs, "cpu"), None);
    assert_eq!(stage.estimate(&BTreeMap::new(), "cuda:0"), None);
}

#[test]
fn what_does_not_fit_the_context_is_refused_or_clipped() {
    let params = |clip: bool| {
        json!({"model": "model", "questions": "rows", "limit": 1, "prompt": {"template": "question-answer"},
            "sampling": {"max_new_tokens": 1_000_000}, "clip": clip})
    };
    let stage: Eval = serde_json::from_value(params(false)).unwrap();
    let data = fresh();
    fs::write(data.path().join("rows.jsonl"), rows()).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
    let inputs = [("model".to_owned(), model), ("rows".to_owned(), data.path().join("rows.jsonl"))].into();
    let error = stage.run(&StageCtx::detached(data.path(), data.path(), inputs)).unwrap_err();
    assert!(error.help.unwrap().contains("clip = true"));
    let ran = run::<Eval>(&params(true), fresh());
    let timing: Value = serde_json::from_str(&ran.text("timing.json")).unwrap();
    assert_eq!(timing["clipped_questions"], 1);
}

/// Every count that leaves a stage, or one behind it, without work.
#[test]
fn counts_of_nothing_are_named_before_anything_runs() {
    fn found<S: Stage>(params: Value) -> Vec<String> {
        let stage: S = serde_json::from_value(params).unwrap();
        stage.check().into_iter().map(|problem| problem.param).collect()
    }
    let eval = |count: &str| json!({"model": "@m", "questions": "@q", count: 0});
    for count in ["limit", "samples", "batch"] {
        assert_eq!(found::<Eval>(eval(count)), [count]);
    }
    for count in ["train", "test"] {
        assert_eq!(found::<Synth>(json!({count: 0})), [count]);
    }
    for count in ["limit", "micro_tokens"] {
        assert_eq!(found::<Reference>(json!({"model": "@m", "data": "@d", count: 0})), [count]);
    }
    assert_eq!(found::<Tokenizer>(json!({"data": "@d", "max_length": 0})), ["max_length"]);
    assert_eq!(found::<Prepare>(json!({"data": "@d", "model": "@m", "max_tokens": 0})), ["max_tokens"]);
    let shape = json!({
        "tokenizer": "@t", "hidden_size": 32, "intermediate_size": 64, "num_layers": 1,
        "num_heads": 2, "num_kv_heads": 1, "context": 256,
    });
    for count in ["intermediate_size", "num_layers", "context"] {
        assert_eq!(found::<Init>(with(shape.clone(), json!({count: 0}))), [count]);
    }
    for (method, least) in [("rloo", 2), ("entropy", 1)] {
        for count in ["steps", "prompts", "batch", "group"] {
            let mut rollouts = json!({"group": least, "sampling": {"temperature": 1.0}});
            rollouts[count] = json!(0);
            let params = training(json!({"type": method, "rollouts": rollouts}));
            assert_eq!(found::<Train>(params), [format!("method.rollouts.{count}")]);
        }
    }
}

#[test]
fn impossible_trainings_are_named_before_anything_runs() {
    let found = |params: Value| -> Vec<String> {
        let stage: Train = serde_json::from_value(params).unwrap();
        stage.check().into_iter().map(|problem| problem.param).collect()
    };
    let rollouts = json!({"steps": 0, "sampling": {"temperature": 1.0}});
    for (method, param) in [
        (json!({"type": "sft", "steps": 0}), "method.steps"),
        (json!({"type": "psft", "demonstrations": {"steps": 0}}), "method.demonstrations.steps"),
        (json!({"type": "spft", "demonstrations": {"steps": 0}}), "method.demonstrations.steps"),
        (json!({"type": "rloo", "rollouts": rollouts}), "method.rollouts.steps"),
        (json!({"type": "entropy", "rollouts": rollouts}), "method.rollouts.steps"),
    ] {
        assert_eq!(found(training(method)), [param]);
    }
    for (method, param) in [
        (json!({"type": "psft", "clip": {"high": -0.1}}), "method.clip.high"),
        (json!({"type": "psft", "clip": {"low": -0.5}}), "method.clip.low"),
    ] {
        assert_eq!(found(training(method)), [param]);
    }
    for (settings, param) in [
        (json!({"lr_floor": 1.5}), "lr_floor"),
        (json!({"limit": 0}), "limit"),
        (json!({"held_out_limit": 0}), "held_out_limit"),
        (json!({"optimizer": {"beta2": 1.0}}), "optimizer.beta2"),
        (json!({"optimizer": {"eps": 0.0}}), "optimizer.eps"),
        (json!({"optimizer": {"eps": -1e-8}}), "optimizer.eps"),
        (json!({"optimizer": {"eps": 1e-60}}), "optimizer.eps"),
        (json!({"optimizer": {"weight_decay": -0.1}}), "optimizer.weight_decay"),
    ] {
        assert_eq!(found(with(training(json!({"type": "sft", "steps": 3})), settings)), [param]);
    }
    let shots = json!({"rollouts": {"shots": 2, "sampling": {"temperature": 1.0}}, "type": "rloo"});
    assert_eq!(found(training(shots)), ["method.rollouts.shots"]);
    let late = with(training(json!({"type": "sft", "steps": 3})), json!({"snapshots": [3, 4, 0]}));
    assert_eq!(found(late), ["snapshots", "snapshots"]);
    let adapter = json!({"adapter": {"type": "bias"}, "masters": true});
    assert_eq!(found(with(training(json!({"type": "sft", "steps": 3})), adapter)), ["masters"]);
}
