//! What happens, as data. [`WorkerEvent`]s travel from a worker to the engine, one JSON line each;
//! the engine wraps them into [`Event`]s, writes these to the run's log and hands them to readers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

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
        /// Value by name; not-a-number is written as null.
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
        Self {
            sink: Some(Arc::new(Mutex::new(pipe))),
        }
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
