//! One running sequence.

use super::sampling::{Choice, Draw};
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

    /// What decides the next token.
    pub fn draw(&self) -> Draw<'_> {
        let index = (self.tokens.len() - self.prompt_len) as u64;
        Draw { params: self.params, seen: &self.seen, stream: self.stream, index }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        Tokenizer::from_file(&root.join("tests/fixtures/tokenizers/qwen2.json")).unwrap()
    }

    /// Feeds the tokens of `text`, one by one, to a sequence that stops at `stops`.
    fn feed(text: &str, stops: &[&str], limit: usize) -> Sample {
        let tokenizer = tokenizer();
        let params = SamplingParams {
            stop_strings: stops.iter().map(|s| (*s).to_owned()).collect(),
            stop_token_ids: vec![tokenizer.token_id("<|im_end|>").unwrap()],
            ..SamplingParams::default()
        };
        let request = Request { prompt: vec![0], seeds: vec![0], params };
        let mut sequence = Sequence::new(&request, (0, 0), limit);
        for id in tokenizer.encode_with_specials(text).unwrap() {
            let choice = Choice { id, logprob: -1.0, model_logprob: -2.0 };
            if let Some(reason) = sequence.push(choice, Some(&tokenizer)).unwrap() {
                return sequence.finish(reason, Some(&tokenizer)).unwrap();
            }
        }
        panic!("{text:?} did not stop at {stops:?}");
    }

    #[test]
    fn stop_strings_are_found_across_token_borders() {
        let tokenizer = tokenizer();
        let text = "The answer is 357. It's what we'd expect\n\nQuestion: 12 Answer: 40";
        let ids = tokenizer.encode(text).unwrap();
        for (stop, kept) in [
            ("swer is 35", "The an"),
            ("\n\nQuestion:", "The answer is 357. It's what we'd expect"),
            ("e", "Th"),
            ("12 Answer: 4", "The answer is 357. It's what we'd expect\n\nQuestion: "),
        ] {
            let sample = feed(text, &[stop, "not there"], 1000);
            assert_eq!(sample.text, kept);
            assert_eq!(sample.finish, FinishReason::StopString);
            // The ids go on to the token that completed the string, and no further.
            let with = tokenizer.decode(&sample.ids, true).unwrap();
            assert!(with.contains(stop), "{with:?}");
            let before = tokenizer.decode(&ids[..sample.ids.len() - 1], true).unwrap();
            assert!(!before.contains(stop), "{before:?}");
            assert_eq!(sample.logprobs.len(), sample.ids.len());
        }
        // The stop string spans several tokens somewhere above.
        assert!(tokenizer.encode("swer is 35").unwrap().len() > 1);
    }

    #[test]
    fn the_earliest_of_several_stop_strings_cuts() {
        let sample = feed("The answer is 357. It's", &["357", "is 357", "7"], 1000);
        assert_eq!(sample.text, "The answer ");
    }

    #[test]
    fn characters_over_several_tokens_are_whole_in_the_text() {
        let text = "naïve 🧑‍🚀 done<|im_end|>";
        let sample = feed(text, &["🚀x"], 1000);
        assert_eq!(sample.text, "naïve 🧑‍🚀 done");
        assert_eq!(sample.finish, FinishReason::StopToken);
        assert_eq!(feed(text, &["🚀"], 1000).text, "naïve 🧑‍");
    }

    #[test]
    fn the_limit_may_cut_a_character() {
        let tokenizer = tokenizer();
        let bytes = tokenizer.encode("🧑").unwrap().len();
        assert!(bytes > 1);
        let sample = feed("🧑🧑", &[], 1);
        assert_eq!((sample.text.as_str(), sample.finish), ("\u{FFFD}", FinishReason::Length));
    }
}
