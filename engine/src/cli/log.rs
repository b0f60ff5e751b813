//! `pipeline log`: what a stage's worker printed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::CliError;
use super::common::CacheArgs;
use crate::history::{self, Standing};
use crate::store::Store;
use crate::ui;

/// Arguments of `log`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The stage: `eval[lora]`.
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

/// How often a followed log is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// Prints the log.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let runs = Store::open_read_only(&args.cache.cache).runs_dir();
    let ids = match &args.run {
        Some(run) => vec![history::find(&runs, run)?],
        None => history::ids(&runs),
    };
    let Some((id, log)) = find(&runs, &ids, &args.stage) else {
        let place = args.run.as_ref().map_or("any run".to_owned(), |run| format!("run {run}"));
        return Err(CliError::usage(format!(
            "stage `{}` has not been computed in {place}; `pipeline runs` and `pipeline status MANIFEST` show what has",
            args.stage
        )));
    };
    if args.path {
        ui::out(log.display());
        return Ok(ExitCode::SUCCESS);
    }
    print(&log, &|| args.follow && is_running(&runs, &id, &args.stage))
        .map_err(|error| CliError::environment(format!("{}: {error}", log.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// The latest of the runs in which a worker computed the stage, with the log.
fn find(runs: &std::path::Path, ids: &[String], stage: &str) -> Option<(String, PathBuf)> {
    ids.iter().find_map(|id| {
        let run = history::load(runs, id).ok()?;
        let log = run.stages.get(stage)?.log.clone()?;
        // The cache folder may have been moved since.
        let moved = runs.join(id).join(log.file_name()?);
        Some((id.clone(), moved))
    })
}

fn is_running(runs: &std::path::Path, id: &str, stage: &str) -> bool {
    history::load(runs, id).is_ok_and(|run| {
        run.summary.standing == Standing::Running
            && run.stages.get(stage).is_some_and(|stage| matches!(stage.fate, history::Fate::Started { .. }))
    })
}

/// Copies the file to standard output, and what is appended to it while `more` says so.
fn print(log: &std::path::Path, more: &dyn Fn() -> bool) -> io::Result<()> {
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
