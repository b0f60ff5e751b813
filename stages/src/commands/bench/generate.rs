//! `pipeline bench generate` and `check`: how fast a device generates, and whether it agrees with the
//! CPU.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::DType;
use engine::cli::CliError;
use lm::checkpoint::Checkpoint;
use lm::generate::{Engine, EngineOptions, Event, Request, Sample, SamplingParams};
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

/// Arguments of `bench check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A checkpoint folder or GGUF file.
    model: PathBuf,
    /// The device to check.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Prompts, random.
    #[arg(long, default_value_t = 8)]
    prompts: usize,
    /// Tokens generated for each.
    #[arg(long, default_value_t = 32)]
    new: usize,
    /// Draw at this temperature instead of greedily.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Keep the k likeliest tokens.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Keep the likeliest tokens whose probabilities reach this sum.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Samples per prompt.
    #[arg(long, default_value_t = 1)]
    samples: u64,
}

fn load(path: &Path, device: &str, dtype: DType) -> Result<Model, CliError> {
    let checkpoint = Checkpoint::open(path).map_err(failed)?;
    let device = lm::device::open(device).map_err(failed)?;
    Model::load(&checkpoint, &device, dtype).map_err(failed)
}

fn prompt(vocab: usize, length: usize, seed: u64, row: u64) -> Vec<u32> {
    let stream = Stream::new(seed, row);
    (0..length as u64).map(|i| (stream.bits(i) % vocab as u64) as u32).collect()
}

/// The middle one of the times.
fn median(times: &mut [f64]) -> f64 {
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
                if statistics.generated_tokens >= self.batch {
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

impl Check {
    /// Compares.
    pub fn run(&self) -> Result<Value, CliError> {
        let want = self.generate("cpu", DType::F32)?.0;
        let (have, path) = self.generate(&self.device, lm::device::default_dtype(&self.device))?;
        let (mut equal, mut compared, mut tokens) = (0, 0, 0);
        let (mut worst, mut sum, mut drawn) = (0f32, 0f64, 0f64);
        for (a, b) in want.iter().zip(&have) {
            let same = a.ids.iter().zip(&b.ids).take_while(|(x, y)| x == y).count();
            equal += usize::from(a.ids == b.ids);
            compared += same;
            tokens += a.ids.len();
            for (x, y) in a.model_logprobs.iter().zip(&b.model_logprobs).take(same) {
                worst = worst.max((x - y).abs());
                sum += f64::from((x - y).abs());
            }
            for (x, y) in a.logprobs.iter().zip(&b.logprobs).take(same) {
                drawn += f64::from((x - y).abs());
            }
        }
        Ok(json!({
            "path": path, "samples": want.len(), "equal_samples": equal, "tokens": tokens,
            "tokens_before_the_first_difference": compared,
            "worst_logprob_difference": worst, "mean_logprob_difference": sum / compared.max(1) as f64,
            "mean_difference_as_drawn": drawn / compared.max(1) as f64,
        }))
    }

    fn generate(&self, device: &str, dtype: DType) -> Result<(Vec<Sample>, &'static str), CliError> {
        let model = load(&self.model, device, dtype)?;
        let vocab = model.config().vocab_size;
        let params = SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            ..SamplingParams::greedy(self.new)
        };
        let requests: Vec<Request> = (0..self.prompts as u64)
            .map(|row| Request {
                prompt: prompt(vocab, 5 + 13 * row as usize, 1, row),
                seeds: (0..self.samples).collect(),
                params: params.clone(),
            })
            .collect();
        let mut engine = Engine::new(&model, None, None, EngineOptions::default());
        let out = engine.generate(&requests, |_| ControlFlow::Continue(())).map_err(failed)?;
        Ok((out.samples.into_iter().flatten().collect(), engine.path()))
    }
}
