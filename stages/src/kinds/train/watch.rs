//! What is done while training goes on: progress is told, a request to stop is passed on, and
//! snapshots are kept.

use std::fs;
use std::io;

use engine::kind::StageCtx;
use trainer::trainee::Trainee;
use trainer::{Control, Progress, Watch};

use super::{Train, output};
use crate::model::OpenModel;

/// Follows one training.
pub struct Watching<'a> {
    /// Its params.
    pub train: &'a Train,
    /// Its stage.
    pub ctx: &'a StageCtx,
    /// The model that it began with.
    pub opened: &'a OpenModel,
}

impl Watch for Watching<'_> {
    fn updated(&mut self, progress: &Progress) -> Control {
        let values = progress.metrics.values.iter().chain(&progress.timing.values);
        let values = values.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
        self.ctx.metrics(progress.step, values);
        self.ctx.progress(progress.step, progress.total, "updates");
        self.control()
    }

    /// Keeps a snapshot beside the resumable state, whole or not at all: a run that is killed and
    /// goes on after this update must find it.
    fn reached(&mut self, step: u64, trainee: &Trainee) -> Result<(), String> {
        if !self.train.snapshots.contains(&step) {
            return Ok(());
        }
        let folder = self.ctx.state().join(Train::snapshot(step));
        let unfinished = folder.with_extension("unfinished");
        for old in [&unfinished, &folder] {
            match fs::remove_dir_all(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", old.display()));
                }
                _ => {}
            }
        }
        fs::create_dir_all(self.ctx.state().join("snapshots")).map_err(|error| error.to_string())?;
        output::save(self.train, &trainee.current(), self.opened, &unfinished)
            .map_err(|error| error.message)?;
        fs::rename(&unfinished, &folder).map_err(|error| format!("{}: {error}", folder.display()))
    }

    fn sampled(&mut self, done: usize, total: usize) -> Control {
        self.ctx.progress(done as u64, total as u64, "rollouts");
        self.control()
    }
}

impl Watching<'_> {
    fn control(&self) -> Control {
        if self.ctx.stopping() { Control::Stop } else { Control::Continue }
    }
}
