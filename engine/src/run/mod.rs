//! Runs a plan.
//!
//! - [`board`]: the state of every stage; pure bookkeeping.
//! - [`resolve`]: from stages to keys; [`reason`]: why a key is not in the store.
//! - `schedule`: what runs when, within [`slots`]; `publish`: copies for people.
//! - [`predict`]: what a run would do.
//! - `attempt`: one stage from claim to commit; [`worker`]: its process, seen from the engine;
//!   [`exec`]: the same process, seen from inside; [`job`]: what it is told; [`orphans`]: what a
//!   stage leaves running.
//! - `checks`: what keeps a run from beginning; [`machine`]: what this machine is; [`logs`]: what workers print; [`pins`]: the lock file;
//!   [`trust`]: leave to run programs; [`stop`]: signals.

mod attempt;
pub mod board;
mod checks;
pub mod exec;
pub mod job;
pub mod logs;
pub mod machine;
pub mod orphans;
pub mod pins;
pub mod predict;
mod publish;
pub mod reason;
pub mod resolve;
mod schedule;
pub mod select;
pub mod slots;
pub mod stop;
pub mod trust;
pub mod worker;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::event::{Counts, Event, Line, LogWriter, RunStatus};
use crate::kind::Access;
use crate::plan::{Plan, PlannedStage};
use crate::store::claim::Holder;
use crate::store::session::Session;
use crate::store::{Store, StoreError};
use resolve::Resolver;
use slots::Grant;
use stop::Stop;

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Stages to have (by base or expanded name), with what they depend on; all if empty.
    pub targets: Vec<String>,
    /// Stages to compute although the store may have them (by base or expanded name).
    pub force: Force,
    /// Go on with what does not depend on a failed stage.
    pub keep_going: bool,
    /// Stages side by side.
    pub jobs: usize,
    /// GPUs to use, as `cuda:N`; none means the CPU.
    pub devices: Vec<String>,
    /// Offline flag and mirrors.
    pub access: Access,
    /// Stages may run programs that the manifest names.
    pub allow_commands: bool,
    /// The folder for published outputs; each experiment has its own below.
    pub results: PathBuf,
    /// The overrides given, for the log.
    pub sets: Vec<String>,
    /// The program to start workers with; see [`worker::own_program`].
    pub program: PathBuf,
    /// How long a stopping worker may take to save its state.
    pub grace: Duration,
    /// The wait before the second attempt; it doubles from one attempt to the next.
    pub retry_delay: Duration,
}

/// What `--force` asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Force {
    /// Nothing.
    #[default]
    None,
    /// Every selected stage.
    All,
    /// These stages.
    Stages(Vec<String>),
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Run id.
    pub run: String,
    /// How it ended.
    pub status: RunStatus,
    /// Stages by how they ended.
    pub counts: Counts,
    /// Where outputs were published.
    pub published: Vec<PathBuf>,
    /// Wall time.
    pub seconds: f64,
    /// A stage had to be computed, and the cache may only be read.
    pub refused: bool,
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A target or forced stage that the plan does not have.
    #[error("there is no stage `{name}`; {help}")]
    UnknownStage {
        /// What was asked for.
        name: String,
        /// The nearest name, or what there is.
        help: String,
    },
    /// Stages run programs, and nobody has allowed that.
    #[error(
        "this manifest runs programs on your machine (stages {}); read it, then allow that with --allow-commands, or with --trust to remember it for this version of the manifest",
        .0.join(", ")
    )]
    Untrusted(Vec<String>),
    /// A stage needs more GPUs than the run has.
    #[error(
        "stage {stage} needs {need} GPUs and this run has {have}; lower `resources.gpus` or use --device cuda"
    )]
    TooFewGpus {
        /// Stage name.
        stage: String,
        /// GPUs it declares.
        need: usize,
        /// GPUs of the run.
        have: usize,
    },
    /// Outputs could not be published.
    #[error("{}: {what}; name another folder with --results", path.display())]
    Results {
        /// Where the trouble is.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// A stage cannot run on this machine.
    #[error("stage {stage} {}{}", error.message, error.help.as_ref().map_or_else(String::new, |help| format!("; {help}")))]
    Obstacle {
        /// Stage name.
        stage: String,
        /// What is in its way, and what to do.
        error: crate::kind::StageError,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    Pins(#[from] pins::PinsError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run's folder cannot be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What all threads of a run share.
pub(crate) struct Shared<'a> {
    plan: &'a Plan,
    store: &'a Store,
    options: &'a Options,
    stop: &'a Stop,
    resolver: Resolver<'a>,
    session: Session,
    me: Holder,
    folder: PathBuf,
    lock_path: PathBuf,
    devices: &'a [String],
    forced: Vec<bool>,
}

impl Shared<'_> {
    fn stage(&self, index: usize) -> &PlannedStage {
        &self.plan.stages[index]
    }

    /// Where a stage's output is published.
    fn destination(&self, index: usize) -> Option<PathBuf> {
        let publish = self.stage(index).publish.as_ref()?;
        Some(self.options.results.join(&self.plan.experiment.name).join(publish))
    }

    /// What a stage that holds these slots sees: its device and `CUDA_VISIBLE_DEVICES`. It sees its
    /// own GPUs only, so its first one is always `cuda:0`.
    fn devices_of(&self, grant: &Grant) -> (String, Option<String>) {
        if grant.gpus.is_empty() {
            return ("cpu".to_owned(), None);
        }
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let visible: Vec<&str> = visible.iter().flat_map(|list| list.split(',')).collect();
        let number = |gpu: &usize| {
            let number = self.devices[*gpu].trim_start_matches("cuda:");
            let given = number.parse::<usize>().ok().and_then(|number| visible.get(number));
            (*given.unwrap_or(&number)).to_owned()
        };
        let numbers: Vec<String> = grant.gpus.iter().map(number).collect();
        ("cuda:0".to_owned(), Some(numbers.join(",")))
    }
}

/// Runs a plan; every event goes to the run's log and to `observe`.
///
/// # Errors
/// Only for what keeps the run from beginning. Failing stages are events, and show in the outcome.
pub fn run(
    plan: &Plan,
    store: &Store,
    options: &Options,
    stop: &Stop,
    observe: &mut dyn FnMut(&Line),
) -> Result<Outcome, RunError> {
    let clock = Instant::now();
    let selected = select::selected(plan, &options.targets)?;
    let forced = select::forced(plan, &options.force, &selected)?;
    checks::consent(plan, &selected, options.allow_commands)?;
    checks::gpus(plan, &selected, options.devices.len())?;
    checks::results(plan, &selected, &options.results)?;
    checks::obstacles(plan, store, options)?;
    let lock_path = pins::lock_path(&plan.experiment.manifest);
    let pins = pins::read(&lock_path)?;
    let (id, folder) = new_run(store)?;
    let log = if store.writable() { Some(open_log(&folder)?) } else { None };
    let mut recorder = Recorder { log, observe, broken: false, progress: HashMap::new() };
    let host = host_name();
    recorder.emit(Event::RunStarted {
        run: id.clone(),
        experiment: plan.experiment.name.clone(),
        manifest: plan.experiment.manifest.display().to_string(),
        stages: selected.iter().filter(|selected| **selected).count(),
        device: if options.devices.is_empty() { "cpu".into() } else { options.devices.join(",") },
        jobs: options.jobs,
        sets: options.sets.clone(),
        host: host.clone(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    let digest = plan.experiment.digest.clone();
    recorder.emit(Event::Planned { digest, stages: plan.nodes(&selected) });
    let has_gpus = !options.devices.is_empty();
    let resolver = or_say(
        || Resolver::new(plan, &selected, store, has_gpus, pins),
        || recorder.emit(message("reading the input files that are new or have changed")),
    );
    let shared = Shared {
        plan,
        store,
        options,
        stop,
        resolver,
        session: store.session(&plan.experiment.name, &id)?,
        me: Holder { pid: std::process::id(), host, run: id.clone() },
        folder,
        lock_path,
        devices: &options.devices,
        forced,
    };
    let totals = schedule::drive(&shared, &selected, &mut |event| recorder.emit(event));
    let counts = totals.counts;
    let status = if counts.failed > 0 || totals.unpublished > 0 {
        RunStatus::Failed
    } else if counts.skipped > 0 {
        RunStatus::Interrupted
    } else {
        RunStatus::Succeeded
    };
    if status == RunStatus::Succeeded {
        shared.session.finish();
    }
    let seconds = clock.elapsed().as_secs_f64();
    recorder.emit(Event::RunFinished { status, counts, seconds });
    let (published, refused) = (totals.published, totals.refused);
    Ok(Outcome { run: id, status, counts, published, seconds, refused })
}

fn message(text: &str) -> Event {
    Event::Message { stage: None, text: text.to_owned() }
}

/// Does some work, and says so if it takes more than a moment.
fn or_say<T: Send>(work: impl FnOnce() -> T + Send, say: impl FnOnce()) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let result = work();
            let _ = done.send(());
            result
        });
        if wait.recv_timeout(Duration::from_secs(2)) == Err(RecvTimeoutError::Timeout) {
            say();
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Progress of a stage goes to the log at most this often.
const PROGRESS_LOGGED_EVERY: Duration = Duration::from_secs(2);

struct Recorder<'a> {
    log: Option<LogWriter>,
    observe: &'a mut dyn FnMut(&Line),
    broken: bool,
    /// When each stage's progress was last logged.
    progress: HashMap<String, Instant>,
}

impl Recorder<'_> {
    /// A log that cannot be written is said once and never fails the run.
    fn emit(&mut self, event: Event) {
        let line = Line::now(event);
        if self.is_logged(&line.event)
            && let Some(log) = &mut self.log
            && let Err(error) = log.write(&line)
            && !std::mem::replace(&mut self.broken, true)
        {
            let text = format!("the run's event log cannot be written: {error}");
            (self.observe)(&Line::now(Event::Message { stage: None, text }));
        }
        (self.observe)(&line);
    }

    fn is_logged(&mut self, event: &Event) -> bool {
        let Event::Progress { stage, done, total, .. } = event else { return true };
        let now = Instant::now();
        let recent = |last: &Instant| now.duration_since(*last) < PROGRESS_LOGGED_EVERY;
        if done < total && self.progress.get(stage).is_some_and(recent) {
            return false;
        }
        self.progress.insert(stage.clone(), now);
        true
    }
}

fn open_log(folder: &Path) -> Result<LogWriter, RunError> {
    LogWriter::create(folder).map_err(|source| RunError::Io { path: folder.to_owned(), source })
}

/// A fresh run id with its folder, which is made unless the store is read-only. Ids sort by time,
/// to the millisecond.
fn new_run(store: &Store) -> Result<(String, PathBuf), RunError> {
    let runs = store.runs_dir();
    let io = |path: &Path, source| RunError::Io { path: path.to_owned(), source };
    if store.writable() {
        fs::create_dir_all(&runs).map_err(|source| io(&runs, source))?;
    }
    loop {
        let now = jiff::Timestamp::now();
        let noise = crate::digest::Digest::of(format!("{now} {}", std::process::id()).as_bytes());
        let id = format!("{}{}", now.strftime("%Y%m%d-%H%M%S-%3f"), &noise.short()[..3]);
        let folder = runs.join(&id);
        if !store.writable() {
            return Ok((id, folder));
        }
        match fs::create_dir(&folder) {
            Ok(()) => return Ok((id, folder)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io(&folder, error)),
        }
    }
}

fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as said; the last byte stays 0.
    let code = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    match (code, std::str::from_utf8(&name[..end])) {
        (0, Ok(name)) if !name.is_empty() => name.to_owned(),
        _ => "unknown".to_owned(),
    }
}
