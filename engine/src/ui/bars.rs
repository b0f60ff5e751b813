//! Progress bars on a terminal: one for the run, one per running stage, lines above them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Reader;
use super::lines::describe;
use super::text::Paint;
use crate::event::{Event, Line};

/// Metrics shown beside a bar.
const METRICS: usize = 4;

/// Draws bars to standard error.
pub struct Bars {
    multi: MultiProgress,
    whole: Option<ProgressBar>,
    stages: HashMap<String, ProgressBar>,
    paint: Paint,
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
        if let Some(bar) = self.stages.remove(stage) {
            bar.finish_and_clear();
            self.multi.remove(&bar);
        }
    }

    fn add(&mut self, stage: &str) {
        self.remove(stage);
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {prefix}  {elapsed}  {msg}"));
        let bar = match &self.whole {
            Some(whole) => self.multi.insert_before(whole, bar),
            None => self.multi.add(bar),
        };
        bar.set_prefix(stage.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        self.stages.insert(stage.to_owned(), bar);
    }

    fn progress(&self, stage: &str, done: u64, total: u64, unit: &str) {
        let Some(bar) = self.stages.get(stage) else { return };
        if bar.length() != Some(total) {
            bar.set_length(total);
            let (amount, rate) = match unit {
                "bytes" => ("{binary_bytes}/{binary_total_bytes}".to_owned(), "{binary_bytes_per_sec}"),
                unit => (format!("{{pos}}/{{len}} {}", unit.replace(['{', '}'], "")), "{per_sec}"),
            };
            bar.set_style(style(&format!(
                "{{spinner}} {{prefix}}  {{bar:24}} {amount}  {rate}  {{eta}} left  {{msg}}"
            )));
            // What an earlier attempt had done says nothing about this one's speed.
            bar.set_position(done);
            bar.reset_eta();
        }
        bar.set_position(done);
    }

    fn metrics(&self, stage: &str, step: u64, values: &BTreeMap<String, f64>) {
        let Some(bar) = self.stages.get(stage) else { return };
        let values: Vec<String> =
            values.iter().take(METRICS).map(|(name, value)| format!("{name} {value:.4}")).collect();
        bar.set_message(format!("step {step}: {}", values.join(" ")));
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
            Event::Progress { stage, done, total, unit } => self.progress(stage, *done, *total, unit),
            Event::Metrics { stage, step, values } => self.metrics(stage, *step, values),
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
