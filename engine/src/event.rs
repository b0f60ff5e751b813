//! What happens, as data. [`WorkerEvent`]s travel from a worker to the engine, one JSON line each;
//! the engine wraps them into [`Event`]s, writes these to the run's log and hands them to readers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::kind::{Pin, StageError};

/// What a worker tells the engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkerEvent {
    /// The worker lives.
    Heartbeat,
    /// `done` of `total` units are finished.
    Progress {
        /// Units finished.
        done: u64,
        /// Units in all.
        total: u64,
        /// What a unit is: `questions`, `steps`, `bytes`.
        unit: String,
    },
    /// Named values of a step.
    Metrics {
        /// Step number.
        step: u64,
        /// Value by name; what is not finite is written as null and read as not-a-number.
        #[serde(deserialize_with = "null_as_nan")]
        values: BTreeMap<String, f64>,
    },
    /// A line for the user.
    Message {
        /// The line.
        text: String,
    },
    /// An external source was resolved.
    Pinned {
        /// The source as the kind names it.
        source: String,
        /// What to write into the lock file.
        pin: Pin,
    },
    /// What the stage has taken of a GPU's memory.
    UsedGpu {
        /// The most that was in use on the card, in bytes.
        peak_memory: u64,
    },
    /// What the worker has used.
    Used {
        /// Largest resident memory in bytes.
        peak_memory: u64,
    },
    /// The stage failed; the last event of a worker that did not succeed.
    Failed {
        /// Why.
        error: StageError,
    },
    /// The stage finished; the last event of a worker that succeeded.
    Finished,
}

/// The worker's end of the event stream. Cloneable; lines are written whole.
#[derive(Debug, Clone)]
pub struct WorkerEvents {
    sink: Option<Arc<Mutex<File>>>,
}

impl WorkerEvents {
    /// Writes to an open pipe.
    pub fn to_pipe(pipe: File) -> Self {
        Self { sink: Some(Arc::new(Mutex::new(pipe))) }
    }

    /// Drops everything.
    pub fn discard() -> Self {
        Self { sink: None }
    }

    /// Sends one event. A broken pipe is ignored: observers never fail a stage.
    pub fn send(&self, event: WorkerEvent) {
        let Some(sink) = &self.sink else { return };
        let Ok(mut line) = serde_json::to_vec(&event) else {
            return;
        };
        line.push(b'\n');
        if let Ok(mut pipe) = sink.lock() {
            let _ = pipe.write_all(&line);
        }
    }
}

fn null_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let values = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
}

/// What the engine tells its readers: one line of a run's log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first event of a run.
    RunStarted {
        /// Run id; sorts by time.
        run: String,
        /// Experiment name.
        experiment: String,
        /// The manifest's path as given.
        manifest: String,
        /// Number of stages asked for, with what they depend on.
        stages: usize,
        /// `cpu`, or the GPUs in use: `cuda:0,cuda:1`.
        device: String,
        /// Stages that may run side by side.
        jobs: usize,
        /// Overrides given by `--set`.
        sets: Vec<String>,
        /// Machine name.
        host: String,
        /// Version of `pipeline`.
        tool_version: String,
    },
    /// The graph of the stages asked for.
    Planned {
        /// BLAKE3 (hex) over the manifest and what it extends.
        digest: String,
        /// One per stage, each after what it needs.
        stages: Vec<PlannedNode>,
    },
    /// These stages are served from the store.
    Cached {
        /// One per stage.
        stages: Vec<CachedStage>,
    },
    /// Another run computes the same key; this one waits.
    Waiting {
        /// Stage name.
        stage: String,
        /// Who holds the key.
        holder: String,
    },
    /// A worker was started.
    Started {
        /// Stage name.
        stage: String,
        /// Its key.
        key: String,
        /// Why it is not served from the store.
        why: String,
        /// 1 for the first attempt.
        attempt: u32,
        /// The worker's process id.
        pid: u32,
        /// `cpu` or `cuda:0`.
        device: String,
        /// The worker's captured output.
        log: PathBuf,
    },
    /// `done` of `total` units are finished.
    Progress {
        /// Stage name.
        stage: String,
        /// Units finished.
        done: u64,
        /// Units in all.
        total: u64,
        /// What a unit is.
        unit: String,
    },
    /// Named values of a step.
    Metrics {
        /// Stage name.
        stage: String,
        /// Step number.
        step: u64,
        /// Value by name.
        #[serde(deserialize_with = "null_as_nan")]
        values: BTreeMap<String, f64>,
    },
    /// A line for the user.
    Message {
        /// Stage name; none when the engine speaks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<String>,
        /// The line.
        text: String,
    },
    /// An attempt failed in a way that may pass; there will be another.
    Retrying {
        /// Stage name.
        stage: String,
        /// The attempt that failed, from 1.
        attempt: u32,
        /// Seconds until the next attempt.
        in_seconds: f64,
        /// Why it failed.
        error: StageError,
    },
    /// The stage's output is in the store.
    Finished {
        /// Stage name.
        stage: String,
        /// Its key.
        key: String,
        /// Digest of its output.
        output: String,
        /// Seconds from the start of the first worker to the committed record.
        seconds: f64,
    },
    /// The stage failed for good.
    Failed {
        /// Stage name.
        stage: String,
        /// Its key, when it was known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Why.
        error: StageError,
        /// The worker's captured output, when there was a worker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<PathBuf>,
        /// Its last lines.
        tail: Vec<String>,
        /// Seconds since the start of the first worker.
        seconds: f64,
    },
    /// The stage was asked to stop.
    Stopped {
        /// Stage name.
        stage: String,
        /// Its key.
        key: String,
        /// Seconds it had run.
        seconds: f64,
        /// It has saved state that the next run carries on from.
        #[serde(default)]
        resumable: bool,
    },
    /// These stages cannot run because of another's failure.
    Skipped {
        /// Their names.
        stages: Vec<String>,
        /// The stage that failed.
        because: String,
    },
    /// An output was copied for people.
    Published {
        /// Stage name.
        stage: String,
        /// Where it is now.
        path: PathBuf,
        /// False if it was there already.
        changed: bool,
    },
    /// An output could not be copied for people.
    PublishFailed {
        /// Stage name.
        stage: String,
        /// Where it should be.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The last event of a run.
    RunFinished {
        /// How it ended.
        status: RunStatus,
        /// Stages by how they ended.
        counts: Counts,
        /// Wall time.
        seconds: f64,
    },
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// Stage name.
    pub stage: String,
    /// Its kind.
    pub kind: String,
    /// Its arm, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Names of the stages that it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

/// A stage served from the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedStage {
    /// Stage name.
    pub stage: String,
    /// Its key.
    pub key: String,
    /// Digest of its output.
    pub output: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Everything asked for is there.
    Succeeded,
    /// A stage or a publication failed.
    Failed,
    /// Stopped by a signal.
    Interrupted,
}

/// Stages by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Served from the store.
    pub cached: usize,
    /// Computed.
    pub ran: usize,
    /// Failed.
    pub failed: usize,
    /// Not run because of a failure or a signal.
    pub skipped: usize,
}

/// An event with its time: what a line of `events.jsonl` and of `--json` holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// When it happened.
    pub time: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// An event that happens now.
    pub fn now(event: Event) -> Self {
        Self { time: Timestamp::now(), event }
    }
}

/// Name of the log inside a run's folder.
pub const LOG_NAME: &str = "events.jsonl";

/// The log of a run in progress. The file is locked as long as its writer lives, which is how
/// readers tell a running run from a killed one.
pub struct LogWriter {
    file: File,
}

impl LogWriter {
    /// Creates `folder/events.jsonl`; the folder exists.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let file = File::create_new(folder.join(LOG_NAME))?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(Self { file })
    }

    /// Appends one line, whole.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }
}
