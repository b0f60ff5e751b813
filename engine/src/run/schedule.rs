//! The scheduler: resolves what can be resolved, starts what may start, and reacts to what happens.
//! One thread owns the board; a thread per running stage and one publisher report to it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::Shared;
use super::attempt::{Msg, Task, Verdict, attempt, servable, store_error};
use super::board::{Board, Known, State, referenced_paths};
use super::publish::{self, Publication};
use super::reason::Reasons;
use super::resolve::Resolved;
use super::slots::{Grant, Need, Slots};
use crate::event::{CachedStage, Counts, Event};
use crate::facts::Facts;
use crate::key::Key;
use crate::kind::StageError;
use crate::store::StoreError;
use crate::store::record::Record;

/// How often the stop switch is looked at while nothing happens.
const TICK: Duration = Duration::from_millis(50);
/// From this many stages on, keys are looked up in parallel.
const PARALLEL_FROM: usize = 32;
/// Stages that wait for other processes without holding slots, at most.
const WAITERS: usize = 32;
/// A result that vanishes more often than this in one run is not computed again.
const LOSSES: u32 = 3;

/// What came of a run's stages.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) counts: Counts,
    pub(super) published: Vec<PathBuf>,
    pub(super) unpublished: usize,
    /// A stage had to be computed, and the cache may only be read.
    pub(super) refused: bool,
}

struct Running {
    grant: Option<Grant>,
    waiting: bool,
    key: Key,
    since: Instant,
}

enum Looked {
    Hit(Box<Record>),
    Miss(Box<Resolved>),
    Broken(StageError),
}

struct Scheduler<'r, 'a> {
    shared: &'r Shared<'a>,
    board: Board,
    paths: Vec<Vec<String>>,
    slots: Slots,
    misses: HashMap<usize, Resolved>,
    running: HashMap<usize, Running>,
    parked: HashMap<Key, Vec<usize>>,
    /// Keys computed in this run: `--force` does not compute them twice.
    fresh: HashSet<Key>,
    reasons: Reasons<'a>,
    publisher: Sender<Publication>,
    publishing: usize,
    /// Done stages whose published copies tell of the run: they wait for its end.
    completing: Vec<(usize, Box<Record>)>,
    failures: HashSet<usize>,
    totals: Totals,
    emit: &'r mut dyn FnMut(Event),
}

/// Drives the selected stages to their end.
pub(super) fn drive(shared: &Shared, selected: &[bool], emit: &mut dyn FnMut(Event)) -> Totals {
    let (tx, rx) = channel();
    let (publisher, to_publish) = channel();
    std::thread::scope(|scope| {
        let publish_tx = tx.clone();
        scope.spawn(move || publish::all(shared, &to_publish, &publish_tx));
        let mut scheduler = Scheduler {
            shared,
            board: Board::new(shared.plan.dependencies(), selected),
            paths: referenced_paths(shared.plan),
            slots: Slots::of_machine(shared.options.jobs, shared.devices.len()),
            misses: HashMap::new(),
            running: HashMap::new(),
            parked: HashMap::new(),
            fresh: HashSet::new(),
            reasons: Reasons::new(shared.store, shared.plan),
            publisher,
            publishing: 0,
            completing: Vec::new(),
            failures: HashSet::new(),
            totals: Totals::default(),
            emit,
        };
        loop {
            scheduler.resolve();
            scheduler.start(scope, &tx);
            if scheduler.running.is_empty() && scheduler.publishing == 0 && !scheduler.complete(selected) {
                break;
            }
            match rx.recv_timeout(TICK) {
                Ok(first) => {
                    scheduler.handle(first);
                    rx.try_iter().for_each(|msg| scheduler.handle(msg));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        scheduler.count(selected)
    })
}

/// Whether the store has the stage's key.
fn look_up(shared: &Shared, board: &Board, fresh: &HashSet<Key>, index: usize) -> Looked {
    let resolved = match shared.resolver.resolve(index, |dep| board.known(dep).cloned()) {
        Ok(resolved) => resolved,
        Err(error) => return Looked::Broken(error),
    };
    let key = resolved.key;
    let forced = shared.forced[index] && !fresh.contains(&key);
    if forced || (!shared.stage(index).cache && !board.ran(index)) {
        return Looked::Miss(Box::new(resolved));
    }
    let found = match shared.store.lookup(&key) {
        Ok(found) if fresh.contains(&key) => found,
        Ok(found) => found.and_then(servable),
        Err(error) => return Looked::Broken(store_error(error)),
    };
    // What only serves other stages is checked when it is used.
    match found {
        Some(record) if !board.is_last(index) || shared.store.check_content(&record).is_ok() => {
            Looked::Hit(Box::new(record))
        }
        _ => Looked::Miss(Box::new(resolved)),
    }
}

impl<'r, 'a> Scheduler<'r, 'a> {
    fn halted(&self) -> bool {
        self.shared.stop.requested() || (!self.failures.is_empty() && !self.shared.options.keep_going)
    }

    /// Looks up every stage whose inputs are known, wave after wave.
    fn resolve(&mut self) {
        let mut cached = Vec::new();
        while !self.shared.stop.requested() {
            let wave = self.board.take_wave();
            if wave.is_empty() {
                break;
            }
            let (shared, board, fresh) = (self.shared, &self.board, &self.fresh);
            // Until what is found has been noted. A store that cannot lock has no session, thus no run.
            let turn = shared.store.shared_turn();
            let look_up = |index: &usize| look_up(shared, board, fresh, *index);
            let looked: Vec<Looked> = if wave.len() < PARALLEL_FROM {
                wave.iter().map(look_up).collect()
            } else {
                wave.par_iter().map(look_up).collect()
            };
            let hits = looked.iter().filter_map(|looked| match looked {
                Looked::Hit(record) => Some(&record.key),
                _ => None,
            });
            self.shared.session.uses(hits);
            drop(turn);
            for (index, looked) in wave.into_iter().zip(looked) {
                if !self.board.is_resolvable(index) {
                    continue;
                }
                match looked {
                    Looked::Hit(record) => {
                        cached.push(self.cached(index, &record));
                        self.done(index, record, false);
                    }
                    Looked::Miss(resolved) if !self.shared.store.writable() => {
                        let error = StoreError::ReadOnly(self.shared.store.root().to_owned());
                        self.totals.refused = true;
                        self.failed(index, Some(resolved.key), store_error(error), None, Vec::new(), 0.0);
                    }
                    Looked::Miss(resolved) => {
                        self.misses.insert(index, *resolved);
                        self.board.set_ready(index);
                    }
                    Looked::Broken(error) => self.failed(index, None, error, None, Vec::new(), 0.0),
                }
            }
        }
        if !cached.is_empty() {
            (self.emit)(Event::Cached { stages: cached });
        }
    }

    /// Starts ready stages in plan order while slots are free.
    fn start<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, tx: &Sender<Msg>)
    where
        'r: 'scope,
        'a: 'scope,
    {
        if self.halted() {
            return;
        }
        let mut from = 0;
        while self.slots.any_free()
            && let Some(index) = self.board.next_ready(from)
        {
            from = index + 1;
            let key = self.misses[&index].key;
            if self.running.values().any(|running| running.key == key) {
                self.parked.entry(key).or_default().push(index);
                self.board.park(index);
                continue;
            }
            let need = Need::of(self.shared.stage(index), !self.shared.devices.is_empty());
            let Some(grant) = self.slots.take(&need) else { continue };
            let Some(resolved) = self.misses.remove(&index) else { continue };
            let task = self.task(index, key, resolved, &grant);
            self.board.set_running(index);
            let running = Running { grant: Some(grant), waiting: false, key, since: Instant::now() };
            self.running.insert(index, running);
            let (shared, tx) = (self.shared, tx.clone());
            scope.spawn(move || {
                let verdict = attempt(shared, &task, &tx);
                let _ = tx.send(Msg::Verdict(task.index, verdict));
            });
        }
    }

    fn task(&mut self, index: usize, key: Key, resolved: Resolved, grant: &Grant) -> Task {
        let stage = self.shared.stage(index);
        let forced = self.shared.forced[index] && !self.fresh.contains(&key);
        let why = self.reasons.why(stage, &resolved.parts, forced).to_string();
        let upstream =
            stage.depends_on.iter().filter_map(|dep| Some((*dep, self.board.known(*dep)?.clone()))).collect();
        let (device, visible_gpus) = self.shared.devices_of(grant);
        Task { index, resolved, upstream, why, forced, device, visible_gpus }
    }

    fn handle(&mut self, msg: Msg) {
        match msg {
            Msg::Event(event) => (self.emit)(event),
            Msg::Waiting(index) => {
                if self.running.values().filter(|running| running.waiting).count() < WAITERS {
                    self.free(index);
                    self.running.entry(index).and_modify(|running| running.waiting = true);
                }
            }
            Msg::WorkerEnded(index) => self.free(index),
            Msg::Verdict(index, verdict) => self.verdict(index, verdict),
            Msg::Published(index, path, result) => self.published(index, path, result),
        }
    }

    fn free(&mut self, index: usize) {
        if let Some(grant) = self.running.get_mut(&index).and_then(|running| running.grant.take()) {
            self.slots.give_back(grant);
        }
    }

    fn verdict(&mut self, index: usize, verdict: Verdict) {
        self.free(index);
        let Some(Running { key, since, .. }) = self.running.remove(&index) else { return };
        let seconds = since.elapsed().as_secs_f64();
        let stage = self.shared.stage(index).name.clone();
        match verdict {
            Verdict::Hit(record) => {
                let cached = self.cached(index, &record);
                (self.emit)(Event::Cached { stages: vec![cached] });
                self.done(index, record, false);
            }
            Verdict::Ran(record) => {
                self.fresh.extend([key, record.key]);
                let (key, output) = (record.key.to_string(), record.output.to_string());
                (self.emit)(Event::Finished { stage, key, output, seconds });
                self.done(index, record, true);
            }
            Verdict::Failed { error, log, tail } => {
                self.failed(index, Some(key), error, log, tail, seconds);
            }
            Verdict::Stopped { resumable } => {
                (self.emit)(Event::Stopped { stage, key: key.to_string(), seconds, resumable });
                self.board.set_failed(index);
            }
            Verdict::InputLost(dep) => self.input_lost(index, dep),
            Verdict::Again => self.board.resolve_again(index),
        }
        for parked in self.parked.remove(&key).unwrap_or_default() {
            if self.board.state(parked) == State::Parked {
                self.board.resolve_again(parked);
            }
        }
    }

    fn done(&mut self, index: usize, record: Box<Record>, ran: bool) {
        self.board.set_done(index, Known::of(&record, &self.paths[index]), ran);
        let stage = self.shared.stage(index);
        if stage.publish.is_some() && stage.stage.completes() {
            self.completing.retain(|(other, _)| *other != index);
            self.completing.push((index, record));
        } else if stage.publish.is_some() {
            self.publish(index, record, None);
        }
    }

    fn publish(&mut self, index: usize, record: Box<Record>, facts: Option<Arc<Facts>>) {
        self.publishing += 1;
        let _ = self.publisher.send(Publication { index, record, facts });
    }

    /// At the end: publishes what tells of the run. False if there is nothing of the kind.
    fn complete(&mut self, selected: &[bool]) -> bool {
        let completing = std::mem::take(&mut self.completing);
        if completing.is_empty() {
            return false;
        }
        let facts = Arc::new(publish::facts(self.shared, &self.board, &self.failures, selected));
        for (index, record) in completing {
            self.publish(index, record, Some(Arc::clone(&facts)));
        }
        true
    }

    fn failed(
        &mut self,
        index: usize,
        key: Option<Key>,
        error: StageError,
        log: Option<PathBuf>,
        tail: Vec<String>,
        seconds: f64,
    ) {
        self.failures.insert(index);
        let stage = self.shared.stage(index).name.clone();
        let key = key.map(|key| key.to_string());
        (self.emit)(Event::Failed { stage: stage.clone(), key, error, log, tail, seconds });
        let skipped = self.board.set_failed(index);
        if !skipped.is_empty() {
            let stages = skipped.into_iter().map(|index| self.shared.stage(index).name.clone()).collect();
            (self.emit)(Event::Skipped { stages, because: stage });
        }
    }

    fn input_lost(&mut self, index: usize, dep: usize) {
        let producer = self.shared.stage(dep).name.clone();
        if self.board.set_lost(dep) > LOSSES {
            let error = StageError::environment(format!(
                "the output of {producer} vanishes from the cache as often as it is computed"
            ))
            .with_help("is another program cleaning the cache folder? `pipeline cache verify` checks it");
            return self.failed(index, None, error, None, Vec::new(), 0.0);
        }
        let text = format!("the output of {producer} is gone or damaged; it is computed again");
        (self.emit)(Event::Message { stage: None, text });
        self.board.resolve_again(index);
    }

    fn published(&mut self, index: usize, path: PathBuf, result: Result<bool, StoreError>) {
        self.publishing -= 1;
        let stage = self.shared.stage(index).name.clone();
        match result {
            Ok(changed) => {
                self.totals.published.push(path.clone());
                (self.emit)(Event::Published { stage, path, changed });
            }
            Err(StoreError::Damaged { .. }) if self.board.set_lost(index) <= LOSSES => {
                let text = format!("the output of {stage} is gone or damaged; it is computed again");
                (self.emit)(Event::Message { stage: None, text });
            }
            Err(error) => {
                self.totals.unpublished += 1;
                (self.emit)(Event::PublishFailed { stage, path, error: error.to_string() });
            }
        }
    }

    fn cached(&self, index: usize, record: &Record) -> CachedStage {
        CachedStage {
            stage: self.shared.stage(index).name.clone(),
            key: record.key.to_string(),
            output: record.output.to_string(),
        }
    }

    fn count(mut self, selected: &[bool]) -> Totals {
        let counts = &mut self.totals.counts;
        counts.failed = self.failures.len();
        for index in (0..selected.len()).filter(|index| selected[*index]) {
            match self.board.state(index) {
                State::Done if self.board.ran(index) => counts.ran += 1,
                State::Done => counts.cached += 1,
                State::Failed if self.failures.contains(&index) => {}
                _ => counts.skipped += 1,
            }
        }
        self.totals
    }
}
