//! Copies for people, made by a thread of their own while stages run.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::Shared;
use super::attempt::Msg;
use super::board::{Board, State};
use crate::facts::{self, Facts, StageState};
use crate::store::record::Record;

/// What is to be published.
pub(super) struct Publication {
    pub(super) index: usize,
    pub(super) record: Box<Record>,
    /// For a stage that completes its copy.
    pub(super) facts: Option<Arc<Facts>>,
}

/// Publishes what comes until nobody sends any more.
pub(super) fn all(shared: &Shared, todo: &Receiver<Publication>, tx: &Sender<Msg>) {
    for Publication { index, record, facts } in todo {
        let Some(dest) = shared.destination(index) else { continue };
        let stage = &shared.stage(index).stage;
        let result = match facts {
            None => shared.store.publish(&record, &dest),
            Some(facts) => shared.store.publish_completed(&record, &dest, |folder| {
                stage.complete(folder, &facts).map_err(|error| io::Error::other(error.message))
            }),
        };
        let _ = tx.send(Msg::Published(index, dest, result));
    }
}

/// How the experiment stands now that nothing runs any more. What this run did and what an earlier one
/// had done is the same here, so that a run with nothing to do changes nothing that is published.
pub(super) fn facts(shared: &Shared, board: &Board, failures: &HashSet<usize>, selected: &[bool]) -> Facts {
    let plan = shared.plan;
    let places: HashMap<&str, usize> =
        plan.stages.iter().enumerate().map(|(index, stage)| (stage.name.as_str(), index)).collect();
    let of = |name: &str| {
        let index = places[name];
        let state = match board.state(index) {
            State::Done => StageState::Done,
            State::Failed if failures.contains(&index) => StageState::Failed,
            State::Failed => StageState::Stopped,
            _ => StageState::NotRun,
        };
        (state, board.known(index).map(|known| known.key))
    };
    Facts {
        experiment: plan.experiment.name.clone(),
        manifest: plan.experiment.manifest.display().to_string(),
        manifest_digest: plan.experiment.digest.clone(),
        sets: shared.options.sets.clone(),
        run: None,
        stages: facts::stages(shared.store, &plan.nodes(selected), of),
    }
}
