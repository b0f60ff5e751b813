//! What is learnt from, and how: the part of the params that depends on the method.

use engine::kind::{Input, ParamProblem, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trainer::data::Batching;
use trainer::objective::psft::Psft;
use trainer::objective::spft::{Distance, Spft};
use trainer::sft::{Objective, SftConfig};

use super::Train;
use super::reward::{Entropy, Rloo, Rollouts};
use crate::adapter::AdapterParams;

/// What is learnt from, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Method {
    /// Supervised fine-tuning: the likelihood of the demonstrated answers.
    Sft(Demonstrations),
    /// Proximal SFT: the probability ratio to a frozen reference, clipped from above.
    Psft(PsftMethod),
    /// Demonstrated tokens weighted by `p·σ(-λΔ)` against a frozen reference.
    Spft(SpftMethod),
    /// Reinforcement learning from the model's own answers with leave-one-out advantages.
    Rloo(Rloo),
    /// Entropy minimisation on the model's own answers, without rewards.
    Entropy(Entropy),
}

/// How demonstrations are gone through.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Demonstrations {
    /// Passes over the data; ignored when `steps` is set.
    pub epochs: f64,
    /// Updates; the data is repeated as needed.
    pub steps: Option<u64>,
    /// Sequences per update.
    pub batch: usize,
    /// Visit the rows in another order every epoch.
    pub shuffle: bool,
    /// Put several sequences into one row, each seeing itself only, instead of padding.
    pub pack: bool,
    /// Measure the held-out loss every so many updates; 0 at the end only.
    pub eval_every: u64,
    /// Measure the held-out loss after these updates, too; 0 is before the first.
    pub eval_at: Vec<u64>,
}

impl Default for Demonstrations {
    fn default() -> Self {
        Self {
            epochs: 1.0,
            steps: None,
            batch: 32,
            shuffle: true,
            pack: true,
            eval_every: 0,
            eval_at: Vec::new(),
        }
    }
}

/// PSFT's settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PsftMethod {
    /// How demonstrations are gone through.
    pub demonstrations: Demonstrations,
    /// The ratio's bounds: from `1 - clip_low` to `1 + clip_high`.
    pub clip: Clip,
    /// The reference's log-probabilities of the rows: what a `reference` stage wrote. Left out, they are
    /// computed as part of the training, with the model that it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Input>,
    /// Take the policy as the new reference every so many updates; 0 keeps the initial one.
    pub refresh_reference: u64,
}

/// Bounds of a probability ratio.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Clip {
    /// Below 1 by this much. Inert with advantages of 1.
    pub low: f64,
    /// Above 1 by this much.
    pub high: f64,
}

impl Default for Clip {
    fn default() -> Self {
        let Psft { clip_low, clip_high } = Psft::default();
        Self { low: clip_low, high: clip_high }
    }
}

/// SPFT's settings.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SpftMethod {
    /// How demonstrations are gone through.
    pub demonstrations: Demonstrations,
    /// λ: how strongly a token that moved from the reference is held back.
    pub lambda: f64,
    /// What Δ measures.
    pub distance: Distance,
    /// Treat the weight as a constant when differentiating.
    pub stop_gradient: bool,
    /// The reference's log-probabilities of the rows: what a `reference` stage wrote. Left out, they are
    /// computed as part of the training, with the model that it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Input>,
    /// Take the policy as the new reference every so many updates; 0 keeps the initial one.
    pub refresh_reference: u64,
}

impl Default for SpftMethod {
    fn default() -> Self {
        let Spft { lambda, distance, stop_gradient } = Spft::default();
        let demonstrations = Demonstrations::default();
        Self { demonstrations, lambda, distance, stop_gradient, reference: None, refresh_reference: 0 }
    }
}

impl Method {
    /// Updates, where the method says how many.
    pub(super) fn steps(&self) -> Option<u64> {
        match self {
            Self::Sft(sft) => sft.steps,
            Self::Psft(psft) => psft.demonstrations.steps,
            Self::Spft(spft) => spft.demonstrations.steps,
            Self::Rloo(rloo) => Some(rloo.rollouts.steps),
            Self::Entropy(entropy) => Some(entropy.rollouts.steps),
        }
    }

    /// How rollouts are drawn, where the method learns from any.
    pub(super) fn rollouts(&self) -> Option<&Rollouts> {
        match self {
            Self::Rloo(rloo) => Some(&rloo.rollouts),
            Self::Entropy(entropy) => Some(&entropy.rollouts),
            Self::Sft(_) | Self::Psft(_) | Self::Spft(_) => None,
        }
    }

    /// Where the reference's log-probabilities are, if a stage computed them.
    pub(super) fn reference(&self) -> Option<&Input> {
        match self {
            Self::Psft(psft) => psft.reference.as_ref(),
            Self::Spft(spft) => spft.reference.as_ref(),
            Self::Sft(_) | Self::Rloo(_) | Self::Entropy(_) => None,
        }
    }

    /// After how many updates the reference is taken anew; 0 is never.
    fn refresh(&self) -> u64 {
        match self {
            Self::Psft(psft) => psft.refresh_reference,
            Self::Spft(spft) => spft.refresh_reference,
            Self::Sft(_) | Self::Rloo(_) | Self::Entropy(_) => 0,
        }
    }

    /// Values out of range.
    pub(super) fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let (demonstrations, place) = match self {
            Self::Psft(psft) => (&psft.demonstrations, "method.demonstrations"),
            Self::Spft(spft) => (&spft.demonstrations, "method.demonstrations"),
            Self::Sft(sft) => (sft, "method"),
            Self::Rloo(rloo) => return rloo.check(),
            Self::Entropy(entropy) => return entropy.check(),
        };
        if self.reference().is_some() && self.refresh() > 0 {
            problems.push(ParamProblem {
                param: "method.refresh_reference".into(),
                message: "a reference that is taken anew cannot be computed beforehand".into(),
                help: "remove `reference`, or write 0".into(),
            });
        }
        if let Self::Psft(psft) = self {
            for (name, bound) in [("low", psft.clip.low), ("high", psft.clip.high)] {
                if !(bound >= 0.0 && bound.is_finite()) {
                    problems.push(ParamProblem {
                        param: format!("method.clip.{name}"),
                        message: format!("{bound} is no distance from a ratio of 1"),
                        help: "write a number from 0, such as 0.28".into(),
                    });
                }
            }
        }
        if let Self::Spft(spft) = self
            && !spft.lambda.is_finite()
        {
            problems.push(ParamProblem {
                param: "method.lambda".into(),
                message: format!("{} is not possible", spft.lambda),
                help: "write a number such as 1.0".into(),
            });
        }
        if demonstrations.steps == Some(0) {
            problems.push(ParamProblem {
                param: format!("{place}.steps"),
                message: "0 updates".into(),
                help: "write 1 or more, or set `epochs` instead".into(),
            });
        }
        if demonstrations.batch == 0 {
            problems.push(ParamProblem {
                param: format!("{place}.batch"),
                message: "0 sequences per update".into(),
                help: "write 1 or more".into(),
            });
        }
        if !(demonstrations.epochs.is_finite() && demonstrations.epochs > 0.0) {
            problems.push(ParamProblem {
                param: format!("{place}.epochs"),
                message: format!("{} passes over the data", demonstrations.epochs),
                help: "write a positive number, or set `steps`".into(),
            });
        }
        problems
    }

    /// The trainer's settings for a method that learns from demonstrations.
    pub(super) fn sft_config(&self, train: &Train, micro_tokens: usize) -> Result<SftConfig, StageError> {
        let (demonstrations, objective) = match self {
            Self::Sft(demonstrations) => (demonstrations, Objective::Sft),
            Self::Psft(psft) => {
                let objective = Psft { clip_low: psft.clip.low, clip_high: psft.clip.high };
                (&psft.demonstrations, Objective::Psft(objective))
            }
            Self::Spft(spft) => {
                let SpftMethod { lambda, distance, stop_gradient, .. } = *spft;
                let objective = Spft { lambda, distance, stop_gradient };
                (&spft.demonstrations, Objective::Spft(objective))
            }
            Self::Rloo(_) | Self::Entropy(_) => {
                return Err(StageError::input("this method does not learn from demonstrations"));
            }
        };
        Ok(SftConfig {
            epochs: demonstrations.epochs,
            steps: demonstrations.steps,
            batch: demonstrations.batch,
            objective,
            refresh_reference: self.refresh(),
            schedule: train.learning_rate(),
            optimizer: train.optimizer,
            batching: Batching { micro_tokens, pack: demonstrations.pack },
            recompute: train.recompute,
            dropout: train.adapter.as_ref().map_or(0.0, AdapterParams::dropout),
            shuffle: demonstrations.shuffle,
            seed: train.seed,
            eval_every: demonstrations.eval_every,
            eval_at: demonstrations.eval_at.clone(),
        })
    }
}
