//! `generation_config.json`: what a model's authors suggest for generating with it.

use std::path::Path;

use serde_json::{Map, Value};

use super::parse::Fields;
use super::{ConfigError, ConfigErrorKind, ModelConfig};

/// End tokens and suggested sampling. A recipe's explicit values win over all of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerationConfig {
    /// Tokens that end an answer; those of `config.json` where the file names none.
    pub eos_token_ids: Vec<u32>,
    /// Padding token.
    pub pad_token_id: Option<u32>,
    /// Whether to sample; greedy otherwise.
    pub do_sample: bool,
    /// Divides the logits.
    pub temperature: Option<f64>,
    /// Keep this many most likely tokens.
    pub top_k: Option<u64>,
    /// Keep the most likely tokens up to this probability.
    pub top_p: Option<f64>,
    /// Keep tokens at least this likely relative to the likeliest.
    pub min_p: Option<f64>,
    /// Divides or multiplies the logits of tokens that are already there.
    pub repetition_penalty: Option<f64>,
}

impl GenerationConfig {
    /// Reads `generation_config.json` of a model folder; a folder without one suggests only the
    /// end tokens of its `config.json`.
    pub fn from_folder(folder: &Path, model: &ModelConfig) -> Result<Self, ConfigError> {
        let file = folder.join("generation_config.json");
        let read = || -> Result<Self, ConfigErrorKind> {
            let json: Map<String, Value> = match std::fs::read_to_string(&file) {
                Ok(text) => serde_json::from_str(&text).map_err(|e| ConfigErrorKind::Json(e.to_string()))?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
                // `folder` is a GGUF file: nothing beside it.
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Map::new(),
                Err(error) => return Err(error.into()),
            };
            Self::parse(&Fields(&json), model)
        };
        read().map_err(|kind| ConfigError { file: file.clone(), kind })
    }

    fn parse(fields: &Fields<'_>, model: &ModelConfig) -> Result<Self, ConfigErrorKind> {
        let eos = fields.token_ids("eos_token_id")?;
        let top_k = match fields.present("top_k") {
            None => None,
            Some(value) => match value.as_u64() {
                Some(k) => Some(k),
                None => return Err(fields.invalid("top_k", "a whole number, 0 for off")),
            },
        };
        Ok(GenerationConfig {
            eos_token_ids: if eos.is_empty() { model.eos_token_ids.clone() } else { eos },
            pad_token_id: fields.token_ids("pad_token_id")?.first().copied().or(model.pad_token_id),
            do_sample: fields.flag("do_sample")?,
            temperature: fields.number("temperature")?,
            top_k,
            top_p: fields.number("top_p")?,
            min_p: fields.number("min_p")?,
            repetition_penalty: fields.number("repetition_penalty")?,
        })
    }
}
