//! A real model: SmolLM2-135M-Instruct's greedy tokens against `transformers`' on the same dequantised
//! weights in f32 (`tests/scripts/smollm2_greedy.py`). The weights are too large to keep here, so this
//! runs where LM_SMOLLM2_GGUF names the file `SmolLM2-135M-Instruct.Q4_1.gguf`.

mod common;

use std::ops::ControlFlow;
use std::path::PathBuf;

use burn::tensor::{DType, Device};
use lm::checkpoint::Checkpoint;
use lm::generate::{Engine, EngineOptions, Request, SamplingParams};
use lm::model::Model;
use lm::tokenizer::Tokenizer;

#[derive(serde::Deserialize)]
struct Case {
    text: String,
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    logprobs: Vec<f32>,
}

#[test]
fn greedy_tokens_of_a_real_model_are_those_of_transformers() {
    let Some(file) = std::env::var_os("LM_SMOLLM2_GGUF").map(PathBuf::from) else {
        eprintln!("skipped: LM_SMOLLM2_GGUF is not set");
        return;
    };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/smollm2/greedy.json");
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(cases.len(), 10);
    let checkpoint = Checkpoint::open(&file).unwrap();
    let model = Model::load(&checkpoint, &Device::flex(), DType::F32).unwrap();
    let tokenizer = Tokenizer::for_checkpoint(&checkpoint).unwrap();
    let requests: Vec<Request> = cases
        .iter()
        .map(|case| {
            assert_eq!(tokenizer.encode_with_specials(&case.text).unwrap(), case.prompt);
            let params = SamplingParams { stop_token_ids: vec![2], ..SamplingParams::greedy(64) };
            Request { prompt: case.prompt.clone(), seeds: vec![0], params }
        })
        .collect();
    let mut engine = Engine::new(&model, None, Some(&tokenizer), EngineOptions::default());
    let out = engine.generate(&requests, |_| ControlFlow::Continue(())).unwrap();
    for (case, samples) in cases.iter().zip(&out.samples) {
        assert_eq!(samples[0].ids, case.greedy, "{}", case.text);
        let diff = common::max_diff(&samples[0].model_logprobs, &case.logprobs);
        assert!(diff < 1e-3, "{}: {diff}", case.text);
    }
}
