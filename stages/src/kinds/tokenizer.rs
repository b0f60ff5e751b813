//! `tokenizer`: a small byte-level BPE tokenizer learnt from JSON lines.

use std::fs;
use std::path::Path;

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, Tokenizer as Bpe};

use crate::samples::read_lines;

/// The token that ends a document and fills padding.
const END_OF_TEXT: &str = "<|endoftext|>";
/// The tokens that frame a ChatML turn, as Qwen2 has them.
const TURN: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
/// ChatML without a default system turn.
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' \
    + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Learns a byte-level BPE tokenizer from text fields of JSON lines.
///
/// Writes `tokenizer.json` and `tokenizer_config.json` as `transformers` reads them, with
/// `<|endoftext|>` (end and padding) and the ChatML turn tokens as special tokens. Every digit is
/// a token of its own, so that numbers of any length are spelled alike.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    /// The JSON lines to learn from.
    pub data: Input,
    /// Names of the text fields that are read.
    #[serde(default = "default_fields")]
    pub fields: Vec<String>,
    /// Number of tokens in all: at least 259 (256 bytes and three special tokens).
    #[serde(default = "default_vocab_size")]
    pub vocab_size: usize,
    /// Longest text in tokens that the tokenizer's configuration states.
    #[serde(default = "default_max_length")]
    pub max_length: usize,
}

fn default_fields() -> Vec<String> {
    vec!["problem".into(), "solution".into()]
}

fn default_vocab_size() -> usize {
    512
}

fn default_max_length() -> usize {
    1024
}

impl Stage for Tokenizer {
    const KIND: &'static str = "tokenizer";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        vec!["tokenizer.json".into(), "tokenizer_config.json".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        if self.vocab_size < 259 {
            problems.push(ParamProblem {
                param: "vocab_size".into(),
                message: format!("{} tokens cannot hold all bytes and the special tokens", self.vocab_size),
                help: "use 259 or more".into(),
            });
        }
        if self.max_length == 0 {
            problems.push(ParamProblem {
                param: "max_length".into(),
                message: "0 tokens hold no text".into(),
                help: "write 1 or more, such as 1024".into(),
            });
        }
        if self.fields.is_empty() {
            problems.push(ParamProblem {
                param: "fields".into(),
                message: "no field to learn from".into(),
                help: "name at least one text field, for example [\"problem\", \"solution\"]".into(),
            });
        }
        problems
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let path = ctx.input(&self.data)?;
        let rows: Vec<Map<String, Value>> = read_lines(&path, "train.jsonl")?;
        let texts = texts(&rows, &self.fields, &path)?;
        let bpe = learn(texts, self.vocab_size)
            .map_err(|error| StageError::input(format!("{}: {error}", path.display())))?;
        let file = ctx.out().join("tokenizer.json");
        bpe.save(&file, true)
            .map_err(|error| StageError::environment(format!("{}: {error}", file.display())))?;
        let config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": null,
            "eos_token": END_OF_TEXT,
            "pad_token": END_OF_TEXT,
            "unk_token": null,
            "additional_special_tokens": TURN,
            "model_max_length": self.max_length,
            "clean_up_tokenization_spaces": false,
            "chat_template": CHAT_TEMPLATE,
        });
        let file = ctx.out().join("tokenizer_config.json");
        fs::write(&file, format!("{config:#}\n")).map_err(|error| StageError::io(&file, error))
    }
}

fn texts<'a>(
    rows: &'a [Map<String, Value>],
    fields: &[String],
    path: &Path,
) -> Result<Vec<&'a str>, StageError> {
    let mut texts = Vec::with_capacity(rows.len() * fields.len());
    for (number, row) in rows.iter().enumerate() {
        for field in fields {
            let text = row.get(field).and_then(Value::as_str).ok_or_else(|| {
                let place = format!("{}: row {}", path.display(), number + 1);
                StageError::input(format!("{place} has no text field `{field}`"))
                    .with_help("name the fields that hold text in `fields`")
            })?;
            texts.push(text);
        }
    }
    if texts.is_empty() {
        return Err(StageError::input(format!("{}: no rows to learn from", path.display())));
    }
    Ok(texts)
}

fn learn(texts: Vec<&str>, vocab_size: usize) -> tokenizers::Result<Bpe> {
    let special: Vec<AddedToken> =
        std::iter::once(END_OF_TEXT).chain(TURN).map(|token| AddedToken::from(token, true)).collect();
    let trainer = BpeTrainer::builder()
        .vocab_size(vocab_size)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special)
        .build();
    let mut bpe = Bpe::new(BPE::default());
    let steps: Vec<PreTokenizerWrapper> =
        vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
    bpe.with_pre_tokenizer(Some(Sequence::new(steps)));
    bpe.with_decoder(Some(ByteLevel::default()));
    bpe.train(&mut TrainerWrapper::from(trainer), texts.into_iter())?;
    Ok(bpe)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn run(lines: &str, vocab_size: usize) -> (tempfile::TempDir, Result<(), StageError>) {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("train.jsonl");
        fs::write(&data, lines).unwrap();
        let stage = Tokenizer {
            data: Input::new("./train.jsonl"),
            fields: default_fields(),
            vocab_size,
            max_length: 64,
        };
        let ctx =
            StageCtx::detached(dir.path(), dir.path(), BTreeMap::from([("./train.jsonl".into(), data)]));
        let result = stage.run(&ctx);
        (dir, result)
    }

    #[test]
    fn digits_stay_single_and_any_text_survives() {
        let line = r#"{"problem":"Tom has 123 apples.","solution":"Tom has 123."}"#;
        let (dir, result) = run(&[line; 20].join("\n"), 300);
        result.unwrap();
        let bpe = Bpe::from_file(dir.path().join("tokenizer.json")).unwrap();
        let tokens = bpe.encode("Tom has 1234", false).unwrap();
        assert_eq!(&tokens.get_tokens()[tokens.len() - 4..], ["1", "2", "3", "4"]);
        let odd = "naïve Ωmega 🙂\n\ttabs 007";
        let ids = bpe.encode(odd, false).unwrap();
        assert_eq!(bpe.decode(ids.get_ids(), false).unwrap(), odd);
        assert_eq!(bpe.token_to_id(END_OF_TEXT), Some(0));
        assert!(bpe.get_vocab_size(true) <= 300);
    }

    #[test]
    fn the_same_text_gives_the_same_bytes() {
        let lines: Vec<String> =
            (0..50).map(|n| format!(r#"{{"problem":"word{n} and {n} more","solution":"ab{n}"}}"#)).collect();
        let bytes = || fs::read(run(&lines.join("\n"), 280).0.path().join("tokenizer.json")).unwrap();
        assert_eq!(bytes(), bytes());
    }

    #[test]
    fn a_missing_field_names_row_and_remedy() {
        let (_dir, result) = run(r#"{"problem":"x"}"#, 300);
        let error = result.unwrap_err();
        assert!(error.message.contains("row 1 has no text field `solution`"), "{error}");
        assert!(error.help.is_some());
    }
}
