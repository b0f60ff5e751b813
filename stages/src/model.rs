//! What the kinds that run a model share: opening it, choosing its number format, and turning
//! questions into prompts.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::tensor::{DType, Device};
use engine::kind::{StageCtx, StageError};
use lm::checkpoint::{Checkpoint, TensorSpec, WriteOptions, write_folder};
use lm::config::FloatType;
use lm::model::{Model, Parameter};
use lm::template::{ChatTemplate, Message, Prompt, PromptTemplate, Shot};
use lm::tokenizer::Tokenizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use trainer::export::ending_with;

use crate::questions::read_questions;

/// The number format a model computes in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 on a GPU, f32 on the CPU.
    #[default]
    Auto,
    /// 32-bit floats.
    F32,
    /// 16-bit brain floats.
    Bf16,
}

impl Precision {
    /// The format on a device (`cpu`, `cuda`, `cuda:0`).
    pub fn on(self, device: &str) -> DType {
        match self {
            Self::Auto => lm::device::default_dtype(device),
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }

    /// What of the device and the format decides a result, for the key.
    pub fn environment(self, device_class: &str) -> std::collections::BTreeMap<String, String> {
        let dtype = if self.on(device_class) == DType::F32 { "f32" } else { "bf16" };
        [("device", device_class), ("dtype", dtype)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }
}

/// A model on disk with its tokenizer and chat template.
pub struct OpenModel {
    /// The weights.
    pub checkpoint: Checkpoint,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template, if it has one.
    pub chat: Option<ChatTemplate>,
    /// The tokens that end a text by its `generation_config.json`, else by its `config.json`.
    ends: Vec<u32>,
}

impl OpenModel {
    /// Opens a checkpoint folder or GGUF file.
    pub fn open(path: &Path) -> Result<Self, StageError> {
        let checkpoint = Checkpoint::open(path).map_err(StageError::input)?;
        let tokenizer = Tokenizer::for_checkpoint(&checkpoint).map_err(StageError::input)?;
        let chat = ChatTemplate::for_checkpoint(&checkpoint).map_err(StageError::input)?;
        let ends = checkpoint.generation_config().map_err(StageError::input)?.eos_token_ids;
        Ok(Self { checkpoint, tokenizer, chat, ends })
    }

    /// Reads the weights onto the stage's device.
    pub fn load(&self, ctx: &StageCtx, precision: Precision) -> Result<Model, StageError> {
        let device = device(ctx)?;
        Model::load(&self.checkpoint, &device, precision.on(ctx.device())).map_err(StageError::input)
    }

    /// The tokens that end a text: those of `generation_config.json` (else of `config.json`), the
    /// tokenizer's own, and what the template ends a turn with.
    pub fn stop_tokens(&self, template: PromptTemplate) -> Vec<u32> {
        let mut ids = self.ends.clone();
        let own = self.chat.as_ref().and_then(|chat| chat.token("eos_token"));
        for token in [own, template.turn_end_token()].into_iter().flatten() {
            ids.extend(self.tokenizer.token_id(token));
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The token that ends an answer to a prompt of this template: what a trained answer ends with.
    /// A chat template is asked for it, since its model's first end token may be another one.
    pub fn turn_end(&self, template: PromptTemplate) -> Result<u32, StageError> {
        const ANSWER: &str = "answer";
        let text = match (template, &self.chat) {
            (PromptTemplate::Chat, Some(chat)) => {
                let turns = [Message::new("user", "question"), Message::new("assistant", ANSWER)];
                let text = chat.render(&turns, false).map_err(StageError::input)?;
                text.rsplit_once(ANSWER).map(|(_, end)| end.to_owned())
            }
            _ => template.turn_end().map(str::to_owned),
        };
        let ids = text.map(|text| self.tokenizer.encode_with_specials(&text)).transpose();
        let first = ids.map_err(StageError::input)?.and_then(|ids| ids.first().copied());
        let special = first.filter(|id| self.tokenizer.is_special(*id));
        special.or_else(|| self.stop_tokens(template).first().copied()).ok_or_else(|| {
            StageError::input("the model names no token that ends a text")
                .with_help("add `eos_token_id` to its generation_config.json")
        })
    }

    /// The content of its `generation_config.json`; of a model without one, its end tokens.
    fn generation_config(&self) -> Map<String, Value> {
        let text = std::fs::read(self.checkpoint.path().join("generation_config.json"));
        let map = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
        map.unwrap_or_else(|| Map::from_iter([("eos_token_id".to_owned(), json!(self.ends))]))
    }
}

/// The stage's device.
pub fn device(ctx: &StageCtx) -> Result<Device, StageError> {
    lm::device::open(ctx.device()).map_err(StageError::environment)
}

/// How a question is put to a model.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromptParams {
    /// The prompt template.
    pub template: PromptTemplate,
    /// Text that the answer begins with; graded as part of it.
    pub assistant_prefix: String,
    /// Replaces the system message, where the template leaves it open.
    pub system: Option<String>,
    /// Further variables of the model's chat template, such as Llama 3.2's `date_string`.
    pub variables: BTreeMap<String, Value>,
}

/// A prompt, ready for the model.
pub struct Prepared {
    /// The prompt as text.
    pub text: String,
    /// The prompt as token ids.
    pub ids: Vec<u32>,
}

impl PromptParams {
    /// Makes the prompt of a question, after worked examples.
    pub fn prepare(&self, model: &OpenModel, question: &str, shots: &[Shot]) -> Result<Prepared, StageError> {
        let variables: Map<String, Value> = self.variables.clone().into_iter().collect();
        let prompt = Prompt {
            template: self.template,
            question,
            shots,
            system: self.system.as_deref(),
            prefill: &self.assistant_prefix,
            variables: (!variables.is_empty()).then_some(&variables),
        };
        let chat = model.chat.as_ref();
        let text = prompt.text(chat).map_err(StageError::input)?;
        let ids = prompt.tokens(&model.tokenizer, chat).map_err(StageError::input)?;
        Ok(Prepared { text, ids })
    }
}

/// Worked examples from JSON lines: the first `count` rows with their solutions.
pub fn read_shots(path: &Path, count: usize) -> Result<Vec<Shot>, StageError> {
    let rows = read_questions(path, Some(count))?;
    if rows.len() < count {
        let found = rows.len();
        return Err(StageError::input(format!("{}: {found} rows for {count} shots", path.display()))
            .with_help("lower `shots`, or give more examples"));
    }
    Ok(rows
        .into_iter()
        .map(|row| Shot { answer: row.solution.unwrap_or(row.gold), question: row.problem })
        .collect())
}

/// Writes a model as a checkpoint folder that `transformers` loads, with the tokenizer files of the
/// model it comes from. `end` is the token it was taught to end its answers with, if it was taught.
pub fn save_model(
    model: &Model,
    like: &OpenModel,
    end: Option<u32>,
    folder: &Path,
) -> Result<(), StageError> {
    let dtype = float_type(model.dtype());
    let specs = TensorSpec::all(model.config(), dtype);
    let parameters: HashMap<String, Parameter> = model.named_parameters().into_iter().collect();
    let taught = end.map(|end| ending_with(like.generation_config(), end));
    let options = WriteOptions {
        source: Some(&like.checkpoint),
        generation_config: taught.as_ref(),
        ..WriteOptions::default()
    };
    let bytes = |spec: &TensorSpec| {
        let data = parameters.get(&spec.name).map(|parameter| parameter.to_data().as_bytes().to_vec());
        Ok(data.unwrap_or_default().into())
    };
    write_folder(folder, model.config(), &specs, &options, bytes).map_err(StageError::environment)
}

/// A number format of tensors as checkpoints name it.
pub fn float_type(dtype: DType) -> FloatType {
    match dtype {
        DType::BF16 => FloatType::BF16,
        DType::F16 => FloatType::F16,
        _ => FloatType::F32,
    }
}
