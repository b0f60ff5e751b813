//! The generation engine against `transformers`' greedy tokens and against the tensor path, and what
//! must not change a sample.

mod common;

use std::ops::ControlFlow;

use burn::tensor::activation::log_softmax;
use common::{Tiny, tensor, values};
use lm::generate::{
    ContextPolicy, Engine, EngineOptions, Event, FinishReason, GenerateError, Generation, Request, Sample,
    SamplingParams,
};

fn go(engine: &mut Engine, requests: &[Request]) -> Generation {
    engine.generate(requests, |_| ControlFlow::Continue(())).unwrap()
}

fn engine(tiny: &Tiny, options: EngineOptions) -> Engine<'static> {
    Engine::new(&tiny.model, None, None, options)
}

fn greedy(prompts: &[Vec<u32>], max_tokens: usize) -> Vec<Request> {
    let request = |prompt: &Vec<u32>| Request {
        prompt: prompt.clone(),
        seeds: vec![0],
        params: SamplingParams::greedy(max_tokens),
    };
    prompts.iter().map(request).collect()
}

/// Sampling that uses every transformation.
fn mixed(max_tokens: usize) -> SamplingParams {
    SamplingParams {
        temperature: 0.9,
        top_k: 40,
        top_p: 0.97,
        min_p: 0.001,
        repetition_penalty: 1.1,
        max_tokens,
        ..SamplingParams::default()
    }
}

#[test]
fn greedy_tokens_are_those_of_transformers() {
    for tiny in Tiny::all() {
        // The reference never chose a padding row; here nothing but the logits forbids it.
        if tiny.vocab_used < tiny.model.config().vocab_size {
            continue;
        }
        let out = go(&mut engine(&tiny, EngineOptions::default()), &greedy(&tiny.prompts, 16));
        for (samples, want) in out.samples.iter().zip(&tiny.greedy) {
            assert_eq!(&samples[0].ids, want, "{}", tiny.name);
            assert_eq!(samples[0].finish, FinishReason::Length);
        }
    }
}

/// Sampled log-probabilities at temperature 1 are those of the tensor path, which the trainer uses.
/// Both are f32 sums in different orders; tiny logits reach 15.
#[test]
fn log_probabilities_are_those_of_the_tensor_path() {
    for tiny in Tiny::all() {
        let request = Request {
            prompt: tiny.prompts[2].clone(),
            seeds: vec![1, 2],
            params: SamplingParams { max_tokens: 20, ..SamplingParams::default() },
        };
        let out = go(&mut engine(&tiny, EngineOptions::default()), std::slice::from_ref(&request));
        for sample in &out.samples[0] {
            let ids = [&request.prompt[..], &sample.ids].concat();
            let logits = tiny.model.forward(tensor(&[ids]), None);
            let logprobs = values(log_softmax(logits, 2));
            let vocab = tiny.model.config().vocab_size;
            for (i, &id) in sample.ids.iter().enumerate() {
                let want = logprobs[(request.prompt.len() - 1 + i) * vocab + id as usize];
                assert!((sample.model_logprobs[i] - want).abs() < 5e-5, "{}", tiny.name);
                assert!((sample.logprobs[i] - want).abs() < 5e-5, "{}", tiny.name);
            }
        }
    }
}

/// Twelve requests of different prompts and parameters.
fn crowd(tiny: &Tiny) -> Vec<Request> {
    let mut requests = Vec::new();
    for (i, prompt) in tiny.prompts.iter().chain(&tiny.input_ids).enumerate() {
        let seeds = vec![i as u64, 7];
        requests.push(Request { prompt: prompt.clone(), seeds, params: mixed(10 + 3 * i) });
        let params = SamplingParams { max_tokens: 12, ..SamplingParams::default() };
        requests.push(Request { prompt: prompt.clone(), seeds: vec![3], params });
    }
    requests
}

#[test]
fn a_sample_does_not_depend_on_batch_order_chunks_or_cache() {
    for name in ["qwen2-untied", "llama-gqa", "llama-head-dim", "llama-tied"] {
        let tiny = Tiny::load(name);
        let requests = crowd(&tiny);
        let alone: Vec<Vec<Sample>> = requests
            .iter()
            .map(|request| {
                let one = |seed: &u64| {
                    let request = Request { seeds: vec![*seed], ..request.clone() };
                    let mut engine = engine(&tiny, EngineOptions::default());
                    go(&mut engine, &[request]).samples.remove(0).remove(0)
                };
                request.seeds.iter().map(one).collect()
            })
            .collect();
        for (max_batch, prefill_tokens) in [(8, 512), (3, 512), (8, 4), (5, 1), (1, 7), (32, 33)] {
            let options =
                EngineOptions { max_batch, prefill_tokens: Some(prefill_tokens), ..EngineOptions::default() };
            let mut engine = engine(&tiny, options);
            // Twice: the second time every prompt is in the cache already.
            for _ in 0..2 {
                // Samples are equal to the bit, log-probabilities included.
                assert_eq!(go(&mut engine, &requests).samples, alone, "{name} {max_batch}");
            }
            let mut reversed = requests.clone();
            reversed.reverse();
            let mut samples = go(&mut engine, &reversed).samples;
            samples.reverse();
            assert_eq!(samples, alone, "{name} {max_batch} reversed");
        }
    }
}

#[test]
fn a_shared_prompt_is_computed_once() {
    let tiny = Tiny::load("llama-gqa");
    let prompt = tiny.input_ids[0].clone();
    for (max_batch, prefill_tokens) in [(8, 512), (3, 512), (8, 16)] {
        let options =
            EngineOptions { max_batch, prefill_tokens: Some(prefill_tokens), ..EngineOptions::default() };
        let request = Request { prompt: prompt.clone(), seeds: (0..8).collect(), params: mixed(16) };
        let out = go(&mut engine(&tiny, options), &[request]);
        // The first sample computes all 40 tokens, each other one the last.
        assert_eq!(out.statistics.prompt_tokens, 40 + 7);
        assert_eq!(out.statistics.reused_tokens, 7 * 39);
        assert_eq!(out.statistics.generated_tokens, 8 * 16);
        // Different seeds, different samples.
        assert_ne!(out.samples[0][0].ids, out.samples[0][1].ids);
    }
}

#[test]
fn a_few_shot_preamble_is_computed_once() {
    let tiny = Tiny::load("llama-gqa");
    let prompts: Vec<Vec<u32>> = (3..9).map(|q| [&tiny.input_ids[0][..], &[q, q + 1, q]].concat()).collect();
    let out = go(&mut engine(&tiny, EngineOptions::default()), &greedy(&prompts, 5));
    assert_eq!(out.statistics.prompt_tokens, 43 + 5 * 3);
}

#[test]
fn stop_tokens_end_a_sample_and_stay_in_it() {
    let tiny = Tiny::load("qwen2-untied");
    let mut requests = greedy(&tiny.prompts, 16);
    let stop = tiny.greedy[1][4];
    let first = tiny.greedy[1].iter().position(|&t| t == stop).unwrap();
    let other = (0..64).find(|id| !tiny.greedy[1].contains(id)).unwrap();
    requests[1].params.stop_token_ids = vec![other, stop];
    let out = go(&mut engine(&tiny, EngineOptions::default()), &requests);
    assert_eq!(out.samples[1][0].ids, tiny.greedy[1][..=first]);
    assert_eq!(out.samples[1][0].finish, FinishReason::StopToken);
    assert_eq!(out.samples[0][0].ids, tiny.greedy[0]);
}

#[test]
fn the_context_limit_refuses_or_clips_and_counts() {
    let tiny = Tiny::load("llama-gqa");
    let options = EngineOptions { context: Some(20), ..EngineOptions::default() };
    let requests = greedy(&tiny.prompts, 16); // prompts of 1, 5, 9 and 17 tokens
    let error =
        engine(&tiny, options.clone()).generate(&requests, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(error, GenerateError::Context { request: 1, prompt: 5, max_tokens: 16, context: 20 }),
        "{error}"
    );
    let clip = EngineOptions { context_policy: ContextPolicy::Clip, ..options };
    let out = go(&mut engine(&tiny, clip.clone()), &requests);
    assert_eq!(out.statistics.clipped_requests, 3);
    let lengths: Vec<usize> = out.samples.iter().map(|s| s[0].ids.len()).collect();
    assert_eq!(lengths, [16, 15, 11, 3]);
    // A prompt that leaves no room for a single token is refused even so.
    let full = greedy(&[vec![5; 20]], 1);
    assert!(engine(&tiny, clip).generate(&full, |_| ControlFlow::Continue(())).is_err());
}

#[test]
fn requests_that_cannot_be_served_are_errors() {
    let tiny = Tiny::load("llama-gqa");
    let attempt = |request: Request, options: EngineOptions| {
        engine(&tiny, options).generate(&[request], |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    let request =
        |prompt: &[u32], params: SamplingParams| Request { prompt: prompt.to_vec(), seeds: vec![0], params };
    let default = EngineOptions::default;
    let greedy = || SamplingParams::greedy(4);
    assert!(attempt(request(&[], greedy()), default()).contains("request 0 has an empty prompt"));
    assert!(attempt(request(&[1, 64], greedy()), default()).contains("token 64"));
    let stop = SamplingParams { stop_strings: vec!["x".into()], ..greedy() };
    assert!(attempt(request(&[1], stop), default()).contains("tokenizer"));
    let budget = EngineOptions { cache_bytes: Some(100), ..default() };
    assert!(attempt(request(&[1], greedy()), budget).contains("cache budget"));
    for (params, name) in [
        (SamplingParams { temperature: -1.0, ..greedy() }, "temperature"),
        (SamplingParams { temperature: f32::NAN, ..greedy() }, "temperature"),
        (SamplingParams { temperature: f32::INFINITY, ..greedy() }, "temperature"),
        (SamplingParams { temperature: 1e-39, ..greedy() }, "temperature"),
        (SamplingParams { top_p: 0.0, ..greedy() }, "top_p"),
        (SamplingParams { min_p: 1.0, ..greedy() }, "min_p"),
        (SamplingParams { repetition_penalty: 0.0, ..greedy() }, "repetition_penalty"),
        (SamplingParams::greedy(0), "max_tokens"),
    ] {
        assert!(attempt(request(&[1], params), default()).contains(name));
    }
}

#[test]
fn the_cache_budget_bounds_the_batch() {
    let tiny = Tiny::load("llama-gqa");
    // 2 layers, 2 key heads of 4, keys and values, 4 bytes: 128 bytes a token, 33 tokens at most
    let options = EngineOptions { cache_bytes: Some(128 * 33 * 2), ..EngineOptions::default() };
    let mut most = 0;
    let out = engine(&tiny, options)
        .generate(&greedy(&tiny.prompts, 16), |event| {
            if let Event::Step(statistics) = event {
                most = most.max(statistics.running);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(most, 2);
    assert_eq!(out.samples.len(), 4);
}

#[test]
fn finished_samples_are_reported_at_once_and_the_caller_can_stop() {
    let tiny = Tiny::load("llama-gqa");
    let mut requests = greedy(&tiny.prompts, 16);
    requests[2].params.max_tokens = 2;
    let mut seen = Vec::new();
    let error = engine(&tiny, EngineOptions::default()).generate(&requests, |event| match event {
        Event::Finished { request, index, sample } => {
            seen.push((request, index, sample.ids.len()));
            ControlFlow::Break(())
        }
        Event::Step(_) => ControlFlow::Continue(()),
    });
    assert!(matches!(error, Err(GenerateError::Stopped)));
    assert_eq!(seen, [(2, 0, 2)]);
}

/// The tensor path serves other devices; on the CPU it must give what the host path gives.
#[test]
fn the_tensor_path_generates_the_same() {
    for name in ["qwen2-untied", "llama-head-dim", "llama-tied"] {
        let tiny = Tiny::load(name);
        let requests = [crowd(&tiny), greedy(&tiny.prompts, 16)].concat();
        let want = go(&mut engine(&tiny, EngineOptions::default()), &requests).samples;
        for (max_batch, prefill_tokens) in [(32, 512), (3, 5)] {
            let options = EngineOptions {
                max_batch,
                prefill_tokens: Some(prefill_tokens),
                tensors: true,
                ..Default::default()
            };
            let got = go(&mut engine(&tiny, options), &requests).samples;
            for (a, b) in want.iter().flatten().zip(got.iter().flatten()) {
                assert_eq!(a.ids, b.ids, "{name}");
                assert!(common::max_diff(&a.model_logprobs, &b.model_logprobs) < 5e-5);
            }
        }
    }
}

#[test]
fn what_a_call_computed_serves_the_next() {
    let tiny = Tiny::load("llama-gqa");
    let mut engine = engine(&tiny, EngineOptions::default());
    let first = go(&mut engine, &greedy(&tiny.prompts, 16));
    let second = go(&mut engine, &greedy(&tiny.prompts, 16));
    assert_eq!(first.samples, second.samples);
    assert_eq!(first.statistics.prompt_tokens, 1 + 5 + 9 + 17);
    assert_eq!(second.statistics.prompt_tokens, 4);
}

#[test]
fn nothing_asked_nothing_made() {
    let tiny = Tiny::load("llama-gqa");
    let out = go(&mut engine(&tiny, EngineOptions::default()), &[]);
    assert!(out.samples.is_empty());
}
