//! Learning rate as a pure function of the update's number.
//!
//! burn's schedulers are iterators with a state of their own; a function of the step needs no saved
//! state, so a resumed run cannot disagree with an uninterrupted one.

use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The shape of the learning rate after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Stays at its peak.
    #[default]
    Constant,
    /// Falls linearly to `floor` at the last update.
    Linear,
    /// Falls along half a cosine to `floor` at the last update.
    Cosine,
}

/// Peak, warm-up and shape of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// The peak learning rate.
    pub lr: f64,
    /// Updates over which the rate rises linearly from 0 to `lr`. As in `transformers`, the first
    /// update of a warm-up has rate 0.
    pub warmup_steps: u64,
    /// What follows the warm-up.
    pub shape: Shape,
    /// The lowest rate of a falling shape, as a share of `lr`.
    pub floor: f64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            lr: 1e-4,
            warmup_steps: 0,
            shape: Shape::Constant,
            floor: 0.0,
        }
    }
}

impl Schedule {
    /// The rate of update `step` (counted from 0) out of `total`, as the `get_*_schedule_with_warmup`
    /// functions of `transformers` have it (`optimization.py`), with the floor of
    /// `cosine_with_min_lr`.
    pub fn at(&self, step: u64, total: u64) -> f64 {
        if step < self.warmup_steps {
            return self.lr * step as f64 / self.warmup_steps as f64;
        }
        let after = (step - self.warmup_steps) as f64;
        let span = total.saturating_sub(self.warmup_steps).max(1) as f64;
        let progress = (after / span).min(1.0);
        let height = match self.shape {
            Shape::Constant => return self.lr,
            Shape::Linear => 1.0 - progress,
            Shape::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        };
        self.lr * (height * (1.0 - self.floor) + self.floor)
    }

    /// Whether a run of `total` updates may be lengthened without changing the updates it has done.
    pub fn extends(&self) -> bool {
        self.shape == Shape::Constant
    }

    pub(crate) fn check(&self) -> Result<(), TrainError> {
        if !(self.lr.is_finite() && self.lr > 0.0) {
            return Err(TrainError::config(
                "schedule.lr",
                format!("{} is not a learning rate", self.lr),
                "write a positive number such as 1e-4",
            ));
        }
        if !(0.0..=1.0).contains(&self.floor) {
            return Err(TrainError::config(
                "schedule.floor",
                format!("{} is not a share of the peak rate", self.floor),
                "write a number from 0 to 1",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `get_{constant,linear,cosine}_schedule_with_warmup` and
    /// `get_cosine_with_min_lr_schedule_with_warmup` (transformers 5.24, `tests/scripts/schedule.py`):
    /// peak 1, 3 warm-up updates, 10 in all.
    #[test]
    fn rates_are_those_of_transformers() {
        let schedule = |shape, floor| Schedule { lr: 1.0, warmup_steps: 3, shape, floor };
        let cases: [(Schedule, [f64; 10]); 4] = include!("../tests/scripts/schedule.in");
        for (schedule, expected) in cases {
            for (step, want) in expected.into_iter().enumerate() {
                let got = schedule.at(step as u64, 10);
                assert!((got - want).abs() < 1e-12, "{schedule:?} at {step}: {got} against {want}");
            }
        }
    }

    #[test]
    fn the_floor_holds_beyond_the_end() {
        let schedule = Schedule { lr: 2.0, shape: Shape::Cosine, floor: 0.1, ..Schedule::default() };
        assert!((schedule.at(50, 10) - 0.2).abs() < 1e-12);
    }
}
