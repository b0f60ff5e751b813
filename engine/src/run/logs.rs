//! The captured output of workers: what the files are called, and their last lines.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of a failed stage's log is shown.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 8 << 10;

/// A file name for a stage: its own name, with what file systems dislike escaped.
pub fn file_name(stage: &str) -> String {
    let mut name = String::with_capacity(stage.len());
    for c in stage.chars() {
        if c.is_alphanumeric() || "._-,=[]+".contains(c) {
            name.push(c);
        } else {
            name.push_str(&format!("%{:02x}", u32::from(c)));
        }
    }
    if name.len() > 150 {
        let cut = (0..=150).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(cut);
        name.push('~');
        name.push_str(&crate::digest::Digest::of(stage.as_bytes()).short());
    }
    name
}

/// The last lines of a log.
pub fn tail(log: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES as u64)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_stay_readable_distinct_and_short() {
        assert_eq!(file_name("eval[lora,seed=2]"), "eval[lora,seed=2]");
        assert_eq!(file_name("eval[a/b]"), "eval[a%2fb]");
        let long = |end: &str| file_name(&format!("{}{end}", "ä".repeat(300)));
        assert!(long("1").len() < 200 && long("1") != long("2"));
    }
}
