//! Text to token ids and back.
//!
//! A special token (`<|im_end|>`) that a *user's* text spells is encoded as the plain
//! characters; only what a template wrote becomes the token. [`Tokenizer::encode`] is for
//! user text, [`Tokenizer::encode_with_specials`] for template-made text, and
//! [`Tokenizer::guard`] for the mixture of both that a chat template renders.
//!
//! - `stream`: text piece by piece, as generation goes on.

mod stream;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use self::stream::TextStream;
use crate::checkpoint::{Checkpoint, gguf_tokenizer};

/// A tokenizer that cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is missing, damaged or of a kind that is not supported.
    #[error("{}: {detail}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong and what to do.
        detail: String,
    },
    /// The text cannot be encoded or the ids cannot be decoded.
    #[error("tokenizer: {0}")]
    Use(String),
}

impl TokenizerError {
    fn file(file: &Path, detail: impl ToString) -> Self {
        TokenizerError::File { file: file.to_path_buf(), detail: detail.to_string() }
    }
}

/// A special token as it is found in template-made text.
#[derive(Debug, Clone)]
struct Special {
    text: String,
    id: u32,
    /// Swallows white space to its left.
    lstrip: bool,
    /// Swallows white space to its right.
    rstrip: bool,
}

/// A tokenizer with its special tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    /// Encodes special tokens as plain text.
    inner: tokenizers::Tokenizer,
    /// Longest first, so that the longest match wins.
    specials: Vec<Special>,
    special_ids: HashSet<u32>,
    /// Ids put before a text that no template wrote (Llama 3: the begin-of-text token).
    prefix: Vec<u32>,
}

impl Tokenizer {
    /// The tokenizer of a model: `tokenizer.json` in its folder, or a GGUF file's metadata.
    pub fn open(model: &Path) -> Result<Self, TokenizerError> {
        let file = model.join("tokenizer.json");
        if file.is_file() {
            return Self::from_file(&file);
        }
        let checkpoint = Checkpoint::open(model).map_err(|error| TokenizerError::file(model, error))?;
        Self::for_checkpoint(&checkpoint)
    }

    /// The tokenizer that belongs to an opened checkpoint.
    pub fn for_checkpoint(checkpoint: &Checkpoint) -> Result<Self, TokenizerError> {
        match checkpoint.gguf() {
            None => Self::from_file(&checkpoint.path().join("tokenizer.json")),
            Some(metadata) => {
                let beside = checkpoint.path().with_file_name("tokenizer.json");
                if beside.is_file() {
                    return Self::from_file(&beside);
                }
                let json = gguf_tokenizer::tokenizer_json(metadata)
                    .map_err(|detail| TokenizerError::file(&metadata.file, detail))?;
                Self::from_json(&json, &metadata.file)
            }
        }
    }

    /// Reads a `tokenizer.json`.
    pub fn from_file(file: &Path) -> Result<Self, TokenizerError> {
        let bytes = std::fs::read(file).map_err(|error| {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            let remedy = if missing { "; copy it from the original model" } else { "" };
            TokenizerError::file(file, format!("{error}{remedy}"))
        })?;
        let inner =
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| TokenizerError::file(file, error))?;
        Self::new(inner, file)
    }

    fn from_json(json: &Value, file: &Path) -> Result<Self, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_bytes(json.to_string())
            .map_err(|error| TokenizerError::file(file, error))?;
        Self::new(inner, file)
    }

    fn new(mut inner: tokenizers::Tokenizer, file: &Path) -> Result<Self, TokenizerError> {
        let mut specials = Vec::new();
        for (id, token) in inner.get_added_tokens_decoder() {
            if !token.special || token.content.is_empty() {
                continue;
            }
            if token.single_word {
                let detail = format!(
                    "special token {:?} matches whole words only, which is not supported",
                    token.content
                );
                return Err(TokenizerError::file(file, detail));
            }
            let (lstrip, rstrip) = (token.lstrip, token.rstrip);
            specials.push(Special { text: token.content, id, lstrip, rstrip });
        }
        specials.sort_by(|a, b| (b.text.len(), &a.text).cmp(&(a.text.len(), &b.text)));
        let special_ids = specials.iter().map(|special| special.id).collect();

        // What the post-processor puts before any text.
        let ids = |bare: bool| {
            let encoding = inner.encode_fast("a", bare).map_err(|e| TokenizerError::file(file, e))?;
            Ok::<_, TokenizerError>(encoding.get_ids().to_vec())
        };
        let (with, without) = (ids(true)?, ids(false)?);
        let at = with.windows(without.len().max(1)).position(|window| window == without);
        let prefix = with[..at.unwrap_or(0)].to_vec();

        inner.set_encode_special_tokens(true);
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| TokenizerError::file(file, e))?;
        Ok(Tokenizer { inner, specials, special_ids, prefix })
    }

    /// Encodes a user's text; special tokens that it spells become plain characters.
    /// No begin-of-text token is added, see [`Tokenizer::prefix`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, false).map_err(|e| TokenizerError::Use(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes text that a template made; special tokens in it become their ids.
    pub fn encode_with_specials(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_pieces(text, |piece| self.encode(piece))
    }

    /// Ids that the tokenizer puts before a text that no template wrote.
    pub fn prefix(&self) -> &[u32] {
        &self.prefix
    }

    /// Protects users' texts on their way through a template; see [`Guard`].
    ///
    /// `texts` are all texts that the template will see.
    pub fn guard(&self, texts: &[&str]) -> Result<Guard<'_>, TokenizerError> {
        // Unicode's noncharacters: no text that means anything holds them.
        let mark = ('\u{FDD0}'..='\u{FDEF}').find(|mark| texts.iter().all(|text| !text.contains(*mark)));
        match mark {
            Some(mark) => Ok(Guard { tokenizer: self, mark }),
            None => Err(TokenizerError::Use("a prompt uses every Unicode noncharacter".into())),
        }
    }

    /// Decodes ids; special tokens are left out if asked.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        self.inner.decode(ids, skip_special).map_err(|e| TokenizerError::Use(e.to_string()))
    }

    /// The id of a token, spelled as in the vocabulary.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The spelling of a token in the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether an id is a special token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special_ids.contains(&id)
    }

    /// One past the highest id; a model's logits may have more rows than this.
    pub fn vocab_size(&self) -> usize {
        let top = self.inner.get_added_tokens_decoder().keys().max().map_or(0, |id| *id as usize + 1);
        top.max(self.inner.get_vocab_size(false))
    }

    /// Splits at special tokens, longest match first, as `tokenizers` does.
    fn encode_pieces(
        &self,
        text: &str,
        encode: impl Fn(&str) -> Result<Vec<u32>, TokenizerError>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut start = 0;
        while let Some((at, special)) = self.find_special(text, start) {
            let before = &text[start..at];
            let before = if special.lstrip { before.trim_end() } else { before };
            if !before.is_empty() {
                ids.extend(encode(before)?);
            }
            ids.push(special.id);
            start = at + special.text.len();
            if special.rstrip {
                start = text.len() - text[start..].trim_start().len();
            }
        }
        if start < text.len() {
            ids.extend(encode(&text[start..])?);
        }
        Ok(ids)
    }

    fn find_special(&self, text: &str, start: usize) -> Option<(usize, &Special)> {
        text[start..].char_indices().find_map(|(offset, _)| {
            let at = start + offset;
            let special = self.specials.iter().find(|special| text[at..].starts_with(&special.text))?;
            Some((at, special))
        })
    }
}

/// Keeps users' texts apart from a template's own while both pass through it.
///
/// [`Guard::protect`] puts a mark inside every special token that a user's text spells, so
/// that the rendered text holds only the template's own; [`Guard::encode`] finds those and
/// removes the marks. Where a text spells none, nothing changes.
#[derive(Debug)]
pub struct Guard<'a> {
    tokenizer: &'a Tokenizer,
    mark: char,
}

impl Guard<'_> {
    /// A user's text with every special token in it broken by a mark.
    pub fn protect(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut start = 0;
        while let Some((at, special)) = self.tokenizer.find_special(text, start) {
            let first = special.text.chars().next().map_or(0, char::len_utf8);
            out.push_str(&text[start..at + first]);
            out.push(self.mark);
            start = at + first;
        }
        out.push_str(&text[start..]);
        out
    }

    /// The rendered text without marks, for people to read.
    pub fn reveal(&self, rendered: &str) -> String {
        rendered.replace(self.mark, "")
    }

    /// Encodes the rendered text: the template's special tokens as ids, the rest as text.
    pub fn encode(&self, rendered: &str) -> Result<Vec<u32>, TokenizerError> {
        self.tokenizer.encode_pieces(rendered, |piece| self.tokenizer.encode(&self.reveal(piece)))
    }
}
