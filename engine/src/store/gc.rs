//! Looking after the store: listing, pinning, collecting and verifying.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rayon::prelude::*;

use super::blobs::Health;
use super::claim::{ASIDE, remove_claimed};
use super::record::Record;
use super::view::TEMPORARY;
use super::{At, BadRecord, Store, StoreError, files_below};
use crate::digest::{Digest, Entry};
use crate::event::LOG_NAME;
use crate::history::{self, Standing};
use crate::key::Key;

/// What may be collected.
#[derive(Debug, Clone)]
pub struct GcPolicy {
    /// Collect least recently used records until the blobs fit into this many bytes.
    pub max_size: Option<u64>,
    /// Collect records not used for this long.
    pub max_age: Option<Duration>,
    /// Never touch anything younger or used more recently than this.
    pub grace: Duration,
    /// Only say what would go.
    pub dry_run: bool,
}

/// One line of `cache ls`.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The record.
    pub record: Record,
    /// When a run last used it, or when it was written.
    pub used: SystemTime,
    /// A live run uses it.
    pub live: bool,
    /// The user asked to keep it.
    pub pinned: bool,
}

/// What a collection did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Records removed.
    pub records: usize,
    /// Remains of unfinished attempts removed.
    pub unfinished: usize,
    /// Logs of runs removed.
    pub runs: usize,
    /// Blobs removed.
    pub blobs: usize,
    /// Bytes of the removed blobs.
    pub bytes: u64,
    /// Bytes of blobs kept.
    pub kept_bytes: u64,
}

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Blobs hashed.
    pub blobs: usize,
    /// Bytes hashed.
    pub bytes: u64,
    /// Stage names of records whose content was missing or damaged, with what was wrong. They are
    /// evicted and will be computed again.
    pub evicted: Vec<(String, &'static str)>,
    /// What is said of each record that cannot be used. Damaged ones are removed.
    pub records: Vec<String>,
}

impl Store {
    /// All records, least recently used first, and those that cannot be read.
    pub fn list(&self) -> (Vec<Listed>, Vec<BadRecord>) {
        let used = self.last_used();
        let pins = self.pins();
        let (records, bad) = self.scan();
        let mut listed: Vec<Listed> = records
            .into_iter()
            .map(|record| {
                let written = fs::metadata(self.record_path(&record.key)).and_then(|meta| meta.modified());
                let last = used.get(&record.key);
                let written = written.unwrap_or(SystemTime::UNIX_EPOCH);
                Listed {
                    used: last.map_or(written, |last| last.time.max(written)),
                    live: last.is_some_and(|last| last.live),
                    pinned: pins.contains(&record.key),
                    record,
                }
            })
            .collect();
        listed.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.record.key.cmp(&b.record.key)));
        (listed, bad)
    }

    /// Keeps a record whatever the collector's limits; `keep = false` takes that back.
    pub fn pin(&self, key: &Key, keep: bool) -> Result<(), StoreError> {
        let folder = self.root.join("pins");
        let path = folder.join(key.to_string());
        fs::create_dir_all(&folder).at(&folder)?;
        if keep {
            fs::write(&path, "").at(&path)
        } else {
            fs::remove_file(&path).or_else(ignore_missing).at(&path)
        }
    }

    fn pins(&self) -> HashSet<Key> {
        let items = fs::read_dir(self.root.join("pins")).into_iter().flatten().flatten();
        items.filter_map(|item| item.file_name().to_str()?.parse().ok()).collect()
    }

    /// Removes what the policy allows. Pinned records, records that a live run uses, and
    /// everything within the grace period stay. Waits for runs that are putting results there, and
    /// they wait until it is through.
    pub fn gc(&self, policy: &GcPolicy) -> Result<GcReport, StoreError> {
        if !self.writable {
            return Err(StoreError::ReadOnly(self.root.clone()));
        }
        let _turn = if policy.dry_run { self.shared_turn()? } else { self.lone_turn()? };
        let now = SystemTime::now();
        let age = |time: SystemTime| now.duration_since(time).unwrap_or_default();
        let (listed, _) = self.list();
        let mut uses: HashMap<Digest, u32> = HashMap::new();
        for entry in listed.iter().flat_map(|one| &one.record.entries) {
            *uses.entry(entry.digest).or_default() += 1;
        }
        let mut size: u64 = unique_entries(&listed).values().sum();
        let mut report = GcReport::default();
        for one in &listed {
            let protected = one.pinned || one.live || age(one.used) < policy.grace;
            let too_old = policy.max_age.is_some_and(|limit| age(one.used) > limit);
            let too_much = policy.max_size.is_some_and(|limit| size > limit);
            if protected || !(too_old || too_much) {
                continue;
            }
            for entry in &one.record.entries {
                let count = uses.get_mut(&entry.digest).expect("counted above");
                *count -= 1;
                if *count == 0 {
                    size -= entry.size;
                }
            }
            report.records += 1;
            if !policy.dry_run {
                self.evict(&one.record.key)?;
            }
        }
        self.sweep(&uses, policy, &mut report)?;
        self.sweep_unfinished(policy, &mut report)?;
        self.sweep_runs(policy, &mut report);
        report.kept_bytes = size;
        Ok(report)
    }

    /// Removes blobs that no record uses, then trees and views of records that are gone.
    fn sweep(
        &self,
        uses: &HashMap<Digest, u32>,
        policy: &GcPolicy,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let now = SystemTime::now();
        for path in files_below(&self.root.join("blobs")) {
            let used =
                digest_at(&path).is_some_and(|digest| uses.get(&digest).is_some_and(|count| *count > 0));
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if used || now.duration_since(changed(&meta)).unwrap_or_default() < policy.grace {
                continue;
            }
            report.blobs += 1;
            report.bytes += meta.len();
            if !policy.dry_run {
                fs::remove_file(&path).or_else(ignore_missing).at(&path)?;
            }
        }
        if policy.dry_run {
            return Ok(());
        }
        self.sweep_temporary(policy);
        let kept: HashSet<Digest> = self.records().iter().map(|record| record.output).collect();
        let gone = |digest: Option<Digest>| digest.is_some_and(|digest| !kept.contains(&digest));
        for path in files_below(&self.root.join("trees")) {
            if gone(digest_at(&path)) {
                let _ = fs::remove_file(&path);
            }
        }
        let views = walkdir::WalkDir::new(self.root.join("views")).min_depth(2).max_depth(2);
        for item in views.into_iter().filter_map(Result::ok) {
            if gone(digest_at(item.path())) {
                let _ = fs::remove_dir_all(item.path());
            }
        }
        Ok(())
    }

    /// Removes what killed processes left half-made beside records, trees and views.
    fn sweep_temporary(&self, policy: &GcPolicy) {
        let now = SystemTime::now();
        for folder in ["records", "trees", "views"] {
            let items = walkdir::WalkDir::new(self.root.join(folder)).min_depth(2).max_depth(2);
            for item in items.into_iter().filter_map(Result::ok) {
                let young = item
                    .metadata()
                    .ok()
                    .is_none_or(|meta| now.duration_since(changed(&meta)).unwrap_or_default() < policy.grace);
                if young || !item.file_name().to_string_lossy().starts_with(TEMPORARY) {
                    continue;
                }
                let _ = match item.file_type().is_dir() {
                    true => fs::remove_dir_all(item.path()),
                    false => fs::remove_file(item.path()),
                };
            }
        }
    }

    /// Removes logs of runs that are older than the policy's maximal age, but the latest of each
    /// experiment, and the notes of such runs that were killed.
    fn sweep_runs(&self, policy: &GcPolicy, report: &mut GcReport) {
        let Some(limit) = policy.max_age.map(|age| age.max(policy.grace)) else { return };
        let now = SystemTime::now();
        let is_old = |path: &Path| {
            let time = fs::metadata(path).and_then(|meta| meta.modified());
            time.is_ok_and(|time| now.duration_since(time).unwrap_or_default() > limit)
        };
        let runs = self.runs_dir();
        let mut kept: HashSet<String> = HashSet::new();
        for id in history::ids(&runs) {
            let Ok(run) = history::summary(&runs, &id) else { continue };
            let is_latest = kept.insert(run.experiment);
            if is_latest || run.standing == Standing::Running || !is_old(&runs.join(&id).join(LOG_NAME)) {
                continue;
            }
            report.runs += 1;
            report.bytes += files_below(&runs.join(&id))
                .iter()
                .filter_map(|path| Some(fs::metadata(path).ok()?.len()))
                .sum::<u64>();
            if !policy.dry_run {
                let _ = fs::remove_dir_all(runs.join(&id));
            }
        }
        if !policy.dry_run {
            self.drop_dead_sessions(is_old);
        }
    }

    /// Removes the resumable state of attempts that nobody has carried on with for the policy's
    /// maximal age, and what a killed process was about to remove.
    fn sweep_unfinished(&self, policy: &GcPolicy, report: &mut GcReport) -> Result<(), StoreError> {
        let now = SystemTime::now();
        for item in fs::read_dir(self.root.join("inflight")).into_iter().flatten().flatten() {
            let (mut newest, mut bytes) = (SystemTime::UNIX_EPOCH, 0);
            for inner in walkdir::WalkDir::new(item.path()).into_iter().filter_map(Result::ok) {
                let Ok(meta) = inner.metadata() else { continue };
                newest = newest.max(meta.modified().unwrap_or(now));
                bytes += if meta.is_file() { meta.len() } else { 0 };
            }
            let idle = now.duration_since(newest).unwrap_or_default();
            let condemned = item.file_name().to_string_lossy().starts_with(ASIDE);
            let too_old = policy.max_age.is_some_and(|limit| idle > limit);
            if idle < policy.grace || !(condemned || too_old) {
                continue;
            }
            // Held until the folder is gone, so that nobody starts on it meanwhile.
            let lock = File::open(item.path().join("lock")).ok();
            if lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) {
                continue;
            }
            if !policy.dry_run {
                match remove_claimed(&item.path()) {
                    // Its owner was faster.
                    Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
                    removed => removed?,
                }
            }
            report.unfinished += 1;
            report.bytes += bytes;
        }
        Ok(())
    }

    /// Reads every record and hashes every blob of it; evicts what is missing or damaged.
    pub fn verify(&self, progress: impl Fn(u64) + Sync) -> Result<VerifyReport, StoreError> {
        let (records, bad_records) = self.scan();
        let mut entries: HashMap<Digest, &Entry> = HashMap::new();
        for entry in records.iter().flat_map(|record| &record.entries) {
            entries.insert(entry.digest, entry);
        }
        let bad: HashMap<Digest, Health> = entries
            .par_iter()
            .filter_map(|(digest, entry)| {
                let health = self.verify_blob(entry);
                progress(entry.size);
                (health != Health::Good).then_some((*digest, health))
            })
            .collect();
        let mut report = VerifyReport {
            blobs: entries.len(),
            bytes: entries.values().map(|entry| entry.size).sum(),
            evicted: Vec::new(),
            records: Vec::new(),
        };
        for record in bad_records {
            let next = match record.damaged {
                true => "removed; the next run that needs it computes its key again",
                false => "left alone",
            };
            report.records.push(format!("record {}: {}; {next}", record.path.display(), record.what));
            if record.damaged {
                self.remove_record(&record.path)?;
            }
        }
        for record in &records {
            let Some(health) = record.entries.iter().find_map(|entry| bad.get(&entry.digest)) else {
                continue;
            };
            let what = if *health == Health::Missing { "missing" } else { "damaged" };
            report.evicted.push((record.meta.stage.clone(), what));
            self.evict(&record.key)?;
        }
        bad.keys().for_each(|digest| self.evict_blob(digest));
        report.evicted.sort();
        report.records.sort();
        Ok(report)
    }
}

fn unique_entries(listed: &[Listed]) -> HashMap<Digest, u64> {
    listed.iter().flat_map(|one| &one.record.entries).map(|entry| (entry.digest, entry.size)).collect()
}

/// The digest that a store path stands for: its folder's two digits and its own name.
fn digest_at(path: &Path) -> Option<Digest> {
    let head = path.parent()?.file_name()?.to_str()?;
    format!("{head}{}", path.file_name()?.to_str()?).parse().ok()
}

fn changed(meta: &fs::Metadata) -> SystemTime {
    use std::os::unix::fs::MetadataExt;
    SystemTime::UNIX_EPOCH + Duration::from_secs(meta.ctime().max(0) as u64)
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// A key given by its beginning, as people type it.
pub fn find_key(listed: &[Listed], text: &str) -> Vec<Key> {
    let matches =
        |one: &&Listed| one.record.key.to_string().starts_with(text) || one.record.meta.stage == text;
    listed.iter().filter(matches).map(|one| one.record.key).collect()
}
