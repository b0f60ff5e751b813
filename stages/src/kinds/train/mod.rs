//! `train`: trains a model, or an adapter on it.
//!
//! `fit`: memory and micro-batches; `method`: what is learnt from, with its settings; `examples`:
//! from rows to token sequences; `watch`: progress and snapshots; `output`: what is written. The
//! mathematics and the loops are the crate `trainer`'s.

mod examples;
mod fit;
mod method;
mod output;
mod reward;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trainer::optim::AdamW;
use trainer::schedule::{Schedule, Shape};
use trainer::sft::train_against;
use trainer::{Saving, TrainError};

use crate::adapter::AdapterParams;
use crate::gpu_use::GpuUse;
use crate::model::{OpenModel, Precision, PromptParams};
use crate::questions::{Question, read_questions};
pub use fit::{Auto, MicroTokens};
pub use method::Method;
use watch::Watching;

/// Trains a model, or an adapter on a frozen model.
///
/// Without `adapter` every parameter trains and the result is a checkpoint in `model/`; with one the
/// model stays frozen and the result is in `adapter/`. Beside it stand `metrics.jsonl` (a line an
/// update), `timing.jsonl` (seconds by activity, parts of an update as `update.…`), `summary.json`, and in
/// `snapshots/` what training had reached on the way. A killed run goes on from its last saved update and ends with the same
/// bytes.
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
    /// The adapter to go on from, of the kind and size that `adapter` says: what `train` or PEFT wrote.
    /// Left out, a new one that does not change the model yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter_from: Option<Input>,
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
    /// Most tokens, padding included, that go through the model at once while training, or `auto`
    /// for what fits into memory: decides memory and speed; results change by rounding only.
    #[serde(default)]
    pub micro_tokens: MicroTokens,
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
    /// Also write the f32 weights that training kept, as a checkpoint in `masters/`; for models
    /// that train whole.
    #[serde(default)]
    pub masters: bool,
    /// Keep the model (or adapter) as it is after these updates, in `snapshots/NUMBER`.
    #[serde(default)]
    pub snapshots: Vec<u64>,
}

fn default_save_every() -> u64 {
    1
}

impl Stage for Train {
    const KIND: &'static str = "train";
    const VERSION: u32 = 5;

    fn outputs(&self) -> Vec<String> {
        let trained = if self.adapter.is_some() { "adapter" } else { "model" };
        let mut outputs: Vec<String> =
            [trained, "metrics.jsonl", "timing.jsonl", "summary.json"].map(str::to_owned).into();
        if self.masters {
            outputs.push("masters".into());
        }
        outputs.extend(self.snapshots.iter().map(|step| Self::snapshot(*step)));
        outputs
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = self.method.check();
        let mut wrong = |param: &str, message: String, help: &str| {
            problems.push(ParamProblem { param: param.into(), message, help: help.into() });
        };
        if !(self.lr.is_finite() && self.lr > 0.0) {
            wrong("lr", format!("{} is no learning rate", self.lr), "write a positive number such as 1e-4");
        }
        for (param, limit) in [("limit", self.limit), ("held_out_limit", self.held_out_limit)] {
            if limit == Some(0) {
                wrong(param, "no rows".into(), "write 1 or more, or leave it out");
            }
        }
        if !(0.0..=1.0).contains(&self.lr_floor) {
            let message = format!("{} is no share of `lr`", self.lr_floor);
            wrong("lr_floor", message, "write a number from 0 to 1");
        }
        if let Err(TrainError::Config { field, problem, remedy }) = self.optimizer.check() {
            wrong(field, problem, &remedy);
        }
        if self.micro_tokens == MicroTokens::Tokens(0) {
            let help = "write the most tokens a forward pass may hold, or \"auto\"";
            wrong("micro_tokens", "no token fits".into(), help);
        }
        if self.adapter_from.is_some() && self.adapter.is_none() {
            let help = "write what it is, such as adapter = { type = \"lora\", rank = 16, alpha = 16 }";
            wrong("adapter_from", "`adapter` does not say that one trains".into(), help);
        }
        if self.masters && self.adapter.is_some() {
            wrong("masters", "an adapter is f32 already".into(), "remove it");
        }
        let steps = self.method.steps().unwrap_or(u64::MAX);
        for step in self.snapshots.iter().filter(|step| !(1..=steps).contains(*step)) {
            wrong(
                "snapshots",
                format!("there is no update {step}"),
                "name updates from 1 to the last; before the first, the model is the one to start from",
            );
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

    fn estimate(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<String> {
        self.memory_line(inputs, device)
    }

    fn obstacle(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<StageError> {
        self.memory_obstacle(inputs, device)
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let _watched = GpuUse::of(ctx);
        let opened = OpenModel::open(&ctx.input(&self.model)?)?;
        let rows = read_questions(&ctx.input(&self.data)?, self.limit)?;
        let micro_tokens = self.resolve_micro_tokens(ctx, &opened, &rows)?;
        let trainee = self.trainee(ctx, &opened)?;
        ctx.message(format!("{} numbers train", trainee.len()));
        if ctx.device() != "cpu" {
            // the two round at other places: nobody shall compare them unknowingly
            ctx.message(match trainer::gradient::through_burn(&trainee.current()) {
                None => "passes go beside burn, on a stream of their own".to_owned(),
                Some(why) => format!("passes go through burn, slowly: {why}"),
            });
        }
        let saving = Saving { dir: Some(ctx.state().to_owned()), every: self.save_every };
        let task = Task { train: self, ctx, opened: &opened, rows: &rows, micro_tokens, saving: &saving };
        let outcome = match &self.method {
            Method::Rloo(rloo) => rloo.train(&task, trainee)?,
            Method::Entropy(entropy) => entropy.train(&task, trainee)?,
            demonstrations => {
                let (train, held_out) = self.sequences(ctx, &opened)?;
                let config = demonstrations.sft_config(self, micro_tokens)?;
                let reference = self.reference(ctx, &train)?;
                let mut watch = Watching { train: self, ctx, opened: &opened };
                let against = reference.as_ref();
                train_against(&config, trainee, &train, &held_out, against, &saving, &mut watch)
                    .map_err(StageError::input)?
            }
        };
        if !outcome.finished {
            return Err(StageError::stopped());
        }
        output::write(self, ctx, &opened, &outcome)
    }
}

impl Train {
    /// Where a snapshot lies: below the artifact, and below the resumable state until then.
    fn snapshot(step: u64) -> String {
        format!("snapshots/{step}")
    }

    /// The learning rate as a function of the update.
    fn learning_rate(&self) -> Schedule {
        Schedule { lr: self.lr, warmup_steps: self.warmup_steps, shape: self.schedule, floor: self.lr_floor }
    }
}

/// What a training on rollouts works with.
struct Task<'a> {
    train: &'a Train,
    ctx: &'a StageCtx,
    opened: &'a OpenModel,
    rows: &'a [Question],
    micro_tokens: usize,
    saving: &'a Saving,
}
