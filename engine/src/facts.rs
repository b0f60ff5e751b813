//! What is known of a run beyond its artifacts: the graph with state, key and time of every stage,
//! params, versions, machines. A kind that writes for people may put it into what is published of it
//! ([`crate::kind::Stage::complete`]); it is never part of an artifact, so that keys and outputs stay
//! the same from run to run.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, PlannedNode, RunStatus};
use crate::history::{self, Fate, HistoryError, Standing};
use crate::key::Key;
use crate::store::Store;
use crate::store::record::Record;

/// An experiment as it stood at the end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Experiment name.
    pub experiment: String,
    /// The manifest's path as given.
    pub manifest: String,
    /// BLAKE3 (hex) over the manifest and what it extends.
    pub manifest_digest: String,
    /// Overrides given by `--set`.
    pub sets: Vec<String>,
    /// The run, when one run is told of rather than what it left.
    pub run: Option<RunFacts>,
    /// Every stage asked for, each after what it needs.
    pub stages: Vec<StageFacts>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Its id.
    pub id: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// `succeeded`, `failed`, `stopped`, `killed` or `running`.
    pub status: String,
    /// Wall-clock seconds, once it has ended.
    pub seconds: Option<f64>,
}

/// One stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageFacts {
    /// Expanded name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its arm, if it belongs to one.
    pub arm: Option<String>,
    /// Places in [`Facts::stages`] of what it depends on.
    pub needs: Vec<usize>,
    /// Where it stands.
    pub state: StageState,
    /// The first line of why it failed.
    pub error: Option<String>,
    /// How its artifact came to be, where it has one.
    pub made: Option<Made>,
}

/// Where a stage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// Its artifact is there.
    Done,
    /// Its artifact was there before the run.
    Cached,
    /// The run computed it.
    Ran,
    /// It failed.
    Failed,
    /// It was stopped, or its run was killed.
    Stopped,
    /// It runs.
    Running,
    /// It was not run.
    NotRun,
}

/// How an artifact came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The stage's key.
    pub key: String,
    /// Digest of the artifact.
    pub output: String,
    /// Bytes of the artifact.
    pub size: u64,
    /// Version of the kind's code.
    pub code_version: u32,
    /// Params with defaults filled in; references are `{"$input": DIGEST}`.
    pub params: Value,
    /// References as written, with the digest behind each.
    pub inputs: BTreeMap<String, String>,
    /// What of the machine decides the result.
    pub environment: BTreeMap<String, String>,
    /// Pinned digests of external sources.
    pub pins: BTreeMap<String, String>,
    /// Run that computed it.
    pub run: String,
    /// Start, RFC 3339.
    pub started: String,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// GPUs that it held.
    pub gpus: u32,
    /// Largest resident memory of the worker and its children in bytes; 0 if unknown.
    pub peak_memory: u64,
    /// Most memory in use on its GPU while it ran, in bytes; 0 without one, or if unknown.
    pub peak_gpu_memory: u64,
    /// What computed it: `cpu`, `gpu`, `memory`, `os`.
    pub machine: BTreeMap<String, String>,
    /// Version of the tool.
    pub tool_version: String,
}

impl Made {
    fn of(record: Record) -> Self {
        let size = record.size();
        let Record { key, parts, output, meta, .. } = record;
        let inputs = meta.inputs.into_iter();
        Self {
            key: key.to_string(),
            output: output.to_string(),
            size,
            code_version: parts.version,
            params: parts.params,
            inputs: inputs.map(|(reference, digest)| (reference, digest.to_string())).collect(),
            environment: parts.environment,
            pins: parts.pins,
            run: meta.run,
            started: meta.started,
            seconds: meta.seconds,
            device: meta.device,
            gpus: meta.gpus,
            peak_memory: meta.peak_memory,
            peak_gpu_memory: meta.peak_gpu_memory,
            machine: meta.machine,
            tool_version: meta.tool_version,
        }
    }
}

/// What the store knows of these stages, given where each stands and its key.
pub fn stages(
    store: &Store,
    nodes: &[PlannedNode],
    mut of: impl FnMut(&str) -> (StageState, Option<Key>),
) -> Vec<StageFacts> {
    let places: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(place, node)| (node.stage.as_str(), place)).collect();
    let stage = |node: &PlannedNode| {
        let (state, key) = of(&node.stage);
        let there = matches!(state, StageState::Done | StageState::Cached | StageState::Ran);
        let record = key.filter(|_| there).and_then(|key| store.lookup(&key).ok().flatten());
        StageFacts {
            name: node.stage.clone(),
            kind: node.kind.clone(),
            arm: node.arm.clone(),
            needs: node.needs.iter().filter_map(|need| places.get(need.as_str()).copied()).collect(),
            state,
            error: None,
            made: record.map(Made::of),
        }
    };
    nodes.iter().map(stage).collect()
}

/// What a run's log and the store know of it; none for a run too old to have logged its graph.
pub fn of_run(store: &Store, id: &str) -> Result<Option<Facts>, HistoryError> {
    let runs = store.runs_dir();
    let run = history::load(&runs, id)?;
    let planned = history::lines(&runs, id)?.find_map(|line| match line.event {
        Event::Planned { digest, stages } => Some((digest, stages)),
        _ => None,
    });
    let Some((manifest_digest, nodes)) = planned else { return Ok(None) };
    let summary = run.summary;
    let alive = summary.standing == Standing::Running;
    let mut stages = stages(store, &nodes, |name| match run.stages.get(name) {
        Some(stage) => (state(&stage.fate, alive), stage.key),
        None => (StageState::NotRun, None),
    });
    for stage in &mut stages {
        if let Some(Fate::Failed(error)) = run.stages.get(&stage.name).map(|stage| &stage.fate) {
            stage.error = error.message.lines().next().map(str::to_owned);
        }
    }
    Ok(Some(Facts {
        experiment: summary.experiment,
        manifest: summary.manifest,
        manifest_digest,
        sets: summary.sets,
        run: Some(RunFacts {
            id: summary.run,
            started: summary.started.to_string(),
            status: status(summary.standing).to_owned(),
            seconds: summary.seconds,
        }),
        stages,
    }))
}

fn state(fate: &Fate, alive: bool) -> StageState {
    match fate {
        Fate::Cached => StageState::Cached,
        Fate::Ran => StageState::Ran,
        Fate::Failed(_) => StageState::Failed,
        Fate::Started { .. } | Fate::Waiting { .. } if alive => StageState::Running,
        Fate::Started { .. } | Fate::Waiting { .. } | Fate::Stopped => StageState::Stopped,
        Fate::Skipped { .. } => StageState::NotRun,
    }
}

/// A word for where a run stands.
pub fn status(standing: Standing) -> &'static str {
    match standing {
        Standing::Running => "running",
        Standing::Ended(RunStatus::Succeeded) => "succeeded",
        Standing::Ended(RunStatus::Failed) => "failed",
        Standing::Ended(RunStatus::Interrupted) => "stopped",
        Standing::Killed => "killed",
    }
}
