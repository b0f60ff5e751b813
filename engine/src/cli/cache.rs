//! `pipeline cache`: what the store holds, and looking after it.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::CliError;
use super::common::CacheArgs;
use crate::key::Key;
use crate::manifest::{duration, size};
use crate::store::Store;
use crate::store::gc::{GcPolicy, Listed, find_key};
use crate::ui::table::Table;
use crate::ui::{self, text};

/// Arguments of `cache`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cache: CacheArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List results, least recently used first.
    Ls,
    /// Remove what has not been used for long, or until the cache is small enough.
    ///
    /// Pinned results, results that a live run uses, and whatever is younger than the grace period
    /// stay; a run that may only read the cache cannot say what it uses. Without a limit only content
    /// that no result refers to goes.
    Gc(GcArgs),
    /// Read every file and compare it with its digest; damaged results are removed.
    Verify,
    /// Keep results whatever `gc` is told. Names a key's beginning or a stage.
    Pin {
        /// A key's beginning, or a stage's name.
        result: String,
        /// Take it back.
        #[arg(long)]
        remove: bool,
    },
}

#[derive(Debug, clap::Args)]
struct GcArgs {
    /// Remove least recently used results until the cache holds at most this much: `20GB`, or `0`
    /// for all that may go.
    #[arg(long, value_name = "SIZE", value_parser = size_limit)]
    max_size: Option<u64>,
    /// Remove results not used for this long, and logs of runs that old: `30d`, `12h`. The last run
    /// of each experiment keeps its logs.
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    older_than: Option<Duration>,
    /// Never touch what is younger or was used more recently than this; `0s` for no such grace.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time_limit)]
    grace: Duration,
    /// Only say what would go.
    #[arg(long)]
    dry_run: bool,
}

/// A size that may be nothing.
fn size_limit(text: &str) -> Result<u64, String> {
    let number = text.trim().trim_end_matches(|c: char| c.is_alphabetic() || c.is_whitespace());
    if number.parse::<f64>() == Ok(0.0) { Ok(0) } else { size(text) }
}

/// A time that may be nothing.
fn time_limit(text: &str) -> Result<Duration, String> {
    let number = text.trim().trim_end_matches(|c: char| c.is_alphabetic() || c.is_whitespace());
    if number.parse::<f64>() == Ok(0.0) { Ok(Duration::ZERO) } else { duration(text) }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let root = &args.cache.cache;
    if !is_cache(root) {
        let other = args.cache.overlooked(Path::new("."));
        let remedy = match other {
            Some(other) => format!("there is one at {0}: --cache {0}", text::short_path(&other)),
            None => "name one with --cache, or run a manifest first".to_owned(),
        };
        return Err(CliError::environment(format!("no cache at {}: {remedy}", root.display())));
    }
    match &args.command {
        Command::Ls => ls(&Store::open_read_only(root)),
        Command::Gc(gc) => collect(&Store::open(root)?, gc)?,
        Command::Verify => return verify(&Store::open(root)?),
        Command::Pin { result, remove } => pin(&Store::open(root)?, result, !*remove)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a folder was ever used as a cache; nothing is made in any other.
fn is_cache(root: &Path) -> bool {
    let marks = ["records", "blobs", "inflight", "runs", "sessions", "memo"];
    marks.iter().any(|mark| root.join(mark).exists())
}

fn ls(store: &Store) {
    let (listed, bad) = store.list();
    let mut table = Table::new(&["KEY", "STAGE", "KIND", "SIZE", "TIME", "LAST USED", ""]);
    for one in &listed {
        let meta = &one.record.meta;
        table.row([
            one.record.key.short(),
            format!("{}/{}", meta.experiment, meta.stage),
            one.record.parts.kind.clone(),
            HumanBytes(one.record.size()).to_string(),
            text::seconds(meta.seconds),
            when(one.used),
            marks(one),
        ]);
    }
    ui::out(&table);
    let bytes: u64 = listed.iter().map(|one| one.record.size()).sum();
    ui::out(format!("\n{}, {}", text::counted(listed.len(), "result"), HumanBytes(bytes)));
    if !bad.is_empty() {
        let records = text::counted(bad.len(), "record");
        ui::out(format!(
            "{records} cannot be read; `pipeline cache verify` says which and removes what is damaged"
        ));
    }
}

fn when(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| "?".to_owned(), text::local_time)
}

fn marks(one: &Listed) -> String {
    let marks = [(one.pinned, "pinned"), (one.live, "in use")];
    marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark).collect::<Vec<_>>().join(", ")
}

fn collect(store: &Store, args: &GcArgs) -> Result<(), CliError> {
    let policy = GcPolicy {
        max_size: args.max_size,
        max_age: args.older_than,
        grace: args.grace,
        dry_run: args.dry_run,
    };
    let report = store.gc(&policy)?;
    ui::out(format!(
        "{} {}, {}, {} and {} ({}); {} kept",
        if args.dry_run { "would remove" } else { "removed" },
        text::counted(report.records, "result"),
        text::counted(report.unfinished, "unfinished attempt"),
        text::counted(report.runs, "run's log").replace("run's logs", "runs' logs"),
        text::counted(report.blobs, "file"),
        HumanBytes(report.bytes),
        HumanBytes(report.kept_bytes),
    ));
    let young = store.list().0.iter().filter(|one| young(one, args, report.kept_bytes)).count();
    if young > 0 {
        ui::out(format!(
            "{} stayed that the limits would remove: used less than {} ago; --grace 0s removes such results, too",
            text::counted(young, "result"),
            text::seconds(args.grace.as_secs_f64()),
        ));
    }
    Ok(())
}

/// Whether nothing but the grace period keeps a result, where `kept` bytes stayed in all.
fn young(one: &Listed, args: &GcArgs, kept: u64) -> bool {
    let age = SystemTime::now().duration_since(one.used).unwrap_or_default();
    let unwanted =
        args.max_size.is_some_and(|most| kept > most) || args.older_than.is_some_and(|limit| age > limit);
    unwanted && age < args.grace && !one.pinned && !one.live
}

fn verify(store: &Store) -> Result<ExitCode, CliError> {
    let style = "verified {bytes} ({bytes_per_sec})";
    let bar = ProgressBar::no_length()
        .with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let done = AtomicU64::new(0);
    let report = store.verify(|bytes| bar.set_position(done.fetch_add(bytes, Ordering::Relaxed) + bytes))?;
    bar.finish_and_clear();
    for (stage, what) in &report.evicted {
        ui::out(format!("{stage}: content {what}; the next run computes it again"));
    }
    for record in &report.records {
        ui::out(record);
    }
    let files = text::counted(report.blobs, "file");
    let bad = report.evicted.len() + report.records.len();
    ui::out(format!("{files} read ({}), {bad} bad", HumanBytes(report.bytes)));
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn pin(store: &Store, result: &str, keep: bool) -> Result<(), CliError> {
    let keys: Vec<Key> = find_key(&store.list().0, result);
    if keys.is_empty() {
        return Err(CliError::usage(format!("no result `{result}`; `pipeline cache ls` lists them")));
    }
    for key in keys {
        store.pin(&key, keep)?;
        ui::out(format!("{} {}", if keep { "pinned" } else { "unpinned" }, key.short()));
    }
    Ok(())
}
