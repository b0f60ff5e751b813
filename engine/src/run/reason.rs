//! Why a stage is not served from the store, in words: compared with what the last run of the
//! experiment had for it.

use std::fmt;

use crate::explain::{Change, changes};
use crate::history::{self, LastKeys};
use crate::key::KeyParts;
use crate::plan::PlannedStage;
use crate::store::Store;

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
    /// The last attempt at this very key was stopped, killed or failed.
    Unfinished,
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
            Self::Unfinished => f.write_str("an earlier run did not finish it"),
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

/// Finds reasons; reads earlier runs only once a reason is asked for.
pub struct Reasons<'a> {
    store: &'a Store,
    experiment: String,
    last: Option<LastKeys>,
}

impl<'a> Reasons<'a> {
    /// Reasons for stages of an experiment.
    pub fn new(store: &'a Store, experiment: &str) -> Self {
        Self { store, experiment: experiment.to_owned(), last: None }
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
        if last.unfinished.get(&stage.name) == Some(&key) {
            return Reason::Unfinished;
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
        self.last
            .get_or_insert_with(|| history::last_keys(&self.store.runs_dir(), &self.experiment, RUNS_READ))
    }
}
