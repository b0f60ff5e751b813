//! Training on demonstrations: SFT, PSFT, SPFT.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::checkpoint::{Identity, State};
use crate::data::{Batch, Batching, Order, Sequence};
use crate::driver::{Control, Metrics, Outcome, Run, Saving, Update, Watch, apply};
use crate::gradient::{Pass, dropout};
use crate::loss::RowValues;
use crate::objective::{TokenLoss, psft, sft, spft};
use crate::optim::AdamW;
use crate::parallel::{evaluate_all, gradients};
use crate::reference::Reference;
use crate::schedule::Schedule;
use crate::trainee::{Current, Trainee};

/// What is minimised over the demonstrated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Negative log-likelihood.
    #[default]
    Sft,
    /// Clipped ratio to the reference: [`psft`].
    Psft(psft::Psft),
    /// Weighted negative log-likelihood: [`spft`].
    Spft(spft::Spft),
}

/// Settings of a run on demonstrations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SftConfig {
    /// Passes over the data. Ignored when `steps` is set.
    pub epochs: f64,
    /// Updates; the data is repeated as needed.
    pub steps: Option<u64>,
    /// Sequences per update, over all micro-batches and devices. The last update of a run may have
    /// fewer; its loss is divided by its own tokens.
    pub batch: usize,
    /// What is minimised.
    pub objective: Objective,
    /// For PSFT and SPFT: take the policy as it is every so many updates as the new reference.
    /// 0 keeps the initial policy as the reference throughout.
    pub refresh_reference: u64,
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
    /// Visit the examples in another order every epoch.
    pub shuffle: bool,
    /// Seed of the data order.
    pub seed: u64,
    /// Measure the held-out loss every so many updates; 0 measures it at the end only.
    pub eval_every: u64,
    /// Measure the held-out loss after these updates, too; 0 is before the first.
    pub eval_at: Vec<u64>,
}

impl Default for SftConfig {
    fn default() -> Self {
        Self {
            epochs: 1.0,
            steps: None,
            batch: 32,
            objective: Objective::Sft,
            refresh_reference: 0,
            schedule: Schedule::default(),
            optimizer: AdamW::default(),
            batching: Batching::default(),
            recompute: false,
            dropout: 0.0,
            shuffle: true,
            seed: 0,
            eval_every: 0,
            eval_at: Vec::new(),
        }
    }
}

impl SftConfig {
    /// Sequences that the whole run trains on, repeats counted.
    fn visits(&self, examples: usize) -> u64 {
        match self.steps {
            Some(steps) => steps * self.batch as u64,
            None => (self.epochs * examples as f64).ceil() as u64,
        }
    }

    /// Whether the held-out loss is measured after update `step` (counted from 1; 0 is before the
    /// first) because of its number.
    fn evaluates(&self, step: u64) -> bool {
        let regular = self.eval_every > 0 && step.is_multiple_of(self.eval_every);
        regular || self.eval_at.contains(&step)
    }

    /// Updates of a run over so many examples.
    pub fn updates(&self, examples: usize) -> u64 {
        self.visits(examples).div_ceil(self.batch.max(1) as u64)
    }

    fn check(&self) -> Result<(), TrainError> {
        self.schedule.check()?;
        self.optimizer.check()?;
        match self.objective {
            Objective::Sft => {}
            Objective::Psft(psft) => psft.check()?,
            Objective::Spft(spft) => spft.check()?,
        }
        if self.batch == 0 {
            return Err(TrainError::config("batch", "0 sequences per update", "write at least 1"));
        }
        if self.steps == Some(0) {
            return Err(TrainError::config("steps", "0 updates", "write at least 1"));
        }
        if self.steps.is_none() && !(self.epochs.is_finite() && self.epochs > 0.0) {
            return Err(TrainError::config(
                "epochs",
                format!("{} passes over the data", self.epochs),
                "write a positive number, or set `steps`",
            ));
        }
        Ok(())
    }

    /// Everything that decides the updates, apart from the run's length.
    fn identity(&self, train: &[Sequence], held_out: &[Sequence]) -> Identity {
        let json = serde_json::to_value(self).expect("settings are plain data");
        let mut identity: Identity = json.as_object().cloned().unwrap_or_default().into_iter().collect();
        for setting in ["steps", "epochs"] {
            identity.remove(setting);
        }
        // A state saved before this setting existed says nothing of it.
        if self.eval_at.is_empty() {
            identity.remove("eval_at");
        }
        identity.insert("loop".into(), "sft".into());
        identity.insert("data".into(), digest(train).into());
        identity.insert("held_out".into(), digest(held_out).into());
        identity
    }
}

/// BLAKE3 over the sequences.
pub(crate) fn digest(sequences: &[Sequence]) -> String {
    let mut hasher = blake3::Hasher::new();
    for sequence in sequences {
        for part in [&sequence.tokens, &sequence.positions, &sequence.targets] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            for value in part {
                hasher.update(&value.to_le_bytes());
            }
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// Trains `trainee` on `train`, measuring the loss on `held_out` (which may be empty) on the way.
///
/// Metrics per update: `loss` (mean per trained token), `entropy` (mean, nats), `tokens` (trained
/// tokens), `grad_norm` (before clipping), `lr`, the objective's diagnostics, `held_out_loss` (mean
/// negative log-likelihood per token, whatever the objective) where it was measured, and
/// `initial_held_out_loss` with the first update.
///
/// # Errors
/// Impossible settings or data, a loss or gradient that is not finite, a state that cannot be saved
/// or belongs to another run.
pub fn train(
    config: &SftConfig,
    trainee: Trainee,
    train: &[Sequence],
    held_out: &[Sequence],
    saving: &Saving,
    watch: &mut dyn Watch,
) -> Result<Outcome, TrainError> {
    train_against(config, trainee, train, held_out, None, saving, watch)
}

/// As [`train`], with the log-probabilities of the reference for `train`, where they were computed
/// before; otherwise they are computed as part of the run.
///
/// # Errors
/// As [`train`]'s; a reference for other sequences, or one beside `refresh_reference`.
pub fn train_against(
    config: &SftConfig,
    trainee: Trainee,
    train: &[Sequence],
    held_out: &[Sequence],
    reference: Option<&Reference>,
    saving: &Saving,
    watch: &mut dyn Watch,
) -> Result<Outcome, TrainError> {
    config.check()?;
    let model = trainee.base().config();
    let (vocab, context) = (model.vocab_size, model.max_position_embeddings);
    for (index, sequence) in train.iter().enumerate() {
        sequence.check(index, vocab, context)?;
    }
    for (index, sequence) in held_out.iter().enumerate() {
        sequence.check(index, vocab, context)?;
    }
    if train.is_empty() {
        return Err(TrainError::Data { index: 0, problem: "there is no data to train on".into() });
    }
    let mut identity = config.identity(train, held_out);
    if let Some(reference) = reference {
        reference.check(train)?;
        if config.refresh_reference > 0 {
            return Err(TrainError::config(
                "refresh_reference",
                format!("a new reference every {} updates, and one given", config.refresh_reference),
                "write 0, or give no reference",
            ));
        }
        identity.insert("reference".into(), reference.digest().into());
    }
    let total = config.updates(train.len());
    let run = Run { total, schedule: config.schedule, saving, identity };
    let job = Job {
        config,
        train,
        held_out,
        reference,
        total: run.total,
        order: Order { len: train.len(), seed: config.seed, shuffle: config.shuffle },
    };
    run.go(trainee, watch, |update| job.update(update).map(Some))
}

struct Job<'a> {
    config: &'a SftConfig,
    train: &'a [Sequence],
    held_out: &'a [Sequence],
    reference: Option<&'a Reference>,
    total: u64,
    order: Order,
}

impl Job<'_> {
    /// The examples of updates `steps`.
    fn members(&self, steps: Range<u64>) -> Vec<usize> {
        let batch = self.config.batch as u64;
        let end = (steps.end * batch).min(self.config.visits(self.train.len()));
        self.order.at(steps.start * batch..end)
    }

    fn update(&self, update: Update) -> Result<Metrics, TrainError> {
        let Update { trainee, state, step, clock, .. } = update;
        let config = self.config;
        let mut metrics = Metrics::default();
        if step == 0 && config.evaluates(0) && !self.held_out.is_empty() {
            let loss = self.held_out_loss(&trainee.currents());
            metrics.set("initial_held_out_loss", loss);
            clock.lap("evaluation");
        }
        let constants = match (config.objective, self.reference) {
            (Objective::Sft, _) => Cow::Borrowed(&[][..]),
            (_, Some(reference)) => Cow::Borrowed(reference.values()),
            (_, None) => Cow::Owned(self.own_reference(trainee, state, step)?),
        };
        clock.lap("reference");

        let members = self.members(step..step + 1);
        let tokens = members.iter().map(|&m| self.train[m].targets.len()).sum::<usize>() as f64;
        let dropout = dropout(config.dropout, config.seed, step);
        let pass = Pass { temperature: 1.0, recompute: config.recompute, dropout };
        let shares = config.batching.shares(self.train, &members, trainee.devices());
        let objective = |batch: &Batch, here: Range<usize>, rows: &RowValues| {
            let reference = if constants.is_empty() { Vec::new() } else { batch.gather(&constants) };
            config.objective.evaluate(&rows.log_prob, reference.get(here).unwrap_or(&[]))
        };
        let told = |part: &str| clock.part(part);
        let (gradients, sums) = gradients(trainee, &shares, pass, 1.0 / tokens, &objective, told);
        metrics.set_means(&sums, tokens);
        metrics.set("tokens", tokens);
        if metrics.get("loss").is_none() {
            return Err(TrainError::NotFinite { step: step + 1, what: "the loss" });
        }
        apply(trainee, gradients, &config.optimizer, (&config.schedule, step, self.total), &mut metrics)?;
        clock.part("optimizer");
        clock.lap("update");

        let last = step + 1 == self.total;
        if (config.evaluates(step + 1) || last) && !self.held_out.is_empty() {
            metrics.set("held_out_loss", self.held_out_loss(&trainee.currents()));
            clock.lap("evaluation");
        }
        Ok(metrics)
    }

    /// Mean negative log-likelihood per held-out token.
    fn held_out_loss(&self, currents: &[Current]) -> f64 {
        let all: Vec<usize> = (0..self.held_out.len()).collect();
        let (mut sum, mut tokens) = (0.0, 0);
        let batches = self.config.batching.split(self.held_out, &all);
        for values in evaluate_all(currents, &batches, 1.0) {
            sum -= values.log_prob.iter().map(|&lp| f64::from(lp)).sum::<f64>();
            tokens += values.log_prob.len();
        }
        sum / tokens as f64
    }

    /// The reference's log-probabilities, by example, for those of this update. They are computed
    /// where a reference begins, with the policy as it is there, and kept in `state`: no second model
    /// is held, and a resumed run finds them.
    fn own_reference(
        &self,
        trainee: &Trainee,
        state: &mut State,
        step: u64,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        const NAME: &str = "reference";
        let window = match self.config.refresh_reference {
            0 => 0..self.total,
            every => {
                let start = step - step % every;
                start..(start + every).min(self.total)
            }
        };
        let begins = step == window.start;
        let mut members = self.members(window);
        members.sort_unstable();
        members.dedup();
        if begins {
            let mut reference = Reference::new(self.train.len());
            let go_on = |_: &Reference, _, _| Control::Continue;
            let batching = self.config.batching;
            reference.compute(&trainee.currents(), self.train, &members, batching, go_on)?;
            let flat = members.iter().flat_map(|&m| reference.values()[m].iter().copied()).collect();
            state.constants.insert(NAME.to_owned(), flat);
        }
        let wanted = self.members(step..step + 1);
        let mut rest = state.constants.get(NAME).map_or(&[][..], Vec::as_slice);
        let mut found = vec![Vec::new(); self.train.len()];
        for member in members {
            let (values, later) = rest.split_at(self.train[member].targets.len().min(rest.len()));
            if wanted.contains(&member) {
                found[member] = values.to_vec();
            }
            rest = later;
        }
        Ok(found)
    }
}

impl Objective {
    fn evaluate(&self, log_prob: &[f32], reference: &[f32]) -> TokenLoss {
        match *self {
            Self::Sft => sft::evaluate(log_prob),
            Self::Psft(options) => psft::evaluate(log_prob, &reference[..log_prob.len()], options),
            Self::Spft(options) => spft::evaluate(log_prob, &reference[..log_prob.len()], options),
        }
    }
}
