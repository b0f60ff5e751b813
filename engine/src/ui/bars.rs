//! Progress bars on a terminal: one for the run, one per running stage, lines above them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Reader;
use super::lines::describe;
use super::pace::{Pace, metric};
use super::text::Paint;
use crate::event::{Event, Line};

/// Metrics shown beside a bar.
const METRICS: usize = 4;

/// Draws bars to standard error.
pub struct Bars {
    multi: MultiProgress,
    whole: Option<ProgressBar>,
    stages: HashMap<String, StageBar>,
    paint: Paint,
}

struct StageBar {
    bar: ProgressBar,
    /// From the first report of progress on.
    pace: Option<(Pace, Instant)>,
    progress: String,
    metrics: String,
}

impl StageBar {
    fn progress(&mut self, done: u64, total: u64, unit: &str) {
        let (pace, since) = *self.pace.get_or_insert_with(|| {
            self.bar.set_style(style("{spinner} {prefix}  {bar:24}  {wide_msg}"));
            (Pace::new(done), Instant::now())
        });
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.progress = pace.describe(done, total, unit, since.elapsed());
        self.show();
    }

    fn metrics<'a>(&mut self, step: u64, values: impl Iterator<Item = (&'a String, &'a f64)>) {
        let values = values.take(METRICS).map(|(name, value)| format!("{name} {}", metric(*value)));
        self.metrics = format!("step {step}: {}", values.collect::<Vec<_>>().join(" "));
        self.show();
    }

    fn show(&self) {
        self.bar.set_message(format!("{}  {}", self.progress, self.metrics));
    }
}

impl Bars {
    /// Bars for one run.
    pub fn new() -> Self {
        Self { multi: MultiProgress::new(), whole: None, stages: HashMap::new(), paint: Paint::new(true) }
    }

    fn advance(&self, by: usize) {
        if let Some(whole) = &self.whole {
            whole.inc(by as u64);
        }
    }

    fn remove(&mut self, stage: &str) {
        if let Some(StageBar { bar, .. }) = self.stages.remove(stage) {
            bar.finish_and_clear();
            self.multi.remove(&bar);
        }
    }

    fn add(&mut self, stage: &str) {
        self.remove(stage);
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {prefix}  {elapsed}  {wide_msg}"));
        let bar = match &self.whole {
            Some(whole) => self.multi.insert_before(whole, bar),
            None => self.multi.add(bar),
        };
        bar.set_prefix(stage.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        let (progress, metrics) = (String::new(), String::new());
        self.stages.insert(stage.to_owned(), StageBar { bar, pace: None, progress, metrics });
    }
}

impl Default for Bars {
    fn default() -> Self {
        Self::new()
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("━╸ ")
}

impl Reader for Bars {
    fn see(&mut self, line: &Line) {
        match &line.event {
            Event::RunStarted { stages, .. } => {
                let bar = ProgressBar::new(*stages as u64)
                    .with_style(style("{bar:32} {pos}/{len} stages  {elapsed}"));
                self.whole = Some(self.multi.add(bar));
            }
            Event::Cached { stages } => self.advance(stages.len()),
            Event::Started { stage, .. } => self.add(stage),
            Event::Progress { stage, done, total, unit } => {
                if let Some(bar) = self.stages.get_mut(stage) {
                    bar.progress(*done, *total, unit);
                }
            }
            Event::Metrics { stage, step, values } => {
                if let Some(bar) = self.stages.get_mut(stage) {
                    bar.metrics(*step, values.iter());
                }
            }
            Event::Retrying { stage, .. } => self.remove(stage),
            Event::Finished { stage, .. } | Event::Failed { stage, .. } | Event::Stopped { stage, .. } => {
                self.remove(stage);
                self.advance(1);
            }
            Event::Skipped { stages, .. } => self.advance(stages.len()),
            Event::RunFinished { .. } => {
                let names: Vec<String> = self.stages.keys().cloned().collect();
                names.iter().for_each(|name| self.remove(name));
                if let Some(whole) = self.whole.take() {
                    whole.finish_and_clear();
                }
            }
            _ => {}
        }
        for text in describe(&line.event, self.paint) {
            let _ = self.multi.println(text);
        }
    }
}
