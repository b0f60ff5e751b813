//! Whether an evaluation fits into a GPU's memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::DType;
use engine::kind::{Input, StageError};
use lm::generate::memory::{Advice, Load};

use super::Eval;
use crate::gpu;
use crate::model::{OpenModel, read_shots};
use crate::questions::{Question, read_questions};

/// Questions whose lengths in tokens are looked at to find the longest; those with the most characters.
const LONGEST_QUESTIONS: usize = 16;

impl Eval {
    /// What the evaluation asks of a GPU, as far as its inputs are there.
    fn load_of(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<Load> {
        let place = |input: &Input| inputs.get(input.reference());
        let opened = OpenModel::open(place(&self.model)?).ok()?;
        let questions = read_questions(place(&self.questions)?, self.limit).ok()?;
        let adapter = match &self.adapter {
            Some(adapter) => Some(adapter_files(place(adapter)?)),
            None => None,
        };
        let config = opened.checkpoint.config().clone();
        let longest = self.longest(&opened, &questions, inputs)?;
        let samples = questions.len() as u64 * u64::from(self.samples);
        Some(Load {
            length: longest.min(config.max_position_embeddings) as u64,
            config,
            number: if self.precision.on(device) == DType::F32 { 4 } else { 2 },
            adapter: adapter.map_or(0, |(bytes, _)| bytes),
            lora: adapter.is_some_and(|(_, lora)| lora),
            sequences: (self.batch as u64).min(samples).max(1),
        })
    }

    /// Tokens of the longest prompt with its answer, and with what is asked once more.
    fn longest(
        &self,
        opened: &OpenModel,
        questions: &[Question],
        inputs: &BTreeMap<String, PathBuf>,
    ) -> Option<usize> {
        let shots = match &self.examples {
            Some(examples) => read_shots(inputs.get(examples.reference())?, self.shots).ok()?,
            None => Vec::new(),
        };
        let mut questions: Vec<&Question> = questions.iter().collect();
        questions.sort_by_key(|question| std::cmp::Reverse(question.problem.len()));
        let prompt = |question: &&Question| {
            self.prompt.prepare(opened, &question.problem, &shots).ok().map(|prompt| prompt.ids.len())
        };
        let prompt = questions.iter().take(LONGEST_QUESTIONS).filter_map(prompt).max()?;
        let again = self.retry.as_ref().map_or(0, |retry| {
            let asked = opened.tokenizer.encode(&retry.text).map_or(0, |ids| ids.len());
            asked + retry.max_new_tokens
        });
        Some(prompt + self.sampling.max_new_tokens + again)
    }

    /// What the evaluation needs of a GPU and what the GPU has, for `plan`.
    pub(super) fn memory_line(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<String> {
        gpu::index(device)?;
        let total = gpu::total_memory(device);
        let load = self.load_of(inputs, device)?;
        let load = total.and_then(|total| load.on_card(total)).unwrap_or(load);
        let needs = load.needs();
        let card = match total {
            Some(total) if load.sequence_bytes() > load.cache_budget(total) => {
                format!("; too much for this card: {}", advice(&load, total))
            }
            total => gpu::card(needs.total(), total, |total| advice(&load, total)),
        };
        Some(format!(
            "needs {} of GPU memory for {} sequences of {} tokens at once (weights {}, cache {}, working room {}){card}",
            gpu::gigabytes(needs.total()),
            load.sequences,
            load.length,
            gpu::gigabytes(needs.weights),
            gpu::gigabytes(needs.cache),
            gpu::gigabytes(needs.scratch),
        ))
    }

    /// Why the evaluation cannot fit a GPU, where that is certain before it starts.
    pub(super) fn memory_obstacle(
        &self,
        inputs: &BTreeMap<String, PathBuf>,
        device: &str,
    ) -> Option<StageError> {
        let total = gpu::total_memory(device)?;
        refusal(&self.load_of(inputs, device)?, total)
    }
}

/// Why `load` does not fit a card of `total` bytes, if it does not.
fn refusal(load: &Load, total: u64) -> Option<StageError> {
    let Some(on_card) = load.on_card(total) else {
        let (needed, budget) = (load.sequence_bytes(), load.cache_budget(total));
        let (needed, budget) = (gpu::gigabytes(needed), gpu::gigabytes(budget));
        let message = format!(
            "keys and values of one sequence of {} tokens need {needed} of GPU memory, and this card has {budget} for them",
            load.length
        );
        return Some(StageError::environment(message).with_help(advice(load, total)));
    };
    let needed = on_card.needs().total();
    (needed > total).then(|| gpu::too_large(needed, total, advice(&on_card, total)))
}

/// What would make the evaluation fit.
fn advice(load: &Load, total: u64) -> String {
    match load.advice(total) {
        Some(Advice::Sequences(sequences)) => format!("set batch = {sequences}"),
        Some(Advice::Length(tokens)) => {
            format!("lower sampling.max_new_tokens: sequences of {tokens} tokens fit, one at a time")
        }
        None => "no setting makes it fit; use a smaller model or a card with more memory".to_owned(),
    }
}

/// Bytes of the adapter in a folder, and whether it is LoRA.
fn adapter_files(folder: &Path) -> (u64, bool) {
    let nested = folder.join("adapter");
    let folder = if nested.is_dir() { &nested } else { folder };
    let size = |name: &str| std::fs::metadata(folder.join(name)).ok().map(|file| file.len());
    match (size("adapter_model.safetensors"), size("bias.safetensors")) {
        (Some(bytes), _) => (bytes, true),
        (None, bytes) => (bytes.unwrap_or(0), false),
    }
}

#[cfg(test)]
mod tests {
    use lm::config::ModelConfig;
    use serde_json::json;

    use super::*;

    /// Qwen2.5-7B in bf16.
    fn load(sequences: u64, length: u64) -> Load {
        let json = json!({
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
            "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
            "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "tie_word_embeddings": false,
        });
        let config = ModelConfig::from_json(json.as_object().unwrap().clone(), "c".as_ref()).unwrap();
        Load { config, number: 2, adapter: 0, lora: false, sequences, length }
    }

    #[test]
    fn what_cannot_fit_is_refused_with_what_would() {
        const GB: u64 = 1_000_000_000;
        assert!(refusal(&load(64, 1152), 24 * GB).is_none());
        // an eighth of 18 GB holds 34 sequences of 1,152 tokens, and they do not fit beside the weights
        let error = refusal(&load(64, 1152), 18 * GB).unwrap();
        assert!(error.message.contains("of GPU memory, and this card has 18.0 GB"), "{}", error.message);
        let help = error.help.unwrap();
        let batch: u64 = help.strip_prefix("set batch = ").unwrap().parse().unwrap();
        assert!(refusal(&load(batch, 1152), 18 * GB).is_none(), "{help}");
        // no room for one sequence
        let error = refusal(&load(1, 32_768), 10 * GB).unwrap();
        assert!(error.message.contains("keys and values of one sequence of 32768 tokens"));
        // weights that do not fit at all
        let error = refusal(&load(1, 128), 12 * GB).unwrap();
        assert!(error.help.unwrap().contains("smaller model"));
    }

    #[test]
    fn an_adapter_is_known_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(adapter_files(folder.path()), (0, false));
        std::fs::write(folder.path().join("bias.safetensors"), [0; 5]).unwrap();
        assert_eq!(adapter_files(folder.path()), (5, false));
        std::fs::create_dir(folder.path().join("adapter")).unwrap();
        std::fs::write(folder.path().join("adapter/adapter_model.safetensors"), [0; 7]).unwrap();
        assert_eq!(adapter_files(folder.path()), (7, true));
    }
}
