//! Learning from the model's own answers: rollouts, their rewards, and entropy.

use std::path::PathBuf;

use engine::kind::{Input, ParamProblem, StageError};
use grader::Method as Found;
use lm::generate::SamplingParams;
use lm::template::Shot;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trainer::Outcome;
use trainer::data::Batching;
use trainer::objective::entropy::Mask;
use trainer::rl::{EntropyOptions, Objective, RandomReward, Reward as Source, RlConfig};
use trainer::rollout::Rollout;
use trainer::trainee::Trainee;

use super::Task;
use super::watch::Watching;
use crate::adapter::AdapterParams;
use crate::model::read_shots;
use crate::questions::Question;
use crate::sampling::Sampling;

/// RLOO's settings.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rloo {
    /// How rollouts are drawn.
    pub rollouts: Rollouts,
    /// Where rewards come from.
    pub reward: Reward,
}

/// Settings of entropy minimisation on the model's own answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Entropy {
    /// How rollouts are drawn.
    pub rollouts: Rollouts,
    /// Temperature τ of the distributions whose entropy is minimised.
    pub tau: f64,
    /// Which positions count.
    pub mask: EntropyMask,
}

/// How rollouts are drawn.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rollouts {
    /// Updates.
    pub steps: u64,
    /// Prompts per update.
    pub prompts: usize,
    /// Answers per prompt.
    pub group: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Sequences generated at once, at most.
    pub batch: usize,
    /// Visit the prompts in another order every epoch.
    pub shuffle: bool,
    /// Worked examples before every question: JSON lines with `problem` and `solution`.
    pub examples: Option<Input>,
    /// How many of the examples are shown.
    pub shots: usize,
}

/// Where rewards come from.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Reward {
    /// The last boxed answer is compared with the right one; no box counts as wrong.
    Correct(Correct),
    /// A seeded coin, whatever the answer: the control arm that learns from noise.
    Random(Coin),
    /// The same for every answer: the control arm that cannot learn.
    Constant(Same),
}

/// The reward of a graded answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Correct {
    /// Reward of a right answer.
    pub right: f64,
    /// Reward of a wrong or missing one.
    pub wrong: f64,
    /// Judge by the Qwen2.5-Math rules for this data set instead of mathematical equality.
    pub qwen_data_name: Option<String>,
}

/// A seeded coin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Coin {
    /// How often the reward is `high`.
    pub probability: f64,
    /// The better reward.
    pub high: f64,
    /// The worse reward.
    pub low: f64,
}

/// One reward for all.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Same {
    /// The reward.
    pub value: f64,
}

/// Which positions of a rollout count in its entropy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntropyMask {
    /// Those that the answer's tokens were drawn at.
    #[default]
    Causal,
    /// Those of the published code: one to the right, since it does not shift its logits.
    Reference,
}

impl Default for Rloo {
    fn default() -> Self {
        Self { rollouts: Rollouts::default(), reward: Reward::Correct(Correct::default()) }
    }
}

impl Default for Entropy {
    fn default() -> Self {
        let rollouts = Rollouts { prompts: 1, group: 16, ..Rollouts::default() };
        Self { rollouts, tau: 0.5, mask: EntropyMask::Causal }
    }
}

impl Default for Rollouts {
    fn default() -> Self {
        let sampling = Sampling { temperature: 1.0, max_new_tokens: 1024, ..Sampling::default() };
        Self { steps: 20, prompts: 8, group: 8, sampling, batch: 64, shuffle: true, examples: None, shots: 0 }
    }
}

impl Default for Correct {
    fn default() -> Self {
        Self { right: 1.0, wrong: -1.0, qwen_data_name: None }
    }
}

impl Default for Coin {
    fn default() -> Self {
        Self { probability: 0.5, high: 1.0, low: -1.0 }
    }
}

impl Default for Same {
    fn default() -> Self {
        Self { value: 1.0 }
    }
}

impl Rollouts {
    /// Values out of range; `least` is the smallest group.
    fn check(&self, least: usize) -> Vec<ParamProblem> {
        let mut problems = self.sampling.check("method.rollouts.sampling");
        let mut wrong = |param: &str, message: String, help: String| {
            problems.push(ParamProblem { param: format!("method.rollouts.{param}"), message, help });
        };
        if self.steps == 0 {
            wrong("steps", "0 updates".into(), "write 1 or more".into());
        }
        if self.prompts == 0 {
            wrong("prompts", "0 prompts per update".into(), "write 1 or more".into());
        }
        if self.batch == 0 {
            wrong("batch", "0 sequences at once".into(), "write 1 or more".into());
        }
        if self.group < least {
            wrong("group", format!("{} answers per prompt", self.group), format!("write {least} or more"));
        }
        if self.sampling.temperature == 0.0 {
            let help = "write a positive temperature such as 1.0";
            wrong("sampling.temperature", "greedy answers are all alike".into(), help.into());
        }
        if (self.shots > 0) != self.examples.is_some() {
            let message = "shots need examples and examples need shots";
            wrong("shots", message.into(), "set both, or neither".into());
        }
        problems
    }

    /// The worked examples, in the file where `place` finds them.
    pub(super) fn shots(
        &self,
        place: impl Fn(&Input) -> Result<PathBuf, StageError>,
    ) -> Result<Vec<Shot>, StageError> {
        self.examples.as_ref().map_or(Ok(Vec::new()), |examples| read_shots(&place(examples)?, self.shots))
    }

    /// The trainer's settings.
    fn config(
        &self,
        task: &Task,
        sampling: SamplingParams,
        objective: Objective,
        reward: Source,
    ) -> RlConfig {
        let train = task.train;
        RlConfig {
            steps: self.steps,
            prompts: self.prompts,
            group: self.group,
            objective,
            reward,
            sampling,
            max_batch: self.batch,
            schedule: train.learning_rate(),
            optimizer: train.optimizer,
            batching: Batching { micro_tokens: task.micro_tokens, pack: false },
            recompute: train.recompute,
            dropout: train.adapter.as_ref().map_or(0.0, AdapterParams::dropout),
            shuffle: self.shuffle,
            seed: train.seed,
        }
    }
}

impl Rloo {
    pub(super) fn check(&self) -> Vec<ParamProblem> {
        self.rollouts.check(2)
    }

    /// Trains on rewarded rollouts of the rows' questions.
    pub(super) fn train(&self, task: &Task, trainee: Trainee) -> Result<Outcome, StageError> {
        let reward = match &self.reward {
            Reward::Correct(_) => Source::Graded,
            Reward::Random(coin) => Source::Random(RandomReward {
                probability: coin.probability,
                high: coin.high as f32,
                low: coin.low as f32,
            }),
            Reward::Constant(same) => Source::Constant(same.value as f32),
        };
        let correct = match &self.reward {
            Reward::Correct(correct) => correct.clone(),
            Reward::Random(_) | Reward::Constant(_) => Correct::default(),
        };
        self.rollouts.train(task, trainee, (Objective::Rloo, reward), &correct)
    }
}

impl Entropy {
    pub(super) fn check(&self) -> Vec<ParamProblem> {
        let mut problems = self.rollouts.check(1);
        if !(self.tau.is_finite() && self.tau > 0.0) {
            problems.push(ParamProblem {
                param: "method.tau".into(),
                message: format!("{} is no temperature", self.tau),
                help: "write a positive number such as 0.5".into(),
            });
        }
        problems
    }

    /// Trains on the entropy of rollouts of the rows' questions.
    pub(super) fn train(&self, task: &Task, trainee: Trainee) -> Result<Outcome, StageError> {
        let mask = match self.mask {
            EntropyMask::Causal => Mask::Causal,
            EntropyMask::Reference => Mask::Reference,
        };
        let objective = Objective::Entropy(EntropyOptions { temperature: self.tau as f32, mask });
        let source = (objective, Source::Constant(0.0));
        self.rollouts.train(task, trainee, source, &Correct::default())
    }
}

impl Rollouts {
    fn train(
        &self,
        task: &Task,
        trainee: Trainee,
        (objective, source): (Objective, Source),
        correct: &Correct,
    ) -> Result<Outcome, StageError> {
        let Task { train, ctx, opened, rows: questions, saving, .. } = *task;
        let shots = self.shots(|input| ctx.input(input))?;
        let prompts = questions
            .iter()
            .map(|question| Ok(train.prompt.prepare(opened, &question.problem, &shots)?.ids))
            .collect::<Result<Vec<_>, StageError>>()?;
        let template = train.prompt.template;
        let sampling = self.sampling.params(opened.stop_tokens(template), template);
        let config = self.config(task, sampling, objective, source);
        let prefix = train.prompt.assistant_prefix.as_str();
        let mut grade = |rollouts: &[Rollout]| {
            let reward = |rollout: &Rollout| correct.reward(&questions[rollout.prompt], prefix, rollout);
            Ok(rollouts.par_iter().map(reward).collect())
        };
        let tokenizer = Some(&opened.tokenizer);
        let mut watch = Watching { train, ctx, opened };
        trainer::rl::train(&config, trainee, &prompts, tokenizer, &mut grade, saving, &mut watch)
            .map_err(StageError::input)
    }
}

impl Correct {
    /// `right` if the last boxed answer is right. An answer without a box is wrong, however it ends.
    fn reward(&self, question: &Question, prefix: &str, rollout: &Rollout) -> f32 {
        let text = format!("{prefix}{}", rollout.sample.text);
        let name = self.qwen_data_name.as_deref().unwrap_or("math");
        let verdict = grader::grade_output(&text, &question.gold, name);
        let right = if self.qwen_data_name.is_some() { verdict.qwen } else { verdict.strict };
        let right = right && verdict.method == Found::Boxed;
        (if right { self.right } else { self.wrong }) as f32
    }
}

#[cfg(test)]
mod tests {
    use lm::generate::{FinishReason, Sample};

    use super::*;

    #[test]
    fn only_a_right_box_is_rewarded() {
        let question = Question {
            id: "0".into(),
            problem: String::new(),
            gold: "7".into(),
            solution: None,
            level: None,
            subject: None,
        };
        let reward = |text: &str| {
            let sample = Sample {
                ids: vec![],
                text: text.into(),
                logprobs: vec![],
                model_logprobs: vec![],
                finish: FinishReason::StopToken,
            };
            Correct::default().reward(&question, " To", &Rollout { prompt: 0, index: 0, sample })
        };
        assert_eq!(reward(r" so \boxed{7}."), 1.0);
        assert_eq!(reward(r"\boxed{7} no, \boxed{8}"), -1.0);
        assert_eq!(reward("the answer is 7"), -1.0);
        assert_eq!(reward(""), -1.0);
    }
}
