//! What is known of a finished key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Entry, tree_digest};
use crate::key::{Key, KeyParts};

/// One finished key: every component of it, what came out, and how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The key; equals `parts.key()`.
    pub key: Key,
    /// Its components.
    pub parts: KeyParts,
    /// Digest of the artifact as a folder.
    pub output: Digest,
    /// The artifact's files in path order.
    pub entries: Vec<Entry>,
    /// How it went.
    pub meta: RecordMeta,
}

/// How a key was computed. Nothing here is part of the key, and nothing here is secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordMeta {
    /// Experiment name.
    pub experiment: String,
    /// Expanded stage name.
    pub stage: String,
    /// Run that computed it.
    pub run: String,
    /// References as written, with the digest behind each.
    pub inputs: BTreeMap<String, Digest>,
    /// Start, RFC 3339.
    pub started: String,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Attempts, counting the one that succeeded.
    pub attempts: u32,
    /// Host name.
    pub host: String,
    /// Device used: `cpu` or `cuda:N`.
    pub device: String,
    /// GPUs that it held.
    #[serde(default)]
    pub gpus: u32,
    /// Largest resident memory of the worker and its children in bytes; 0 if unknown.
    #[serde(default)]
    pub peak_memory: u64,
    /// Most memory in use on its GPU while it ran, in bytes; 0 without one, or if unknown.
    #[serde(default)]
    pub peak_gpu_memory: u64,
    /// What computed it: `cpu`, `gpu`, `memory`, `os`.
    #[serde(default)]
    pub machine: BTreeMap<String, String>,
    /// Version of the tool.
    pub tool_version: String,
    /// The key that this was computed under, when the user has said that its result stands for the
    /// record's key too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Key>,
}

impl Record {
    /// The digest of a file, of a folder below the artifact, or (`""`) of the whole artifact.
    pub fn digest_of(&self, path: &str) -> Option<Digest> {
        let path = path.trim_matches('/');
        if path.is_empty() {
            return Some(self.output);
        }
        if let Ok(at) = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)) {
            return Some(self.entries[at].digest);
        }
        let prefix = format!("{path}/");
        let mut below = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.path.strip_prefix(&prefix)?, entry)))
            .peekable();
        below.peek()?;
        Some(tree_digest(below))
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }
}
