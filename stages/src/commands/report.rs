//! `pipeline report`: the page of a run, with how that run went.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use engine::cli::common::CacheArgs;
use engine::cli::{CliError, ExtraCommand};
use engine::facts::{self, Facts, StageFacts, StageState};
use engine::history;
use engine::kind::Stage;
use engine::store::Store;
use engine::ui;

use crate::kinds::report::Report;

/// Write the report of a run, and print where it is.
///
/// The page holds what the run's `report` stage found, and how the run went: the graph with state, time
/// and key of every stage, costs, versions, seeds and params.
#[derive(Debug, Parser)]
#[command(name = "report")]
struct Args {
    /// The run: its id, an unambiguous beginning or end of it, or `latest`.
    #[arg(default_value = "latest")]
    run: String,
    /// Open the page in the browser.
    #[arg(long)]
    open: bool,
    /// Folder to write to [default: the run's folder in the cache].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheArgs,
}

/// The command.
pub fn command() -> ExtraCommand {
    ExtraCommand::new(run)
}

fn run(args: Args) -> Result<ExitCode, CliError> {
    let store = Store::open_read_only(&args.cache.cache);
    let runs = store.runs_dir();
    let id = history::find(&runs, &args.run)?;
    let facts = facts_of(&store, &id)?;
    let finished: Vec<&StageFacts> =
        facts.stages.iter().filter(|stage| stage.kind == Report::KIND && stage.made.is_some()).collect();
    if finished.is_empty() {
        ui::note(format!("run {id} has no report: {}", why_none(&facts)));
        return Ok(ExitCode::FAILURE);
    }
    for stage in &finished {
        let out = match (&args.out, finished.len()) {
            (Some(out), 1) => out.clone(),
            (Some(out), _) => out.join(&stage.name),
            (None, _) => runs.join(&id).join(engine::run::logs::file_name(&stage.name)),
        };
        write(&store, stage, &facts, &out)?;
        let page = out.join("report.html");
        ui::out(ui::text::short_path(&page));
        if args.open {
            open(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of a run.
pub(super) fn facts_of(store: &Store, id: &str) -> Result<Facts, CliError> {
    facts::of_run(store, id)?.ok_or_else(|| {
        CliError::usage(format!("run {id} is from a version that logged no graph; run its manifest again"))
    })
}

fn why_none(facts: &Facts) -> String {
    if let Some(failed) = facts.stages.iter().find(|stage| stage.state == StageState::Failed) {
        let why = failed.error.as_ref().map_or(String::new(), |error| format!(": {error}"));
        return format!("{} failed{why}", failed.name);
    }
    match facts.stages.iter().find(|stage| stage.kind == Report::KIND) {
        Some(stage) if stage.state == StageState::Running => format!("{} is not finished", stage.name),
        Some(stage) => format!("{} was not run; `pipeline run` brings it up to date", stage.name),
        None => "its manifest has no stage of kind `report`".to_owned(),
    }
}

/// Where an artifact's files can be read.
pub(super) fn artifact(store: &Store, stage: &StageFacts) -> Result<PathBuf, CliError> {
    let gone = || {
        CliError::environment(format!(
            "the output of {} is no longer in the cache; `pipeline run` computes it again",
            stage.name
        ))
    };
    let key = stage.made.as_ref().and_then(|made| made.key.parse().ok()).ok_or_else(gone)?;
    let record = store.lookup(&key)?.ok_or_else(gone)?;
    match store.existing_view(&record) {
        Some(view) => Ok(view),
        None => Ok(Store::open(store.root())?.view(&record)?),
    }
}

fn write(store: &Store, stage: &StageFacts, facts: &Facts, out: &Path) -> Result<(), CliError> {
    let failed =
        |what: &Path, error: std::io::Error| CliError::environment(format!("{}: {error}", what.display()));
    let params = stage.made.as_ref().map(|made| made.params.clone()).unwrap_or_default();
    let report: Report = serde_json::from_value(params)
        .map_err(|error| CliError::usage(format!("{} is from another version: {error}", stage.name)))?;
    let artifact = artifact(store, stage)?;
    fs::create_dir_all(out).map_err(|error| failed(out, error))?;
    for name in report.outputs() {
        let (from, to) = (artifact.join(&name), out.join(&name));
        // Not a copy: artifacts are read-only, and so would the copy be.
        fs::read(&from).and_then(|bytes| fs::write(&to, bytes)).map_err(|error| failed(&to, error))?;
    }
    report.complete(out, facts).map_err(|error| CliError::environment(error.message))
}

fn open(page: &Path) -> Result<(), CliError> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(|error| {
        CliError::environment(format!("cannot start {program}: {error}; open the page by hand"))
    })
}
