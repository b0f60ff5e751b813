//! `pipeline explain`: why a stage would run, or why it did, down to the param, the input file or
//! the code version.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;

use serde_json::json;

use super::common::{CacheArgs, DeviceArgs, ManifestArgs};
use super::plan::looking;
use super::{CliError, Host};
use crate::explain::{Change, changes};
use crate::kind::Registry;
use crate::plan::Plan;
use crate::run::Force;
use crate::run::predict::{Forecast, Prediction, predict};
use crate::run::reason::Reason;
use crate::run::select::is_named;
use crate::store::Store;
use crate::store::record::Record;
use crate::ui::{self, text};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Stages to explain: `train[lora]`, or `train` for all its instances; all if none.
    stages: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Print a JSON line per stage.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args, registry: &Registry, host: &Host) -> Result<ExitCode, CliError> {
    let plan = args.manifest.load(registry)?;
    args.cache.hint(&plan);
    let store = Store::open_read_only(&args.cache.cache);
    let named = looking(args.stages.clone(), Force::None, args.device.devices(host)?);
    let asked = |prediction: &Prediction| {
        let stage = &plan.stages[prediction.index];
        args.stages.is_empty() || args.stages.iter().any(|name| is_named(&stage.name, name))
    };
    let predictions = predict(&plan, &store, &named)?;
    let all: BTreeMap<&str, &Prediction> =
        predictions.iter().map(|one| (plan.stages[one.index].name.as_str(), one)).collect();
    let history = History::read(&plan, &store);
    for prediction in predictions.iter().filter(|one| asked(one)) {
        let explained = explain(&plan, &store, &all, &history, prediction);
        if args.json {
            ui::out(explained.json());
        } else {
            ui::out(explained.text());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every record of the experiment's stages, latest first.
struct History(HashMap<String, Vec<Record>>);

impl History {
    fn read(plan: &Plan, store: &Store) -> Self {
        let mut by_stage: HashMap<String, Vec<Record>> = HashMap::new();
        for record in store.records() {
            if record.meta.experiment == plan.experiment.name {
                by_stage.entry(record.meta.stage.clone()).or_default().push(record);
            }
        }
        for records in by_stage.values_mut() {
            records.sort_by(|a, b| b.meta.started.cmp(&a.meta.started));
        }
        Self(by_stage)
    }

    fn of(&self, stage: &str) -> &[Record] {
        self.0.get(stage).map_or(&[], Vec::as_slice)
    }
}

/// One stage's explanation.
struct Explained {
    stage: String,
    verdict: String,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl Explained {
    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.stage, self.verdict)];
        lines.extend(self.changes.iter().map(|change| format!("  {change}")));
        lines.extend(self.notes.iter().map(|note| format!("  {note}")));
        lines.join("\n")
    }

    fn json(&self) -> serde_json::Value {
        json!({"stage": self.stage, "verdict": self.verdict, "changes": self.changes, "notes": self.notes})
    }
}

fn explain(
    plan: &Plan,
    store: &Store,
    all: &BTreeMap<&str, &Prediction>,
    history: &History,
    prediction: &Prediction,
) -> Explained {
    let stage = &plan.stages[prediction.index];
    let mut explained = Explained {
        stage: stage.name.clone(),
        verdict: String::new(),
        changes: Vec::new(),
        notes: Vec::new(),
    };
    match &prediction.forecast {
        Forecast::Cached => cached(store, history, prediction, &mut explained),
        Forecast::Run(Reason::Changed(found)) => {
            explained.verdict = "would run, its key changed".to_owned();
            explained.changes.clone_from(found);
            if let Some(last) = history.of(&stage.name).first() {
                explained.notes.push(format!("compared with {}", described(last)));
            }
        }
        Forecast::Run(reason @ Reason::Running(_)) => explained.verdict = format!("runs now: {reason}"),
        Forecast::Run(Reason::New) => {
            explained.verdict = "would run: it has no earlier result".to_owned();
        }
        Forecast::Run(reason) => {
            explained.verdict = format!("would run: {reason}");
            explained.notes = reason.details();
        }
        Forecast::Broken(error) => explained.verdict = format!("cannot run: {}", error.message),
        Forecast::IfChanged(names) => {
            explained.verdict = "would run if what these put out changes".to_owned();
            for name in names {
                let why = match all.get(name.as_str()).map(|one| &one.forecast) {
                    Some(Forecast::Run(reason)) => reason.to_string(),
                    Some(Forecast::Broken(error)) => error.message.clone(),
                    _ => "behind others that run".to_owned(),
                };
                explained.notes.push(format!("{name}: {why}"));
            }
        }
    }
    explained
}

/// A stage that is up to date: when it was computed, and what that differed in from before.
fn cached(store: &Store, history: &History, prediction: &Prediction, explained: &mut Explained) {
    "cached".clone_into(&mut explained.verdict);
    let records = history.of(&explained.stage);
    let Some(at) = records.iter().position(|record| Some(record.key) == prediction.key) else {
        explained.notes.push("computed under another name or by another experiment".to_owned());
        return;
    };
    explained.verdict = format!("cached, {}", described(&records[at]));
    if let Some(key) = records[at].meta.accepted {
        explained.notes.push(format!("computed under key {} and accepted for this one", key.short()));
    }
    if let Some(before) = records.get(at + 1) {
        explained.changes = changes(&before.parts, &records[at].parts, |digest| store.tree(digest));
        explained.notes.push(format!("compared with {}", described(before)));
    }
}

fn described(record: &Record) -> String {
    let when = record.meta.started.parse().map_or_else(|_| record.meta.started.clone(), text::local_time);
    format!("key {} of {when}, {}", record.key.short(), text::seconds(record.meta.seconds))
}
