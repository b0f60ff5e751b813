//! `pipeline bench rollout-step`: whole updates of reinforcement learning from the model's own answers.

use clap::ValueEnum;
use engine::cli::CliError;
use lm::generate::SamplingParams;
use lm::rng::Stream;
use rayon::prelude::*;
use serde_json::{Value, json};
use trainer::data::Batching;
use trainer::rl::{RlConfig, train};
use trainer::rollout::Rollout;
use trainer::{Control, Progress, Saving};

use super::shape::Shape;
use super::train::{What, memory, trainee};
use crate::commands::failed;

/// Arguments of `bench rollout-step`.
#[derive(Debug, clap::Args)]
pub struct RolloutStep {
    /// The model's shape; its weights are random.
    #[arg(long, value_enum, default_value = "qwen2.5-7b")]
    shape: Shape,
    /// What trains.
    #[arg(long, value_enum, default_value = "bias")]
    method: What,
    /// Rank of LoRA.
    #[arg(long, default_value_t = 16)]
    rank: usize,
    /// Prompts per update.
    #[arg(long, default_value_t = 8)]
    prompts: usize,
    /// Answers per prompt.
    #[arg(long, default_value_t = 8)]
    group: usize,
    /// Tokens of each prompt.
    #[arg(long, default_value_t = 128)]
    prompt: usize,
    /// Tokens of each answer; none stops early.
    #[arg(long, default_value_t = 1024)]
    new: usize,
    /// Sequences that go through the model at once in the update.
    #[arg(long, default_value_t = 8)]
    micro_batch: usize,
    /// Keep activations for the backward pass instead of recomputing them.
    #[arg(long)]
    keep: bool,
    /// Updates; the first compiles and tunes.
    #[arg(long, default_value_t = 2)]
    steps: u64,
    /// The device, `cpu` or `cuda:N`.
    #[arg(long, default_value = "cpu")]
    device: String,
}

impl RolloutStep {
    /// Measures.
    pub fn run(&self) -> Result<Value, CliError> {
        let device = lm::device::open(&self.device).map_err(failed)?;
        let trainee = trainee(self.shape, self.method, self.rank, &self.device)?;
        let config = RlConfig {
            steps: self.steps,
            prompts: self.prompts,
            group: self.group,
            sampling: SamplingParams { temperature: 1.0, max_tokens: self.new, ..SamplingParams::default() },
            max_batch: self.prompts * self.group,
            batching: Batching { micro_tokens: self.micro_batch * (self.prompt + self.new), pack: false },
            recompute: !self.keep,
            ..RlConfig::default()
        };
        let prompts = self.random_prompts()?;
        let answer = worked_answer(self.new);
        let mut grade = |rollouts: &[Rollout]| Ok(graded(rollouts, &answer));
        let mut updates = Vec::new();
        let mut watch = |progress: &Progress| {
            let (metrics, timing) = (&progress.metrics.values, &progress.timing.values);
            updates.push(
                json!({"seconds": timing, "metrics": metrics, "gigabytes": memory(&device, &self.device)}),
            );
            Control::Continue
        };
        let saving = Saving::default();
        train(&config, trainee, &prompts, None, &mut grade, &saving, &mut watch).map_err(failed)?;
        Ok(json!({
            "shape": self.shape.name(),
            "method": self.method.to_possible_value().map(|value| value.get_name().to_owned()),
            "prompts": self.prompts, "group": self.group, "prompt": self.prompt, "new": self.new,
            "micro_batch": self.micro_batch, "recompute": !self.keep, "device": self.device,
            "updates": updates,
        }))
    }

    /// Random prompts, no two alike.
    fn random_prompts(&self) -> Result<Vec<Vec<u32>>, CliError> {
        let vocab = self.shape.config()?.vocab_size as u64;
        let prompt = |index: u64| {
            let stream = Stream::new(2, index);
            (0..self.prompt as u64).map(|i| (stream.bits(i) % vocab) as u32).collect()
        };
        Ok((0..self.prompts as u64 * self.steps).map(prompt).collect())
    }
}

/// A worked answer of about `tokens` tokens that ends in a box. Random weights write no text, so this is
/// what is graded in its place.
fn worked_answer(tokens: usize) -> String {
    let line = "We have $\\frac{3}{4} \\cdot 16 = 12$ apples, and $12 - 5 = 7$ of them are left over.\n";
    let lines = line.repeat(tokens / 32);
    format!("{lines}The final answer is $\\boxed{{\\frac{{14}}{{2}}}}$.")
}

/// A reward for each rollout: its answer is graded as a training grades it, against a right answer for
/// every other one and a wrong one for the rest, so that every rollout has an advantage.
fn graded(rollouts: &[Rollout], answer: &str) -> Vec<f32> {
    let reward = |rollout: &Rollout| {
        let gold = if rollout.index.is_multiple_of(2) { "7" } else { "8" };
        if grader::grade_output(answer, gold, "math").strict { 1.0 } else { -1.0 }
    };
    rollouts.par_iter().map(reward).collect()
}

#[cfg(test)]
mod tests {
    use lm::generate::{FinishReason, Sample};

    use super::*;

    #[test]
    fn every_other_answer_is_right() {
        let sample = Sample {
            ids: vec![],
            text: String::new(),
            logprobs: vec![],
            model_logprobs: vec![],
            finish: FinishReason::Length,
        };
        let rollouts: Vec<Rollout> =
            (0..4).map(|index| Rollout { prompt: 0, index, sample: sample.clone() }).collect();
        assert_eq!(graded(&rollouts, &worked_answer(256)), [1.0, -1.0, 1.0, -1.0]);
    }
}
