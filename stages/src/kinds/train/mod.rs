//! `train`: trains a model, or an adapter on it.
//!
//! `method`: what is learnt from, with its settings; `examples`: from rows to token sequences;
//! `output`: what is written. The mathematics and the loops are the crate `trainer`'s.

mod examples;
mod method;
mod output;
mod reward;

use std::collections::BTreeMap;

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trainer::optim::AdamW;
use trainer::schedule::{Schedule, Shape};
use trainer::{Control, Progress, Saving, TrainError};

use crate::adapter::AdapterParams;
use crate::model::{OpenModel, Precision, PromptParams};
pub use method::Method;

/// Trains a model, or an adapter on a frozen model.
///
/// Without `adapter` every parameter trains and the result is a checkpoint in `model/`; with one the
/// model stays frozen and the result is in `adapter/`. Beside it stand `metrics.jsonl` (a line an
/// update), `timing.jsonl` (seconds by activity) and `summary.json`. A killed run goes on from its
/// last saved update and ends with the same bytes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// The model to start from.
    pub model: Input,
    /// Training rows: JSON lines with `problem` or `question`, and `solution` or `answer`.
    pub data: Input,
    /// Take the first so many rows only.
    #[serde(default)]
    pub limit: Option<usize>,
    /// Held-out rows for the loss that is measured on the way.
    #[serde(default)]
    pub held_out: Option<Input>,
    /// Take the first so many held-out rows only.
    #[serde(default)]
    pub held_out_limit: Option<usize>,
    /// How a question is put to the model.
    #[serde(default)]
    pub prompt: PromptParams,
    /// What trains: an adapter, or (left out) every parameter.
    #[serde(default)]
    pub adapter: Option<AdapterParams>,
    /// What is learnt from, and how.
    pub method: Method,
    /// Peak learning rate.
    pub lr: f64,
    /// What the learning rate does after the warm-up.
    #[serde(default)]
    pub schedule: Shape,
    /// Updates over which the learning rate rises from 0.
    #[serde(default)]
    pub warmup_steps: u64,
    /// The lowest rate of a falling schedule, as a share of `lr`.
    #[serde(default)]
    pub lr_floor: f64,
    /// AdamW's other settings.
    #[serde(default)]
    pub optimizer: AdamW,
    /// Most tokens, padding included, that go through the model at once while training: decides
    /// memory and speed, not the result.
    #[serde(default = "default_micro_tokens")]
    pub micro_tokens: usize,
    /// Recompute activations in the backward pass instead of keeping them: less memory, more time.
    #[serde(default)]
    pub recompute: bool,
    /// The number format of frozen weights and activations.
    #[serde(default)]
    pub precision: Precision,
    /// Seed of data order, rollouts and initial adapters.
    #[serde(default)]
    pub seed: u64,
    /// Save the resumable state every so many updates.
    #[serde(default = "default_save_every")]
    pub save_every: u64,
}

fn default_micro_tokens() -> usize {
    4096
}

fn default_save_every() -> u64 {
    1
}

impl Stage for Train {
    const KIND: &'static str = "train";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        let trained = if self.adapter.is_some() { "adapter" } else { "model" };
        [trained, "metrics.jsonl", "timing.jsonl", "summary.json"].map(str::to_owned).into()
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = self.method.check();
        let mut wrong = |param: &str, message: String, help: &str| {
            problems.push(ParamProblem { param: param.into(), message, help: help.into() });
        };
        if !(self.lr.is_finite() && self.lr > 0.0) {
            wrong("lr", format!("{} is no learning rate", self.lr), "write a positive number such as 1e-4");
        }
        if self.micro_tokens == 0 {
            wrong("micro_tokens", "no token fits".into(), "write the most tokens a forward pass may hold");
        }
        if let Some(adapter) = &self.adapter {
            problems.extend(adapter.check("adapter"));
        }
        problems
    }

    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        self.precision.environment(device_class)
    }

    fn default_gpus(&self) -> u32 {
        1
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let opened = OpenModel::open(&ctx.input(&self.model)?)?;
        let trainee = self.trainee(ctx, &opened)?;
        ctx.message(format!("{} numbers train", trainee.len()));
        let saving = Saving { dir: Some(ctx.state().to_owned()), every: self.save_every };
        let outcome = match &self.method {
            Method::Rloo(rloo) => rloo.train(self, ctx, &opened, trainee, &saving)?,
            Method::Entropy(entropy) => entropy.train(self, ctx, &opened, trainee, &saving)?,
            demonstrations => {
                let (train, held_out) = self.sequences(ctx, &opened)?;
                let config = demonstrations.sft_config(self)?;
                trainer::sft::train(&config, trainee, &train, &held_out, &saving, &mut on_step(ctx))
                    .map_err(train_error)?
            }
        };
        if !outcome.finished {
            return Err(StageError::stopped());
        }
        output::write(self, ctx, &opened, &outcome)
    }
}

impl Train {
    /// The learning rate as a function of the update.
    fn learning_rate(&self) -> Schedule {
        Schedule { lr: self.lr, warmup_steps: self.warmup_steps, shape: self.schedule, floor: self.lr_floor }
    }
}

/// Reports every update and passes a request to stop on.
fn on_step(ctx: &StageCtx) -> impl FnMut(&Progress) -> Control + '_ {
    |progress| {
        let values = progress.metrics.values.iter().chain(&progress.timing.values);
        let values = values.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
        ctx.metrics(progress.step, values);
        ctx.progress(progress.step, progress.total, "updates");
        if ctx.stopping() { Control::Stop } else { Control::Continue }
    }
}

fn train_error(error: TrainError) -> StageError {
    StageError::input(error)
}
