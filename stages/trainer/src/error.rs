//! What can go wrong in training, each with its place and the next step.

use std::path::{Path, PathBuf};

/// An error of the trainer.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A setting that cannot be.
    #[error("`{field}`: {problem}; {remedy}")]
    Config {
        /// Path of the setting, `adapter.rank`.
        field: &'static str,
        /// What is wrong.
        problem: String,
        /// What to write instead.
        remedy: String,
    },
    /// An example or prompt that cannot be trained on.
    #[error("example {index} (counted from 0): {problem}")]
    Data {
        /// Its place in the data.
        index: usize,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A file that could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A saved state or adapter that does not say what it should.
    #[error("{path}: {problem}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The run left the numbers.
    #[error(
        "step {step}: {what} is not finite; lower the learning rate or lengthen the warm-up, \
         then start again from a checkpoint before this step"
    )]
    NotFinite {
        /// The update, counted from 1.
        step: u64,
        /// Which number.
        what: &'static str,
    },
    /// The reward function failed.
    #[error("step {step}: the reward could not be computed: {problem}")]
    Reward {
        /// The update, counted from 1.
        step: u64,
        /// What it said.
        problem: String,
    },
    /// Whoever watches the run could not go on.
    #[error("step {step}: {problem}")]
    Watch {
        /// The update, counted from 1.
        step: u64,
        /// What it said.
        problem: String,
    },
    /// The generation engine failed.
    #[error("step {step}: {problem}")]
    Rollout {
        /// The update, counted from 1.
        step: u64,
        /// What it said.
        problem: String,
    },
}

impl TrainError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }

    pub(crate) fn format(path: &Path, problem: impl Into<String>) -> Self {
        Self::Format { path: path.to_path_buf(), problem: problem.into() }
    }

    pub(crate) fn config(field: &'static str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Config { field, problem: problem.into(), remedy: remedy.into() }
    }
}
