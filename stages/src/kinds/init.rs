//! `init`: a model with random weights, for training from nothing.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use lm::checkpoint::{TensorSpec, WriteOptions, write_folder};
use lm::config::{FloatType, ModelConfig};
use lm::model::Model;
use lm::tokenizer::Tokenizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Makes a model of the Qwen2 architecture with random weights (normal, standard deviation 0.02),
/// a function of its shape and seed alone.
///
/// Writes an ordinary checkpoint folder: `config.json`, `model.safetensors`,
/// `generation_config.json` and the tokenizer's files.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Init {
    /// The tokenizer: a folder with `tokenizer.json`.
    pub tokenizer: Input,
    /// Seed of the weights.
    #[serde(default)]
    pub seed: u64,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub num_layers: usize,
    /// Query heads; divides `hidden_size`.
    pub num_heads: usize,
    /// Key/value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Longest text in tokens.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Base of the rotary embedding.
    #[serde(default = "default_rope_theta")]
    pub rope_theta: f64,
}

fn default_context() -> usize {
    1024
}

fn default_rope_theta() -> f64 {
    10000.0
}

impl Stage for Init {
    const KIND: &'static str = "init";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        ["config.json", "model.safetensors", "generation_config.json", "tokenizer.json"]
            .map(str::to_owned)
            .into()
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut divides = |param: &str, part: usize, whole: usize, name: &str| {
            if part == 0 || whole == 0 || !whole.is_multiple_of(part) {
                problems.push(ParamProblem {
                    param: param.into(),
                    message: format!("{part} does not divide {name} ({whole})"),
                    help: format!("choose a divisor of {name}"),
                });
            }
        };
        divides("num_heads", self.num_heads, self.hidden_size, "hidden_size");
        divides("num_kv_heads", self.num_kv_heads, self.num_heads, "num_heads");
        for (param, size) in [
            ("intermediate_size", self.intermediate_size),
            ("num_layers", self.num_layers),
            ("context", self.context),
        ] {
            if size == 0 {
                problems.push(ParamProblem {
                    param: param.into(),
                    message: "a model cannot have 0".into(),
                    help: "write 1 or more".into(),
                });
            }
        }
        problems
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let folder = ctx.input(&self.tokenizer)?;
        let tokenizer = Tokenizer::from_file(&folder.join("tokenizer.json")).map_err(StageError::input)?;
        let end = tokenizer.token_id("<|endoftext|>");
        let json = self.config(tokenizer.vocab_size(), end);
        let config = ModelConfig::from_json(json, Path::new("config.json")).map_err(StageError::input)?;
        let model = Model::random(&config, self.seed, &Device::flex());
        let parameters = model.named_parameters();
        let generation: Map<String, Value> = [("eos_token_id", json!(end)), ("pad_token_id", json!(end))]
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect();
        let options = WriteOptions { generation_config: Some(&generation), ..WriteOptions::default() };
        // A folder inside the output: the writer wants one that does not exist yet.
        let staged = ctx.out().join("checkpoint");
        let specs = TensorSpec::all(&config, FloatType::F32);
        write_folder(&staged, &config, &specs, &options, |spec| {
            let data = parameters.iter().find(|(name, _)| *name == spec.name);
            Ok(data.map(|(_, tensor)| tensor.to_data().as_bytes().to_vec()).unwrap_or_default().into())
        })
        .map_err(StageError::environment)?;
        move_up(&staged, ctx.out())?;
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            let from = folder.join(name);
            if from.is_file() {
                fs::copy(&from, ctx.out().join(name)).map_err(|error| StageError::io(&from, error))?;
            }
        }
        Ok(())
    }
}

impl Init {
    fn config(&self, vocab_size: usize, end: Option<u32>) -> Map<String, Value> {
        let config = json!({
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "hidden_act": "silu",
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-6,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": true,
            "use_sliding_window": false,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "bos_token_id": null,
            "eos_token_id": end,
            "pad_token_id": end,
        });
        match config {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}

fn move_up(from: &Path, to: &Path) -> Result<(), StageError> {
    let entries = fs::read_dir(from).map_err(|error| StageError::io(from, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| StageError::io(from, error))?;
        let path = to.join(entry.file_name());
        fs::rename(entry.path(), &path).map_err(|error| StageError::io(&path, error))?;
    }
    fs::remove_dir(from).map_err(|error| StageError::io(from, error))
}
