//! The local store: blobs by digest and records by key, below one root (`cache/`).
//!
//! - [`record`]: what is known of a finished key.
//! - [`blobs`]: file contents, written once, verified when read.
//! - [`claim`]: the exclusive right to compute a key, its private folders, and the commit.
//! - [`view`]: read-only folders that show an artifact under its names.
//! - [`publish`]: copies of artifacts for people.
//! - [`session`]: what a run uses, so that the collector leaves it alone.
//! - [`turn`]: what the collector must not come between.
//! - [`gc`]: listing, pinning, collecting and verifying.
//!
//! A blob is `fsync`ed and renamed into place before the record that names it is written, so a
//! record is never ahead of its content. A record whose content is gone or damaged is evicted
//! and counts as a miss.

pub mod blobs;
pub mod claim;
pub mod gc;
pub mod publish;
pub mod record;
pub mod session;
pub mod turn;
pub mod view;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::digest::{Digest, DigestError, Entry, Memo};
use crate::key::{Key, KeyParts};
use record::Record;

/// What can go wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("{}: {source}{}", path.display(), remedy(source))]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder that cannot become an artifact.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// Content of a record is gone or damaged; the record has been evicted, so that computing the
    /// key again mends it.
    #[error("content {} of key {} is {what}; it will be computed again", digest.short(), key.short())]
    Damaged {
        /// The record's key.
        key: Key,
        /// The blob.
        digest: Digest,
        /// `missing` or `damaged`.
        what: &'static str,
    },
    /// Not a folder, or none that can be made.
    #[error("no cache can be at {}: {what}; name another folder with --cache", path.display())]
    NoFolder {
        /// What was named.
        path: PathBuf,
        /// Why it cannot be a cache.
        what: String,
    },
    /// The store cannot be written.
    #[error("the cache at {} is read-only; use --cache with a folder you may write", .0.display())]
    ReadOnly(PathBuf),
}

impl StoreError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// True when space ran out.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// What to do about an I/O error.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; ask its owner to let you in, or use a folder of your own with --cache"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; use a folder that you may write with --cache",
        _ => "",
    }
}

/// Adds the path to an I/O result.
trait At<T> {
    fn at(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::io(path, error))
    }
}

/// A record that cannot be used: its key counts as not computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
    /// Its content is wrong; otherwise it could not be read.
    pub damaged: bool,
}

/// The store at one root. Safe to share between threads and processes.
pub struct Store {
    root: PathBuf,
    writable: bool,
    memo: Memo,
}

impl Store {
    /// Opens (and, where permitted, creates) the store at `root`. A folder that exists but cannot
    /// be written still serves hits.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let writable = match fs::create_dir_all(root) {
            Ok(()) => may_write(root),
            Err(_) if root.is_dir() => false,
            Err(error) => {
                let what = match fs::symlink_metadata(root) {
                    Ok(meta) if meta.is_symlink() => "that is a link to nothing".to_owned(),
                    Ok(_) => "that is a file".to_owned(),
                    Err(_) => error.to_string(),
                };
                return Err(StoreError::NoFolder { path: root.to_owned(), what });
            }
        };
        let root = fs::canonicalize(root).at(root)?;
        let memo =
            if writable { Memo::open(&root.join("memo")) } else { Memo::open_read_only(&root.join("memo")) };
        Ok(Self { root, writable, memo })
    }

    /// Opens a store for looking only: nothing is created, not even the folder.
    pub fn open_read_only(root: &Path) -> Self {
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let memo = Memo::open_read_only(&root.join("memo"));
        Self { root, writable: false, memo }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// False for a read-only store: hits work, computing does not.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The memo of file digests.
    pub fn memo(&self) -> &Memo {
        &self.memo
    }

    /// Where runs keep their event logs.
    pub fn runs_dir(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// The record of a key. A record that cannot be read or does not match its key is a miss.
    pub fn lookup(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let path = self.record_path(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io(&path, error)),
        };
        Ok(serde_json::from_slice::<Record>(&bytes).ok().filter(|record| record.key == *key))
    }

    /// Writes a record under the key that `parts` make with the content of another, on the user's word
    /// that the result is the same.
    pub fn accept(&self, record: &Record, parts: KeyParts, stage: &str) -> Result<Record, StoreError> {
        if !self.writable {
            return Err(StoreError::ReadOnly(self.root.clone()));
        }
        let mut meta = record.meta.clone();
        meta.accepted.get_or_insert(record.key);
        stage.clone_into(&mut meta.stage);
        let record = Record { key: parts.key(), parts, meta, ..record.clone() };
        let _turn = self.shared_turn()?;
        write_json(&self.record_path(&record.key), &record, true)?;
        Ok(record)
    }

    /// Removes a record, so that its key is computed again.
    pub fn evict(&self, key: &Key) -> Result<(), StoreError> {
        self.remove_record(&self.record_path(key))
    }

    fn remove_record(&self, path: &Path) -> Result<(), StoreError> {
        if !self.writable {
            return Ok(());
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(path, error)),
            _ => Ok(()),
        }
    }

    /// Every readable record. Reads the whole store: for listing and explaining.
    pub fn records(&self) -> Vec<Record> {
        self.scan().0
    }

    /// Every record, and which of them cannot be read.
    pub fn scan(&self) -> (Vec<Record>, Vec<BadRecord>) {
        use rayon::prelude::*;
        let mut paths = files_below(&self.root.join("records"));
        paths.retain(|path| path.extension().is_some_and(|ext| ext == "json"));
        paths.par_iter().map(|path| self.read_record(path)).partition_map(|read| match read {
            Ok(record) => rayon::iter::Either::Left(record),
            Err(bad) => rayon::iter::Either::Right(bad),
        })
    }

    fn read_record(&self, path: &Path) -> Result<Record, BadRecord> {
        let bad = |what: String, damaged: bool| BadRecord { path: path.to_owned(), what, damaged };
        let bytes = fs::read(path).map_err(|error| bad(error.to_string(), false))?;
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string(), true))?;
        if self.record_path(&record.key) != path {
            return Err(bad(format!("it is that of key {}", record.key.short()), true));
        }
        Ok(record)
    }

    /// The latest record of each (experiment, stage): what a stage's new key is compared with.
    pub fn latest_by_stage(&self) -> HashMap<(String, String), Record> {
        let mut latest: HashMap<(String, String), Record> = HashMap::new();
        for record in self.records() {
            let name = (record.meta.experiment.clone(), record.meta.stage.clone());
            match latest.get(&name) {
                Some(known) if known.meta.started >= record.meta.started => {}
                _ => drop(latest.insert(name, record)),
            }
        }
        latest
    }

    /// The files behind a folder digest that some artifact had, for naming what changed.
    pub fn tree(&self, digest: &Digest) -> Option<Vec<Entry>> {
        serde_json::from_slice(&fs::read(self.path_of("trees", digest)).ok()?).ok()
    }

    fn write_tree(&self, digest: &Digest, entries: &[Entry]) -> Result<(), StoreError> {
        let path = self.path_of("trees", digest);
        if path.exists() { Ok(()) } else { write_json(&path, &entries, false) }
    }

    fn record_path(&self, key: &Key) -> PathBuf {
        self.path_of("records", &key.digest()).with_extension("json")
    }

    fn path_of(&self, kind: &str, digest: &Digest) -> PathBuf {
        let hex = digest.to_string();
        self.root.join(kind).join(&hex[..2]).join(&hex[2..])
    }
}

/// Whether files may be created in a folder, asked without leaving a probe file.
pub(crate) fn may_write(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a valid C string that outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// All files below a folder of two-digit folders; nothing if it does not exist.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|item| item.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect()
}

/// Makes temporary files that others may read once they are in place, as far as the user's umask
/// says.
pub(crate) fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// As [`temporary`], for folders.
pub(crate) fn temporary_folder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    builder
}

/// Writes a file beside its place and renames it there; `durable` also syncs it and its folder.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8], durable: bool) -> Result<(), StoreError> {
    let folder = path.parent().expect("store paths have a parent");
    let mut file = match temporary().tempfile_in(folder) {
        Ok(file) => file,
        Err(_) => {
            fs::create_dir_all(folder).at(folder)?;
            temporary().tempfile_in(folder).at(folder)?
        }
    };
    file.write_all(bytes).at(path)?;
    if durable {
        file.as_file().sync_all().at(path)?;
    }
    file.persist(path).map_err(|error| StoreError::io(path, error.error))?;
    if durable { sync_folder(folder) } else { Ok(()) }
}

fn write_json(path: &Path, value: &impl Serialize, durable: bool) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec(value).expect("records are plain data");
    write_atomic(path, &bytes, durable)
}

fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|folder| folder.sync_all()).at(folder)
}

#[cfg(test)]
mod gc_tests;
#[cfg(test)]
mod tests;
