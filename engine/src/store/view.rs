//! Read-only folders that show an artifact under its own names: links into the blobs, so that a
//! 15 GB checkpoint is neither copied nor read to be used. Views are made when needed and may be
//! deleted at any time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::blobs::Health;
use super::record::Record;
use super::{At, Store, StoreError};

/// Begins the names of views in the making.
pub(super) const TEMPORARY: &str = ".tmp";

impl Store {
    /// A folder with the artifact's content, every blob checked. If one is missing or damaged, it
    /// and the record are evicted and [`StoreError::Damaged`] is returned: compute the key again.
    pub fn view(&self, record: &Record) -> Result<PathBuf, StoreError> {
        self.check_content(record)?;
        let view = self.path_of("views", &record.output);
        if view.is_dir() && self.shows(&view, record) {
            return Ok(view);
        }
        if !self.writable {
            return Err(StoreError::ReadOnly(self.root.clone()));
        }
        let _turn = self.shared_turn()?;
        let parent = view.parent().expect("views lie in a folder");
        fs::create_dir_all(parent).at(parent)?;
        let temporary = super::temporary_folder().prefix(TEMPORARY).tempdir_in(parent).at(parent)?;
        let mut folders = BTreeSet::new();
        for entry in &record.entries {
            let link = temporary.path().join(&entry.path);
            let folder = link.parent().expect("below the view");
            if folders.insert(folder.to_owned()) {
                fs::create_dir_all(folder).at(folder)?;
            }
            symlink(self.blob_path(&entry.digest), &link).at(&link)?;
        }
        let made = temporary.keep();
        self.put_view(&made, &view, record)?;
        Ok(view)
    }

    /// Moves a finished view to its place. A good view that stands there already stays: workers
    /// may be reading it.
    fn put_view(&self, made: &Path, view: &Path, record: &Record) -> Result<(), StoreError> {
        let mut renamed = fs::rename(made, view);
        if renamed.is_err() && !self.shows(view, record) {
            let _ = fs::remove_dir_all(view);
            renamed = fs::rename(made, view);
        }
        if let Err(error) = renamed {
            let _ = fs::remove_dir_all(made);
            if !self.shows(view, record) {
                return Err(StoreError::io(view, error));
            }
        }
        Ok(())
    }

    /// The view of an artifact, if one was made before; nothing is checked or written.
    pub fn existing_view(&self, record: &Record) -> Option<PathBuf> {
        Some(self.path_of("views", &record.output)).filter(|view| view.is_dir())
    }

    /// Checks every blob of a record, evicting what is missing or damaged.
    pub fn check_content(&self, record: &Record) -> Result<(), StoreError> {
        for entry in &record.entries {
            let what = match self.blob_health(entry) {
                Health::Good => continue,
                Health::Missing => "missing",
                Health::Damaged => "damaged",
            };
            self.evict_blob(&entry.digest);
            self.evict(&record.key)?;
            return Err(StoreError::Damaged { key: record.key, digest: entry.digest, what });
        }
        Ok(())
    }

    fn shows(&self, view: &Path, record: &Record) -> bool {
        let links = walkdir::WalkDir::new(view)
            .into_iter()
            .filter_map(Result::ok)
            .filter(|item| !item.file_type().is_dir())
            .count();
        links == record.entries.len()
            && record.entries.iter().all(|entry| {
                fs::read_link(view.join(&entry.path)).is_ok_and(|to| to == self.blob_path(&entry.digest))
            })
    }
}
