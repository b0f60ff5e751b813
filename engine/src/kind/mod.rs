//! The seam between the engine and the stage kinds.
//!
//! - [`Stage`]: what a kind implements; [`ErasedStage`]: the same once its type is forgotten.
//! - [`Input`] and [`Inputs`]: references inside params.
//! - [`StageCtx`]: what a running stage may do; [`Access`] and [`Pin`]: how it reaches outside.
//! - [`StageError`] and [`Tier`]: why a stage failed, and whose fault that is.
//! - [`Registry`]: every kind the binary knows.

mod context;
mod error;
mod input;
mod registry;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::facts::Facts;

pub use context::{Access, Pin, StageCtx};
pub use error::{StageError, Tier};
pub use input::{INPUT_MARK, Input, Inputs, UNEXPANDED};
pub use registry::{KindEntry, Registry};

/// A stage kind: the type itself is the kind's params as written in a manifest.
///
/// Derive `Serialize`, `Deserialize` (with `deny_unknown_fields` and `default`s) and `JsonSchema`;
/// the doc comments become `pipeline kinds` and the editor schema.
pub trait Stage: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The name in `kind = "…"`.
    const KIND: &'static str;
    /// Raised by the author whenever the same params and inputs give another result.
    const VERSION: u32;

    /// Relative names that must exist in [`StageCtx::out`] when [`Stage::run`] returns. Other
    /// stages may refer to these and to what lies below them.
    fn outputs(&self) -> Vec<String>;

    /// True when the artifact may hold more than [`Stage::outputs`] knows beforehand, for example
    /// a fetched repository; references to other names are then not checked.
    fn has_more_outputs(&self) -> bool {
        false
    }

    /// Checks between fields, at plan time. Each problem names the param it is about.
    fn check(&self) -> Vec<ParamProblem> {
        Vec::new()
    }

    /// What of the machine decides the result (for example `device = "cuda"`, `dtype = "bf16"`),
    /// given the device class the run uses. Part of the key.
    fn environment(&self, _device_class: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// External sources (URLs, hub revisions) whose digests the lock file pins.
    fn sources(&self) -> Vec<String> {
        Vec::new()
    }

    /// True for kinds that run programs named by the manifest; these need the user's consent.
    fn needs_trust(&self) -> bool {
        false
    }

    /// GPU slots this stage occupies when the run has GPUs and the manifest does not say.
    fn default_gpus(&self) -> u32 {
        0
    }

    /// A line for `pipeline plan` about cost or memory on `device` (`cpu` or `cuda:N`), computed without
    /// running anything. `inputs` are those that exist already.
    fn estimate(&self, _inputs: &BTreeMap<String, PathBuf>, _device: &str) -> Option<String> {
        None
    }

    /// True for kinds that write for people what is known of the run, too: what is published of them
    /// then goes through [`Stage::complete`].
    fn completes(&self) -> bool {
        false
    }

    /// Adds to `folder`, the copy of the output that is about to be published, what is known of the
    /// run and is no part of the artifact. Runs in the engine's own process at the end of a run, so it
    /// must be quick; the same facts must give the same files.
    fn complete(&self, _folder: &Path, _facts: &Facts) -> Result<(), StageError> {
        Ok(())
    }

    /// What keeps the stage from running on `device` (`cuda:N`), where that is certain before anything
    /// runs: memory that the device does not have. `inputs` are those that exist already.
    fn obstacle(&self, _inputs: &BTreeMap<String, PathBuf>, _device: &str) -> Option<StageError> {
        None
    }

    /// Does the work. Everything it puts into [`StageCtx::out`] becomes the artifact.
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError>;
}

/// A problem with one param, found by [`Stage::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamProblem {
    /// Path of the param below the stage, for example `adapter.rank`.
    pub param: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// A stage whose type is forgotten: what the engine handles after parsing params.
pub trait ErasedStage: Send + Sync {
    /// See [`Stage::outputs`].
    fn outputs(&self) -> Vec<String>;
    /// See [`Stage::has_more_outputs`].
    fn has_more_outputs(&self) -> bool;
    /// See [`Stage::check`].
    fn check(&self) -> Vec<ParamProblem>;
    /// See [`Stage::environment`].
    fn environment(&self, device_class: &str) -> BTreeMap<String, String>;
    /// See [`Stage::sources`].
    fn sources(&self) -> Vec<String>;
    /// See [`Stage::needs_trust`].
    fn needs_trust(&self) -> bool;
    /// See [`Stage::default_gpus`].
    fn default_gpus(&self) -> u32;
    /// See [`Stage::estimate`].
    fn estimate(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<String>;
    /// See [`Stage::obstacle`].
    fn obstacle(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<StageError>;
    /// Params with defaults filled in; references are `{"$input": …}`.
    fn params(&self) -> Value;
    /// See [`Stage::completes`].
    fn completes(&self) -> bool;
    /// See [`Stage::complete`].
    fn complete(&self, folder: &Path, facts: &Facts) -> Result<(), StageError>;
    /// See [`Stage::run`].
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError>;
}

impl<S: Stage> ErasedStage for S {
    fn outputs(&self) -> Vec<String> {
        Stage::outputs(self)
    }
    fn has_more_outputs(&self) -> bool {
        Stage::has_more_outputs(self)
    }
    fn check(&self) -> Vec<ParamProblem> {
        Stage::check(self)
    }
    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        Stage::environment(self, device_class)
    }
    fn sources(&self) -> Vec<String> {
        Stage::sources(self)
    }
    fn needs_trust(&self) -> bool {
        Stage::needs_trust(self)
    }
    fn default_gpus(&self) -> u32 {
        Stage::default_gpus(self)
    }
    fn estimate(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<String> {
        Stage::estimate(self, inputs, device)
    }
    fn obstacle(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<StageError> {
        Stage::obstacle(self, inputs, device)
    }
    fn params(&self) -> Value {
        serde_json::to_value(self).expect("params are plain data: maps have string keys")
    }
    fn completes(&self) -> bool {
        Stage::completes(self)
    }
    fn complete(&self, folder: &Path, facts: &Facts) -> Result<(), StageError> {
        Stage::complete(self, folder, facts)
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        Stage::run(self, ctx)
    }
}
