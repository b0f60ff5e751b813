//! `pipeline bench generate`: how fast a device generates.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::DType;
use engine::cli::CliError;
use lm::checkpoint::Checkpoint;
use lm::generate::{Engine, EngineOptions, Event, Request, SamplingParams};
use lm::model::Model;
use lm::rng::Stream;
use serde_json::{Value, json};

use super::shape::Shape;
use crate::commands::failed;

/// Arguments of `bench generate`.
#[derive(Debug, clap::Args)]
pub struct Generate {
    /// Random weights of this model's shape.
    #[arg(long, value_enum, default_value = "qwen2.5-7b")]
    shape: Shape,
    /// A checkpoint folder or GGUF file instead.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Sequences at once.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Tokens of each prompt.
    #[arg(long, default_value_t = 128)]
    prompt: usize,
    /// Tokens generated for each.
    #[arg(long, default_value_t = 256)]
    new: usize,
    /// `cpu` or `cuda:N`.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Times to measure after the first, cold one.
    #[arg(long, default_value_t = 2)]
    repeats: u64,
    /// Draw tokens at this temperature; 0 is greedy.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Compute with burn's tensor operations.
    #[arg(long)]
    tensors: bool,
}

/// Reads a model's weights onto a device.
pub fn load(path: &Path, device: &str, dtype: DType) -> Result<Model, CliError> {
    let checkpoint = Checkpoint::open(path).map_err(failed)?;
    let device = lm::device::open(device).map_err(failed)?;
    Model::load(&checkpoint, &device, dtype).map_err(failed)
}

/// Random token ids.
pub fn prompt(vocab: usize, length: usize, seed: u64, row: u64) -> Vec<u32> {
    let stream = Stream::new(seed, row);
    (0..length as u64).map(|i| (stream.bits(i) % vocab as u64) as u32).collect()
}

/// The middle one of the times.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Generate {
    /// Measures.
    pub fn run(&self) -> Result<Value, CliError> {
        let begin = Instant::now();
        let dtype = lm::device::default_dtype(&self.device);
        let model = match &self.model {
            Some(path) => load(path, &self.device, dtype)?,
            None => {
                let device = lm::device::open(&self.device).map_err(failed)?;
                Model::noise(&self.shape.config()?, &device, dtype)
            }
        };
        let options =
            EngineOptions { max_batch: self.batch, tensors: self.tensors, ..EngineOptions::default() };
        let mut engine = Engine::new(&model, None, None, options);
        let loaded = begin.elapsed().as_secs_f64();
        let mut runs = Vec::new();
        for repeat in 0..=self.repeats {
            runs.push(self.once(&mut engine, model.config().vocab_size, repeat, begin)?);
        }
        Ok(json!({
            "device": self.device, "path": engine.path(), "batch": self.batch, "prompt": self.prompt,
            "new": self.new, "loaded_s": loaded, "graphs": engine.graphs(), "runs": runs,
        }))
    }

    /// One call of the engine: its times, the first of a process cold.
    fn once(&self, engine: &mut Engine, vocab: usize, seed: u64, start: Instant) -> Result<Value, CliError> {
        let params = SamplingParams { temperature: self.temperature, ..SamplingParams::greedy(self.new) };
        let requests: Vec<Request> = (0..self.batch as u64)
            .map(|row| Request {
                prompt: prompt(vocab, self.prompt, seed, row),
                seeds: vec![row],
                params: params.clone(),
            })
            .collect();
        let prompt_tokens = self.batch * self.prompt;
        let begin = Instant::now();
        let (mut first, mut last) = (None, begin);
        let mut steps = Vec::new();
        let out = engine.generate(&requests, |event| {
            if let Event::Step(statistics) = event {
                let now = Instant::now();
                let all_decode = statistics.waiting == 0 && statistics.generated_tokens > self.batch;
                if all_decode {
                    steps.push((now - last).as_secs_f64());
                }
                // Sequences whose prompt is done decode beside the prompts of others.
                if statistics.prompt_tokens + statistics.reused_tokens >= prompt_tokens {
                    first.get_or_insert(now);
                }
                last = now;
            }
            ControlFlow::Continue(())
        });
        let out = out.map_err(failed)?;
        let first = first.unwrap_or(last);
        let total = begin.elapsed().as_secs_f64();
        let mean = (last - first).as_secs_f64() / steps.len().max(1) as f64;
        let logprobs = out.samples.iter().flatten().flat_map(|s| &s.model_logprobs);
        let sum: f64 = logprobs.map(|&l| f64::from(l)).sum();
        Ok(json!({
            "first_token_after_start_s": (first - start).as_secs_f64(),
            "prefill_s": (first - begin).as_secs_f64(),
            "step_ms_median": median(&mut steps) * 1e3,
            "step_ms_mean": mean * 1e3,
            "tokens_per_s": out.statistics.generated_tokens as f64 / total,
            "total_s": total,
            "mean_logprob": sum / out.statistics.generated_tokens as f64,
        }))
    }
}
