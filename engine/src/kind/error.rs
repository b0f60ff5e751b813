//! Why a stage failed.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Whose fault a failure is; decides retries, the exit code and the advice printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Wrong input: the manifest, a file's content. Never retried.
    Input,
    /// The machine: no space, no device, no permission. Never retried.
    Environment,
    /// Likely to pass if tried again: a network time-out, a worker that the system has killed.
    /// Retried as the stage's `retries` says.
    Transient,
    /// A limit that the manifest sets: the stage's `timeout`. Never retried.
    Limit,
    /// The stage was asked to stop, and has saved its state if it keeps any.
    Stopped,
    /// Our mistake.
    Bug,
}

/// Why a stage failed, with the next step for the user.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct StageError {
    /// Whose fault it is.
    pub tier: Tier,
    /// What happened, naming the file and place.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl StageError {
    /// An error of the given tier.
    pub fn new(tier: Tier, message: impl fmt::Display) -> Self {
        Self { tier, message: message.to_string(), help: None }
    }
    /// Wrong input.
    pub fn input(message: impl fmt::Display) -> Self {
        Self::new(Tier::Input, message)
    }
    /// A problem of the machine.
    pub fn environment(message: impl fmt::Display) -> Self {
        Self::new(Tier::Environment, message)
    }
    /// A problem that may pass.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::new(Tier::Transient, message)
    }
    /// The stage stopped because it was asked to, with its state, if it keeps any, saved.
    pub fn stopped() -> Self {
        Self::new(Tier::Stopped, "stopped on request")
    }
    /// Adds the next step.
    pub fn with_help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }
    /// An I/O error on a path.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let full = matches!(error.kind(), StorageFull | QuotaExceeded);
        let error = Self::environment(format!("{}: {error}", path.display()));
        match full {
            true => {
                error.with_help("free some space (`pipeline cache gc` removes old results) and run again")
            }
            false => error,
        }
    }
}
