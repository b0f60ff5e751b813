//! `pipeline diff`: two runs side by side: whose key changed and why, and whose output.

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde_json::Value;

use super::CliError;
use super::common::CacheArgs;
use crate::digest::Entry;
use crate::explain::changes;
use crate::facts::status as standing;
use crate::history::{self, Fate, StageHistory};
use crate::numbers::changed;
use crate::store::Store;
use crate::ui::{self, text};

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The older run: its id, an unambiguous beginning or end of it, or `previous`: the one before
    /// the newer run, of the same experiment.
    #[arg(default_value = "previous")]
    old: String,
    /// The newer run, or `latest`.
    #[arg(default_value = "latest")]
    new: String,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let store = Store::open_read_only(&args.cache.cache);
    let runs = store.runs_dir();
    let new = history::find(&runs, &args.new)?;
    let old = match args.old.as_str() {
        "previous" => history::previous(&runs, &new)?,
        other => history::find(&runs, other)?,
    };
    if old == new {
        return Err(CliError::usage(format!(
            "both are run {new}; name an older one (`pipeline runs` lists them), or `previous` for the one before"
        )));
    }
    let (old, new) = (history::load(&runs, &old)?, history::load(&runs, &new)?);
    for (word, run) in [("old", &old), ("new", &new)] {
        let summary = &run.summary;
        let took = summary.seconds.map_or(String::new(), |took| format!(", {}", text::seconds(took)));
        let sets: String = summary.sets.iter().map(|set| format!(" --set {set}")).collect();
        ui::out(format!(
            "{word} {}: {}{sets}, {}{took}",
            summary.run,
            summary.manifest,
            standing(summary.standing)
        ));
    }
    let names: BTreeSet<&String> = old.stages.keys().chain(new.stages.keys()).collect();
    let mut same = 0;
    for name in names {
        match (old.stages.get(name), new.stages.get(name)) {
            (Some(before), Some(now)) => {
                let lines = compare(&store, before, now);
                if lines.is_empty() {
                    same += 1;
                    continue;
                }
                ui::out(format!("\n{name}"));
                lines.iter().for_each(|line| ui::out(format!("  {line}")));
            }
            (Some(_), None) => ui::out(format!("\n{name}\n  only in the old run")),
            (None, _) => ui::out(format!("\n{name}\n  only in the new run")),
        }
    }
    ui::out(format!("\n{} alike", text::counted(same, "stage")));
    Ok(ExitCode::SUCCESS)
}

fn compare(store: &Store, before: &StageHistory, now: &StageHistory) -> Vec<String> {
    let mut lines = Vec::new();
    if before.key != now.key {
        let record = |stage: &StageHistory| store.lookup(&stage.key?).ok().flatten();
        match (record(before), record(now)) {
            (Some(before), Some(now)) => {
                let changes = changes(&before.parts, &now.parts, |digest| store.tree(digest));
                lines.extend(changes.iter().map(ToString::to_string));
            }
            _ => lines.push("another key; a record is gone, so what changed is not known".to_owned()),
        }
    }
    let outcome = |stage: &StageHistory| match &stage.fate {
        Fate::Cached | Fate::Ran => "there".to_owned(),
        Fate::Failed(error) => format!("failed: {}", error.message.lines().next().unwrap_or_default()),
        Fate::Started { .. } => "not finished".to_owned(),
        Fate::Waiting { .. } | Fate::Stopped => "stopped".to_owned(),
        Fate::Skipped { because } => format!("not run because of {because}"),
    };
    let (was, is) = (outcome(before), outcome(now));
    if was != is {
        lines.push(format!("result: {was} → {is}"));
    }
    if let (Some(was), Some(is)) = (&before.output, &now.output) {
        let short = |digest: &str| digest.chars().take(12).collect::<String>();
        if was != is {
            lines.push(format!("output: {} → {}", short(was), short(is)));
            lines.extend(numbers(store, before, now));
        } else if !lines.is_empty() {
            lines.push("output: the same".to_owned());
        }
    }
    lines
}

/// Numbers shown of one stage.
const NUMBERS: usize = 16;
/// Larger JSON files hold data, not results.
const LARGEST: u64 = 4 << 20;

/// What changed in the numbers of the JSON files that both artifacts have.
fn numbers(store: &Store, before: &StageHistory, now: &StageHistory) -> Vec<String> {
    let record = |stage: &StageHistory| {
        let record = store.lookup(&stage.key?).ok().flatten()?;
        // A key computed twice keeps its last record only.
        (Some(record.output.to_string()) == stage.output).then_some(record)
    };
    let (Some(before), Some(now)) = (record(before), record(now)) else { return Vec::new() };
    let read = |entry: &Entry| -> Option<Value> {
        serde_json::from_slice(&std::fs::read(store.blob_path(&entry.digest)).ok()?).ok()
    };
    let mut lines = Vec::new();
    for entry in now.entries.iter().filter(|entry| entry.path.ends_with(".json") && entry.size <= LARGEST) {
        let same_path = before.entries.iter().find(|other| other.path == entry.path);
        let Some(other) = same_path.filter(|other| other.digest != entry.digest) else { continue };
        let (Some(old), Some(new)) = (read(other), read(entry)) else { continue };
        lines.extend(changed(&old, &new).iter().map(|change| format!("{}: {change}", entry.path)));
    }
    let more = lines.len().saturating_sub(NUMBERS);
    lines.truncate(NUMBERS);
    if more > 0 {
        lines.push(format!("… and {}", text::counted(more, "other number")));
    }
    lines
}
