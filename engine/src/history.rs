//! Earlier runs, read from their event logs.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::event::{Counts, Event, LOG_NAME, Line, RunStatus};
use crate::key::Key;
use crate::kind::StageError;

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// No run at all.
    #[error("there are no runs yet; `pipeline run MANIFEST` makes one")]
    None,
    /// No run of that name.
    #[error("there is no run {0}; `pipeline runs` lists them")]
    Unknown(String),
    /// It was the first.
    #[error("there is no run of `{experiment}` before {run}; `pipeline runs` lists what there is")]
    NoneBefore {
        /// The run.
        run: String,
        /// Its experiment.
        experiment: String,
    },
    /// Several runs begin like this.
    #[error("{prefix} may be any of {}; write more of it", matching.join(", "))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// The runs it fits.
        matching: Vec<String>,
    },
    /// Reading failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The log.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its engine lives.
    Running,
    /// It has ended.
    Ended(RunStatus),
    /// Its engine was killed.
    Killed,
}

/// The outline of a run: its first and last event.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Run id.
    pub run: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Experiment name.
    pub experiment: String,
    /// The manifest's path as given.
    pub manifest: String,
    /// Overrides given by `--set`.
    pub sets: Vec<String>,
    /// Number of stages.
    pub stages: usize,
    /// When it began.
    pub started: Timestamp,
    /// Where it stands.
    pub standing: Standing,
    /// Stages by how they ended, once it has ended.
    pub counts: Option<Counts>,
    /// Wall time, once it has ended.
    pub seconds: Option<f64>,
}

/// How a stage fared in a run.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Served from the store.
    Cached,
    /// Its worker runs, or ran when the engine was killed.
    Started {
        /// Units finished, units in all, unit.
        progress: Option<(u64, u64, String)>,
        /// Since when.
        since: Timestamp,
    },
    /// Waits for another run.
    Waiting {
        /// Who has the key.
        holder: String,
    },
    /// Computed.
    Ran,
    /// Failed.
    Failed(Box<StageError>),
    /// Stopped on request.
    Stopped,
    /// Not run because of this stage's failure.
    Skipped {
        /// The stage that failed.
        because: String,
    },
}

/// What a run's log says of a stage.
#[derive(Debug, Clone)]
pub struct StageHistory {
    /// How it fared.
    pub fate: Fate,
    /// Its key, when known.
    pub key: Option<Key>,
    /// Digest of its output.
    pub output: Option<String>,
    /// Seconds it took.
    pub seconds: Option<f64>,
    /// Why it ran.
    pub why: Option<String>,
    /// The worker's captured output.
    pub log: Option<PathBuf>,
    /// When it came to this.
    pub at: Timestamp,
}

/// A run with its stages.
#[derive(Debug, Clone)]
pub struct Run {
    /// The outline.
    pub summary: Summary,
    /// Stages by name.
    pub stages: BTreeMap<String, StageHistory>,
}

/// Run ids, newest first.
pub fn ids(runs: &Path) -> Vec<String> {
    let mut ids: Vec<String> = fs::read_dir(runs)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|item| item.file_name().into_string().ok())
        .filter(|id| runs.join(id).join(LOG_NAME).is_file())
        .collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

/// The newest run of the same experiment before this one.
pub fn previous(runs: &Path, id: &str) -> Result<String, HistoryError> {
    let experiment = summary(runs, id)?.experiment;
    let earlier = ids(runs).into_iter().filter(|other| other.as_str() < id);
    let same = |id: &String| summary(runs, id).is_ok_and(|summary| summary.experiment == experiment);
    earlier.into_iter().find(same).ok_or(HistoryError::NoneBefore { run: id.to_owned(), experiment })
}

/// The run of that id, of that unambiguous beginning, or the newest (`latest`).
pub fn find(runs: &Path, wanted: &str) -> Result<String, HistoryError> {
    let ids = ids(runs);
    if wanted == "latest" {
        return ids.into_iter().next().ok_or(HistoryError::None);
    }
    let mut matching: Vec<String> =
        ids.into_iter().filter(|id| id.starts_with(wanted) || id.ends_with(&format!("-{wanted}"))).collect();
    match matching.len() {
        0 => Err(HistoryError::Unknown(wanted.to_owned())),
        1 => Ok(matching.remove(0)),
        _ if matching.iter().any(|id| id == wanted) => Ok(wanted.to_owned()),
        _ => Err(HistoryError::Ambiguous { prefix: wanted.to_owned(), matching }),
    }
}

/// The outline of a run; reads the ends of its log only.
pub fn summary(runs: &Path, id: &str) -> Result<Summary, HistoryError> {
    let path = runs.join(id).join(LOG_NAME);
    let io = |source| HistoryError::Io { path: path.clone(), source };
    let mut file = File::open(&path).map_err(io)?;
    let alive = file.try_lock_shared().is_err();
    let mut first = String::new();
    BufReader::new(&file).read_line(&mut first).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4096))).map_err(io)?;
    let mut last = Vec::new();
    file.read_to_end(&mut last).map_err(io)?;
    let last = String::from_utf8_lossy(&last);
    let last = last.lines().last().and_then(|line| serde_json::from_str::<Line>(line).ok());
    let Ok(Line { time, event: Event::RunStarted { run, experiment, manifest, stages, sets, .. } }) =
        serde_json::from_str(&first)
    else {
        return Err(HistoryError::Unknown(id.to_owned()));
    };
    let (standing, counts, seconds) = match last.map(|line| line.event) {
        Some(Event::RunFinished { status, counts, seconds }) => {
            (Standing::Ended(status), Some(counts), Some(seconds))
        }
        _ if alive => (Standing::Running, None, None),
        _ => (Standing::Killed, None, None),
    };
    let folder = runs.join(id);
    Ok(Summary { run, folder, experiment, manifest, sets, stages, started: time, standing, counts, seconds })
}

/// A run with its stages; reads its whole log. A torn last line is left out.
pub fn load(runs: &Path, id: &str) -> Result<Run, HistoryError> {
    let summary = summary(runs, id)?;
    let mut stages = BTreeMap::new();
    for line in lines(runs, id)? {
        apply(&mut stages, line);
    }
    Ok(Run { summary, stages })
}

/// The lines of a run's log in order.
pub fn lines(runs: &Path, id: &str) -> Result<impl Iterator<Item = Line>, HistoryError> {
    let path = runs.join(id).join(LOG_NAME);
    let file = File::open(&path).map_err(|source| HistoryError::Io { path, source })?;
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()))
}

/// The last keys of an experiment's stages, by stage name.
#[derive(Debug, Default)]
pub struct LastKeys {
    /// Keys whose artifact was there.
    pub finished: HashMap<String, Key>,
    /// The last attempt, where it did not end well.
    pub unfinished: HashMap<String, Attempt>,
}

/// An attempt at a stage that did not end well, or not yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The key attempted.
    pub key: Key,
    /// The run.
    pub run: String,
    /// How it ended.
    pub end: AttemptEnd,
    /// When it ended; when it began, if it was killed or goes on.
    pub at: Timestamp,
    /// The worker's captured output.
    pub log: Option<PathBuf>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It failed; the first line of why.
    Failed(String),
    /// It was stopped on request.
    Stopped,
    /// Its run was killed.
    Killed,
    /// Its run lives.
    Running,
}

/// The last keys of an experiment's stages, from up to `limit` of its latest runs; no more runs
/// are read once `stages` finished keys are known.
pub fn last_keys(runs: &Path, experiment: &str, limit: usize, stages: usize) -> LastKeys {
    let mut keys = LastKeys::default();
    let of_experiment = ids(runs)
        .into_iter()
        .filter(|id| summary(runs, id).is_ok_and(|summary| summary.experiment == experiment))
        .take(limit);
    for id in of_experiment {
        if keys.finished.len() >= stages {
            break;
        }
        let Ok(run) = load(runs, &id) else { continue };
        let alive = run.summary.standing == Standing::Running;
        for (name, stage) in run.stages {
            let Some(key) = stage.key else { continue };
            let end = match stage.fate {
                Fate::Cached | Fate::Ran => {
                    keys.finished.entry(name).or_insert(key);
                    continue;
                }
                Fate::Failed(error) => {
                    AttemptEnd::Failed(error.message.lines().next().unwrap_or_default().to_owned())
                }
                Fate::Stopped => AttemptEnd::Stopped,
                Fate::Started { .. } | Fate::Waiting { .. } if alive => AttemptEnd::Running,
                Fate::Started { .. } | Fate::Waiting { .. } => AttemptEnd::Killed,
                Fate::Skipped { .. } => continue,
            };
            if !keys.finished.contains_key(&name) {
                // The cache folder may have been moved since.
                let log = stage.log.and_then(|log| Some(runs.join(&id).join(log.file_name()?)));
                let attempt = Attempt { key, run: id.clone(), end, at: stage.at, log };
                keys.unfinished.entry(name).or_insert(attempt);
            }
        }
    }
    keys
}

fn apply(stages: &mut BTreeMap<String, StageHistory>, line: Line) {
    let time = line.time;
    match line.event {
        Event::Cached { stages: cached } => {
            for cached in cached {
                let stage = entry(stages, cached.stage, Fate::Cached, Some(cached.key), time);
                stage.output = Some(cached.output);
            }
        }
        Event::Waiting { stage, holder } => {
            entry(stages, stage, Fate::Waiting { holder }, None, time);
        }
        Event::Started { stage, key, why, log, .. } => {
            let stage = entry(stages, stage, Fate::Started { progress: None, since: time }, Some(key), time);
            stage.why = Some(why);
            stage.log = Some(log);
        }
        Event::Progress { stage, done, total, unit } => {
            if let Some(StageHistory { fate: Fate::Started { progress, .. }, .. }) = stages.get_mut(&stage) {
                *progress = Some((done, total, unit));
            }
        }
        Event::Finished { stage, key, output, seconds } => {
            let stage = entry(stages, stage, Fate::Ran, Some(key), time);
            stage.output = Some(output);
            stage.seconds = Some(seconds);
        }
        Event::Failed { stage, key, error, log, seconds, .. } => {
            let stage = entry(stages, stage, Fate::Failed(Box::new(error)), key, time);
            stage.log = log.or(stage.log.take());
            stage.seconds = Some(seconds);
        }
        Event::Stopped { stage, key, seconds, .. } => {
            entry(stages, stage, Fate::Stopped, Some(key), time).seconds = Some(seconds);
        }
        Event::Skipped { stages: names, because } => {
            for name in names {
                entry(stages, name, Fate::Skipped { because: because.clone() }, None, time);
            }
        }
        Event::RunStarted { .. }
        | Event::Planned { .. }
        | Event::Metrics { .. }
        | Event::Message { .. }
        | Event::Retrying { .. }
        | Event::Published { .. }
        | Event::PublishFailed { .. }
        | Event::RunFinished { .. } => {}
    }
}

/// The stage's history, with its fate (and key, if known now) brought up to date.
fn entry(
    stages: &mut BTreeMap<String, StageHistory>,
    name: String,
    fate: Fate,
    key: Option<String>,
    at: Timestamp,
) -> &mut StageHistory {
    let key = key.and_then(|key| key.parse().ok());
    let stage = stages.entry(name).or_insert_with(|| StageHistory {
        fate: Fate::Cached,
        key: None,
        output: None,
        seconds: None,
        why: None,
        log: None,
        at,
    });
    stage.fate = fate;
    stage.at = at;
    stage.key = key.or(stage.key);
    stage
}
