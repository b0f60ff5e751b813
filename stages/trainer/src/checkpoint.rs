//! Resumable state: all that the next update depends on, written so that it is there whole or not at
//! all.
//!
//! A state is a folder `step-00000012` with
//! - `state.safetensors`: masters and moments (`NAME#value`, `NAME#mean`, `NAME#square`) and the
//!   constants of the loop, all f32;
//! - `state.json`: the step, the digest of `state.safetensors`, and the identity of the run;
//! - `metrics.jsonl` and `timing.jsonl`: a line per update so far.
//!
//! It is written under another name, synced, and renamed; older states are removed afterwards. There
//! is no generator state to save: data order, rollout seeds and learning rate are functions of the
//! step.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::TrainError;
use crate::optim::{Master, flat};

/// What a run is, apart from its length: settings and digests of data and weights. A state only
/// continues a run of the same identity.
pub type Identity = BTreeMap<String, Value>;

/// A saved state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Updates done.
    pub step: u64,
    /// A JSON line per update, without times.
    pub metrics: Vec<String>,
    /// A JSON line per update: seconds by activity.
    pub timing: Vec<String>,
    /// Constants that the loop computed once, by name.
    pub constants: BTreeMap<String, Vec<f32>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u32,
    step: u64,
    digest: String,
    identity: Identity,
}

const FORMAT: u32 = 1;
const TENSORS: &str = "state.safetensors";
const HEADER: &str = "state.json";
const METRICS: &str = "metrics.jsonl";
const TIMING: &str = "timing.jsonl";

/// f32 values on their way into a safetensors file.
pub(crate) struct Floats {
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Floats {
    pub fn new(shape: Vec<usize>, values: &[f32]) -> Self {
        let mut bytes = vec![0; size_of_val(values)];
        for (to, value) in bytes.chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        Self { shape, bytes }
    }
}

impl View for &Floats {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        (&self.bytes).into()
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// f32 values that are fetched from their device when their turn to be written comes: a state may be as
/// large as the host's memory.
struct Fetched<'a> {
    shape: Vec<usize>,
    values: Cow<'a, Tensor<1>>,
}

impl View for Fetched<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        self.values.as_ref().clone().into_data().as_bytes().to_vec().into()
    }
    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * size_of::<f32>()
    }
}

/// The digest of a file that was just written, and the file on the disk.
fn synced_digest(path: &Path) -> Result<String, TrainError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap_rayon(path).map_err(|e| TrainError::io(path, e))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(|e| TrainError::io(path, e))?;
    Ok(hasher.finalize().to_hex().to_string())
}

pub(crate) fn read_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Writes `bytes` and waits until the disk has them.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let mut file = File::create(path).map_err(|e| TrainError::io(path, e))?;
    file.write_all(bytes).map_err(|e| TrainError::io(path, e))?;
    file.sync_all().map_err(|e| TrainError::io(path, e))
}

fn sync_dir(path: &Path) -> Result<(), TrainError> {
    let dir = File::open(path).map_err(|e| TrainError::io(path, e))?;
    dir.sync_all().map_err(|e| TrainError::io(path, e))
}

fn lines(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|l| [l.as_bytes(), b"\n"].concat()).collect()
}

/// Saved states in `dir`, newest last.
fn saved(dir: &Path) -> Result<Vec<(u64, PathBuf)>, TrainError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut states = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| TrainError::io(dir, e))? {
        let path = entry.map_err(|e| TrainError::io(dir, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(step) = name.strip_prefix("step-").and_then(|s| s.parse().ok()) {
            states.push((step, path));
        }
    }
    states.sort();
    Ok(states)
}

/// Saves `state` and `masters` in `dir`, and removes what it replaces.
///
/// # Errors
/// The file system's.
pub fn save(dir: &Path, state: &State, masters: &[Master], identity: &Identity) -> Result<(), TrainError> {
    fs::create_dir_all(dir).map_err(|e| TrainError::io(dir, e))?;
    let name = format!("step-{:08}", state.step);
    let staging = dir.join(format!("writing-{name}-{}", std::process::id()));
    if staging.exists() {
        fs::remove_dir_all(&staging).map_err(|e| TrainError::io(&staging, e))?;
    }
    fs::create_dir(&staging).map_err(|e| TrainError::io(&staging, e))?;

    let mut tensors: BTreeMap<String, Fetched> = BTreeMap::new();
    for master in masters {
        for (part, tensor) in [("value", &master.value), ("mean", &master.mean), ("square", &master.square)] {
            let fetched = Fetched { shape: master.shape.clone(), values: Cow::Borrowed(tensor) };
            tensors.insert(format!("{}#{part}", master.name), fetched);
        }
    }
    for (name, values) in &state.constants {
        let here = flat(values.clone(), &Device::flex());
        tensors.insert(format!("#{name}"), Fetched { shape: vec![values.len()], values: Cow::Owned(here) });
    }
    let path = staging.join(TENSORS);
    safetensors::serialize_to_file(tensors, None, &path).map_err(|e| match e {
        SafeTensorError::IoError(e) => TrainError::io(&path, e),
        other => TrainError::format(&path, other.to_string()),
    })?;
    let header = Header {
        format: FORMAT,
        step: state.step,
        digest: synced_digest(&path)?,
        identity: identity.clone(),
    };
    let path = staging.join(HEADER);
    let header = serde_json::to_vec_pretty(&header).map_err(|e| TrainError::format(&path, e.to_string()))?;
    write_synced(&path, &header)?;
    write_synced(&staging.join(METRICS), &lines(&state.metrics))?;
    write_synced(&staging.join(TIMING), &lines(&state.timing))?;
    sync_dir(&staging)?;

    let target = dir.join(&name);
    if target.exists() {
        // the same step saved twice (a run lengthened at its end): the older goes first
        fs::remove_dir_all(&target).map_err(|e| TrainError::io(&target, e))?;
    }
    fs::rename(&staging, &target).map_err(|e| TrainError::io(&target, e))?;
    sync_dir(dir)?;
    for (step, path) in saved(dir)? {
        if step != state.step {
            fs::remove_dir_all(&path).map_err(|e| TrainError::io(&path, e))?;
        }
    }
    remove_leftovers(dir);
    Ok(())
}

/// What killed writers left. Best effort: nothing reads it.
fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("writing-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// `identity` as it comes back from disk. JSON numbers of 17 digits may come back one unit in the last
/// place off, the same each time; what is compared has to have made the same trip.
fn as_read_back(identity: &Identity) -> Identity {
    serde_json::to_string(identity)
        .and_then(|text| serde_json::from_str(&text))
        .unwrap_or_else(|_| identity.clone())
}

/// The newest state in `dir`; `None` when there is none. `put` gets value, mean and square of each of
/// `masters` (names and shapes), in their order.
///
/// # Errors
/// A state of another run (with the settings that differ), or one that is damaged.
pub fn load(
    dir: &Path,
    masters: &[(String, Vec<usize>)],
    identity: &Identity,
    mut put: impl FnMut(usize, [Vec<f32>; 3]),
) -> Result<Option<State>, TrainError> {
    let Some((step, folder)) = saved(dir)?.pop() else { return Ok(None) };
    let path = folder.join(HEADER);
    let text = fs::read(&path).map_err(|e| TrainError::io(&path, e))?;
    let damaged = |path: &Path, what: &str| {
        TrainError::format(path, format!("{what}; remove the folder {} to start over", folder.display()))
    };
    let header: Header =
        serde_json::from_slice(&text).map_err(|e| damaged(&path, &format!("not a saved state: {e}")))?;
    if header.format != FORMAT || header.step != step {
        return Err(damaged(&path, "a saved state of another format"));
    }
    let identity = as_read_back(identity);
    let differing: Vec<String> = header
        .identity
        .iter()
        .filter(|(key, value)| identity.get(*key) != Some(value))
        .map(|(key, value)| match identity.get(key) {
            Some(now) => format!("{key}: {value} then, {now} now"),
            None => format!("{key}: {value} then, unset now"),
        })
        .chain(identity.keys().filter(|k| !header.identity.contains_key(*k)).cloned())
        .collect();
    if !differing.is_empty() {
        let what = format!("the saved state belongs to another run ({})", differing.join("; "));
        return Err(damaged(&path, &what));
    }

    let path = folder.join(TENSORS);
    let bytes = fs::read(&path).map_err(|e| TrainError::io(&path, e))?;
    if blake3::Hasher::new().update_rayon(&bytes).finalize().to_hex().as_str() != header.digest {
        return Err(damaged(&path, "its content has changed since it was written"));
    }
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| damaged(&path, &e.to_string()))?;
    for (index, (name, shape)) in masters.iter().enumerate() {
        let read = |part: &str| {
            let key = format!("{name}#{part}");
            match tensors.tensor(&key) {
                Ok(view) if view.shape() == shape => Ok(read_floats(view.data())),
                Ok(_) => Err(damaged(&path, &format!("`{key}` has another shape"))),
                Err(_) => Err(damaged(&path, &format!("`{key}` is missing"))),
            }
        };
        put(index, [read("value")?, read("mean")?, read("square")?]);
    }
    let constants = tensors
        .iter()
        .filter_map(|(key, view)| Some((key.strip_prefix('#')?.to_owned(), read_floats(view.data()))))
        .collect();
    let read_lines = |name: &str| {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).map_err(|e| TrainError::io(&path, e))?;
        Ok::<_, TrainError>(text.lines().map(str::to_owned).collect())
    };
    Ok(Some(State { step, metrics: read_lines(METRICS)?, timing: read_lines(TIMING)?, constants }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::floats;

    fn masters(start: f32) -> Vec<Master> {
        let device = Device::flex();
        let mut master =
            Master::new("w".into(), vec![2, 2], flat(vec![start, 0.1, -0.0, f32::MIN_POSITIVE], &device));
        master.mean = flat(vec![start * 0.5; 4], &device);
        master.square = flat(vec![start * 0.25; 4], &device);
        vec![master]
    }

    fn loaded(dir: &Path, masters: &mut [Master], of: &Identity) -> Result<Option<State>, TrainError> {
        let specs: Vec<_> = masters.iter().map(|m| (m.name.clone(), m.shape.clone())).collect();
        load(dir, &specs, of, |index, parts| {
            let [value, mean, square] = parts.map(|values| flat(values, &Device::flex()));
            let master = &mut masters[index];
            (master.value, master.mean, master.square) = (value, mean, square);
        })
    }

    fn bits(masters: &[Master]) -> Vec<u32> {
        masters
            .iter()
            .flat_map(|m| [&m.value, &m.mean, &m.square])
            .flat_map(|t| floats(t.clone()))
            .map(f32::to_bits)
            .collect()
    }

    fn identity(lr: f64) -> Identity {
        BTreeMap::from([("lr".to_owned(), lr.into())])
    }

    fn state(step: u64) -> State {
        State {
            step,
            metrics: vec!["{\"loss\":0.1}".into(); step as usize],
            timing: vec!["{}".into()],
            constants: BTreeMap::from([("reference".to_owned(), vec![-0.1, -1e-30])]),
        }
    }

    #[test]
    fn what_is_loaded_is_what_was_saved_to_the_bit() {
        let dir = tempfile::tempdir().unwrap();
        assert!(loaded(dir.path(), &mut masters(0.0), &identity(1.0)).unwrap().is_none());
        for step in [3, 7] {
            save(dir.path(), &state(step), &masters(step as f32 / 3.0), &identity(1.0)).unwrap();
        }
        let mut got = masters(0.0);
        assert_eq!(loaded(dir.path(), &mut got, &identity(1.0)).unwrap().unwrap(), state(7));
        assert_eq!(bits(&got), bits(&masters(7.0 / 3.0)));
        // one state is kept
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unfinished_state_is_not_seen() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &state(3), &masters(1.0), &identity(1.0)).unwrap();
        let unfinished = dir.path().join("writing-step-00000009-1");
        fs::create_dir(&unfinished).unwrap();
        fs::write(unfinished.join(TENSORS), b"half").unwrap();
        let got = loaded(dir.path(), &mut masters(0.0), &identity(1.0)).unwrap().unwrap();
        assert_eq!(got.step, 3);
        save(dir.path(), &state(4), &masters(1.0), &identity(1.0)).unwrap();
        assert!(!unfinished.exists());
    }

    #[test]
    fn another_runs_state_is_refused_with_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &state(1), &masters(1.0), &identity(1.0)).unwrap();
        let error = loaded(dir.path(), &mut masters(0.0), &identity(2.0)).unwrap_err().to_string();
        assert!(error.contains("lr: 1.0 then, 2.0 now"), "{error}");
    }

    #[test]
    fn every_number_of_a_setting_is_recognised_again() {
        let dir = tempfile::tempdir().unwrap();
        let stream = lm::rng::Stream::new(0, 0);
        let numbers = (0..2000).map(|i| stream.uniform(i) as f32);
        let identity: Identity =
            numbers.enumerate().map(|(i, v)| (i.to_string(), f64::from(v).into())).collect();
        save(dir.path(), &state(1), &masters(1.0), &identity).unwrap();
        assert!(loaded(dir.path(), &mut masters(0.0), &identity).unwrap().is_some());
    }

    #[test]
    fn damage_is_refused_and_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &state(1), &masters(1.0), &identity(1.0)).unwrap();
        let path = dir.path().join("step-00000001").join(TENSORS);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = loaded(dir.path(), &mut masters(0.0), &identity(1.0)).unwrap_err().to_string();
        assert!(error.contains(TENSORS) && error.contains("start over"), "{error}");
    }
}
