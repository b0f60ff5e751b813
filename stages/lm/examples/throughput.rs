//! Generation throughput of a checkpoint, as one line of JSON; `benches/throughput.py` runs it beside
//! `transformers`.
//!
//!     throughput MODEL BATCH PROMPT_TOKENS NEW_TOKENS [REPEATS] [tensors]
//!
//! Prompts are random and different, decoding is greedy and never stops early. Of the repeats the
//! fastest counts, since anything else running on the machine only adds time. Processor time is given
//! too (Linux, all threads): on a shared machine it is the steadier figure. `tensors` asks for burn's
//! tensor operations instead of the path written for the CPU.

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
        return Err("usage: throughput MODEL BATCH PROMPT_TOKENS NEW_TOKENS [REPEATS] [tensors]".into());
    };
    let batch: usize = batch.parse()?;
    let prompt: usize = prompt.parse()?;
    let new: usize = new.parse()?;
    let repeats = rest.first().map_or(Ok(3u64), |r| r.parse())?;
    let begin = Instant::now();
    let checkpoint = Checkpoint::open(Path::new(path))?;
    let model = Model::load(&checkpoint, &Device::flex(), DType::F32)?;
    let load = begin.elapsed().as_secs_f64();
    let tensors = rest.get(1).is_some_and(|word| word == "tensors");
    let options = EngineOptions { max_batch: batch, tensors, ..EngineOptions::default() };
    let mut engine = Engine::new(&model, None, None, options);
    let mut run = |max_tokens: usize, seed: u64| -> Result<(f64, f64), Box<dyn Error>> {
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
        let begin = processor_seconds();
        let out = engine.generate(&requests, |_| ControlFlow::Continue(()))?;
        let processor = processor_seconds() - begin;
        assert_eq!(out.statistics.generated_tokens, batch * max_tokens);
        Ok((out.statistics.elapsed.as_secs_f64(), processor))
    };
    let (mut prefill, mut total) = ((f64::INFINITY, f64::INFINITY), (f64::INFINITY, f64::INFINITY));
    let least = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.min(b.1));
    for repeat in 0..repeats {
        // New prompts every time: a prompt that is in the cache would not be computed.
        prefill = least(prefill, run(1, 2 * repeat)?);
        total = least(total, run(new, 2 * repeat + 1)?);
    }
    let steps = (new - 1) as f64;
    println!(
        "{{\"load_s\": {load:.3}, \"prefill_s\": {:.4}, \"step_s\": {:.6}, \"tokens_per_s\": {:.1}, \
         \"prefill_cpu_s\": {:.4}, \"step_cpu_s\": {:.6}}}",
        prefill.0,
        (total.0 - prefill.0) / steps,
        (batch * new) as f64 / total.0,
        prefill.1,
        (total.1 - prefill.1) / steps,
    );
    Ok(())
}

/// User and system time of this process in all its threads; 0 where `/proc` does not say.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}
