//! A frozen reference's log-probabilities of demonstrated tokens: computed once, kept in a file, and
//! read by every run on the same sequences.
//!
//! The file is safetensors: `log_probs`, f32, the values of all sequences one after the other, NaN for
//! what is not computed yet; its metadata holds the digest of the sequences.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use crate::TrainError;
use crate::checkpoint::{Floats, read_floats, write_synced};
use crate::data::{Batch, Batching, Sequence};
use crate::driver::Control;
use crate::parallel::evaluate_all;
use crate::sft::digest;
use crate::trainee::Current;

const LOG_PROBS: &str = "log_probs";
const SEQUENCES: &str = "sequences";

/// `ln p(target)` of every target of every sequence under a reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// By sequence; empty where it is not computed yet.
    values: Vec<Vec<f32>>,
}

impl Reference {
    /// Nothing yet, of so many sequences.
    pub fn new(sequences: usize) -> Self {
        Self { values: vec![Vec::new(); sequences] }
    }

    /// The values by sequence, in the order of its targets.
    pub fn values(&self) -> &[Vec<f32>] {
        &self.values
    }

    /// Computes what is missing of `members`, in the batches that a run over the same members would make
    /// of them, the devices of `currents` sharing the work. `told` hears after each round how many of how many are done, and may break it off; then
    /// the result is false.
    ///
    /// # Errors
    /// A sequence that cannot be trained on, or a log-probability that is not finite.
    pub fn compute(
        &mut self,
        currents: &[Current],
        sequences: &[Sequence],
        members: &[usize],
        batching: Batching,
        mut told: impl FnMut(&Self, usize, usize) -> Control,
    ) -> Result<bool, TrainError> {
        crate::knobs::check()?;
        for current in currents {
            let model = current.model.config();
            let (vocab, context) = (model.vocab_size, model.max_position_embeddings);
            members.iter().try_for_each(|&member| sequences[member].check(member, vocab, context))?;
        }
        let batches = batching.split(sequences, members);
        let total = batches.len();
        let missing = |batch: &Batch| batch.members.iter().any(|&member| self.values[member].is_empty());
        let (missing, there): (Vec<Batch>, Vec<Batch>) = batches.into_iter().partition(missing);
        let mut done = there.len();
        for round in missing.chunks(currents.len().max(1)) {
            for (batch, rows) in round.iter().zip(evaluate_all(currents, round, 1.0)) {
                batch.scatter(sequences, &rows.log_prob, &mut self.values);
                let broken = |member: &&usize| self.values[**member].iter().any(|lp| !lp.is_finite());
                if let Some(&index) = batch.members.iter().find(broken) {
                    let problem = "the reference's log-probabilities of it are not finite; compute in f32";
                    return Err(TrainError::Data { index, problem: problem.into() });
                }
            }
            done += round.len();
            if told(self, done, total) == Control::Stop && done < total {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the values are there for every target of `sequences`, and for no other.
    pub(crate) fn check(&self, sequences: &[Sequence]) -> Result<(), TrainError> {
        let lengths = self.values.iter().map(Vec::len);
        let fit = |(length, sequence): (usize, &Sequence)| length == sequence.targets.len();
        match lengths.zip(sequences).position(|pair| !fit(pair)) {
            None if self.values.len() == sequences.len() => Ok(()),
            place => Err(TrainError::Data {
                index: place.unwrap_or(self.values.len().min(sequences.len())),
                problem: "the reference has no log-probabilities for it; compute it for these sequences"
                    .into(),
            }),
        }
    }

    /// BLAKE3 over the values.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for value in self.values.iter().flatten() {
            hasher.update(&value.to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Writes what is there of the values of `sequences`, whole or not at all.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, path: &Path, sequences: &[Sequence]) -> Result<(), TrainError> {
        let missing = |sequence: &Sequence| vec![f32::NAN; sequence.targets.len()];
        let pairs = self.values.iter().zip(sequences);
        let flat: Vec<f32> =
            pairs.flat_map(|(v, s)| if v.is_empty() { missing(s) } else { v.clone() }).collect();
        let tensors = BTreeMap::from([(LOG_PROBS, Floats::new(vec![flat.len()], &flat))]);
        let metadata = HashMap::from([(SEQUENCES.to_owned(), digest(sequences))]);
        let bytes = safetensors::serialize(&tensors, Some(metadata))
            .map_err(|error| TrainError::format(path, error.to_string()))?;
        let unfinished = path.with_extension("unfinished");
        write_synced(&unfinished, &bytes)?;
        fs::rename(&unfinished, path).map_err(|error| TrainError::io(path, error))
    }

    /// Reads the values for `sequences`; some may be missing.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or was made for other sequences.
    pub fn read(path: &Path, sequences: &[Sequence]) -> Result<Self, TrainError> {
        let bytes = fs::read(path).map_err(|error| TrainError::io(path, error))?;
        let damaged = |problem: String| TrainError::format(path, problem);
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| damaged(e.to_string()))?;
        let made_for = header.metadata().as_ref().and_then(|metadata| metadata.get(SEQUENCES));
        if made_for != Some(&digest(sequences)) {
            let problem = "the reference was computed for other sequences; give both the same rows, \
                           tokenizer and prompt";
            return Err(damaged(problem.into()));
        }
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| damaged(e.to_string()))?;
        let flat = tensors.tensor(LOG_PROBS).map_err(|e| damaged(e.to_string()))?;
        let flat = read_floats(flat.data());
        if flat.len() != sequences.iter().map(|s| s.targets.len()).sum::<usize>() {
            return Err(damaged("it holds another number of log-probabilities than it says".into()));
        }
        let mut rest = &flat[..];
        let mut values = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let (own, later) = rest.split_at(sequence.targets.len());
            values.push(if own.iter().any(|value| value.is_nan()) { Vec::new() } else { own.to_vec() });
            rest = later;
        }
        Ok(Self { values })
    }
}
