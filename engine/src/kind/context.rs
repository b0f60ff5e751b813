//! What a running stage sees of the world.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::{Input, StageError, Tier};
use crate::event::{WorkerEvent, WorkerEvents};

/// What the lock file holds for one external source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// BLAKE3 digest (hex) of the fetched file or folder.
    pub digest: String,
    /// The resolved revision (a hub commit), when the source has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Settings of the run that reach every stage but no key, since they do not change results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Only cache and mirrors may be used.
    pub offline: bool,
    /// Source prefix → local folder, tried before the network, longest prefix first.
    pub mirrors: BTreeMap<String, PathBuf>,
}

/// What a running stage sees of the world.
#[derive(Debug, Clone)]
pub struct StageCtx {
    pub(crate) out: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) inputs: BTreeMap<String, PathBuf>,
    pub(crate) device: String,
    pub(crate) access: Access,
    pub(crate) pins: BTreeMap<String, Pin>,
    pub(crate) events: WorkerEvents,
    pub(crate) stop: Arc<AtomicBool>,
}

impl StageCtx {
    /// A context for tests and for running a kind by hand: no events, never asked to stop.
    /// `inputs` maps references as written to paths.
    pub fn detached(out: &Path, state: &Path, inputs: BTreeMap<String, PathBuf>) -> Self {
        Self {
            out: out.to_owned(),
            state: state.to_owned(),
            inputs,
            device: "cpu".to_owned(),
            access: Access::default(),
            pins: BTreeMap::new(),
            events: WorkerEvents::discard(),
            stop: Arc::default(),
        }
    }

    /// Replaces the access settings (for tests).
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Replaces the pins (for tests).
    pub fn with_pins(mut self, pins: BTreeMap<String, Pin>) -> Self {
        self.pins = pins;
        self
    }

    /// The folder whose content becomes the artifact. Empty at the start.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// The folder for resumable state; it survives a kill and is dropped on success.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where a referenced file or folder lies. Read-only.
    pub fn input(&self, input: &Input) -> Result<PathBuf, StageError> {
        self.inputs
            .get(input.reference())
            .cloned()
            .ok_or_else(|| StageError::new(Tier::Bug, format!("input {input} was not materialised")))
    }

    /// The device to use: `cpu` or `cuda:N`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Offline flag and mirrors.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The pinned digest of a source, if the lock file has one.
    pub fn pin(&self, source: &str) -> Option<&Pin> {
        self.pins.get(source)
    }

    /// Tells the engine what to write into the lock file for a source.
    pub fn set_pin(&self, source: &str, pin: Pin) {
        self.events.send(WorkerEvent::Pinned { source: source.to_owned(), pin });
    }

    /// Reports progress; cheap, may be called often.
    pub fn progress(&self, done: u64, total: u64, unit: &str) {
        self.events.send(WorkerEvent::Progress { done, total, unit: unit.to_owned() });
    }

    /// Reports named values of a step (a training step's loss, reward …).
    pub fn metrics(&self, step: u64, values: BTreeMap<String, f64>) {
        self.events.send(WorkerEvent::Metrics { step, values });
    }

    /// A line for the user.
    pub fn message(&self, text: impl Into<String>) {
        self.events.send(WorkerEvent::Message { text: text.into() });
    }

    /// Tells how much of its GPU's memory was in use at most, in bytes, for the record. Of several calls
    /// the largest counts.
    pub fn used_gpu_memory(&self, peak_memory: u64) {
        self.events.send(WorkerEvent::UsedGpu { peak_memory });
    }

    /// True once the stage should save its state and return [`StageError::stopped`].
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
