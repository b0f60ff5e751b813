//! The resolved, validated plan: what [`crate::manifest`] yields and everything else reads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::event::PlannedNode;
use crate::kind::{ErasedStage, KindEntry};

/// An experiment, expanded and checked; stages are in topological order.
pub struct Plan {
    /// What the manifest says about the experiment as a whole.
    pub experiment: Experiment,
    /// Stages, each after everything it depends on; ties in manifest order.
    pub stages: Vec<PlannedStage>,
}

impl Plan {
    /// The graph of the selected stages.
    pub fn nodes(&self, selected: &[bool]) -> Vec<PlannedNode> {
        let chosen = self.stages.iter().zip(selected).filter(|(_, selected)| **selected);
        let node = |stage: &PlannedStage| PlannedNode {
            stage: stage.name.clone(),
            kind: stage.kind.name.to_owned(),
            arm: stage.arm.clone(),
            needs: stage.depends_on.iter().map(|need| self.stages[*need].name.clone()).collect(),
        };
        chosen.map(|(stage, _)| node(stage)).collect()
    }

    /// What each stage depends on, in plan order.
    pub fn dependencies(&self) -> impl Iterator<Item = &[usize]> {
        self.stages.iter().map(|stage| stage.depends_on.as_slice())
    }
}

/// The experiment-wide part of a manifest.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// `name`, also the folder under `results/`.
    pub name: String,
    /// `title`, or the name.
    pub title: String,
    /// The manifest's path as given.
    pub manifest: PathBuf,
    /// The folder that relative paths in the manifest start from.
    pub folder: PathBuf,
    /// Arm names with their labels, in manifest order.
    pub arms: Vec<(String, String)>,
    /// BLAKE3 (hex) over the manifest and what it extends; what trust refers to.
    pub digest: String,
    /// The `[claims]` table, variables filled in.
    pub claims: Value,
    /// The `[deviations]` table, variables filled in.
    pub deviations: Value,
}

/// One node of the DAG.
#[derive(Clone)]
pub struct PlannedStage {
    /// Expanded name: `train[steering]`, `eval[lora,seed=2]`, or plain `base`.
    pub name: String,
    /// The `[stage.NAME]` it comes from.
    pub base: String,
    /// The arm it belongs to, if it fans out over arms.
    pub arm: Option<String>,
    /// Its kind.
    pub kind: KindEntry,
    /// Typed params, ready to run.
    pub stage: Arc<dyn ErasedStage>,
    /// Params as JSON with defaults filled in; references are `{"$input": "@stage/file"}` with
    /// expanded stage names, or `{"$input": "./path"}`.
    pub params: Value,
    /// Where every reference in `params` points, by reference text.
    pub inputs: BTreeMap<String, Source>,
    /// Indices (into [`Plan::stages`]) of the stages this one depends on, sorted, unique.
    pub depends_on: Vec<usize>,
    /// Kill the worker after this long.
    pub timeout: Option<Duration>,
    /// How often a transient failure is tried again.
    pub retries: u32,
    /// Slots it occupies while it runs.
    pub resources: Resources,
    /// False: always runs, never served from the store (`cache = false`).
    pub cache: bool,
    /// Where its output is copied for people, relative to `results/NAME/`.
    pub publish: Option<String>,
}

/// Where a reference points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Output of stage `index`, or a file inside it.
    Stage {
        /// Index into [`Plan::stages`].
        index: usize,
        /// Relative path inside the artifact; empty for the whole folder.
        path: String,
    },
    /// A file or folder on this machine.
    Path(PathBuf),
}

/// Declared resource needs of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// GPU slots.
    pub gpus: u32,
    /// Host memory in bytes.
    pub memory: u64,
    /// CPU slots; 0 counts as 1.
    pub cpus: u32,
}
