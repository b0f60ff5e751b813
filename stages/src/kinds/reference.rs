//! `reference`: what a frozen model says of demonstrated answers, kept for every training against it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trainer::Control;
use trainer::data::{Batching, Sequence};
use trainer::reference::Reference as Values;
use trainer::trainee::Current;

use crate::demonstration::{REFERENCE_FILE, sequences};
use crate::model::{OpenModel, Precision, PromptParams};
use crate::questions::read_questions;

/// Computes the log-probability that a model gives to every token of demonstrated answers.
///
/// PSFT and SPFT compare the model in training with a frozen reference. Computed here, once, it serves
/// every training on the same rows: `method = { type = "psft", reference = "@reference" }`, with any
/// learning rate, λ or clipping. Where the reference is the model that training starts from, its rows are
/// all visited, and `pack` and `micro_tokens` are the training's own, the result is the same to the last
/// bit as without this stage; otherwise it is the same but for rounding.
///
/// Writes `reference.safetensors` (`log_probs`, f32, row after row) and `summary.json`. An interrupted
/// run goes on from what it had a minute before.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The reference.
    pub model: Input,
    /// The rows: JSON lines with `problem` or `question`, and `solution` or `answer`.
    pub data: Input,
    /// Take the first so many rows only.
    #[serde(default)]
    pub limit: Option<usize>,
    /// How a question is put to the model.
    #[serde(default)]
    pub prompt: PromptParams,
    /// Put several sequences into one row, each seeing itself only, instead of padding.
    #[serde(default = "yes")]
    pub pack: bool,
    /// Most tokens, padding included, that go through the model at once: decides memory and speed;
    /// results change by rounding only.
    #[serde(default = "default_micro_tokens")]
    pub micro_tokens: usize,
    /// The number format of weights and activations.
    #[serde(default)]
    pub precision: Precision,
}

fn yes() -> bool {
    true
}

fn default_micro_tokens() -> usize {
    4096
}

/// How often what is computed is kept.
const BETWEEN_SAVES: Duration = Duration::from_secs(60);

impl Stage for Reference {
    const KIND: &'static str = "reference";
    const VERSION: u32 = 2;

    fn outputs(&self) -> Vec<String> {
        vec![REFERENCE_FILE.into(), "summary.json".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut wrong = |param: &str, message: &str, help: &str| {
            problems.push(ParamProblem { param: param.into(), message: message.into(), help: help.into() });
        };
        if self.micro_tokens == 0 {
            wrong("micro_tokens", "no token fits", "write the most tokens a forward pass may hold");
        }
        if self.limit == Some(0) {
            wrong("limit", "no rows", "write 1 or more, or leave it out");
        }
        problems
    }

    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        self.precision.environment(device_class)
    }

    fn default_gpus(&self) -> u32 {
        1
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let opened = OpenModel::open(&ctx.input(&self.model)?)?;
        let rows = read_questions(&ctx.input(&self.data)?, self.limit)?;
        let data = sequences(&opened, &self.prompt, &rows)?;
        let kept = ctx.state().join(REFERENCE_FILE);
        let mut values = begun(&kept, &data);
        let current = Current { model: opened.load(ctx, self.precision)?, adapter: None };
        let batching = Batching { micro_tokens: self.micro_tokens, pack: self.pack };
        let all: Vec<usize> = (0..data.len()).collect();
        let (mut saved, mut failed) = (Instant::now(), None);
        let finished =
            values.compute(std::slice::from_ref(&current), &data, &all, batching, |values, done, total| {
                ctx.progress(done as u64, total as u64, "batches");
                if saved.elapsed() > BETWEEN_SAVES || ctx.stopping() {
                    saved = Instant::now();
                    failed = values.write(&kept, &data).err();
                }
                if ctx.stopping() || failed.is_some() { Control::Stop } else { Control::Continue }
            });
        match (finished, failed) {
            (_, Some(error)) => return Err(StageError::environment(error)),
            (Err(error), None) => return Err(StageError::input(error)),
            (Ok(false), None) => return Err(StageError::stopped()),
            (Ok(true), None) => {}
        }
        values.write(&ctx.out().join(REFERENCE_FILE), &data).map_err(StageError::environment)?;
        self.summarise(&values, &ctx.out().join("summary.json"))
    }
}

/// What an interrupted run has kept, if anything.
fn begun(kept: &Path, data: &[Sequence]) -> Values {
    Values::read(kept, data).unwrap_or_else(|_| Values::new(data.len()))
}

impl Reference {
    fn summarise(&self, values: &Values, path: &Path) -> Result<(), StageError> {
        let all = values.values().iter().flatten();
        let tokens = all.clone().count();
        let summary = json!({
            "rows": values.values().len(),
            "tokens": tokens,
            "mean_log_prob": all.map(|&value| f64::from(value)).sum::<f64>() / tokens.max(1) as f64,
        });
        fs::write(path, format!("{summary:#}\n")).map_err(|error| StageError::io(path, error))
    }
}
