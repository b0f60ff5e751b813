//! `pipeline runs`: what has been run, newest first.

use std::process::ExitCode;

use super::CliError;
use super::common::CacheArgs;
use crate::facts::status as standing;
use crate::history::{self, Summary};
use crate::store::Store;
use crate::ui::table::Table;
use crate::ui::{self, text};

/// Arguments of `runs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only runs of this experiment.
    experiment: Option<String>,
    /// How many to list.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print JSON lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Lists runs.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let runs = Store::open_read_only(&args.cache.cache).runs_dir();
    let wanted = |summary: &Summary| {
        args.experiment.as_ref().is_none_or(|experiment| *experiment == summary.experiment)
    };
    let summaries: Vec<Summary> = history::ids(&runs)
        .iter()
        .filter_map(|id| history::summary(&runs, id).ok())
        .filter(wanted)
        .take(args.limit)
        .collect();
    if args.json {
        for summary in &summaries {
            ui::out(serde_json::json!({
                "run": summary.run,
                "experiment": summary.experiment,
                "manifest": summary.manifest,
                "sets": summary.sets,
                "started": summary.started,
                "status": standing(summary.standing),
                "stages": summary.stages,
                "counts": summary.counts,
                "seconds": summary.seconds,
            }));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        Table::new(&["RUN", "EXPERIMENT", "STARTED", "STATUS", "CACHED", "RAN", "FAILED", "TIME"]);
    for summary in &summaries {
        let count = |of: fn(&crate::event::Counts) -> usize| {
            summary.counts.as_ref().map_or("-".to_owned(), |counts| of(counts).to_string())
        };
        table.row([
            summary.run.clone(),
            summary.experiment.clone(),
            text::local_time(summary.started),
            standing(summary.standing).to_owned(),
            count(|counts| counts.cached),
            count(|counts| counts.ran),
            count(|counts| counts.failed),
            summary.seconds.map_or("-".to_owned(), text::seconds),
        ]);
    }
    if table.is_empty() {
        ui::note("no runs yet; `pipeline run MANIFEST` makes one");
    } else {
        ui::out(table);
    }
    Ok(ExitCode::SUCCESS)
}
