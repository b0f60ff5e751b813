//! The board: which state every stage is in. Pure bookkeeping, no I/O.
//!
//! A stage waits until everything it depends on is done, is then resolved (its key looked up), and
//! is done at once (a hit) or becomes ready to run. A result that turns out to be lost is taken
//! back; if it comes out different the second time, what was derived from it is resolved again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::digest::Digest;
use crate::key::Key;
use crate::plan::{Plan, Source};
use crate::store::record::Record;

/// What dependents need to know of a finished stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Key of its record.
    pub key: Key,
    /// Digest of its artifact.
    pub output: Digest,
    /// Digests of the files and folders in it that dependents refer to; none if absent.
    pub parts: Vec<(String, Option<Digest>)>,
}

impl Known {
    /// The part of a record that dependents refer to by `paths`.
    pub fn of(record: &Record, paths: &[String]) -> Self {
        let parts = paths.iter().map(|path| (path.clone(), record.digest_of(path))).collect();
        Self { key: record.key, output: record.output, parts }
    }

    /// The digest of a path in the artifact; the whole artifact for `""`.
    pub fn digest_of(&self, path: &str) -> Option<Digest> {
        if path.is_empty() {
            return Some(self.output);
        }
        self.parts.iter().find(|(name, _)| name == path).and_then(|(_, digest)| *digest)
    }
}

/// The state of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not asked for.
    Outside,
    /// Something it depends on is not done, or it is about to be resolved.
    Waiting,
    /// A miss: may start when slots are free.
    Ready,
    /// Another stage of this run computes the same key.
    Parked,
    /// A worker runs it, or it waits for another process that computes its key.
    Running,
    /// Its artifact is in the store.
    Done,
    /// It failed.
    Failed,
    /// It cannot run since something it depends on failed.
    Skipped,
}

struct Node {
    state: State,
    /// How many of its dependencies are not done.
    missing: u32,
    /// Set while done, and kept afterwards to see whether a second result differs.
    known: Option<Arc<Known>>,
    /// Its input changed while it ran.
    stale: bool,
    /// It was computed in this run.
    ran: bool,
    /// How often its result was lost.
    losses: u32,
}

/// States of all stages of a plan.
pub struct Board {
    nodes: Vec<Node>,
    dependents: Vec<Vec<u32>>,
    wave: Vec<usize>,
    ready: BTreeSet<usize>,
}

impl Board {
    /// A board for the selected stages, which include everything they depend on.
    pub fn new(plan: &Plan, selected: &[bool]) -> Self {
        let mut dependents = vec![Vec::new(); plan.stages.len()];
        let mut nodes = Vec::with_capacity(plan.stages.len());
        let mut wave = Vec::new();
        for (index, stage) in plan.stages.iter().enumerate() {
            let state = if selected[index] { State::Waiting } else { State::Outside };
            let missing = stage.depends_on.len() as u32;
            if selected[index] {
                stage.depends_on.iter().for_each(|dep| dependents[*dep].push(index as u32));
                if missing == 0 {
                    wave.push(index);
                }
            }
            nodes.push(Node { state, missing, known: None, stale: false, ran: false, losses: 0 });
        }
        Self { nodes, dependents, wave, ready: BTreeSet::new() }
    }

    /// Stages whose keys can be computed now, in plan order; each is handed out once.
    pub fn take_wave(&mut self) -> Vec<usize> {
        let mut wave = std::mem::take(&mut self.wave);
        wave.retain(|index| self.is_resolvable(*index));
        wave.sort_unstable();
        wave.dedup();
        wave
    }

    fn is_resolvable(&self, index: usize) -> bool {
        self.nodes[index].state == State::Waiting && self.nodes[index].missing == 0
    }

    /// The state of a stage.
    pub fn state(&self, index: usize) -> State {
        self.nodes[index].state
    }

    /// What is known of a finished stage.
    pub fn known(&self, index: usize) -> Option<&Arc<Known>> {
        let node = &self.nodes[index];
        if node.state == State::Done { node.known.as_ref() } else { None }
    }

    /// True if nothing selected depends on the stage: somebody asked for its result itself.
    pub fn is_last(&self, index: usize) -> bool {
        self.dependents[index].is_empty()
    }

    /// Stages that may start, in plan order.
    pub fn ready(&self) -> impl Iterator<Item = usize> + '_ {
        self.ready.iter().copied()
    }

    /// A resolved stage is a miss.
    pub fn set_ready(&mut self, index: usize) {
        self.set_state(index, State::Ready);
    }

    /// A ready stage starts.
    pub fn set_running(&mut self, index: usize) {
        self.set_state(index, State::Running);
    }

    /// A ready stage waits for another of the same key.
    pub fn park(&mut self, index: usize) {
        self.set_state(index, State::Parked);
    }

    /// A parked or running stage is to be resolved (again).
    pub fn resolve_again(&mut self, index: usize) {
        if matches!(self.state(index), State::Parked | State::Running) {
            self.set_state(index, State::Waiting);
            self.push_wave(index);
        }
    }

    /// A stage's artifact is in the store; `ran` if it was computed just now.
    pub fn set_done(&mut self, index: usize, known: Known, ran: bool) {
        self.set_state(index, State::Done);
        let node = &mut self.nodes[index];
        node.ran |= ran;
        let before = node.known.replace(Arc::new(known));
        let changed = before
            .is_some_and(|before| Some(before.output) != self.nodes[index].known.as_ref().map(|k| k.output));
        for at in 0..self.dependents[index].len() {
            let dependent = self.dependents[index][at] as usize;
            self.nodes[dependent].missing -= 1;
            match self.nodes[dependent].state {
                State::Done if changed => self.take_back(dependent),
                State::Running if changed => self.nodes[dependent].stale = true,
                _ => self.push_wave(dependent),
            }
        }
        if std::mem::take(&mut self.nodes[index].stale) {
            self.take_back(index);
        }
    }

    /// A stage failed; returns the stages that cannot run any more because of it.
    pub fn set_failed(&mut self, index: usize) -> Vec<usize> {
        self.set_state(index, State::Failed);
        let mut skipped = Vec::new();
        let mut open = vec![index];
        while let Some(next) = open.pop() {
            for at in 0..self.dependents[next].len() {
                let dependent = self.dependents[next][at] as usize;
                if matches!(self.state(dependent), State::Waiting | State::Ready | State::Parked) {
                    self.set_state(dependent, State::Skipped);
                    skipped.push(dependent);
                    open.push(dependent);
                }
            }
        }
        skipped.sort_unstable();
        skipped
    }

    /// The artifact of a finished stage is gone or damaged: it is resolved again. Returns how often
    /// that has happened to it.
    pub fn set_lost(&mut self, index: usize) -> u32 {
        if self.state(index) == State::Done {
            self.nodes[index].losses += 1;
            self.take_back(index);
        }
        self.nodes[index].losses
    }

    /// True if the stage was computed in this run.
    pub fn ran(&self, index: usize) -> bool {
        self.nodes[index].ran
    }

    /// Done no longer: dependents wait again.
    fn take_back(&mut self, index: usize) {
        self.set_state(index, State::Waiting);
        for at in 0..self.dependents[index].len() {
            let dependent = self.dependents[index][at] as usize;
            self.nodes[dependent].missing += 1;
            if matches!(self.state(dependent), State::Ready | State::Parked) {
                self.set_state(dependent, State::Waiting);
            }
        }
        self.push_wave(index);
    }

    fn push_wave(&mut self, index: usize) {
        if self.is_resolvable(index) {
            self.wave.push(index);
        }
    }

    fn set_state(&mut self, index: usize, state: State) {
        if self.nodes[index].state == State::Ready {
            self.ready.remove(&index);
        }
        if state == State::Ready {
            self.ready.insert(index);
        }
        self.nodes[index].state = state;
    }
}

/// For every stage, the paths inside its artifact that other stages refer to.
pub fn referenced_paths(plan: &Plan) -> Vec<Vec<String>> {
    let mut paths = vec![Vec::new(); plan.stages.len()];
    for source in plan.stages.iter().flat_map(|stage| stage.inputs.values()) {
        if let Source::Stage { index, path } = source
            && !path.is_empty()
        {
            paths[*index].push(path.clone());
        }
    }
    for paths in &mut paths {
        paths.sort_unstable();
        paths.dedup();
    }
    paths
}
