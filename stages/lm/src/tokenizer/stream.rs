//! Text piece by piece, as tokens arrive.

use super::{Tokenizer, TokenizerError};

/// Turns a stream of ids into a stream of text; special tokens are left out.
///
/// A character that is spread over several tokens comes out when it is complete, so what
/// has come out never changes later, and all pieces together are the decoded text.
#[derive(Debug, Clone, Default)]
pub struct TextStream {
    /// Ids from the last border on; the first `shown` of them have come out already and
    /// give the decoder its context.
    window: Vec<u32>,
    shown: usize,
}

impl TextStream {
    /// Adds a token and returns the text that became certain.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String, TokenizerError> {
        self.window.push(id);
        let (before, now) = self.texts(tokenizer)?;
        // The decoder writes U+FFFD for bytes that are not a character yet.
        if now.len() <= before.len() || now.ends_with('\u{FFFD}') {
            return Ok(String::new());
        }
        let piece = now[before.len()..].to_string();
        self.window.drain(..self.shown);
        self.shown = self.window.len();
        Ok(piece)
    }

    /// The text still held back at the end, with U+FFFD for bytes that never completed.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String, TokenizerError> {
        let (before, now) = self.texts(tokenizer)?;
        let piece = now.get(before.len()..).unwrap_or_default().to_string();
        *self = TextStream::default();
        Ok(piece)
    }

    fn texts(&self, tokenizer: &Tokenizer) -> Result<(String, String), TokenizerError> {
        let before = tokenizer.decode(&self.window[..self.shown], true)?;
        Ok((before, tokenizer.decode(&self.window, true)?))
    }
}
