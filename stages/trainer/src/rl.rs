//! Training on the policy's own samples: RLOO with rewards, and entropy minimisation without.

use std::ops::Range;

use burn::tensor::Tensor;
use lm::generate::{GenerateError, SamplingParams};
use lm::rng::Stream;
use lm::tokenizer::Tokenizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::checkpoint::Identity;
use crate::data::{Batch, Batching, Order, Sequence};
use crate::driver::{Clock, Metrics, Outcome, Run, Saving, Update, Watch, apply};
use crate::gradient::{Pass, dropout};
use crate::loss::RowValues;
use crate::objective::entropy::Mask;
use crate::objective::{Diagnostic, TokenLoss, entropy, rloo};
use crate::optim::AdamW;
use crate::parallel::{evaluate_all, gradients};
use crate::rollout::{Rollout, Sampler, repetition, seed};
use crate::schedule::Schedule;
use crate::sft::digest;
use crate::trainee::Trainee;

/// What is minimised over the generated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// REINFORCE with leave-one-out baseline, at the temperature that was sampled at: [`rloo`].
    #[default]
    Rloo,
    /// Mean entropy of the policy's distributions; rewards are not asked for: [`entropy`].
    Entropy(EntropyOptions),
}

/// Settings of entropy minimisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EntropyOptions {
    /// Temperature τ of the distributions whose entropy is minimised.
    pub temperature: f32,
    /// Which positions count.
    pub mask: Mask,
}

impl Default for EntropyOptions {
    fn default() -> Self {
        Self { temperature: 0.5, mask: Mask::Causal }
    }
}

/// Where rewards come from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum Reward {
    /// The grading function that the caller hands in.
    #[default]
    Graded,
    /// `high` with a probability, else `low`, seeded: the control arm that learns from noise.
    Random(RandomReward),
    /// The same for every rollout: the control arm that cannot learn.
    Constant(f32),
}

/// A seeded coin for each rollout.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandomReward {
    /// How often the reward is `high`.
    pub probability: f64,
    /// The better reward.
    pub high: f32,
    /// The worse reward.
    pub low: f32,
}

impl Default for RandomReward {
    fn default() -> Self {
        Self { probability: 0.5, high: 1.0, low: -1.0 }
    }
}

/// Grades rollouts, all of one step at once: a reward for each, or what went wrong.
pub type Grade<'a> = dyn FnMut(&[Rollout]) -> Result<Vec<f32>, String> + 'a;

/// Settings of a run on rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RlConfig {
    /// Updates.
    pub steps: u64,
    /// Prompts per update.
    pub prompts: usize,
    /// Samples per prompt.
    pub group: usize,
    /// What is minimised.
    pub objective: Objective,
    /// Where rewards come from.
    pub reward: Reward,
    /// How tokens are sampled. The stop token is part of a rollout and trains with it.
    pub sampling: SamplingParams,
    /// Sequences that are generated at once, at most. Does not change results.
    pub max_batch: usize,
    /// Learning rate.
    pub schedule: Schedule,
    /// Optimiser.
    pub optimizer: AdamW,
    /// How sequences share a forward pass.
    pub batching: Batching,
    /// Recompute activations in the backward pass instead of keeping them.
    pub recompute: bool,
    /// Share of the inputs of LoRA's factors that training sets to zero.
    pub dropout: f64,
    /// Visit the prompts in another order every epoch.
    pub shuffle: bool,
    /// Seed of prompt order, rollouts and random rewards.
    pub seed: u64,
}

impl Default for RlConfig {
    fn default() -> Self {
        Self {
            steps: 20,
            prompts: 8,
            group: 8,
            objective: Objective::Rloo,
            reward: Reward::Graded,
            sampling: SamplingParams::default(),
            max_batch: 64,
            schedule: Schedule::default(),
            optimizer: AdamW { weight_decay: 0.0, max_grad_norm: 2.0, ..AdamW::default() },
            batching: Batching::default(),
            recompute: false,
            dropout: 0.0,
            shuffle: true,
            seed: 0,
        }
    }
}

impl RlConfig {
    fn check(&self) -> Result<(), TrainError> {
        self.schedule.check()?;
        self.optimizer.check()?;
        if self.steps == 0 {
            return Err(TrainError::config("steps", "0 updates", "write at least 1"));
        }
        if self.prompts == 0 {
            return Err(TrainError::config("prompts", "0 prompts per update", "write at least 1"));
        }
        let least = if self.objective == Objective::Rloo { 2 } else { 1 };
        if self.group < least {
            return Err(TrainError::config(
                "group",
                format!("{} samples per prompt", self.group),
                format!("write at least {least}: a sample is compared with the others of its group"),
            ));
        }
        if self.sampling.temperature <= 0.0 {
            return Err(TrainError::config(
                "sampling.temperature",
                "greedy decoding gives every sample of a group the same text",
                "write a positive temperature such as 1.0",
            ));
        }
        if let Objective::Entropy(options) = self.objective
            && !(options.temperature > 0.0 && options.temperature.is_finite())
        {
            return Err(TrainError::config(
                "objective.entropy.temperature",
                format!("{} is not a temperature", options.temperature),
                "write a positive number such as 0.5",
            ));
        }
        Ok(())
    }

    fn identity(&self, prompts: &[Vec<u32>]) -> Identity {
        let json = serde_json::to_value(self).expect("settings are plain data");
        let mut identity: Identity = json.as_object().cloned().unwrap_or_default().into_iter().collect();
        for setting in ["steps", "max_batch"] {
            identity.remove(setting);
        }
        let texts: Vec<Sequence> = prompts.iter().map(|p| Sequence::text(p.clone())).collect();
        identity.insert("loop".into(), "rl".into());
        identity.insert("data".into(), digest(&texts).into());
        identity
    }
}

/// Trains `trainee` on rollouts of `prompts` (token ids), rewarded by `grade` where the settings say so.
///
/// Metrics per update: `loss` (mean per generated token), `reward` (mean), `entropy` (mean, nats, at the
/// loss's temperature), `tokens` (generated), `length` (mean tokens), `truncated` and `repetitive` (shares
/// of rollouts), `zero_variance` (groups whose rewards are all equal), `logprob_difference` (mean
/// |sampler - trainer| per token, where the sampler draws from the whole distribution), `grad_norm`
/// (before clipping), `lr`. Times: `rollout`, `grading`, `update`.
///
/// # Errors
/// Impossible settings or prompts, a failing generation or grade, a loss or gradient that is not
/// finite, a state that cannot be saved or belongs to another run.
pub fn train(
    config: &RlConfig,
    trainee: Trainee,
    prompts: &[Vec<u32>],
    tokenizer: Option<&Tokenizer>,
    grade: &mut Grade,
    saving: &Saving,
    watch: &mut dyn Watch,
) -> Result<Outcome, TrainError> {
    config.check()?;
    if prompts.is_empty() {
        return Err(TrainError::Data { index: 0, problem: "there is no prompt to train on".into() });
    }
    let run =
        Run { total: config.steps, schedule: config.schedule, saving, identity: config.identity(prompts) };
    let mut job = Job { config, prompts, tokenizer, grade };
    run.go(trainee, watch, |update| job.update(update))
}

struct Job<'a> {
    config: &'a RlConfig,
    prompts: &'a [Vec<u32>],
    tokenizer: Option<&'a Tokenizer>,
    grade: &'a mut Grade<'a>,
}

impl Job<'_> {
    /// Rollout → reward → advantage → update.
    fn update(&mut self, update: Update) -> Result<Option<Metrics>, TrainError> {
        let Update { trainee, step, clock, watch, .. } = update;
        let config = self.config;
        let first = step * config.prompts as u64;
        let order = Order { len: self.prompts.len(), seed: config.seed, shuffle: config.shuffle };
        let members = order.at(first..first + config.prompts as u64);
        let sampler = Sampler {
            run: config.seed,
            group: config.group,
            params: &config.sampling,
            max_batch: config.max_batch,
            tokenizer: self.tokenizer,
        };
        let drawn = sampler.draw(&trainee.currents(), self.prompts, &members, first, watch);
        let rollouts = match drawn {
            Ok(rollouts) => rollouts,
            Err(GenerateError::Stopped) => return Ok(None),
            Err(error) => {
                return Err(TrainError::Rollout { step: step + 1, problem: error.to_string() });
            }
        };
        clock.lap("rollout");

        let mut metrics = Metrics::default();
        measure(&rollouts, &mut metrics);
        let advantages = match config.objective {
            Objective::Rloo => {
                let rewards = self.rewards(&rollouts, step, first)?;
                clock.lap("grading");
                advantages(&rewards, config.group, &mut metrics)
            }
            // every rollout trains
            Objective::Entropy(_) => vec![1.0; rollouts.len()],
        };
        let gradients = self.gradients(trainee, step, &rollouts, &advantages, &mut metrics, clock);
        if metrics.get("loss").is_none() {
            return Err(TrainError::NotFinite { step: step + 1, what: "the loss" });
        }
        apply(trainee, gradients, &config.optimizer, (&config.schedule, step, config.steps), &mut metrics)?;
        clock.part("optimizer");
        clock.lap("update");
        Ok(Some(metrics))
    }

    fn rewards(&mut self, rollouts: &[Rollout], step: u64, first: u64) -> Result<Vec<f32>, TrainError> {
        let config = self.config;
        match config.reward {
            Reward::Constant(reward) => Ok(vec![reward; rollouts.len()]),
            Reward::Random(RandomReward { probability, high, low }) => Ok(rollouts
                .iter()
                .enumerate()
                .map(|(i, rollout)| {
                    let place = first + (i / config.group) as u64;
                    let key = seed(config.seed, place, rollout.prompt, rollout.index);
                    let coin = Stream::named(key, "reward").uniform(0);
                    if coin < probability { high } else { low }
                })
                .collect()),
            Reward::Graded => {
                let problem = |problem: String| TrainError::Reward { step: step + 1, problem };
                let rewards = (self.grade)(rollouts).map_err(problem)?;
                if rewards.len() != rollouts.len() {
                    let (got, wanted) = (rewards.len(), rollouts.len());
                    return Err(problem(format!("{got} rewards came back for {wanted} rollouts")));
                }
                if let Some(i) = rewards.iter().position(|r| !r.is_finite()) {
                    return Err(problem(format!("rollout {i} was rewarded {}", rewards[i])));
                }
                Ok(rewards)
            }
        }
    }

    /// Gradients of the mean loss over all generated tokens.
    fn gradients(
        &self,
        trainee: &Trainee,
        step: u64,
        rollouts: &[Rollout],
        advantages: &[f32],
        metrics: &mut Metrics,
        clock: &mut Clock,
    ) -> Vec<Tensor<1>> {
        let config = self.config;
        let (sequences, temperature) = self.sequences(rollouts);
        let per_token =
            |of: &dyn Fn(usize) -> Vec<f32>| -> Vec<Vec<f32>> { (0..rollouts.len()).map(of).collect() };
        let advantage = per_token(&|i| vec![advantages[i]; sequences[i].targets.len()]);
        let comparable = config.objective == Objective::Rloo && draws_from_everything(&config.sampling);
        let sampled = per_token(&|i| rollouts[i].sample.logprobs.clone());
        let tokens: usize = sequences.iter().map(|s| s.targets.len()).sum();

        let dropout = dropout(config.dropout, config.seed, step);
        let pass = Pass { temperature, recompute: config.recompute, dropout };
        // an advantage of zero has a gradient of zero: such rollouts are measured, not differentiated
        let (silent, live): (Vec<usize>, Vec<usize>) =
            (0..rollouts.len()).partition(|&i| advantages[i] == 0.0);
        let difference = |rows: &RowValues, sampled: &[f32]| -> Diagnostic {
            let pairs = rows.log_prob.iter().zip(sampled);
            ("logprob_difference", pairs.map(|(a, b)| f64::from((a - b).abs())).sum())
        };
        let objective = |batch: &Batch, here: Range<usize>, rows: &RowValues| {
            let mut loss = evaluate_rows(config.objective, rows, &batch.gather(&advantage)[here.clone()]);
            if comparable {
                loss.diagnostics.push(difference(rows, &batch.gather(&sampled)[here]));
            }
            loss
        };
        let shares = config.batching.shares(&sequences, &live, trainee.devices());
        let scale = 1.0 / tokens as f64;
        let told = |part: &str| clock.part(part);
        let (gradients, mut sums) = gradients(trainee, &shares, pass, scale, &objective, told);
        sums.add("loss", 0.0);
        if !silent.is_empty() {
            let batches = config.batching.split(&sequences, &silent);
            let values = evaluate_all(&trainee.currents(), &batches, temperature);
            for (batch, rows) in batches.iter().zip(values) {
                sums.add_rows(&rows);
                if comparable {
                    let (name, sum) = difference(&rows, &batch.gather(&sampled));
                    sums.add(name, sum);
                }
            }
        }
        metrics.set_means(&sums, tokens as f64);
        gradients
    }

    /// What the head looks at in each rollout, and at which temperature.
    fn sequences(&self, rollouts: &[Rollout]) -> (Vec<Sequence>, f32) {
        let both = rollouts.iter().map(|r| (&self.prompts[r.prompt], &r.sample.ids));
        match self.config.objective {
            Objective::Rloo => (
                both.map(|(prompt, ids)| Sequence::completion(prompt, ids)).collect(),
                self.config.sampling.temperature,
            ),
            Objective::Entropy(options) => (
                both.map(|(prompt, ids)| {
                    let positions = options.mask.positions(prompt.len(), ids.len());
                    Sequence::observed([&prompt[..], ids].concat(), positions)
                })
                .collect(),
                options.temperature,
            ),
        }
    }
}

fn evaluate_rows(objective: Objective, rows: &RowValues, advantage: &[f32]) -> TokenLoss {
    match objective {
        Objective::Rloo => rloo::evaluate(&rows.log_prob, advantage),
        Objective::Entropy(_) => entropy::evaluate(&rows.entropy),
    }
}

/// Whether samples are drawn from the softmax at the sampling temperature and nothing less, so that the
/// sampler's log-probabilities are comparable with the trainer's.
fn draws_from_everything(params: &SamplingParams) -> bool {
    params.top_k == 0 && params.top_p >= 1.0 && params.min_p == 0.0 && params.repetition_penalty == 1.0
}

/// Advantages of rewards that come group by group.
fn advantages(rewards: &[f32], group: usize, metrics: &mut Metrics) -> Vec<f32> {
    let mean = rewards.iter().map(|&r| f64::from(r)).sum::<f64>() / rewards.len() as f64;
    let flat = rewards.chunks(group).filter(|g| rloo::has_zero_variance(g)).count();
    metrics.set("reward", mean);
    metrics.set("zero_variance", flat as f64);
    rewards.chunks(group).flat_map(rloo::advantages).collect()
}

/// A rollout counts as repetitive above this, as in the steering study's code.
const REPETITIVE: f64 = 0.2;

fn measure(rollouts: &[Rollout], metrics: &mut Metrics) {
    let count = rollouts.len() as f64;
    let tokens: usize = rollouts.iter().map(|r| r.sample.ids.len()).sum();
    let share = |of: &dyn Fn(&Rollout) -> bool| rollouts.iter().filter(|r| of(r)).count() as f64 / count;
    metrics.set("tokens", tokens as f64);
    metrics.set("length", tokens as f64 / count);
    metrics.set("truncated", share(&Rollout::truncated));
    metrics.set("repetitive", share(&|r| repetition(&r.sample.ids) > REPETITIVE));
}
