//! Digests of files that have not changed since they were read.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Digest, file_digest};

/// A file touched more recently than this may change again within its timestamp's tick.
const SETTLED: Duration = Duration::from_secs(2);

/// What identifies an unchanged file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stat {
    device: u64,
    inode: u64,
    size: u64,
    modified: i128,
    changed: i128,
}

impl Stat {
    fn of(meta: &fs::Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified: nanos(meta.mtime(), meta.mtime_nsec()),
            changed: nanos(meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// False while the clock's tick could hide a further edit, or when a time lies in the future.
    fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let limit = now.saturating_sub(SETTLED).as_nanos() as i128;
        self.modified < limit && self.changed < limit
    }

    fn to_bytes(self, digest: Digest) -> [u8; MEMO_ROW] {
        let mut row = [0; MEMO_ROW];
        row[0..8].copy_from_slice(&self.device.to_le_bytes());
        row[8..16].copy_from_slice(&self.inode.to_le_bytes());
        row[16..24].copy_from_slice(&self.size.to_le_bytes());
        row[24..40].copy_from_slice(&self.modified.to_le_bytes());
        row[40..56].copy_from_slice(&self.changed.to_le_bytes());
        row[56..88].copy_from_slice(&digest.0);
        let check = blake3::hash(&row[..88]);
        row[88..].copy_from_slice(&check.as_bytes()[..8]);
        row
    }

    fn from_bytes(row: &[u8]) -> Option<(Self, Digest)> {
        if blake3::hash(&row[..88]).as_bytes()[..8] != row[88..] {
            return None;
        }
        let u64_at = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("8 bytes"));
        let i128_at = |at: usize| i128::from_le_bytes(row[at..at + 16].try_into().expect("16 bytes"));
        let stat = Self {
            device: u64_at(0),
            inode: u64_at(8),
            size: u64_at(16),
            modified: i128_at(24),
            changed: i128_at(40),
        };
        Some((stat, Digest(row[56..88].try_into().expect("32 bytes"))))
    }
}

/// Bytes of one memo row: stat (56), digest (32), check (8). Appended whole, so that several
/// processes may share the file.
const MEMO_ROW: usize = 96;

/// Digests of files already read, by device, inode, size, mtime and ctime.
///
/// A file whose times lie within 2 s of now is never remembered: it may change again in the same
/// tick. The file behind the memo is a hint; deleting it costs time only.
pub struct Memo {
    known: Mutex<HashMap<Stat, Digest>>,
    file: Option<Mutex<File>>,
}

impl Memo {
    /// A memo in memory only.
    pub fn in_memory() -> Self {
        Self { known: Mutex::default(), file: None }
    }

    /// Reads the memo at `path` and never writes it.
    pub fn open_read_only(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_default();
        let known = bytes.chunks_exact(MEMO_ROW).filter_map(Stat::from_bytes).collect();
        Self { known: Mutex::new(known), file: None }
    }

    /// Reads the memo at `path`; unreadable or torn rows are skipped. Without write permission it
    /// serves what it has and remembers new digests in memory.
    pub fn open(path: &Path) -> Self {
        let mut known = HashMap::new();
        let bytes = fs::read(path).unwrap_or_default();
        for row in bytes.chunks_exact(MEMO_ROW) {
            if let Some((stat, digest)) = Stat::from_bytes(row) {
                known.insert(stat, digest);
            }
        }
        let torn = !bytes.len().is_multiple_of(MEMO_ROW) || bytes.len() / MEMO_ROW > 2 * known.len() + 1000;
        let file = OpenOptions::new().append(true).create(true).open(path).ok();
        if let (true, Some(file)) = (torn, &file) {
            let _ = file.set_len(0);
            let rows: Vec<u8> = known.iter().flat_map(|(stat, digest)| stat.to_bytes(*digest)).collect();
            let _ = (&*file).write_all(&rows);
        }
        Self { known: Mutex::new(known), file: file.map(Mutex::new) }
    }

    /// The digest of a file, read only if its stat is unknown or too fresh.
    pub fn file_digest(&self, path: &Path) -> io::Result<Digest> {
        let stat = Stat::of(&fs::metadata(path)?);
        if let Some(digest) = self.known.lock().expect("memo lock").get(&stat) {
            return Ok(*digest);
        }
        let digest = file_digest(path)?;
        if stat.settled() && Stat::of(&fs::metadata(path)?) == stat {
            self.known.lock().expect("memo lock").insert(stat, digest);
            if let Some(file) = &self.file {
                let _ = file.lock().expect("memo file lock").write_all(&stat.to_bytes(digest));
            }
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn memo_skips_reading_a_settled_file_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (file, memo_path) = (dir.path().join("f"), dir.path().join("memo"));
        fs::write(&file, "content").unwrap();
        // A fresh file is not remembered: ctime cannot be set back, so age it in the table itself.
        let memo = Memo::open(&memo_path);
        memo.file_digest(&file).unwrap();
        assert!(memo.known.lock().unwrap().is_empty(), "within 2 s of now nothing is trusted");
        let stat = Stat::of(&fs::metadata(&file).unwrap());
        let marker = Digest::of(b"marker");
        fs::write(&memo_path, [stat.to_bytes(marker).as_slice(), b"torn"].concat()).unwrap();
        let memo = Memo::open(&memo_path);
        assert_eq!(memo.file_digest(&file).unwrap(), marker, "a known stat is not read again");
        assert_eq!(fs::metadata(&memo_path).unwrap().len() as usize, MEMO_ROW, "torn rows go");
        age(&file, 5);
        assert_eq!(memo.file_digest(&file).unwrap(), Digest::of(b"content"), "another mtime is read");
    }
}
