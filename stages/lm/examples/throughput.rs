//! Generation throughput of a checkpoint, as one line of JSON; `benches/throughput.py` runs it beside
//! `transformers`.
//!
//!     throughput MODEL BATCH PROMPT_TOKENS NEW_TOKENS [REPEATS]
//!
//! Prompts are random and different, decoding is greedy and never stops early. Of the repeats the
//! fastest counts, since anything else running on the machine only adds time.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use burn::tensor::{DType, Device};
use lm::checkpoint::Checkpoint;
use lm::generate::{Engine, EngineOptions, Request, SamplingParams};
use lm::model::Model;
use lm::rng::Stream;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, batch, prompt, new, rest @ ..] = &args[..] else {
        return Err("usage: throughput MODEL BATCH PROMPT_TOKENS NEW_TOKENS [REPEATS]".into());
    };
    let batch: usize = batch.parse()?;
    let prompt: usize = prompt.parse()?;
    let new: usize = new.parse()?;
    let repeats = rest.first().map_or(Ok(3u64), |r| r.parse())?;
    let begin = Instant::now();
    let checkpoint = Checkpoint::open(Path::new(path))?;
    let model = Model::load(&checkpoint, &Device::flex(), DType::F32)?;
    let load = begin.elapsed().as_secs_f64();
    let options = EngineOptions { max_batch: batch, ..EngineOptions::default() };
    let mut engine = Engine::new(&model, None, None, options);
    let mut run = |max_tokens: usize, seed: u64| -> Result<f64, Box<dyn Error>> {
        let ids = |row: usize| {
            let stream = Stream::new(seed, row as u64);
            let vocab = model.config().vocab_size as u64;
            (0..prompt as u64).map(|i| (stream.bits(i) % vocab) as u32).collect()
        };
        let requests: Vec<Request> = (0..batch)
            .map(|row| Request {
                prompt: ids(row),
                seeds: vec![0],
                params: SamplingParams::greedy(max_tokens),
            })
            .collect();
        let out = engine.generate(&requests, |_| ControlFlow::Continue(()))?;
        assert_eq!(out.statistics.generated_tokens, batch * max_tokens);
        Ok(out.statistics.elapsed.as_secs_f64())
    };
    let (mut prefill, mut total) = (f64::INFINITY, f64::INFINITY);
    for repeat in 0..repeats {
        // New prompts every time: a prompt that is in the cache would not be computed.
        prefill = prefill.min(run(1, 2 * repeat)?);
        total = total.min(run(new, 2 * repeat + 1)?);
    }
    let step = (total - prefill) / (new - 1) as f64;
    println!(
        "{{\"load_s\": {load:.3}, \"prefill_s\": {prefill:.4}, \"step_s\": {step:.6}, \"tokens_per_s\": {:.1}}}",
        (batch * new) as f64 / total
    );
    Ok(())
}
