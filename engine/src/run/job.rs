//! What a worker is told: everything to run one stage, and nothing about the rest of the plan.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{Access, Pin};

/// The content of `JOB.json`. Paths are absolute.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Expanded stage name.
    pub stage: String,
    /// Its kind.
    pub kind: String,
    /// The kind's code version in the engine that wrote this job.
    pub version: u32,
    /// Params with defaults filled in.
    pub params: Value,
    /// Where each reference lies.
    pub inputs: BTreeMap<String, PathBuf>,
    /// The folder whose content becomes the artifact.
    pub out: PathBuf,
    /// The folder for resumable state.
    pub state: PathBuf,
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// Offline flag and mirrors.
    pub access: Access,
    /// Pinned digests of the stage's sources.
    pub pins: BTreeMap<String, Pin>,
}

impl Job {
    /// Writes the job for the worker to read.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
    }

    /// Reads a job.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}
