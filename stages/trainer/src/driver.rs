//! The loop around every kind of training: resume, update, record, save, report.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::TrainError;
use crate::checkpoint::{self, Identity, State};
use crate::knobs;
use crate::optim::{AdamW, Master};
use crate::parallel::Sums;
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

    /// Sets every sum divided by `count`.
    pub(crate) fn set_means(&mut self, sums: &Sums, count: f64) {
        for (name, sum) in sums.iter() {
            self.set(name, sum / count);
        }
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

/// Follows a run and may end it. A closure `FnMut(&Progress) -> Control` follows the updates.
pub trait Watch {
    /// An update is done.
    fn updated(&mut self, progress: &Progress) -> Control;

    /// Update `step` is done and `trainee` is its result; told before the state that stands behind it
    /// is saved, and again if a resumed run repeats the update. An error, as text, ends the run.
    fn reached(&mut self, _step: u64, _trainee: &Trainee) -> Result<(), String> {
        Ok(())
    }

    /// `done` of the present update's `total` rollouts are finished; told several times a second at
    /// most. A stop drops the unfinished update: the run ends with the one before.
    fn sampled(&mut self, _done: usize, _total: usize) -> Control {
        Control::Continue
    }
}

impl<F: FnMut(&Progress) -> Control> Watch for F {
    fn updated(&mut self, progress: &Progress) -> Control {
        self(progress)
    }
}

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
    /// A JSON line per update: seconds by activity, and those of an update's parts as `update.…`.
    pub timing: Vec<String>,
}

/// Seconds by activity within one update.
pub(crate) struct Clock {
    last: Instant,
    last_part: Instant,
    pub seconds: Metrics,
}

impl Clock {
    fn new(step: u64) -> Self {
        let seconds = Metrics { step, ..Metrics::default() };
        let now = Instant::now();
        Self { last: now, last_part: now, seconds }
    }

    /// Books the time since the last lap under `activity`.
    pub fn lap(&mut self, activity: &str) {
        let seconds = self.last.elapsed().as_secs_f64() + self.seconds.get(activity).unwrap_or(0.0);
        self.seconds.set(activity, seconds);
        self.last = Instant::now();
        self.last_part = self.last;
    }

    /// Books the time since the last lap or part under `update.name`: a part of the activity `update`,
    /// which the lap at its end counts in full.
    pub fn part(&mut self, name: &str) {
        let name = format!("update.{name}");
        let seconds = self.last_part.elapsed().as_secs_f64() + self.seconds.get(&name).unwrap_or(0.0);
        self.seconds.set(&name, seconds);
        self.last_part = Instant::now();
    }
}

/// What one update works with.
pub(crate) struct Update<'a> {
    pub trainee: &'a mut Trainee,
    pub state: &'a mut State,
    /// The update, counted from 0.
    pub step: u64,
    pub clock: &'a mut Clock,
    pub watch: &'a mut dyn Watch,
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
    /// (counted from 0) and measures it; without a result it was told to stop.
    pub fn go(
        &self,
        mut trainee: Trainee,
        watch: &mut dyn Watch,
        mut update: impl FnMut(Update) -> Result<Option<Metrics>, TrainError>,
    ) -> Result<Outcome, TrainError> {
        knobs::check()?;
        let identity = self.full_identity();
        let dir = self.saving.dir.as_deref();
        let mut state = match dir {
            Some(dir) => {
                let spec = |master: &Master| (master.name.clone(), master.shape.clone());
                let masters: Vec<_> = trainee.masters().iter().map(spec).collect();
                trainee.hold_alone();
                let put = |index, parts| trainee.put(index, parts);
                checkpoint::load(dir, &masters, &identity, put)?.unwrap_or_default()
            }
            None => State::default(),
        };
        if let Some(dir) = dir.filter(|_| state.step > self.total) {
            let (done, asked) = (state.step, self.total);
            let problem = format!(
                "the saved state is of update {done}, beyond the {asked} asked for; \
                 ask for at least {done}, or use another folder to start over"
            );
            return Err(TrainError::format(dir, problem));
        }
        let mut saved = state.step;
        let mut stopped = false;
        while state.step < self.total && !stopped {
            let mut clock = Clock::new(state.step + 1);
            let step = state.step;
            let (trainee_now, state_now) = (&mut trainee, &mut state);
            let here = Update { trainee: trainee_now, state: state_now, step, clock: &mut clock, watch };
            let Some(mut metrics) = update(here)? else { break };
            metrics.step = step + 1;
            state.step += 1;
            state.metrics.push(line(&metrics));
            state.timing.push(line(&clock.seconds));
            let progress =
                Progress { step: state.step, total: self.total, metrics: &metrics, timing: &clock.seconds };
            watch
                .reached(state.step, &trainee)
                .map_err(|problem| TrainError::Watch { step: state.step, problem })?;
            stopped = watch.updated(&progress) == Control::Stop;
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
    gradients: Vec<Tensor<1>>,
    optimizer: &AdamW,
    (schedule, step, total): (&Schedule, u64, u64),
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let lr = schedule.at(step, total);
    let norm = trainee.step(optimizer, gradients, step + 1, lr);
    if !norm.is_finite() {
        return Err(TrainError::NotFinite { step: step + 1, what: "the gradient's norm" });
    }
    metrics.set("grad_norm", norm);
    metrics.set("lr", lr);
    Ok(())
}
