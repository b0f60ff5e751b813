//! Whether a training fits into a GPU's memory, and which micro-batches do.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use burn::tensor::DType;
use engine::kind::{Input, StageCtx, StageError};
use lm::config::ModelConfig;
use lm::template::Shot;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trainer::memory::Load;

use super::{Method, Train};
use crate::adapter::AdapterParams;
use crate::demonstration::{Demonstrator, sequence};
use crate::gpu;
use crate::model::OpenModel;
use crate::questions::{Question, read_questions};

/// How many tokens go through the model at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MicroTokens {
    /// At most so many.
    Tokens(usize),
    /// What fits into the GPU's free memory; 4,096 on the CPU.
    Auto(Auto),
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// Chosen by the program.
    Auto,
}

impl Default for MicroTokens {
    fn default() -> Self {
        Self::Auto(Auto::Auto)
    }
}

/// Tokens at once where memory does not decide.
const ON_CPU: usize = 4096;
/// More tokens than this at once gain nothing on any card.
const MOST: usize = 32_768;
/// Rows whose lengths in tokens are looked at to find the longest; those with the most characters.
const LONGEST_ROWS: usize = 16;
/// The part of a GPU's memory that keys and values of rollouts may take, as in `lm`'s engine.
const CACHE_PART: u64 = 8;
/// Bytes of a GPU's memory that the estimate leaves alone.
const RESERVE: u64 = 256 << 20;

impl Train {
    /// The load of a run whose longest sequence has so many tokens, one at a time.
    fn load(&self, config: &ModelConfig, longest: usize, device: &str) -> Load {
        let parameters =
            || config.tensor_shapes().iter().map(|(_, dims)| dims.iter().product::<usize>()).sum();
        let trained = self.adapter.as_ref().map_or_else(parameters, |adapter| adapter.count(config));
        let rollouts = self.method.rollouts();
        let precision = self.precision.on(device);
        let odd_rank =
            matches!(&self.adapter, Some(AdapterParams::Lora(lora)) if !lora.rank.is_multiple_of(8));
        Load {
            config: config.clone(),
            number: if precision == DType::F32 { 4 } else { 2 },
            trained: trained as u64,
            full: self.adapter.is_none(),
            recompute: self.recompute,
            beside: !odd_rank && trainer::gradient::beside_burn(config, precision, device),
            rows: 1,
            seq: longest as u64,
            rollouts: rollouts.map(|r| (r.batch.min(r.prompts * r.group) as u64, longest as u64)),
        }
    }

    /// The most rows that could share a micro-batch.
    fn most_rows(&self, longest: usize) -> u64 {
        let rows = match &self.method {
            Method::Rloo(rloo) => rloo.rollouts.prompts * rloo.rollouts.group,
            Method::Entropy(entropy) => entropy.rollouts.prompts * entropy.rollouts.group,
            Method::Sft(sft) => sft.batch,
            Method::Psft(psft) => psft.demonstrations.batch,
            Method::Spft(spft) => spft.demonstrations.batch,
        };
        rows.min(MOST / longest.max(1)).max(1) as u64
    }

    /// The worked examples before each question.
    fn shots(&self, place: impl Fn(&Input) -> Result<PathBuf, StageError>) -> Result<Vec<Shot>, StageError> {
        self.method.rollouts().map_or(Ok(Vec::new()), |rollouts| rollouts.shots(place))
    }

    /// Tokens of the longest sequence: of the rows with the most characters, and a rollout's limit.
    /// `shots` are the worked examples before each question.
    pub(super) fn longest(
        &self,
        opened: &OpenModel,
        rows: &[Question],
        shots: &[Shot],
    ) -> Result<usize, StageError> {
        let mut rows: Vec<&Question> = rows.iter().collect();
        let characters = |row: &Question| row.problem.len() + row.solution.as_ref().map_or(0, String::len);
        rows.sort_by_key(|row| std::cmp::Reverse(characters(row)));
        let demonstrator = Demonstrator::new(opened, &self.prompt)?;
        let mut longest = 1;
        for row in rows.into_iter().take(LONGEST_ROWS) {
            longest = longest.max(match self.method.rollouts() {
                Some(rollouts) => {
                    let prompt = self.prompt.prepare(opened, &row.problem, shots)?.ids.len();
                    prompt + rollouts.sampling.max_new_tokens
                }
                None => sequence(&demonstrator, row)?.tokens.len(),
            });
        }
        Ok(longest.min(opened.checkpoint.config().max_position_embeddings))
    }

    /// Tokens at once: those asked for, or what fits. A resumed run keeps what it began with, so that
    /// it ends with the same bytes.
    pub(super) fn resolve_micro_tokens(
        &self,
        ctx: &StageCtx,
        opened: &OpenModel,
        rows: &[Question],
    ) -> Result<usize, StageError> {
        if let MicroTokens::Tokens(tokens) = self.micro_tokens {
            return Ok(tokens);
        }
        let Some((free, total)) = gpu::memory(ctx.device()) else { return Ok(ON_CPU) };
        let path = ctx.state().join("micro_tokens.json");
        if let Some(begun) = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
            return Ok(begun);
        }
        let longest = self.longest(opened, rows, &self.shots(|input| ctx.input(input))?)?;
        let load =
            self.load(opened.checkpoint.config(), longest, ctx.device()).with_cache(total / CACHE_PART);
        let usable = free.saturating_sub(RESERVE);
        let rows =
            load.fitting_rows(usable, self.most_rows(longest)).ok_or_else(|| too_large(&load, free))?;
        ctx.message(format!(
            "micro-batches of {rows} x {longest} tokens need {} of {} free GPU memory",
            gpu::gigabytes(load.with_rows(rows).needs().total()),
            gpu::gigabytes(free)
        ));
        let tokens = rows as usize * longest;
        // whole or not at all: the start of a number is a number, too
        let fresh = path.with_extension("new");
        fs::write(&fresh, tokens.to_string()).map_err(|error| StageError::io(&fresh, error))?;
        fs::rename(&fresh, &path).map_err(|error| StageError::io(&path, error))?;
        Ok(tokens)
    }

    /// The load as far as it is known before the run: with the micro-batches asked for, or the smallest.
    pub(super) fn known_load(&self, inputs: &BTreeMap<String, PathBuf>) -> Option<Load> {
        let place = |input: &Input| inputs.get(input.reference());
        let opened = OpenModel::open(place(&self.model)?).ok()?;
        let rows = read_questions(place(&self.data)?, self.limit).ok()?;
        let found = |input: &Input| place(input).cloned().ok_or_else(|| StageError::input("not there yet"));
        let longest = self.longest(&opened, &rows, &self.shots(found).ok()?).ok()?;
        let load = self.load(opened.checkpoint.config(), longest, "cuda");
        Some(match self.micro_tokens {
            MicroTokens::Auto(_) => load,
            MicroTokens::Tokens(tokens) => {
                load.with_rows(((tokens / longest).max(1) as u64).min(self.most_rows(longest)))
            }
        })
    }

    /// What the run needs of a GPU and what the GPU has, for `plan`.
    pub(super) fn memory_line(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<String> {
        gpu::index(device)?;
        let total = gpu::total_memory(device);
        let load = self.known_load(inputs)?;
        let load = total.map_or(load.clone(), |total| load.with_cache(total / CACHE_PART));
        let needs = load.needs();
        let least = if self.micro_tokens == MicroTokens::default() { "at least " } else { "" };
        let card = gpu::card(needs.total(), total, |total| advice(&load, total));
        Some(format!(
            "needs {least}{} of GPU memory for sequences of {} tokens (weights {}, optimiser {}, activations and gradients {}{}{}){card}",
            gpu::gigabytes(needs.total()),
            load.seq,
            gpu::gigabytes(needs.weights),
            gpu::gigabytes(needs.optimizer),
            gpu::gigabytes(needs.update),
            if needs.cache > 0 {
                format!(", rollouts' cache {}", gpu::gigabytes(needs.cache))
            } else {
                String::new()
            },
            if load.beside && !self.recompute { "; more is kept where there is room" } else { "" },
        ))
    }

    /// Why the run cannot fit a GPU, where that is certain before it starts.
    pub(super) fn memory_obstacle(
        &self,
        inputs: &BTreeMap<String, PathBuf>,
        device: &str,
    ) -> Option<StageError> {
        let total = gpu::total_memory(device)?;
        let load = self.known_load(inputs)?.with_cache(total / CACHE_PART);
        (load.needs().total() > total).then(|| too_large(&load, total))
    }
}

/// The error of a run that needs more than a card has, with what would make it fit.
pub(super) fn too_large(load: &Load, memory: u64) -> StageError {
    gpu::too_large(load.needs().total(), memory, advice(load, memory))
}

/// What would make the run fit.
fn advice(load: &Load, memory: u64) -> String {
    match load.advice(memory).as_slice() {
        [] => "no setting makes it fit; use a smaller model or a card with more memory".to_owned(),
        advice => format!("set {}", advice.join(", or ")),
    }
}
