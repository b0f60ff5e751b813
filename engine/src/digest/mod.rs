//! BLAKE3 digests of files and folders, and (`memo`) what spares hashing an unchanged file twice.
//!
//! A folder's digest covers relative names, the executable bit and content, in name order. Times,
//! owners and empty folders do not count.

mod memo;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use walkdir::WalkDir;

pub use memo::Memo;

/// From this size on a file is mapped and hashed by all cores.
const PARALLEL_FROM: u64 = 1 << 20;

/// A BLAKE3 digest: 32 bytes, 64 hex digits when written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
    /// The first 12 hex digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// A text that is not a digest.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is not a digest: expected 64 hexadecimal digits")]
pub struct NotADigest(String);

impl FromStr for Digest {
    type Err = NotADigest;
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        blake3::Hash::from_hex(text).map(Self::from).map_err(|_| NotADigest(text.to_owned()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One file of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Path relative to the artifact, with `/` between parts.
    pub path: String,
    /// Digest of the content.
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
    /// True if its owner may execute it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// The digest of a folder with these entries, which must be in path order.
pub fn tree_digest<'a>(entries: impl IntoIterator<Item = (&'a str, &'a Entry)>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"pipeline tree v1\n");
    for (path, entry) in entries {
        hasher.update(&(path.len() as u64).to_le_bytes());
        hasher.update(path.as_bytes());
        hasher.update(&[u8::from(entry.executable)]);
        hasher.update(&entry.digest.0);
    }
    hasher.finalize().into()
}

/// Hashes one file's content. Devices and pipes are refused: they may never end.
pub fn file_digest(path: &Path) -> io::Result<Digest> {
    // Asked before opening: that alone would wait for somebody to write into a pipe.
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder"));
    }
    let size = meta.len();
    let mut file = File::open(path)?;
    if size < PARALLEL_FROM {
        let mut bytes = Vec::with_capacity(size as usize);
        file.read_to_end(&mut bytes)?;
        return Ok(Digest::of(&bytes));
    }
    drop(file);
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap_rayon(path)?;
    Ok(hasher.finalize().into())
}

/// Why a folder cannot become (or be read as) an artifact.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// Reading failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A name that cannot be written in a record.
    #[error("{}: the name is not UTF-8; rename the file", .0.display())]
    Name(PathBuf),
    /// Links, sockets and devices are not content.
    #[error("{}: neither a file nor a folder; replace the link or device by a file", .0.display())]
    Special(PathBuf),
}

impl DigestError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// Names what is wrong with content by its path inside `root`, where it is of interest.
    pub(crate) fn within(self, root: &Path) -> Self {
        let inside = |path: PathBuf| path.strip_prefix(root).map_or(path.clone(), Path::to_owned);
        match self {
            Self::Name(path) => Self::Name(inside(path)),
            Self::Special(path) => Self::Special(inside(path)),
            other => other,
        }
    }
}

/// Lists and hashes all files below `root` in name order. Links are followed when `follow` is set
/// (inputs), refused otherwise (outputs).
pub fn list_folder(root: &Path, follow: bool, memo: Option<&Memo>) -> Result<Vec<Entry>, DigestError> {
    let mut found = Vec::new();
    for item in WalkDir::new(root).follow_links(follow).sort_by_file_name() {
        let item = item.map_err(|error| {
            let path = error.path().unwrap_or(root).to_owned();
            DigestError::Io { path, source: error.into() }
        })?;
        if item.file_type().is_dir() {
            continue;
        }
        if !item.file_type().is_file() {
            return Err(DigestError::Special(item.into_path()));
        }
        let relative = item.path().strip_prefix(root).expect("walkdir stays below its root");
        let Some(path) = relative.to_str().map(str::to_owned) else {
            return Err(DigestError::Name(item.into_path()));
        };
        let meta = item.metadata().map_err(|error| DigestError::io(item.path(), error.into()))?;
        found.push((path, item.into_path(), meta.len(), meta.mode() & 0o100 != 0));
    }
    let mut entries = found
        .into_par_iter()
        .map(|(path, full, size, executable)| {
            let digest = match memo {
                Some(memo) => memo.file_digest(&full),
                None => file_digest(&full),
            };
            let digest = digest.map_err(|error| DigestError::io(&full, error))?;
            Ok(Entry { path, digest, size, executable })
        })
        .collect::<Result<Vec<_>, DigestError>>()?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// The digest of a file, or of a folder as a tree, at a path outside the store.
pub fn path_digest(path: &Path, memo: &Memo) -> Result<Digest, DigestError> {
    let meta = fs::metadata(path).map_err(|error| DigestError::io(path, error))?;
    if meta.is_dir() {
        let entries = list_folder(path, true, Some(memo))?;
        Ok(tree_digest(entries.iter().map(|entry| (entry.path.as_str(), entry))))
    } else {
        memo.file_digest(path).map_err(|error| DigestError::io(path, error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn folder_digest_sees_names_content_and_mode_but_not_times() {
        let dir = tempfile::tempdir().unwrap();
        let digest = || path_digest(dir.path(), &Memo::in_memory()).unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/x"), "1").unwrap();
        let first = digest();
        age(&dir.path().join("a/x"), 1000);
        fs::create_dir(dir.path().join("empty")).unwrap();
        assert_eq!(first, digest());
        fs::write(dir.path().join("a/x"), "2").unwrap();
        let edited = digest();
        assert_ne!(first, edited);
        fs::rename(dir.path().join("a/x"), dir.path().join("a/y")).unwrap();
        let renamed = digest();
        assert_ne!(edited, renamed);
        let mut mode = fs::metadata(dir.path().join("a/y")).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(dir.path().join("a/y"), mode).unwrap();
        assert_ne!(renamed, digest());
    }

    #[test]
    fn moving_bytes_between_name_and_content_changes_the_digest() {
        let entry = |path: &str, content: &[u8]| Entry {
            path: path.to_owned(),
            digest: Digest::of(content),
            size: 0,
            executable: false,
        };
        let tree = |entries: &[Entry]| tree_digest(entries.iter().map(|e| (e.path.as_str(), e)));
        assert_ne!(tree(&[entry("ab", b"c")]), tree(&[entry("a", b"bc")]));
        assert_ne!(tree(&[entry("a", b""), entry("b", b"")]), tree(&[entry("ab", b"")]));
    }

    #[test]
    fn links_are_followed_in_inputs_and_refused_in_outputs() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        assert_eq!(list_folder(dir.path(), true, None).unwrap().len(), 2);
        assert!(matches!(list_folder(dir.path(), false, None), Err(DigestError::Special(_))));
    }

    #[test]
    fn large_and_small_files_hash_alike() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = vec![7u8; PARALLEL_FROM as usize + 3];
        fs::write(dir.path().join("big"), &bytes).unwrap();
        assert_eq!(file_digest(&dir.path().join("big")).unwrap(), Digest::of(&bytes));
    }

    #[test]
    fn only_64_hex_digits_parse() {
        assert!("zz".parse::<Digest>().is_err());
        assert!(serde_json::from_str::<Digest>("\"12\"").is_err());
        let digest = Digest::of(b"x");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
    }
}
