//! Turns of runs and the collector. What a run finds in the store and then notes, or puts there in
//! several steps, would be taken from between the steps; so it holds a turn that it shares with other
//! runs, and the collector one of its own.
//!
//! Turns are short: no stage computes and no checkpoint is hashed in one. They do not nest.

use std::fs::{File, OpenOptions};

use super::{At, Store, StoreError};

/// While it lives, the collector (or, if the collector has it, every run) waits.
#[derive(Debug)]
#[must_use = "the turn ends when it is dropped"]
pub struct Turn {
    _lock: Option<File>,
}

impl Store {
    /// A turn that others may share, but not the collector. In a read-only store, where nothing is
    /// noted either, it keeps nobody out.
    pub fn shared_turn(&self) -> Result<Turn, StoreError> {
        self.turn(File::lock_shared)
    }

    /// A turn alone.
    pub(super) fn lone_turn(&self) -> Result<Turn, StoreError> {
        self.turn(File::lock)
    }

    fn turn(&self, lock: impl Fn(&File) -> std::io::Result<()>) -> Result<Turn, StoreError> {
        if !self.writable {
            return Ok(Turn { _lock: None });
        }
        let path = self.root.join("turn");
        let file = OpenOptions::new().create(true).append(true).open(&path).at(&path)?;
        lock(&file).at(&path)?;
        Ok(Turn { _lock: Some(file) })
    }
}
