//! Plain lines: what a run says in a log file, and above the bars on a terminal.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::text::{Paint, counted, seconds, short_path};
use super::{Reader, note};
use crate::event::{Event, Line, RunStatus};
use crate::kind::{StageError, Tier};

/// Progress of a stage is printed this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);
/// Names listed before "and N more".
const NAMES: usize = 6;

/// Prints plain lines to standard error.
pub struct Lines {
    paint: Paint,
    shown: HashMap<String, Shown>,
}

struct Shown {
    pace: Pace,
    since: Instant,
    last: Instant,
}

impl Lines {
    /// Lines without colours.
    pub fn new() -> Self {
        Self { paint: Paint::plain(), shown: HashMap::new() }
    }

    /// A line of progress if the stage's last one is some time ago.
    fn progress(&mut self, stage: &str, done: u64, total: u64, unit: &str) {
        let now = Instant::now();
        let fresh = || Shown { pace: Pace::new(done), since: now, last: now };
        let shown = self.shown.entry(stage.to_owned()).or_insert_with(fresh);
        if now.duration_since(shown.last) < PROGRESS_EVERY {
            return;
        }
        shown.last = now;
        let progress = shown.pace.describe(done, total, unit, now.duration_since(shown.since));
        note(format!("{} {stage}: {progress}", verb("Progress")));
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader for Lines {
    fn see(&mut self, line: &Line) {
        if let Event::Progress { stage, done, total, unit } = &line.event {
            return self.progress(stage, *done, *total, unit);
        }
        if let Event::Started { stage, .. } = &line.event {
            self.shown.remove(stage);
        }
        describe(&line.event, self.paint).into_iter().for_each(note);
    }
}

fn verb(word: &str) -> String {
    format!("{word:>9}")
}

/// What to print for an event; nothing for those that only bars show.
pub fn describe(event: &Event, paint: Paint) -> Vec<String> {
    let good = |word| paint.good(verb(word));
    let busy = |word| paint.busy(verb(word));
    let warn = |word| paint.warn(verb(word));
    match event {
        Event::RunStarted { run, experiment, stages, device, jobs, .. } => vec![format!(
            "{} {run}: {experiment}, {} on {device}, {} at once",
            busy("Run"),
            counted(*stages, "stage"),
            jobs
        )],
        Event::Cached { stages } => {
            let names: Vec<&str> = stages.iter().map(|stage| stage.stage.as_str()).collect();
            vec![format!("{} {}", good("Cached"), some_names(&names))]
        }
        Event::Waiting { stage, holder } => {
            vec![format!("{} {stage}: {holder} is computing the same", warn("Waiting"))]
        }
        Event::Started { stage, why, attempt: 1, .. } => {
            vec![format!("{} {stage} {}", busy("Started"), paint.dim(format!("({why})")))]
        }
        Event::Started { stage, attempt, .. } => {
            vec![format!("{} {stage}, attempt {attempt}", busy("Started"))]
        }
        Event::Message { stage: Some(stage), text } => {
            vec![format!("{} {stage}: {text}", verb("Note"))]
        }
        Event::Message { stage: None, text } => vec![format!("{} {text}", warn("Note"))],
        Event::Retrying { stage, attempt, in_seconds, error } => vec![format!(
            "{} {stage} in {} (attempt {attempt}: {})",
            warn("Retrying"),
            seconds(*in_seconds),
            error.message
        )],
        Event::Finished { stage, seconds: took, .. } => {
            vec![format!("{} {stage} in {}", good("Finished"), seconds(*took))]
        }
        Event::Failed { stage, error, log, tail, seconds: took, .. } => {
            let mut lines = vec![format!("{} {stage} after {}", paint.bad(verb("Failed")), seconds(*took))];
            lines.extend(failure(error, log.as_deref(), tail));
            lines
        }
        Event::Stopped { stage, seconds: ran, resumable, .. } => {
            let next = if *resumable { "carries on from there" } else { "starts it anew" };
            vec![format!("{} {stage} after {}; the next run {next}", warn("Stopped"), seconds(*ran))]
        }
        Event::Skipped { stages, because } => {
            let names: Vec<&str> = stages.iter().map(String::as_str).collect();
            vec![format!("{} {} (needs {because})", warn("Skipped"), some_names(&names))]
        }
        Event::Published { path, changed: true, stage } => {
            vec![format!("{} {stage} to {}", good("Published"), short_path(path))]
        }
        Event::PublishFailed { stage, path, error } => vec![
            format!("{} to publish {stage} to {}", paint.bad(verb("Failed")), short_path(path)),
            format!("{:9} error: {error}", ""),
        ],
        Event::RunFinished { status, counts, seconds: took } => {
            let parts = [
                (counts.cached, "cached"),
                (counts.ran, "ran"),
                (counts.failed, "failed"),
                (counts.skipped, "not run"),
            ];
            let parts: Vec<String> = parts
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{count} {what}"))
                .collect();
            let word = match status {
                RunStatus::Succeeded => good("Done"),
                RunStatus::Failed => paint.bad(verb("Failed")),
                RunStatus::Interrupted => warn("Stopped"),
            };
            let parts = if parts.is_empty() { "nothing to do".into() } else { parts.join(", ") };
            vec![format!("{word} in {}: {parts}", seconds(*took))]
        }
        Event::Planned { .. }
        | Event::Published { changed: false, .. }
        | Event::Progress { .. }
        | Event::Metrics { .. } => Vec::new(),
    }
}

fn some_names(names: &[&str]) -> String {
    if names.len() <= NAMES {
        return names.join(", ");
    }
    format!("{} and {} more", names[..NAMES].join(", "), names.len() - NAMES)
}

/// An error with its advice, its log and the log's last lines.
pub fn failure(error: &StageError, log: Option<&Path>, tail: &[String]) -> Vec<String> {
    let tier = match error.tier {
        Tier::Input => "wrong input",
        Tier::Environment => "problem of this machine",
        Tier::Transient => "may pass if tried again",
        Tier::Limit => "limit of the manifest",
        Tier::Stopped => "stopped",
        Tier::Bug => "bug",
    };
    let indent = " ".repeat(10);
    let mut lines: Vec<String> = error.message.lines().map(|line| format!("{indent}{line}")).collect();
    if let Some(first) = lines.first_mut() {
        *first = format!("{indent}error ({tier}): {}", first.trim_start());
    }
    if let Some(help) = &error.help {
        lines.push(format!("{indent}help: {help}"));
    }
    if let Some(log) = log {
        lines.push(format!("{indent}log: {}", short_path(log)));
    }
    lines.extend(tail.iter().map(|line| format!("{indent}| {line}")));
    lines
}
