//! `pipeline run`: brings everything a manifest asks for up to date.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::common::{AccessArgs, CacheArgs, DeviceArgs, ManifestArgs};
use super::{CliError, Host};
use crate::event::RunStatus;
use crate::kind::Registry;
use crate::run::slots::machine_cpus;
use crate::run::stop::Stop;
use crate::run::{self, Force, Options, orphans, trust, worker};
use crate::store::Store;
use crate::ui;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Stages to have, by name (`eval`, `eval[lora]`), with what they depend on; all if none.
    targets: Vec<String>,
    /// Compute again what the cache has: everything, or only STAGE (repeatable).
    #[arg(long, value_name = "STAGE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    force: Vec<String>,
    /// Go on with what does not depend on a failed stage.
    #[arg(long, short)]
    keep_going: bool,
    /// Stages side by side [default: number of CPUs].
    #[arg(long, short, value_name = "N", env = "PIPELINE_JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    json: bool,
    /// Let stages run programs that the manifest names, this time.
    #[arg(long)]
    allow_commands: bool,
    /// As --allow-commands, and remember it for this version of the manifest.
    #[arg(long)]
    trust: bool,
    #[command(flatten)]
    cache: CacheArgs,
    /// Folder for what is published for people; each experiment has its own below.
    #[arg(long, value_name = "DIR", env = "PIPELINE_RESULTS", default_value = "results")]
    results: PathBuf,
    /// Seconds before the first retry of a stage that failed transiently; doubles each time.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    retry_delay: f64,
    /// Seconds that stages may take to save their state when asked to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    grace: f64,
}

/// Runs the command.
pub fn run(args: &Args, registry: &Registry, host: &Host) -> Result<ExitCode, CliError> {
    orphans::adopt();
    let stop = Stop::default();
    stop.on_signals().map_err(|error| CliError::environment(format!("signals: {error}")))?;
    let plan = args.manifest.load(registry)?;
    if args.trust {
        trust::trust(&plan.experiment.digest, &plan.experiment.manifest.display().to_string())
            .map_err(|error| CliError::environment(format!("cannot remember the trust: {error}")))?;
    }
    let options = Options {
        targets: args.targets.clone(),
        force: force(&args.force),
        keep_going: args.keep_going,
        jobs: args.jobs.map_or_else(machine_cpus, |jobs| jobs as usize),
        devices: args.device.devices(host)?,
        access: args.access.access()?,
        allow_commands: args.allow_commands || args.trust || trust::is_trusted(&plan.experiment.digest),
        results: args.results.clone(),
        sets: args.manifest.sets.clone(),
        program: worker::own_program()
            .map_err(|error| CliError::environment(format!("cannot find this program: {error}")))?,
        grace: duration("--grace", args.grace)?,
        retry_delay: duration("--retry-delay", args.retry_delay)?,
    };
    args.cache.hint(&plan);
    let store = Store::open(&args.cache.cache)?;
    let mut reader = ui::reader(args.json);
    let outcome = run::run(&plan, &store, &options, &stop, &mut |line| reader.see(line))?;
    if !args.json {
        let mut published = outcome.published;
        published.sort();
        for path in &published {
            ui::out(ui::text::short_path(&entrance(path)));
        }
    }
    Ok(ExitCode::from(match outcome.status {
        RunStatus::Succeeded => 0,
        RunStatus::Failed if outcome.refused => 3,
        RunStatus::Failed => 1,
        RunStatus::Interrupted => 130,
    }))
}

/// What to open of a published folder: its page if it has one.
fn entrance(folder: &Path) -> PathBuf {
    let pages = ["index.html", "report.html"].map(|name| folder.join(name));
    pages.into_iter().find(|page| page.is_file()).unwrap_or_else(|| folder.to_owned())
}

/// What `--force` (empty) and `--force=STAGE` ask for.
pub fn force(given: &[String]) -> Force {
    match given {
        [] => Force::None,
        names if names.iter().any(String::is_empty) => Force::All,
        names => Force::Stages(names.to_vec()),
    }
}

fn duration(name: &str, seconds: f64) -> Result<Duration, CliError> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| CliError::usage(format!("`{name} {seconds}` is not a number of seconds")))
}
