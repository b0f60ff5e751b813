//! `pipeline bench admission`: what it costs those who decode that others join them.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use engine::cli::CliError;
use lm::generate::{Engine, EngineOptions, Event, Request, SamplingParams};
use lm::model::Model;
use serde_json::{Value, json};

use super::generate::{load, median, prompt};
use super::shape::Shape;
use crate::commands::failed;

/// Steps before and after an admission that it is compared with.
const AROUND: usize = 8;
/// Steps from one admission to the next.
const APART: usize = 3 * AROUND;

/// Arguments of `bench admission`.
#[derive(Debug, clap::Args)]
pub struct Admission {
    /// Random weights of this model's shape.
    #[arg(long, value_enum, default_value = "qwen2.5-7b")]
    shape: Shape,
    /// A checkpoint folder or GGUF file instead.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Sequences that decode.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Tokens of their prompts.
    #[arg(long, default_value_t = 128)]
    prompt: usize,
    /// Tokens of a prompt that joins.
    #[arg(long, default_value_t = 100)]
    join: usize,
    /// How many join, one at a time, each in the place of one that ends; at most the batch.
    #[arg(long, default_value_t = 8)]
    joins: usize,
    /// `cpu` or `cuda:N`.
    #[arg(long, default_value = "cuda:0")]
    device: String,
}

/// One step: when it ended, and the prompt tokens it computed.
struct Step {
    seconds: f64,
    prompt_tokens: usize,
}

impl Admission {
    /// Measures: a first time cold, then warm.
    pub fn run(&self) -> Result<Value, CliError> {
        let dtype = lm::device::default_dtype(&self.device);
        let model = match &self.model {
            Some(path) => load(path, &self.device, dtype)?,
            None => {
                let device = lm::device::open(&self.device).map_err(failed)?;
                Model::noise(&self.shape.config()?, &device, dtype)
            }
        };
        let options = EngineOptions { max_batch: self.batch, ..EngineOptions::default() };
        let mut engine = Engine::new(&model, None, None, options);
        let vocab = model.config().vocab_size;
        let runs: Vec<Value> =
            (0..2).map(|seed| self.once(&mut engine, vocab, seed)).collect::<Result<_, _>>()?;
        Ok(json!({
            "device": self.device, "path": engine.path(), "batch": self.batch, "prompt": self.prompt,
            "join": self.join, "graphs": engine.graphs(), "runs": runs,
        }))
    }

    /// The requests: a batch of which every [`APART`] steps one ends, and as many that take its place.
    fn requests(&self, vocab: usize, seed: u64) -> Vec<Request> {
        let joins = self.joins.min(self.batch);
        let last = APART * (joins + 1);
        let request = |row: usize, length, new| Request {
            prompt: prompt(vocab, length, seed, row as u64),
            seeds: vec![row as u64],
            params: SamplingParams::greedy(new),
        };
        let first = (0..self.batch).map(|row| {
            let new = if row < joins { APART * (row + 1) } else { last };
            request(row, self.prompt, new)
        });
        let later = (0..joins).map(|row| request(self.batch + row, self.join, last - APART * (row + 1)));
        first.chain(later).collect()
    }

    fn once(&self, engine: &mut Engine, vocab: usize, seed: u64) -> Result<Value, CliError> {
        let requests = self.requests(vocab, seed);
        let (mut last, mut prompts) = (Instant::now(), 0);
        let mut steps = Vec::new();
        let out = engine.generate(&requests, |event| {
            if let Event::Step(statistics) = event {
                let now = Instant::now();
                let computed = statistics.prompt_tokens - prompts;
                steps.push(Step { seconds: (now - last).as_secs_f64(), prompt_tokens: computed });
                (last, prompts) = (now, statistics.prompt_tokens);
            }
            ControlFlow::Continue(())
        });
        out.map_err(failed)?;
        Ok(around(&steps))
    }
}

/// Medians over the admissions, in milliseconds: steps before one, the steps that computed its prompt
/// (in sum), steps after.
fn around(steps: &[Step]) -> Value {
    // the batch's own prompts come first
    let begin = steps.iter().position(|step| step.prompt_tokens == 0).unwrap_or(steps.len());
    let (mut before, mut at, mut after, mut took) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut index = begin;
    while index < steps.len() {
        if steps[index].prompt_tokens == 0 {
            index += 1;
            continue;
        }
        let with = steps[index..].iter().take_while(|step| step.prompt_tokens > 0).count();
        let seconds = |range: &[Step]| range.iter().map(|step| step.seconds * 1e3).collect::<Vec<_>>();
        before.extend(seconds(&steps[index.saturating_sub(AROUND).max(begin)..index]));
        at.push(seconds(&steps[index..index + with]).iter().sum());
        took.push(with);
        index += with;
        after.extend(seconds(&steps[index..(index + AROUND).min(steps.len())]));
    }
    let most = at.iter().copied().fold(f64::NAN, f64::max);
    json!({
        "admissions": at.len(), "steps_of_an_admission": took.iter().max(), "before_ms": median(&mut before),
        "at_ms": median(&mut at), "at_most_ms": most, "after_ms": median(&mut after),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_with_prompts_are_told_from_those_around() {
        let step = |ms: f64, prompt_tokens| Step { seconds: ms / 1e3, prompt_tokens };
        let mut steps = vec![step(50.0, 512), step(40.0, 100)];
        for _ in 0..2 {
            steps.extend((0..20).map(|_| step(5.0, 0)));
            steps.extend([step(6.0, 60), step(7.0, 40)]);
        }
        steps.extend((0..20).map(|_| step(8.0, 0)));
        let found = around(&steps);
        assert_eq!(found["admissions"], 2);
        assert_eq!(found["steps_of_an_admission"], 2);
        let ms = |name: &str| (found[name].as_f64().unwrap() * 1e6).round() / 1e6;
        assert_eq!((ms("before_ms"), ms("at_ms"), ms("at_most_ms")), (5.0, 13.0, 13.0));
    }

    /// Every joiner comes alone, into a batch that decodes.
    #[test]
    fn those_who_join_join_one_at_a_time() {
        let bench = Admission {
            shape: Shape::Tiny,
            model: None,
            batch: 4,
            prompt: 9,
            join: 5,
            joins: 3,
            device: "cpu".into(),
        };
        let result = bench.run().unwrap();
        for run in result["runs"].as_array().unwrap() {
            assert_eq!(run["admissions"], 3, "{result}");
            assert_eq!(run["steps_of_an_admission"], 1);
        }
    }
}
