//! Copies of artifacts for people, outside the store.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::record::Record;
use super::{At, Store, StoreError};
use crate::digest::{Entry, list_folder};

impl Store {
    /// Makes `dest` a folder with exactly the artifact's files: by reflink where the file system
    /// can, by copy otherwise. Files are copied beside their place and renamed, and strays are
    /// removed only once everything has arrived. An up-to-date `dest` is left untouched.
    /// Returns true if anything was written.
    pub fn publish(&self, record: &Record, dest: &Path) -> Result<bool, StoreError> {
        if self.is_published(record, dest) {
            return Ok(false);
        }
        let copy = self.copy_beside(record, dest)?;
        replace(copy.path(), &record.entries, dest)?;
        Ok(true)
    }

    /// As [`Store::publish`], but `complete` may change the copy before it takes its place.
    pub fn publish_completed(
        &self,
        record: &Record,
        dest: &Path,
        complete: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<bool, StoreError> {
        let copy = self.copy_beside(record, dest)?;
        complete(copy.path()).at(dest)?;
        let completed = list_folder(copy.path(), false, None)?;
        if dest.is_dir() && list_folder(dest, false, None).is_ok_and(|found| found == completed) {
            return Ok(false);
        }
        replace(copy.path(), &completed, dest)?;
        Ok(true)
    }

    /// A copy of the artifact in a temporary folder beside `dest`.
    fn copy_beside(&self, record: &Record, dest: &Path) -> Result<TempDir, StoreError> {
        self.check_content(record)?;
        let parent = parent_of(dest);
        fs::create_dir_all(parent).at(parent)?;
        let temporary = super::temporary_folder().prefix(".publish-").tempdir_in(parent).at(parent)?;
        for entry in &record.entries {
            let copy = temporary.path().join(&entry.path);
            let folder = copy.parent().expect("below the copy");
            fs::create_dir_all(folder).at(folder)?;
            reflink_copy::reflink_or_copy(self.blob_path(&entry.digest), &copy).at(&copy)?;
            let mode = if entry.executable { 0o755 } else { 0o644 };
            fs::set_permissions(&copy, Permissions::from_mode(mode)).at(&copy)?;
        }
        Ok(temporary)
    }

    /// True if `dest` holds exactly the artifact's files.
    pub fn is_published(&self, record: &Record, dest: &Path) -> bool {
        dest.is_dir()
            && list_folder(dest, false, Some(self.memo())).is_ok_and(|found| found == record.entries)
    }
}

fn parent_of(dest: &Path) -> &Path {
    dest.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Moves the files of `copy` into `dest`, and removes what is not among them. Runs side by side take
/// turns: what they publish does not mix.
fn replace(copy: &Path, entries: &[Entry], dest: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(dest).at(dest)?;
    let turn = File::open(parent_of(dest)).at(dest)?;
    // A file system that cannot lock leaves it at that.
    let _ = turn.lock();
    for entry in entries {
        let (from, to) = (copy.join(&entry.path), dest.join(&entry.path));
        make_way(dest, &to)?;
        fs::rename(&from, &to).at(&to)?;
    }
    remove_strays(entries, dest)
}

/// Creates the folders above `to` and removes what stands in the way: a file where a folder is
/// needed, or a folder where the file goes.
fn make_way(dest: &Path, to: &Path) -> Result<(), StoreError> {
    let above: Vec<PathBuf> =
        to.ancestors().skip(1).take_while(|folder| *folder != dest).map(Path::to_owned).collect();
    for folder in above.into_iter().rev() {
        if fs::symlink_metadata(&folder).is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(&folder).at(&folder)?;
        }
        fs::create_dir_all(&folder).at(&folder)?;
    }
    if fs::symlink_metadata(to).is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir_all(to).at(to)?;
    }
    Ok(())
}

fn remove_strays(entries: &[Entry], dest: &Path) -> Result<(), StoreError> {
    for item in walkdir::WalkDir::new(dest).contents_first(true).min_depth(1) {
        let item = item.map_err(|error| StoreError::io(dest, error.into()))?;
        let relative = item.path().strip_prefix(dest).expect("below dest").to_string_lossy().into_owned();
        if item.file_type().is_dir() {
            // Fails while the folder still holds a file, as it should.
            let _ = fs::remove_dir(item.path());
        } else if entries.binary_search_by(|entry| entry.path.cmp(&relative)).is_err() {
            fs::remove_file(item.path()).at(item.path())?;
        }
    }
    Ok(())
}
