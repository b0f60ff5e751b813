//! One stage that has to be computed: claim its key, show its inputs, run a worker (again after a
//! transient failure), check what came out and commit it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::board::Known;
use super::job::Job;
use super::logs::{file_name, tail};
use super::resolve::Resolved;
use super::worker::{Limits, Start, Worker, is_resumable};
use super::{Shared, machine, pins};
use crate::digest::DigestError;
use crate::event::{Event, WorkerEvent};
use crate::key::Key;
use crate::kind::{Pin, StageError, Tier};
use crate::plan::{PlannedStage, Source};
use crate::store::claim::Claim;
use crate::store::record::{Record, RecordMeta};
use crate::store::{Store, StoreError};

/// Progress of one stage is passed on at most this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// A wait between two attempts never grows beyond this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// What stage threads tell the scheduler.
pub(super) enum Msg {
    /// For the readers of events.
    Event(Event),
    /// The stage waits for another process and needs no slots meanwhile.
    Waiting(usize),
    /// The stage's worker has ended; its slots are free.
    WorkerEnded(usize),
    /// The stage's thread is done with it.
    Verdict(usize, Verdict),
    /// An output was published, or not.
    Published(usize, PathBuf, Result<bool, StoreError>),
}

/// How an attempt at a stage ended.
pub(super) enum Verdict {
    /// Another process has computed it meanwhile.
    Hit(Box<Record>),
    /// Computed and committed.
    Ran(Box<Record>),
    /// Failed for good.
    Failed { error: StageError, log: Option<PathBuf>, tail: Vec<String> },
    /// Asked to stop; there may be saved state to carry on from.
    Stopped { resumable: bool },
    /// The artifact of this stage, an input, is gone or damaged.
    InputLost(usize),
    /// The process waited for has not delivered: look the key up again.
    Again,
}

/// A stage to compute.
pub(super) struct Task {
    pub(super) index: usize,
    pub(super) resolved: Resolved,
    /// What is known of the stages it depends on.
    pub(super) upstream: Vec<(usize, Arc<Known>)>,
    pub(super) why: String,
    pub(super) forced: bool,
    /// `cpu` or `cuda:0`.
    pub(super) device: String,
    /// Value of `CUDA_VISIBLE_DEVICES`, when it owns GPUs.
    pub(super) visible_gpus: Option<String>,
}

impl Task {
    /// How many GPUs it holds.
    fn gpus(&self) -> u32 {
        self.visible_gpus.as_ref().map_or(0, |list| list.split(',').count() as u32)
    }
}

/// What a worker told that belongs into the record or the lock file.
#[derive(Default)]
struct Noted {
    pins: BTreeMap<String, Pin>,
    peak_memory: u64,
    peak_gpu_memory: u64,
}

/// Whether a record may stand for a run of the stage. An artifact without files cannot: such a
/// stage runs for what it does, not for what it leaves.
pub(super) fn servable(record: Record) -> Option<Record> {
    if record.entries.is_empty() { None } else { Some(record) }
}

/// Computes a stage.
pub(super) fn attempt(shared: &Shared, task: &Task, tx: &Sender<Msg>) -> Verdict {
    let log = shared.folder.join(format!("{}.log", file_name(&shared.stage(task.index).name)));
    try_attempt(shared, task, &log, tx).unwrap_or_else(|error| {
        let mut tail = tail(&log);
        // The worker prints its error last, for who reads the log alone.
        if tail.ends_with(&error.message.lines().map(str::to_owned).collect::<Vec<_>>()) {
            tail.truncate(tail.len() - error.message.lines().count());
        }
        Verdict::Failed { error, log: log.exists().then_some(log), tail }
    })
}

fn try_attempt(shared: &Shared, task: &Task, log: &Path, tx: &Sender<Msg>) -> Result<Verdict, StageError> {
    let stage = shared.stage(task.index);
    let store = shared.store;
    let key = task.resolved.key;
    let (claim, waited) = match claim(shared, task.index, &key, tx)? {
        Some(claimed) => claimed,
        None => return Ok(Verdict::Stopped { resumable: false }),
    };
    let found = match stage.cache && !task.forced {
        true => found(shared, &key).map_err(store_error)?,
        false => None,
    };
    if let Some(record) = found {
        claim.abandon().map_err(store_error)?;
        return Ok(Verdict::Hit(Box::new(record)));
    }
    if waited {
        return Ok(Verdict::Again);
    }
    if task.forced {
        empty(&claim.state_dir())?;
    }
    let folders = match show_inputs(store, &task.upstream)? {
        Ok(folders) => folders,
        Err(lost) => return Ok(Verdict::InputLost(lost)),
    };
    let started = jiff::Timestamp::now();
    let clock = Instant::now();
    let mut noted = Noted::default();
    let mut attempts = 0;
    loop {
        attempts += 1;
        match run_worker(shared, task, &claim, &folders, log, attempts, &mut noted, tx) {
            Ok(()) => break,
            Err(error) if error.tier == Tier::Stopped && shared.stop.requested() => {
                return Ok(Verdict::Stopped { resumable: is_resumable(&claim.state_dir()) });
            }
            Err(error) if error.tier == Tier::Transient && attempts <= stage.retries => {
                let pause = backoff(shared.options.retry_delay, attempts);
                let _ = tx.send(Msg::Event(Event::Retrying {
                    stage: stage.name.clone(),
                    attempt: attempts,
                    in_seconds: pause.as_secs_f64(),
                    error,
                }));
                if !sleep_unless_stopped(shared, pause) {
                    return Ok(Verdict::Stopped { resumable: is_resumable(&claim.state_dir()) });
                }
            }
            Err(error) => return Err(error),
        }
    }
    let _ = tx.send(Msg::WorkerEnded(task.index));
    check_outputs(stage, &claim)?;
    if let Some(path) = shared.resolver.edited_input(stage, store) {
        return Err(StageError::input(format!(
            "{} was edited while the stage ran, so its result belongs to no input and is not cached",
            path.display()
        ))
        .with_help("run again"));
    }
    // Whoever may write anywhere (root, say) can write through a read-only view.
    if show_inputs(store, &task.upstream)?.is_err() {
        return Err(StageError::input(
            "an input from the cache was changed while the stage ran, so its result is not cached",
        )
        .with_help("inputs are read-only: copy a file before changing it; the next run restores the input"));
    }
    if !noted.pins.is_empty() {
        pins::add(&shared.lock_path, &noted.pins).map_err(StageError::environment)?;
        noted.pins.into_iter().for_each(|(source, pin)| shared.resolver.add_pin(source, pin));
    }
    let parts = shared.resolver.parts(stage, &task.resolved.inputs);
    shared.session.uses([&parts.key()]);
    let meta = RecordMeta {
        experiment: shared.plan.experiment.name.clone(),
        stage: stage.name.clone(),
        run: shared.me.run.clone(),
        inputs: task.resolved.inputs.clone(),
        started: started.to_string(),
        seconds: clock.elapsed().as_secs_f64(),
        attempts,
        host: shared.me.host.clone(),
        device: task.device.clone(),
        gpus: task.gpus(),
        peak_memory: noted.peak_memory,
        peak_gpu_memory: noted.peak_gpu_memory,
        machine: machine::describe(task.gpus()),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        accepted: None,
    };
    let record = claim.commit(parts, meta).map_err(store_error)?;
    Ok(Verdict::Ran(Box::new(record)))
}

/// The record of a key, noted as used.
fn found(shared: &Shared, key: &Key) -> Result<Option<Record>, StoreError> {
    let _turn = shared.store.shared_turn()?;
    let record = shared.store.lookup(key)?.and_then(servable);
    shared.session.uses(record.iter().map(|record| &record.key));
    Ok(record)
}

/// Claims the key; says so when another process has it, and gives up when asked to stop.
fn claim<'a>(
    shared: &Shared<'a>,
    index: usize,
    key: &Key,
    tx: &Sender<Msg>,
) -> Result<Option<(Claim<'a>, bool)>, StageError> {
    let mut waited = false;
    let mut pause = Duration::from_millis(5);
    loop {
        match shared.store.try_claim(key, &shared.me).map_err(store_error)? {
            Ok(claim) => return Ok(Some((claim, waited))),
            Err(holder) if !waited => {
                waited = true;
                let holder = holder.map_or("another process".to_owned(), |holder| holder.to_string());
                let stage = shared.stage(index).name.clone();
                let _ = tx.send(Msg::Event(Event::Waiting { stage, holder }));
                let _ = tx.send(Msg::Waiting(index));
            }
            Err(_) => {}
        }
        if !sleep_unless_stopped(shared, pause) {
            return Ok(None);
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// Views of the artifacts a stage depends on, or the first stage whose artifact is gone.
fn show_inputs(
    store: &Store,
    upstream: &[(usize, Arc<Known>)],
) -> Result<Result<HashMap<usize, PathBuf>, usize>, StageError> {
    let mut folders = HashMap::new();
    for (index, known) in upstream {
        let record = store.lookup(&known.key).map_err(store_error)?;
        // Another process may have computed the key anew, with another result.
        let Some(record) = record.filter(|record| record.output == known.output) else {
            return Ok(Err(*index));
        };
        match store.view(&record) {
            Ok(folder) => drop(folders.insert(*index, folder)),
            Err(StoreError::Damaged { .. }) => return Ok(Err(*index)),
            Err(error) => return Err(store_error(error)),
        }
    }
    Ok(Ok(folders))
}

#[expect(clippy::too_many_arguments, reason = "one call site; a struct would only rename them")]
fn run_worker(
    shared: &Shared,
    task: &Task,
    claim: &Claim,
    folders: &HashMap<usize, PathBuf>,
    log: &Path,
    attempt: u32,
    noted: &mut Noted,
    tx: &Sender<Msg>,
) -> Result<(), StageError> {
    let stage = shared.stage(task.index);
    let out = claim.staging().map_err(store_error)?;
    let work = out.with_file_name("work");
    empty(&work)?;
    let mut inputs = BTreeMap::new();
    for (reference, source) in &stage.inputs {
        let path = match source {
            Source::Stage { index, path } if path.is_empty() => folders[index].clone(),
            Source::Stage { index, path } => folders[index].join(path),
            Source::Path(path) => std::path::absolute(path).map_err(|e| StageError::io(path, e))?,
        };
        inputs.insert(reference.clone(), path);
    }
    let job = Job {
        stage: stage.name.clone(),
        kind: stage.kind.name.to_owned(),
        version: stage.kind.version,
        params: stage.params.clone(),
        inputs,
        out,
        state: claim.state_dir(),
        device: task.device.clone(),
        access: shared.options.access.clone(),
        pins: shared.resolver.pins_of(stage),
    };
    let job_path = log.with_extension("job.json");
    job.write(&job_path).map_err(|error| StageError::io(&job_path, error))?;
    let mut file =
        OpenOptions::new().create(true).append(true).open(log).map_err(|error| StageError::io(log, error))?;
    if attempt > 1 {
        let _ = writeln!(file, "--- attempt {attempt} ---");
    }
    let start = Start {
        program: &shared.options.program,
        job: &job_path,
        folder: &work,
        log: file,
        visible_gpus: task.visible_gpus.clone(),
    };
    let worker = Worker::start(start)
        .map_err(|error| StageError::environment(format!("cannot start a worker: {error}")))?;
    let _ = tx.send(Msg::Event(Event::Started {
        stage: stage.name.clone(),
        key: task.resolved.key.to_string(),
        why: task.why.clone(),
        attempt,
        pid: worker.pid(),
        device: task.device.clone(),
        log: log.to_owned(),
    }));
    let state = claim.state_dir();
    let limits =
        Limits { timeout: stage.timeout, grace: shared.options.grace, stop: shared.stop, state: &state };
    let mut shown: Option<Instant> = None;
    worker.wait(&limits, |event| {
        let stage = stage.name.clone();
        let event = match event {
            WorkerEvent::Progress { done, total, unit } => {
                if done < total && shown.is_some_and(|shown| shown.elapsed() < PROGRESS_EVERY) {
                    return;
                }
                shown = Some(Instant::now());
                Event::Progress { stage, done, total, unit }
            }
            WorkerEvent::Metrics { step, values } => Event::Metrics { stage, step, values },
            WorkerEvent::Message { text } => Event::Message { stage: Some(stage), text },
            WorkerEvent::Pinned { source, pin } => return drop(noted.pins.insert(source, pin)),
            WorkerEvent::Used { peak_memory } => {
                return noted.peak_memory = noted.peak_memory.max(peak_memory);
            }
            WorkerEvent::UsedGpu { peak_memory } => {
                return noted.peak_gpu_memory = noted.peak_gpu_memory.max(peak_memory);
            }
            WorkerEvent::Heartbeat | WorkerEvent::Finished | WorkerEvent::Failed { .. } => return,
        };
        let _ = tx.send(Msg::Event(event));
    })
}

fn check_outputs(stage: &PlannedStage, claim: &Claim) -> Result<(), StageError> {
    let out = claim.state_dir().with_file_name("out");
    match stage.stage.outputs().into_iter().find(|name| !out.join(name).exists()) {
        None => Ok(()),
        Some(missing) => Err(StageError::new(
            Tier::Bug,
            format!("the stage ended well but left no `{missing}`, which its kind declares"),
        )
        .with_help("for a `command` stage: make the program write it, or correct `outputs`")),
    }
}

fn sleep_unless_stopped(shared: &Shared, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    while !shared.stop.requested() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

fn backoff(first: Duration, attempt: u32) -> Duration {
    first.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST_BACKOFF)
}

fn empty(folder: &Path) -> Result<(), StageError> {
    let io = |error| StageError::io(folder, error);
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    fs::create_dir_all(folder).map_err(io)
}

/// What a failure of the store means for a stage.
pub(super) fn store_error(error: StoreError) -> StageError {
    let wrong_output = matches!(error, StoreError::Digest(DigestError::Special(_) | DigestError::Name(_)));
    let full = error.is_full();
    match (wrong_output, full) {
        (true, _) => {
            StageError::input(error).with_help("an output holds plain files in folders, with UTF-8 names")
        }
        (_, true) => StageError::environment(error)
            .with_help("free some space (`pipeline cache gc` removes old results) and run again"),
        _ => StageError::environment(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let seconds = |attempt| backoff(Duration::from_secs(1), attempt).as_secs();
        assert_eq!([1, 2, 3, 4, 7, 40].map(seconds), [1, 2, 4, 8, 60, 60]);
    }
}
