//! File contents by digest.
//!
//! A blob is read-only and carries a fixed modification time, set when it is stored: any later
//! write moves the time, so a blob with the right size and that time is taken as untouched.
//! Small blobs are hashed on every read all the same; `pipeline cache verify` hashes all.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{At, Store, StoreError};
use crate::digest::{Digest, Entry, file_digest};

/// Blobs up to this size are hashed whenever they are used.
const ALWAYS_HASHED: u64 = 1 << 20;

/// How a blob was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// As stored.
    Good,
    /// Not there.
    Missing,
    /// There, with other content.
    Damaged,
}

fn stored_time() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1)
}

impl Store {
    /// Where a blob lies.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path_of("blobs", digest)
    }

    /// Moves a staged file into the store; the file must already be hashed to `entry`.
    pub(super) fn adopt_blob(&self, staged: &Path, entry: &Entry) -> Result<(), StoreError> {
        let path = self.blob_path(&entry.digest);
        if self.blob_health(entry) == Health::Good {
            // Touches ctime: the collector then sees the blob as fresh until our record is there.
            let _ = fs::set_permissions(&path, Permissions::from_mode(mode(entry)));
            return fs::remove_file(staged).at(staged);
        }
        let file = File::open(staged).at(staged)?;
        file.set_modified(stored_time()).at(staged)?;
        file.set_permissions(Permissions::from_mode(mode(entry))).at(staged)?;
        file.sync_all().at(staged)?;
        let folder = path.parent().expect("blobs lie in a folder");
        if let Err(error) = fs::rename(staged, &path) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(StoreError::io(&path, error));
            }
            fs::create_dir_all(folder).at(folder)?;
            fs::rename(staged, &path).at(&path)?;
        }
        super::sync_folder(folder)
    }

    /// Checks a blob: size and time for large ones, content for small ones and for any whose time
    /// moved. A large blob found good in spite of its time gets the time back.
    pub fn blob_health(&self, entry: &Entry) -> Health {
        let path = self.blob_path(&entry.digest);
        let Ok(meta) = fs::symlink_metadata(&path) else { return Health::Missing };
        if !meta.is_file() || meta.len() != entry.size {
            return Health::Damaged;
        }
        let untouched = meta.modified().is_ok_and(|time| time == stored_time());
        if untouched && entry.size > ALWAYS_HASHED {
            return Health::Good;
        }
        self.blob_content(entry, &path, untouched)
    }

    /// Reads and hashes a blob whatever its time says.
    pub fn verify_blob(&self, entry: &Entry) -> Health {
        let path = self.blob_path(&entry.digest);
        if path.exists() { self.blob_content(entry, &path, false) } else { Health::Missing }
    }

    fn blob_content(&self, entry: &Entry, path: &Path, untouched: bool) -> Health {
        match file_digest(path) {
            Ok(digest) if digest == entry.digest => {
                if !untouched && self.writable {
                    let _ = File::open(path).and_then(|file| file.set_modified(stored_time()));
                }
                Health::Good
            }
            Ok(_) => Health::Damaged,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Health::Missing,
            Err(_) => Health::Damaged,
        }
    }

    /// Removes a damaged blob.
    pub(super) fn evict_blob(&self, digest: &Digest) {
        if self.writable {
            let _ = fs::remove_file(self.blob_path(digest));
        }
    }
}

fn mode(entry: &Entry) -> u32 {
    if entry.executable { 0o555 } else { 0o444 }
}
