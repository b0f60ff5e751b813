//! The loop around every kind of training: resume, update, record, save, report.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::TrainError;
use crate::checkpoint::{self, Identity, State};
use crate::gradient::Gradients;
use crate::optim::AdamW;
use crate::schedule::Schedule;
use crate::trainee::Trainee;

/// What one update measured. Serialises to a flat JSON object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The update, counted from 1.
    pub step: u64,
    /// Values by name. A value that does not exist at this update is absent.
    #[serde(flatten)]
    pub values: Map<String, Value>,
}

impl Metrics {
    /// The value called `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.as_f64()
    }

    pub(crate) fn set(&mut self, name: &str, value: f64) {
        // JSON has no NaN: what is not a number is absent
        if let Some(number) = serde_json::Number::from_f64(value) {
            self.values.insert(name.to_owned(), number.into());
        }
    }
}

/// Progress after an update.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The update, counted from 1.
    pub step: u64,
    /// Updates in all.
    pub total: u64,
    /// What it measured.
    pub metrics: &'a Metrics,
    /// How long its parts took, in seconds by activity.
    pub timing: &'a Metrics,
}

/// What the caller wants after an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Save the state and return.
    Stop,
}

/// Called after every update.
pub type OnStep<'a> = dyn FnMut(&Progress) -> Control + 'a;

/// Where and how often the resumable state is saved.
#[derive(Debug, Clone, Default)]
pub struct Saving {
    /// The folder of saved states; without one nothing is saved or resumed.
    pub dir: Option<PathBuf>,
    /// Save after every so many updates; 0 saves only at the end and on a stop.
    pub every: u64,
}

/// The result of a training run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The trained parameters and optimiser state.
    pub trainee: Trainee,
    /// Updates done.
    pub step: u64,
    /// Whether all updates were done; false after a stop.
    pub finished: bool,
    /// A JSON line per update, the same in every run of the same settings on the same kind of
    /// device. Kept as text, so that a resumed run repeats the lines it inherited to the byte.
    pub metrics: Vec<String>,
    /// A JSON line per update: seconds by activity.
    pub timing: Vec<String>,
}

/// Seconds by activity within one update.
pub(crate) struct Clock {
    last: Instant,
    pub seconds: Metrics,
}

impl Clock {
    fn new(step: u64) -> Self {
        let seconds = Metrics { step, ..Metrics::default() };
        Self { last: Instant::now(), seconds }
    }

    /// Books the time since the last lap under `activity`.
    pub fn lap(&mut self, activity: &str) {
        let seconds = self.last.elapsed().as_secs_f64() + self.seconds.get(activity).unwrap_or(0.0);
        self.seconds.set(activity, seconds);
        self.last = Instant::now();
    }
}

/// A run's fixed parts.
pub(crate) struct Run<'a> {
    pub total: u64,
    pub schedule: Schedule,
    pub saving: &'a Saving,
    pub identity: Identity,
}

impl Run<'_> {
    /// The identity in full: a falling schedule depends on the length of the run, a constant one may
    /// be lengthened.
    fn full_identity(&self) -> Identity {
        let mut identity = self.identity.clone();
        if !self.schedule.extends() {
            identity.insert("steps".to_owned(), self.total.into());
        }
        identity
    }

    /// Runs updates from the last saved state to the end. `update` does update number `step`
    /// (counted from 0) and measures it.
    pub fn go(
        &self,
        mut trainee: Trainee,
        on_step: &mut OnStep,
        mut update: impl FnMut(&mut Trainee, &mut State, u64, &mut Clock) -> Result<Metrics, TrainError>,
    ) -> Result<Outcome, TrainError> {
        let identity = self.full_identity();
        let dir = self.saving.dir.as_deref();
        let mut state = match dir {
            Some(dir) => {
                checkpoint::load(dir, trainee.masters_mut(), &identity)?.unwrap_or_default()
            }
            None => State::default(),
        };
        let mut saved = state.step;
        let mut stopped = false;
        while state.step < self.total && !stopped {
            let mut clock = Clock::new(state.step + 1);
            let step = state.step;
            let mut metrics = update(&mut trainee, &mut state, step, &mut clock)?;
            metrics.step = step + 1;
            state.step += 1;
            state.metrics.push(line(&metrics));
            state.timing.push(line(&clock.seconds));
            let progress = Progress {
                step: state.step,
                total: self.total,
                metrics: &metrics,
                timing: &clock.seconds,
            };
            stopped = on_step(&progress) == Control::Stop;
            let due = self.saving.every > 0 && state.step % self.saving.every == 0;
            if due || stopped {
                saved = self.save(dir, &state, &trainee, &identity)?;
            }
        }
        if saved < state.step {
            self.save(dir, &state, &trainee, &identity)?;
        }
        Ok(Outcome {
            trainee,
            step: state.step,
            finished: state.step >= self.total,
            metrics: state.metrics,
            timing: state.timing,
        })
    }

    fn save(
        &self,
        dir: Option<&Path>,
        state: &State,
        trainee: &Trainee,
        identity: &Identity,
    ) -> Result<u64, TrainError> {
        if let Some(dir) = dir {
            checkpoint::save(dir, state, trainee.masters(), identity)?;
        }
        Ok(state.step)
    }
}

fn line(metrics: &Metrics) -> String {
    serde_json::to_string(metrics).expect("a map of numbers is JSON")
}

/// One optimiser update of `trainee` at the schedule's rate for `step` (counted from 0). Adds the
/// rate and the gradients' norm to `metrics`.
pub(crate) fn apply(
    trainee: &mut Trainee,
    gradients: Gradients,
    optimizer: &AdamW,
    (schedule, step, total): (&Schedule, u64, u64),
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let lr = schedule.at(step, total);
    let gradients = gradients.finish(trainee);
    let norm = optimizer.step(trainee.masters_mut(), gradients, step + 1, lr);
    if !norm.is_finite() {
        return Err(TrainError::NotFinite { step: step + 1, what: "the gradient's norm" });
    }
    metrics.set("grad_norm", norm);
    metrics.set("lr", lr);
    Ok(())
}

/// Sums over tokens by name, divided at the end by how many tokens there were.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    sums: Vec<(&'static str, f64)>,
}

impl Sums {
    pub fn add(&mut self, name: &'static str, value: f64) {
        match self.sums.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum += value,
            None => self.sums.push((name, value)),
        }
    }

    pub fn means(&self, count: f64, metrics: &mut Metrics) {
        for (name, sum) in &self.sums {
            metrics.set(name, sum / count);
        }
    }
}
