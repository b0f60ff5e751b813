//! The lock file beside the manifest, `NAME.lock`: what external sources resolved to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kind::Pin;

/// Why the lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PinsError {
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not a lock file.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The lock file.
        path: PathBuf,
        /// What is wrong, with its place.
        source: Box<toml::de::Error>,
    },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    #[serde(default)]
    source: BTreeMap<String, Pin>,
}

const HEADER: &str = "# Written by `pipeline`: what external sources resolved to. Keep it with the manifest.\n\
                      # Remove an entry to resolve its source anew.\n\n";

/// The lock file of a manifest.
pub fn lock_path(manifest: &Path) -> PathBuf {
    manifest.with_extension("lock")
}

/// Reads the pins; none if there is no lock file.
pub fn read(path: &Path) -> Result<BTreeMap<String, Pin>, PinsError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(PinsError::Io { path: path.to_owned(), source }),
    };
    let file: LockFile = toml::from_str(&text)
        .map_err(|source| PinsError::Parse { path: path.to_owned(), source: Box::new(source) })?;
    Ok(file.source)
}

/// Adds pins to the file as it is now: runs side by side keep each other's. The file is replaced
/// as a whole.
pub fn add(path: &Path, new: &BTreeMap<String, Pin>) -> Result<(), PinsError> {
    let io = |source| PinsError::Io { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The folder itself serves as the lock: the file is replaced, so it cannot be one.
    let guard = File::open(folder).map_err(io)?;
    guard.lock().map_err(io)?;
    let mut source = read(path)?;
    source.extend(new.iter().map(|(name, pin)| (name.clone(), pin.clone())));
    let text = toml::to_string(&LockFile { source }).expect("pins are plain data");
    let mut file = crate::store::temporary().tempfile_in(folder).map_err(io)?;
    file.write_all(HEADER.as_bytes()).and_then(|()| file.write_all(text.as_bytes())).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_accumulate_and_a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = lock_path(&dir.path().join("tiny.toml"));
        assert!(path.ends_with("tiny.lock"));
        assert!(read(&path).unwrap().is_empty());
        let pin = |digest: &str| Pin { digest: digest.into(), revision: Some("main".into()) };
        let one = |name: &str, digest: &str| BTreeMap::from([(name.to_owned(), pin(digest))]);
        add(&path, &one("https://b", "1")).unwrap();
        add(&path, &one("https://a", "2")).unwrap();
        add(&path, &one("https://b", "3")).unwrap();
        let all = read(&path).unwrap();
        let expected = [one("https://a", "2"), one("https://b", "3")];
        assert_eq!(all, expected.into_iter().flatten().collect());
        fs::write(&path, "[source.x]\ndigst = 1\n").unwrap();
        let error = add(&path, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("tiny.lock") && error.contains("digst"), "{error}");
    }
}
