//! What is asked of the engine and what it gives back.

use serde::{Deserialize, Serialize};

use crate::tokenizer::TokenizerError;

/// How tokens are chosen and when to stop. The transformations are applied in the order of
/// `transformers`' `generate`: repetition penalty, temperature, top-k, top-p, min-p.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    /// Divides the logits; 0 means greedy decoding.
    pub temperature: f32,
    /// Keeps the k likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set of likeliest tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Drops tokens less likely than this share of the likeliest one; 0 drops none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that the prompt or the sample
    /// already holds (Keskar et al. 2019); 1 does nothing.
    pub repetition_penalty: f32,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Tokens that end the sample. The one that did is the last of [`Sample::ids`]; it is not in the
    /// text.
    pub stop_token_ids: Vec<u32>,
    /// Strings that end the sample wherever they appear in its text, across token borders too. The
    /// text ends before the string.
    pub stop_strings: Vec<String>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_tokens: 512,
            stop_token_ids: Vec::new(),
            stop_strings: Vec::new(),
        }
    }
}

impl SamplingParams {
    /// Greedy decoding of up to `max_tokens` tokens.
    pub fn greedy(max_tokens: usize) -> Self {
        Self { temperature: 0.0, max_tokens, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), GenerateError> {
        let invalid = |name: &'static str, value: f32, expected: &'static str| {
            Err(GenerateError::Parameter { name, value: value.to_string(), expected })
        };
        // Dividing by less overflows f32, and a token that nobody asked for would be drawn.
        if self.temperature != 0.0 && !(self.temperature >= 1e-6 && self.temperature.is_finite()) {
            return invalid("temperature", self.temperature, "0 (greedy) or a number from 0.000001");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return invalid("top_p", self.top_p, "a number above 0 and up to 1 (keep all)");
        }
        if !(0.0..1.0).contains(&self.min_p) {
            return invalid("min_p", self.min_p, "a number from 0 (keep all) to below 1");
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return invalid("repetition_penalty", self.repetition_penalty, "a positive number, 1 for none");
        }
        if self.max_tokens == 0 {
            return invalid("max_tokens", 0.0, "at least 1");
        }
        if self.stop_strings.iter().any(String::is_empty) {
            return Err(GenerateError::Parameter {
                name: "stop_strings",
                value: "\"\"".into(),
                expected: "strings of at least one character",
            });
        }
        Ok(())
    }
}

/// One prompt and the samples wanted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// One seed per sample wanted. The prompt is computed once for all of them.
    pub seeds: Vec<u64>,
    /// How to sample.
    pub params: SamplingParams,
}

/// Why a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// One of the stop tokens.
    StopToken,
    /// One of the stop strings.
    StopString,
    /// [`SamplingParams::max_tokens`], or what the context limit left of it.
    Length,
}

/// One generated continuation.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The generated ids, the stop token included.
    pub ids: Vec<u32>,
    /// Their text, without special tokens, up to a stop string. Empty without a tokenizer.
    pub text: String,
    /// Per token, its log-probability (nats) under the distribution it was drawn from, after every
    /// transformation. Greedy decoding draws from a point mass: 0.
    pub logprobs: Vec<f32>,
    /// Per token, its log-probability (nats) under the model at temperature 1, untransformed.
    pub model_logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// What to do with a request whose prompt and `max_tokens` exceed the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextPolicy {
    /// An error before anything is generated.
    #[default]
    Refuse,
    /// Generate as many tokens as fit, and count such requests in the statistics.
    Clip,
}

/// Why generation did not start or did not end.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A sampling parameter out of range.
    #[error("sampling parameter `{name}` is {value}; it must be {expected}")]
    Parameter {
        /// Which parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A prompt without a token.
    #[error("request {request} has an empty prompt; give it at least one token")]
    EmptyPrompt {
        /// Index of the request.
        request: usize,
    },
    /// A prompt with an id the model does not have.
    #[error(
        "request {request} holds token {token}, but the model has {vocab} tokens; encode it with the model's own tokenizer"
    )]
    UnknownToken {
        /// Index of the request.
        request: usize,
        /// The id.
        token: u32,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// Prompt and new tokens do not fit the context.
    #[error(
        "request {request}: {prompt} prompt tokens and max_tokens {max_tokens} exceed the context of {context}; lower max_tokens, shorten the prompt, or clip what does not fit"
    )]
    Context {
        /// Index of the request.
        request: usize,
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens asked for.
        max_tokens: usize,
        /// Tokens that fit.
        context: usize,
    },
    /// The cache budget does not hold one sequence.
    #[error(
        "the cache budget of {budget} bytes does not hold one sequence of {tokens} tokens ({needed} bytes); raise it or lower max_tokens"
    )]
    CacheBudget {
        /// Bytes allowed.
        budget: u64,
        /// Bytes of one sequence.
        needed: u64,
        /// Its tokens.
        tokens: usize,
    },
    /// Stop strings without a tokenizer.
    #[error("stop strings need a tokenizer; give the engine the model's, or use stop tokens")]
    NoTokenizer,
    /// The model computed something that is no number.
    #[error(
        "the model's logits are not finite after {tokens} tokens of request {request}; the weights or the adapter are damaged or diverged"
    )]
    NotFinite {
        /// Index of the request.
        request: usize,
        /// Tokens before, prompt included.
        tokens: usize,
    },
    /// The device failed: out of memory, or a fault.
    #[error("the device failed: {0}")]
    Device(String),
    /// Ids could not be decoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The caller asked to stop; finished samples have been reported.
    #[error("generation was stopped")]
    Stopped,
}

impl GenerateError {
    /// Whether the requests were at fault, rather than the model or the device.
    pub fn is_of_the_request(&self) -> bool {
        matches!(
            self,
            Self::Parameter { .. }
                | Self::EmptyPrompt { .. }
                | Self::UnknownToken { .. }
                | Self::Context { .. }
                | Self::CacheBudget { .. }
                | Self::NoTokenizer
        )
    }
}
