//! `pipeline log`: what a stage's worker printed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::CliError;
use super::common::CacheArgs;
use crate::history::{self, Standing};
use crate::manifest;
use crate::store::Store;
use crate::ui;

/// Arguments of `log`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The stage: `eval[lora]`, or `eval` if it has one instance.
    stage: String,
    /// The run, or the beginning of its id [default: the latest in which the stage ran].
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Follow the log while the stage runs.
    #[arg(long, short)]
    follow: bool,
    /// Only the log's path.
    #[arg(long)]
    path: bool,
    #[command(flatten)]
    cache: CacheArgs,
}

/// How many runs are looked through for stages to suggest.
const RUNS_READ: usize = 20;
/// How often a followed log is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// Prints the log.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let runs = Store::open_read_only(&args.cache.cache).runs_dir();
    let ids = match &args.run {
        Some(run) => vec![history::find(&runs, run)?],
        None => history::ids(&runs),
    };
    let Some((id, stage, log)) = find(&runs, &ids, &args.stage) else {
        let place = args.run.as_ref().map_or("any run".to_owned(), |run| format!("run {run}"));
        return Err(CliError::usage(format!(
            "there is no log of a stage `{}` in {place}; {}",
            args.stage,
            remedy(&logged(&runs, &ids), &args.stage)
        )));
    };
    if args.path {
        ui::out(log.display());
        return Ok(ExitCode::SUCCESS);
    }
    let is_empty = || std::fs::metadata(&log).is_ok_and(|meta| meta.len() == 0);
    print(&log, &|| args.follow && is_running(&runs, &id, &stage))
        .map_err(|error| CliError::environment(format!("{}: {error}", log.display())))?;
    if is_empty() {
        ui::note(format!("stage `{stage}` has printed nothing (run {id})"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The latest of the runs in which a worker computed the stage, with the stage's whole name (of a
/// stage with one instance its own name will do) and the log.
fn find(runs: &Path, ids: &[String], wanted: &str) -> Option<(String, String, PathBuf)> {
    for id in ids {
        let Ok(run) = history::load(runs, id) else { continue };
        let logs = run.stages.iter().filter_map(|(name, stage)| Some((name, stage.log.as_ref()?)));
        let mut fitting = logs.filter(|(name, _)| *name == wanted || base(name) == wanted);
        let Some((name, log)) = fitting.next() else { continue };
        if name != wanted && fitting.next().is_some() {
            return None;
        }
        // The cache folder may have been moved since.
        return Some((id.clone(), name.clone(), runs.join(id).join(log.file_name()?)));
    }
    None
}

/// A stage's name without its instance.
fn base(name: &str) -> &str {
    name.split_once('[').map_or(name, |(base, _)| base)
}

/// Stages that have a log in the latest of the runs.
fn logged(runs: &Path, ids: &[String]) -> BTreeSet<String> {
    let latest = ids.iter().take(RUNS_READ).filter_map(|id| history::load(runs, id).ok());
    latest.flat_map(|run| run.stages).filter(|(_, stage)| stage.log.is_some()).map(|(name, _)| name).collect()
}

fn remedy(logged: &BTreeSet<String>, wanted: &str) -> String {
    let instances: Vec<&str> =
        logged.iter().map(String::as_str).filter(|name| base(name) == base(wanted)).collect();
    match (instances.is_empty(), logged.is_empty()) {
        (_, true) => "no run has computed anything yet".to_owned(),
        (false, _) => manifest::listed("name one of its instances", instances),
        _ => manifest::remedy(wanted, "stages with a log", logged.iter().map(String::as_str)),
    }
}

fn is_running(runs: &Path, id: &str, stage: &str) -> bool {
    history::load(runs, id).is_ok_and(|run| {
        run.summary.standing == Standing::Running
            && run.stages.get(stage).is_some_and(|stage| matches!(stage.fate, history::Fate::Started { .. }))
    })
}

/// Copies the file to standard output, and what is appended to it while `more` says so.
fn print(log: &Path, more: &dyn Fn() -> bool) -> io::Result<()> {
    let mut file = File::open(log)?;
    let mut stdout = io::stdout().lock();
    let mut bytes = Vec::new();
    loop {
        let follow = more();
        bytes.clear();
        file.read_to_end(&mut bytes)?;
        match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_EVERY);
    }
}
