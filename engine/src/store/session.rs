//! What runs use. A run notes every key it touches in `sessions/`; while it lives its keys are
//! never collected, and the last finished run of each experiment stays a root afterwards.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use super::{At, Store, StoreError};
use crate::key::Key;

/// Bytes of one note: a key in hex and a newline.
const NOTE: usize = 65;

/// A live run's notes. Shareable between threads.
pub struct Session {
    notes: Option<Mutex<BufWriter<File>>>,
    live: PathBuf,
    kept: PathBuf,
}

impl Store {
    /// Starts noting what a run of an experiment uses. In a read-only store nothing is noted.
    pub fn session(&self, experiment: &str, run: &str) -> Result<Session, StoreError> {
        let folder = self.root.join("sessions");
        let live = folder.join(format!("{run}.{LIVE}"));
        let kept = folder.join(format!("{experiment}.keys"));
        if !self.writable {
            return Ok(Session { notes: None, live, kept });
        }
        let _turn = self.shared_turn()?;
        fs::create_dir_all(&folder).at(&folder)?;
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(&live).at(&live)?;
        file.lock().at(&live)?;
        Ok(Session { notes: Some(Mutex::new(BufWriter::new(file))), live, kept })
    }

    /// When each noted key was last used, as far as sessions know. Sessions of dead runs that
    /// never finished count with the time of their last note and are then kept like any other.
    pub(super) fn last_used(&self) -> HashMap<Key, LastUse> {
        let mut used: HashMap<Key, LastUse> = HashMap::new();
        for item in fs::read_dir(self.root.join("sessions")).into_iter().flatten().flatten() {
            let path = item.path();
            let Ok(time) = item.metadata().and_then(|meta| meta.modified()) else { continue };
            let is_live = is_live(&path);
            let Ok(text) = fs::read(&path) else { continue };
            for note in text.chunks_exact(NOTE) {
                let key = std::str::from_utf8(&note[..NOTE - 1]).ok().and_then(|hex| hex.parse().ok());
                let Some(key) = key else { continue };
                let entry = used.entry(key).or_insert(LastUse { time, live: false });
                entry.time = entry.time.max(time);
                entry.live |= is_live;
            }
        }
        used
    }

    /// Removes the notes of killed runs that are old.
    pub(super) fn drop_dead_sessions(&self, is_old: impl Fn(&Path) -> bool) {
        for item in fs::read_dir(self.root.join("sessions")).into_iter().flatten().flatten() {
            let path = item.path();
            if path.extension().is_some_and(|ext| ext == LIVE) && is_old(&path) && !is_live(&path) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// Ends the names of notes of runs that have not finished.
const LIVE: &str = "live";

/// Whether a run that lives holds the notes.
fn is_live(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == LIVE)
        && File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

/// When a key was last used, and whether a run that lives uses it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastUse {
    pub(super) time: SystemTime,
    pub(super) live: bool,
}

impl Session {
    /// Notes keys that the run relies on from now on. On disk before this returns. A record found in
    /// the store is safe from the collector only if it is noted in the turn in which it was found.
    pub fn uses<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let Some(notes) = &self.notes else { return };
        let mut notes = notes.lock().expect("session lock");
        for key in keys {
            let _ = writeln!(notes, "{key}");
        }
        let _ = notes.flush();
    }

    /// Ends the run: its keys become the experiment's last used ones.
    pub fn finish(self) {
        if let Some(notes) = &self.notes {
            let _ = notes.lock().expect("session lock").flush();
            let _ = fs::rename(&self.live, &self.kept);
        }
    }
}
