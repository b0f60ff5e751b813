//! The exclusive right to compute a key.
//!
//! `inflight/KEY/` holds `lock` (locked while a process works on the key, naming it), `state/`
//! (resumable state, kept until success) and `out/` (the staging folder, emptied at the start).
//! The lock is the system's: it goes with its holder, however that ends.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::{Record, RecordMeta};
use super::{At, Store, StoreError, write_json};
use crate::digest::{list_folder, tree_digest};
use crate::key::{Key, KeyParts};

/// Who holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id of the engine.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Run id.
    pub run: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} (process {} on {})", self.run, self.pid, self.host)
    }
}

/// A claimed key. Dropping it releases the key and keeps the resumable state.
pub struct Claim<'a> {
    store: &'a Store,
    folder: PathBuf,
    _lock: File,
}

impl Store {
    /// Claims a key, waiting while another process has it. `on_wait` is called once with the
    /// holder, if that could be read.
    pub fn claim(
        &self,
        key: &Key,
        me: &Holder,
        on_wait: impl FnOnce(Option<Holder>),
    ) -> Result<Claim<'_>, StoreError> {
        let mut on_wait = Some(on_wait);
        loop {
            let (mut lock, folder, free) = self.open_claim(key)?;
            if !free {
                if let Some(on_wait) = on_wait.take() {
                    on_wait(read_holder(&mut lock));
                }
                lock.lock().at(&folder.join("lock"))?;
            }
            if let Some(claim) = self.finish_claim(lock, folder, me)? {
                return Ok(claim);
            }
        }
    }

    /// Claims a key only if nobody has it.
    pub fn try_claim(&self, key: &Key, me: &Holder) -> Result<Result<Claim<'_>, Option<Holder>>, StoreError> {
        loop {
            let (mut lock, folder, free) = self.open_claim(key)?;
            if !free {
                return Ok(Err(read_holder(&mut lock)));
            }
            if let Some(claim) = self.finish_claim(lock, folder, me)? {
                return Ok(Ok(claim));
            }
        }
    }

    /// Who computes a key right now, if anyone.
    pub fn holder(&self, key: &Key) -> Option<Holder> {
        let path = self.inflight(key).join("lock");
        let mut lock = File::open(path).ok()?;
        if lock.try_lock_shared().is_ok() { None } else { read_holder(&mut lock) }
    }

    /// The folder of a key that is being, or was not completely, computed.
    pub fn inflight(&self, key: &Key) -> PathBuf {
        self.root.join("inflight").join(key.to_string())
    }

    /// The lock of a key, its folder, and whether the lock was free: then we have it.
    fn open_claim(&self, key: &Key) -> Result<(File, PathBuf, bool), StoreError> {
        if !self.writable {
            return Err(StoreError::ReadOnly(self.root.clone()));
        }
        let folder = self.inflight(key);
        let path = folder.join("lock");
        let _turn = self.shared_turn()?;
        loop {
            match fs::create_dir_all(&folder) {
                // A finishing holder removed the folder between the attempt to make it and the look
                // at what was in the way. A file there stays in the way.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !folder.is_file() => continue,
                made => made.at(&folder)?,
            }
            match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path) {
                Ok(file) => {
                    let free = is_free(&file, &folder)?;
                    return Ok((file, folder, free));
                }
                // A finishing holder removed the folder in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io(&path, error)),
            }
        }
    }

    /// None if the lock file was removed by a finishing holder while we waited for it.
    fn finish_claim(
        &self,
        mut lock: File,
        folder: PathBuf,
        me: &Holder,
    ) -> Result<Option<Claim<'_>>, StoreError> {
        let path = folder.join("lock");
        let ours = lock.metadata().at(&path)?;
        match fs::metadata(&path) {
            Ok(there) if there.ino() == ours.ino() && there.dev() == ours.dev() => {}
            _ => return Ok(None),
        }
        lock.set_len(0).at(&path)?;
        lock.rewind().at(&path)?;
        let holder = serde_json::to_vec(me).expect("plain data");
        lock.write_all(&holder).at(&path)?;
        let state = folder.join("state");
        fs::create_dir_all(&state).at(&state)?;
        Ok(Some(Claim { store: self, folder, _lock: lock }))
    }
}

/// Takes the lock if nobody has it. A file system that cannot lock is an error, not a holder.
fn is_free(lock: &File, folder: &Path) -> Result<bool, StoreError> {
    match lock.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(StoreError::io(&folder.join("lock"), error)),
    }
}

fn read_holder(lock: &mut File) -> Option<Holder> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

impl Claim<'_> {
    /// Where resumable state lives until the key is committed.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Makes an empty staging folder for the artifact.
    pub fn staging(&self) -> Result<PathBuf, StoreError> {
        let out = self.folder.join("out");
        remove_folder(&out)?;
        fs::create_dir_all(&out).at(&out)?;
        Ok(out)
    }

    /// Takes what lies in the staging folder into the store under `parts.key()` (which may differ
    /// from the claimed key when pins became known meanwhile) and drops the resumable state. The
    /// record is written last.
    pub fn commit(self, parts: KeyParts, meta: RecordMeta) -> Result<Record, StoreError> {
        let out = self.folder.join("out");
        let entries = list_folder(&out, false, None).map_err(|error| error.within(&out))?;
        // From the first blob to the record that keeps it.
        let _turn = self.store.shared_turn()?;
        for entry in &entries {
            self.store.adopt_blob(&out.join(&entry.path), entry)?;
        }
        let output = tree_digest(entries.iter().map(|entry| (entry.path.as_str(), entry)));
        self.store.write_tree(&output, &entries)?;
        let record = Record { key: parts.key(), parts, output, entries, meta };
        write_json(&self.store.record_path(&record.key), &record, true)?;
        remove_claimed(&self.folder)?;
        Ok(record)
    }

    /// Gives the key up and drops its resumable state.
    pub fn abandon(self) -> Result<(), StoreError> {
        let _turn = self.store.shared_turn()?;
        remove_claimed(&self.folder)
    }
}

/// Begins the names of folders that are being removed.
pub(super) const ASIDE: &str = ".done-";

/// Removes the folder of a key whose lock we hold. It is moved aside in one step: somebody waiting
/// for the key would otherwise put a new lock into a folder that is being removed.
pub(super) fn remove_claimed(folder: &Path) -> Result<(), StoreError> {
    let parent = folder.parent().expect("below inflight");
    let aside = super::temporary_folder().prefix(ASIDE).tempdir_in(parent).at(parent)?;
    fs::rename(folder, aside.path().join("key")).at(folder)
}

fn remove_folder(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(folder, error)),
        _ => Ok(()),
    }
}
