//! Why a stage is not served from the store, in words: compared with what the last run of the
//! experiment had for it.

use std::fmt;

use crate::explain::{Change, changes};
use crate::history::{self, Attempt, AttemptEnd, LastKeys};
use crate::key::KeyParts;
use crate::plan::{Plan, PlannedStage};
use crate::store::Store;
use crate::store::claim::Holder;
use crate::ui::text;

/// How many earlier runs are read to find a stage's last key.
const RUNS_READ: usize = 20;
/// How many changes are spelled out.
const SHOWN: usize = 3;

/// Why a stage runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// Nothing is known of an earlier run of it.
    New,
    /// `--force`.
    Forced,
    /// `cache = false`.
    Uncached,
    /// Same key as before, but its result is not in the cache any more, or left no files.
    Gone,
    /// The last attempt at this very key failed, was stopped or killed.
    Unfinished(Attempt),
    /// Somebody computes this very key now.
    Running(Holder),
    /// The key differs from the last one.
    Changed(Vec<Change>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("new"),
            Self::Forced => f.write_str("forced"),
            Self::Uncached => f.write_str("cache = false"),
            Self::Gone => f.write_str("its result is not in the cache any more"),
            Self::Unfinished(attempt) => match &attempt.end {
                AttemptEnd::Failed(why) => write!(f, "its last attempt failed: {why}"),
                AttemptEnd::Stopped => f.write_str("its last attempt was stopped"),
                AttemptEnd::Killed => f.write_str("its last attempt was killed"),
                AttemptEnd::Running => write!(f, "run {} is at it", attempt.run),
            },
            Self::Running(holder) => write!(f, "{holder} is at it"),
            Self::Changed(changes) => {
                for (at, change) in changes.iter().take(SHOWN).enumerate() {
                    if at > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{change}")?;
                }
                match changes.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
        }
    }
}

impl Reason {
    /// When and in which run the last attempt came to its end, and where its log is.
    pub fn details(&self) -> Vec<String> {
        let Self::Unfinished(attempt) = self else { return Vec::new() };
        let word = match attempt.end {
            AttemptEnd::Failed(_) => "failed at",
            AttemptEnd::Stopped => "stopped at",
            AttemptEnd::Killed => "was under way at",
            AttemptEnd::Running => "began at",
        };
        let mut lines = vec![format!("{word} {} in run {}", text::local_time(attempt.at), attempt.run)];
        lines.extend(attempt.log.as_ref().map(|log| format!("log: {}", text::short_path(log))));
        lines
    }
}

/// Finds reasons; reads earlier runs only once a reason is asked for.
pub struct Reasons<'a> {
    store: &'a Store,
    experiment: String,
    stages: usize,
    last: Option<LastKeys>,
}

impl<'a> Reasons<'a> {
    /// Reasons for the stages of a plan.
    pub fn new(store: &'a Store, plan: &Plan) -> Self {
        Self { store, experiment: plan.experiment.name.clone(), stages: plan.stages.len(), last: None }
    }

    /// Why the stage, whose key is made of `now`, is not served from the store.
    pub fn why(&mut self, stage: &PlannedStage, now: &KeyParts, forced: bool) -> Reason {
        if forced {
            return Reason::Forced;
        }
        if !stage.cache {
            return Reason::Uncached;
        }
        let store = self.store;
        let last = self.last();
        let key = now.key();
        if let Some(attempt) = last.unfinished.get(&stage.name).filter(|attempt| attempt.key == key) {
            return Reason::Unfinished(attempt.clone());
        }
        match last.finished.get(&stage.name) {
            None => Reason::New,
            Some(last) if *last == key => Reason::Gone,
            Some(last) => match store.lookup(last) {
                Ok(Some(record)) => Reason::Changed(changes(&record.parts, now, |digest| store.tree(digest))),
                _ => Reason::New,
            },
        }
    }

    /// True if no earlier run had the stage's artifact.
    pub fn is_new(&mut self, stage: &str) -> bool {
        !self.last().finished.contains_key(stage)
    }

    fn last(&mut self) -> &LastKeys {
        self.last.get_or_insert_with(|| {
            history::last_keys(&self.store.runs_dir(), &self.experiment, RUNS_READ, self.stages)
        })
    }
}
