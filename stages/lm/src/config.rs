//! Hyper-parameters of a model, read from a `config.json` of either generation:
//! transformers 4 (`rope_theta`, `rope_scaling`, `torch_dtype`) and transformers 5
//! (`rope_parameters`, `dtype`).
//!
//! Whatever would make this crate compute something else than `transformers` does is
//! refused by name here, before a weight is read. A missing number that decides results
//! (such as `rope_theta`) is an error, never a default.

mod parse;

use std::fmt;
use std::path::{Path, PathBuf};

use burn::tensor::DType;
use serde_json::{Map, Value};

/// Model families whose arithmetic this crate implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// `Qwen2ForCausalLM`: biases on q, k and v, none elsewhere.
    Qwen2,
    /// `LlamaForCausalLM`: `attention_bias` and `mlp_bias` say which biases exist.
    Llama,
}

impl Architecture {
    /// The name in `config.json` under `model_type`.
    pub fn model_type(self) -> &'static str {
        match self {
            Architecture::Qwen2 => "qwen2",
            Architecture::Llama => "llama",
        }
    }

    /// The name in `config.json` under `architectures`.
    pub fn class_name(self) -> &'static str {
        match self {
            Architecture::Qwen2 => "Qwen2ForCausalLM",
            Architecture::Llama => "LlamaForCausalLM",
        }
    }
}

/// Number formats of weights in a checkpoint. Quantised GGUF blocks read as [`FloatType::F32`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatType {
    /// IEEE single precision, 4 bytes.
    F32,
    /// IEEE half precision, 2 bytes.
    F16,
    /// bfloat16, 2 bytes.
    BF16,
}

impl FloatType {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            FloatType::F32 => 4,
            FloatType::F16 | FloatType::BF16 => 2,
        }
    }

    /// The name in `config.json` (`float32`, `float16`, `bfloat16`).
    pub fn torch_name(self) -> &'static str {
        match self {
            FloatType::F32 => "float32",
            FloatType::F16 => "float16",
            FloatType::BF16 => "bfloat16",
        }
    }

    fn from_torch_name(name: &str) -> Option<Self> {
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float32" => Some(FloatType::F32),
            "float16" => Some(FloatType::F16),
            "bfloat16" => Some(FloatType::BF16),
            _ => None,
        }
    }
}

impl From<FloatType> for DType {
    fn from(float: FloatType) -> Self {
        match float {
            FloatType::F32 => DType::F32,
            FloatType::F16 => DType::F16,
            FloatType::BF16 => DType::BF16,
        }
    }
}

impl fmt::Display for FloatType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.torch_name())
    }
}

/// Rotary position embedding (rotate-half form).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the geometric series of frequencies.
    pub theta: f64,
    /// How the frequencies are stretched for long contexts.
    pub scaling: RopeScaling,
}

/// Rotary scaling, as in `transformers/modeling_rope_utils.py`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Frequencies as they are.
    Default,
    /// Every frequency divided by `factor`.
    Linear {
        /// Stretch of the context.
        factor: f64,
    },
    /// Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// Stretch of the lowest frequencies.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are divided by `factor`.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length of pre-training, in tokens.
        original_max_position_embeddings: usize,
    },
}

/// What decides the shape and the arithmetic of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Model family.
    pub architecture: Architecture,
    /// Rows of the embedding, padding rows included; may exceed the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of one head; `num_heads * head_dim` need not equal `hidden_size`.
    pub head_dim: usize,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Rotary embedding.
    pub rope: Rope,
    /// Context length that the model was made for, in tokens.
    pub max_position_embeddings: usize,
    /// The output head is the embedding matrix; no `lm_head.weight` is stored.
    pub tie_word_embeddings: bool,
    /// Biases on the q, k and v projections.
    pub qkv_bias: bool,
    /// Bias on the attention's output projection.
    pub o_bias: bool,
    /// Biases on gate, up and down projections.
    pub mlp_bias: bool,
    /// First token of a text, where the family has one.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text (`config.json`'s; `generation_config.json` may name others).
    pub eos_token_ids: Vec<u32>,
    /// Padding token.
    pub pad_token_id: Option<u32>,
    /// Number format that the weights claim to be stored in.
    pub dtype: Option<FloatType>,
    /// The file as it was read, so that it can be written back with nothing lost.
    pub json: Map<String, Value>,
}

/// A `config.json` that cannot be used, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", file.display())]
pub struct ConfigError {
    /// File that the configuration came from.
    pub file: PathBuf,
    /// What is wrong.
    pub kind: ConfigErrorKind,
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigErrorKind {
    /// The file cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is no JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A key that decides results is absent.
    #[error("`{key}` is missing; {hint}")]
    Missing {
        /// Name of the key.
        key: String,
        /// What to do.
        hint: String,
    },
    /// A value of the wrong type or range.
    #[error("`{key}` is {found}; expected {expected}")]
    Invalid {
        /// Name of the key.
        key: String,
        /// The value in the file.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The model needs something this crate does not compute.
    #[error("{feature} is not supported: {detail}")]
    Unsupported {
        /// What the model asks for.
        feature: String,
        /// Where it says so, and what would work instead.
        detail: String,
    },
}

impl ModelConfig {
    /// Reads a `config.json`.
    pub fn from_file(file: &Path) -> Result<Self, ConfigError> {
        let read = || -> Result<Self, ConfigErrorKind> {
            let text = std::fs::read_to_string(file)?;
            let value: Value =
                serde_json::from_str(&text).map_err(|e| ConfigErrorKind::Json(e.to_string()))?;
            match value {
                Value::Object(map) => parse::parse(map),
                _ => Err(ConfigErrorKind::Json("found another JSON value".into())),
            }
        };
        read().map_err(|kind| ConfigError { file: file.to_path_buf(), kind })
    }

    /// Reads the content of a `config.json`; `file` is named in errors.
    pub fn from_json(json: Map<String, Value>, file: &Path) -> Result<Self, ConfigError> {
        parse::parse(json).map_err(|kind| ConfigError { file: file.to_path_buf(), kind })
    }

    /// Names and shapes of the tensors that a checkpoint of this model holds, in the order
    /// of the forward pass. Matrices are `[out, in]`, as `torch.nn.Linear` stores them.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inner) = (self.hidden_size, self.intermediate_size);
        let (q, kv) = (self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim);
        let mut list = vec![("model.embed_tokens.weight".to_string(), vec![self.vocab_size, hidden])];
        for layer in 0..self.num_layers {
            let mut linear = |name: &str, out: usize, input: usize, bias: bool| {
                let prefix = format!("model.layers.{layer}.{name}");
                list.push((format!("{prefix}.weight"), vec![out, input]));
                if bias {
                    list.push((format!("{prefix}.bias"), vec![out]));
                }
            };
            linear("self_attn.q_proj", q, hidden, self.qkv_bias);
            linear("self_attn.k_proj", kv, hidden, self.qkv_bias);
            linear("self_attn.v_proj", kv, hidden, self.qkv_bias);
            linear("self_attn.o_proj", hidden, q, self.o_bias);
            linear("mlp.gate_proj", inner, hidden, self.mlp_bias);
            linear("mlp.up_proj", inner, hidden, self.mlp_bias);
            linear("mlp.down_proj", hidden, inner, self.mlp_bias);
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                list.push((format!("model.layers.{layer}.{norm}.weight"), vec![hidden]));
            }
        }
        list.push(("model.norm.weight".to_string(), vec![hidden]));
        if !self.tie_word_embeddings {
            list.push(("lm_head.weight".to_string(), vec![self.vocab_size, hidden]));
        }
        list
    }
}
