//! One running sequence.

use super::sampling::Choice;
use super::{FinishReason, GenerateError, Request, Sample, SamplingParams};
use crate::rng::Stream;
use crate::tokenizer::{TextStream, Tokenizer};

/// A sample on its way.
pub(super) struct Sequence<'a> {
    /// Index of the request, and of the sample within it.
    pub request: usize,
    pub sample: usize,
    pub slot: usize,
    pub params: &'a SamplingParams,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    pub prompt_len: usize,
    /// Tokens whose keys and values are in the cache.
    pub computed: usize,
    /// Tokens to generate at most.
    limit: usize,
    /// Distinct tokens so far, where the repetition penalty asks for them.
    pub seen: Vec<u32>,
    stream: Stream,
    text: String,
    text_stream: TextStream,
    logprobs: Vec<f32>,
    model_logprobs: Vec<f32>,
}

impl<'a> Sequence<'a> {
    pub fn new(request: &'a Request, place: (usize, usize), limit: usize) -> Self {
        let mut seen = Vec::new();
        if request.params.repetition_penalty != 1.0 {
            seen = request.prompt.clone();
            seen.sort_unstable();
            seen.dedup();
        }
        Self {
            request: place.0,
            sample: place.1,
            slot: 0,
            params: &request.params,
            tokens: request.prompt.clone(),
            prompt_len: request.prompt.len(),
            computed: 0,
            limit,
            seen,
            stream: Stream::new(request.seeds[place.1], 0),
            text: String::new(),
            text_stream: TextStream::default(),
            logprobs: Vec::new(),
            model_logprobs: Vec::new(),
        }
    }

    /// Tokens that are not in the cache yet: the rest of the prompt, or the token chosen last.
    pub fn pending(&self) -> &[u32] {
        &self.tokens[self.computed..]
    }

    pub fn is_decoding(&self) -> bool {
        self.tokens.len() > self.prompt_len
    }

    /// The uniform number that decides the next token.
    pub fn uniform(&self) -> f64 {
        self.stream.uniform((self.tokens.len() - self.prompt_len) as u64)
    }

    /// Appends a chosen token; says why the sample ends with it, if it does.
    pub fn push(
        &mut self,
        choice: Choice,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Option<FinishReason>, GenerateError> {
        self.tokens.push(choice.id);
        self.logprobs.push(choice.logprob);
        self.model_logprobs.push(choice.model_logprob);
        if self.params.repetition_penalty != 1.0 && !self.seen.contains(&choice.id) {
            self.seen.push(choice.id);
        }
        if self.params.stop_token_ids.contains(&choice.id) {
            return Ok(Some(FinishReason::StopToken));
        }
        if let Some(tokenizer) = tokenizer {
            let piece = self.text_stream.push(tokenizer, choice.id)?;
            if self.append(&piece) {
                return Ok(Some(FinishReason::StopString));
            }
        }
        let generated = self.tokens.len() - self.prompt_len;
        Ok((generated >= self.limit).then_some(FinishReason::Length))
    }

    /// Appends text; cuts it at the earliest stop string and says whether there was one.
    fn append(&mut self, piece: &str) -> bool {
        let before = self.text.len();
        self.text.push_str(piece);
        let found = self.params.stop_strings.iter().filter_map(|stop| {
            // A stop string that ends in the new piece begins at most its own length before it.
            let mut from = before.saturating_sub(stop.len());
            while !self.text.is_char_boundary(from) {
                from -= 1;
            }
            self.text[from..].find(stop.as_str()).map(|at| from + at)
        });
        let Some(cut) = found.min() else { return false };
        self.text.truncate(cut);
        true
    }

    /// The finished sample.
    pub fn finish(
        mut self,
        mut finish: FinishReason,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Sample, GenerateError> {
        if let (Some(tokenizer), true) = (tokenizer, finish != FinishReason::StopString) {
            let rest = self.text_stream.finish(tokenizer)?;
            if self.append(&rest) {
                finish = FinishReason::StopString;
            }
        }
        Ok(Sample {
            ids: self.tokens.split_off(self.prompt_len),
            text: self.text,
            logprobs: self.logprobs,
            model_logprobs: self.model_logprobs,
            finish,
        })
    }
}
