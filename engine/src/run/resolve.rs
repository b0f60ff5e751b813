//! From stages to keys: digests of inputs, the parts of a key, and whether the store has it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::board::Known;
use super::slots::Need;
use crate::digest::{Digest, path_digest};
use crate::key::KeyParts;
use crate::kind::{Pin, StageError};
use crate::plan::{Plan, PlannedStage, Source};
use crate::store::Store;

/// The key parts of a stage, with the digest behind each of its references.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What decides the output.
    pub parts: KeyParts,
    /// Digest by reference as written.
    pub inputs: BTreeMap<String, Digest>,
}

/// Computes key parts. Files beside the manifest are digested once per run, up front.
pub struct Resolver<'a> {
    plan: &'a Plan,
    has_gpus: bool,
    paths: HashMap<PathBuf, Result<Digest, String>>,
    pins: Mutex<BTreeMap<String, Pin>>,
}

impl<'a> Resolver<'a> {
    /// Digests every file and folder that the selected stages refer to.
    pub fn new(
        plan: &'a Plan,
        selected: &[bool],
        store: &Store,
        has_gpus: bool,
        pins: BTreeMap<String, Pin>,
    ) -> Self {
        let wanted: BTreeSet<&PathBuf> = plan
            .stages
            .iter()
            .zip(selected)
            .filter(|(_, selected)| **selected)
            .flat_map(|(stage, _)| stage.inputs.values())
            .filter_map(|source| match source {
                Source::Path(path) => Some(path),
                Source::Stage { .. } => None,
            })
            .collect();
        let paths = wanted.into_par_iter().map(|path| (path.clone(), digest(path, store))).collect();
        Self { plan, has_gpus, paths, pins: Mutex::new(pins) }
    }

    /// The key parts of a stage, given what is known of the stages it depends on. A reference to a
    /// stage of which nothing is known yet stays as written.
    pub fn resolve(
        &self,
        index: usize,
        known: impl Fn(usize) -> Option<Arc<Known>>,
    ) -> Result<Resolved, StageError> {
        let stage = &self.plan.stages[index];
        let mut inputs = BTreeMap::new();
        for (reference, source) in &stage.inputs {
            match source {
                Source::Path(path) => {
                    let digest = self.paths.get(path).cloned().unwrap_or_else(|| Err("was not read".into()));
                    let digest = digest.map_err(|error| {
                        StageError::input(format!("input {reference} of stage {}: {error}", stage.name))
                            .with_help("correct the path in the manifest, or put the file there")
                    })?;
                    inputs.insert(reference.clone(), digest);
                }
                Source::Stage { index, path } => {
                    let Some(known) = known(*index) else { continue };
                    let digest = known.digest_of(path).ok_or_else(|| {
                        let producer = &self.plan.stages[*index].name;
                        StageError::input(format!("stage {producer} has put out no `{path}`")).with_help(
                            format!(
                                "{} refers to it as {reference}; `pipeline cache ls` lists what is there",
                                stage.name
                            ),
                        )
                    })?;
                    inputs.insert(reference.clone(), digest);
                }
            }
        }
        let parts = self.parts(stage, &inputs);
        Ok(Resolved { parts, inputs })
    }

    /// The key parts of a stage under the pins known now.
    pub fn parts(&self, stage: &PlannedStage, inputs: &BTreeMap<String, Digest>) -> KeyParts {
        let pins = self.pins.lock().expect("pins lock");
        KeyParts::of(stage, inputs, self.device_class(stage), &pins)
    }

    /// `cuda` for a stage that gets a GPU in this run, else `cpu`.
    pub fn device_class(&self, stage: &PlannedStage) -> &'static str {
        if Need::of(stage, self.has_gpus).gpus > 0 { "cuda" } else { "cpu" }
    }

    /// Adds a pin that a stage has found.
    pub fn add_pin(&self, source: String, pin: Pin) {
        self.pins.lock().expect("pins lock").insert(source, pin);
    }

    /// Pins of a stage's sources.
    pub fn pins_of(&self, stage: &PlannedStage) -> BTreeMap<String, Pin> {
        let pins = self.pins.lock().expect("pins lock");
        let sources = stage.stage.sources().into_iter();
        sources.filter_map(|source| pins.get(&source).cloned().map(|pin| (source, pin))).collect()
    }

    /// Looks again at the files beside the manifest that a stage has read; names one that is not
    /// as it was when the key was computed.
    pub fn edited_input(&self, stage: &PlannedStage, store: &Store) -> Option<PathBuf> {
        stage.inputs.values().find_map(|source| match source {
            Source::Path(path) if self.paths.get(path) != Some(&digest(path, store)) => Some(path.clone()),
            _ => None,
        })
    }
}

fn digest(path: &Path, store: &Store) -> Result<Digest, String> {
    path_digest(path, store.memo()).map_err(|error| error.to_string())
}
