//! The kind from files to files, on a model of a few thousand parameters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::tensor::{DType, Device};
use engine::kind::{Stage, StageCtx};
use lm::generate::{Engine, EngineOptions, FinishReason, Request, SamplingParams};
use lm::model::Model;
use serde_json::{Value, json};

use super::fit::too_large;
use super::{MicroTokens, Train};
use crate::kinds::init::Init;
use crate::kinds::tokenizer::Tokenizer;
use crate::model::OpenModel;

/// Runs the kind whose params are `params`; `inputs` are references with what they stand for.
fn run<S: Stage>(params: Value, inputs: &[(&str, &Path)], out: &Path) -> S {
    let stage: S = serde_json::from_value(params).unwrap();
    fs::create_dir_all(out).unwrap();
    let state = out.with_extension("state");
    fs::create_dir_all(&state).unwrap();
    let inputs = inputs.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned()));
    stage.run(&StageCtx::detached(out, &state, inputs.collect::<BTreeMap<_, _>>())).unwrap();
    stage
}

/// A base model knows the end of a text only. Taught to end its turns, it stops at the end of one:
/// its generation config lists that token, and generation with the listed tokens finishes there.
#[test]
fn a_base_model_taught_on_chats_stops_at_the_end_of_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("rows.jsonl"), json!({"problem": "a b", "solution": "c", "answer": "c"}).to_string())
        .unwrap();
    let rows = at("rows.jsonl");
    run::<Tokenizer>(json!({"data": "./rows", "vocab_size": 300}), &[("./rows", &rows)], &at("tokenizer"));
    let shape = json!({
        "tokenizer": "@t", "hidden_size": 32, "intermediate_size": 64, "num_layers": 1,
        "num_heads": 2, "num_kv_heads": 1, "context": 256,
    });
    run::<Init>(shape, &[("@t", &at("tokenizer"))], &at("base"));
    let params = json!({
        "model": "@base", "data": "./rows", "prompt": {"template": "chatml-sft"}, "lr": 0.02,
        "method": {"type": "sft", "steps": 40, "batch": 1},
    });
    let train: Train = run(params, &[("@base", &at("base")), ("./rows", &rows)], &at("out"));

    // what it would need on a GPU can be said before it runs, from its inputs alone
    let places = [("@base", at("base")), ("./rows", rows.clone())];
    let places = places.map(|(name, path)| (name.to_owned(), path)).into_iter().collect();
    let line = train.estimate(&places, "cuda:0").unwrap();
    assert!(
        line.starts_with("needs at least 0.") && line.contains("of GPU memory for sequences of "),
        "{line}"
    );
    assert_eq!(train.estimate(&BTreeMap::new(), "cuda:0"), None);
    assert_eq!(train.estimate(&places, "cpu"), None, "a CPU has no GPU memory to speak of");

    let base = OpenModel::open(&at("base")).unwrap();
    let end = base.tokenizer.token_id("<|im_end|>").unwrap();
    let text_end = base.tokenizer.token_id("<|endoftext|>").unwrap();
    let config: Value =
        serde_json::from_slice(&fs::read(at("out/model/generation_config.json")).unwrap()).unwrap();
    assert_eq!(config["eos_token_id"], json!([end, text_end]));

    let trained = OpenModel::open(&at("out/model")).unwrap();
    let model = Model::load(&trained.checkpoint, &Device::flex(), DType::F32).unwrap();
    let stops: Vec<u32> =
        config["eos_token_id"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let request = Request {
        prompt: train.prompt.prepare(&trained, "a b", &[]).unwrap().ids,
        seeds: vec![0],
        params: SamplingParams {
            temperature: 0.0,
            max_tokens: 20,
            stop_token_ids: stops,
            ..Default::default()
        },
    };
    let mut engine = Engine::new(&model, None, Some(&trained.tokenizer), EngineOptions::default());
    let made = engine.generate(&[request], |_| std::ops::ControlFlow::Continue(())).unwrap();
    let sample = &made.samples[0][0];
    assert_eq!(sample.finish, FinishReason::StopToken, "{:?}", sample.ids);
    assert_eq!(sample.ids.last(), Some(&end));
}

/// A training goes on from an adapter that another wrote: it starts where that one ended, to the bit.
#[test]
fn an_adapter_may_train_further() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let row =
        |i: u32| format!("{}\n", json!({"problem": format!("{i} + 1"), "solution": "2", "answer": "2"}));
    fs::write(at("rows.jsonl"), (0..6).map(row).collect::<String>()).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
    let inputs = [("m", &*model), ("r", &*at("rows.jsonl")), ("a", &*at("first"))]
        .map(|(name, path)| (name.to_owned(), path.to_owned()));
    let params = |rank: usize, more: Value| {
        let mut params = json!({
            "model": "m", "data": "r", "held_out": "r", "prompt": {"template": "question-answer"}, "lr": 0.05,
            "adapter": {"type": "lora", "rank": rank, "alpha": 4, "targets": ["q_proj", "down_proj"]},
            "method": {"type": "sft", "steps": 3, "batch": 2, "eval_at": [0]},
        });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let places: Vec<(&str, &Path)> = inputs.iter().map(|(name, path)| (&name[..], &**path)).collect();
    let losses = |out: &str| -> Vec<Value> {
        let text = fs::read_to_string(at(out).join("metrics.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    run::<Train>(params(2, json!({})), &places, &at("first"));
    run::<Train>(params(2, json!({"adapter_from": "a"})), &places, &at("second"));
    let (first, second) = (losses("first"), losses("second"));
    assert_eq!(second[0]["initial_held_out_loss"], first[2]["held_out_loss"]);
    assert_ne!(second[0]["initial_held_out_loss"], first[0]["initial_held_out_loss"]);

    let other: Train = serde_json::from_value(params(4, json!({"adapter_from": "a"}))).unwrap();
    let ctx = StageCtx::detached(dir.path(), dir.path(), inputs.clone().into());
    let error = other.run(&ctx).unwrap_err();
    assert!(error.message.contains("a LoRA of rank 2 and alpha 4 on down_proj, q_proj"), "{}", error.message);
    let mut whole = params(2, json!({"adapter_from": "a"}));
    whole.as_object_mut().unwrap().remove("adapter");
    let whole: Train = serde_json::from_value(whole).unwrap();
    assert_eq!(whole.check()[0].param, "adapter_from");
}

/// What a run that does not fit is told to set is a setting, with a value that it takes.
#[test]
fn advice_can_be_followed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut rows = String::new();
    for i in 0..40 {
        rows += &format!("{}\n", json!({"problem": format!("{i} + 1"), "solution": "x", "answer": "x"}));
    }
    fs::write(at("rows.jsonl"), rows).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
    let inputs = [("m".to_owned(), model), ("r".to_owned(), at("rows.jsonl"))].into();
    let params = json!({
        "model": "m", "data": "r", "prompt": {"template": "question-answer"}, "lr": 0.1,
        "method": {"type": "sft", "steps": 4, "batch": 32, "pack": false}, "micro_tokens": 8192,
    });
    let of = |params: &Value| {
        let train: Train = serde_json::from_value(params.clone()).unwrap();
        train.known_load(&inputs).unwrap()
    };
    let load = of(&params);
    assert!(load.rows > 1);
    let memory = load.with_rows(1).needs().total();
    assert!(load.needs().total() > memory);
    let error = too_large(&load, memory);
    let help = error.help.unwrap();
    for way in help.strip_prefix("set ").unwrap().split(", or ") {
        let mut followed = params.clone();
        for setting in way.split(" with ") {
            let (name, value) = setting.split_once(" = ").unwrap();
            followed[name] = serde_json::from_str(value).unwrap();
        }
        assert!(of(&followed).needs().total() <= memory, "{help}");
    }
}

#[test]
fn micro_batches_are_a_number_or_auto() {
    let of = |value: Value| serde_json::from_value::<MicroTokens>(value);
    assert_eq!(of(json!(4096)).unwrap(), MicroTokens::Tokens(4096));
    assert_eq!(of(json!("auto")).unwrap(), MicroTokens::default());
    assert!(of(json!("all")).is_err());
}
