//! A `tokenizer.json` out of a GGUF file's metadata.
//!
//! llama.cpp names the pre-tokenizer (`tokenizer.ggml.pre`) instead of storing it; the
//! definitions here are those of the models' own `tokenizer.json` files.

use serde_json::{Map, Value, json};

use crate::checkpoint::{GgufMetadata, GgufValue};

/// `tokenizer.ggml.token_type`, from llama.cpp's `llama_token_type`.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// The content of a `tokenizer.json`, or what is wrong with the metadata.
pub(super) fn tokenizer_json(metadata: &GgufMetadata) -> Result<Value, String> {
    let model =
        metadata.text("tokenizer.ggml.model").ok_or("holds no tokenizer; put a tokenizer.json beside it")?;
    if model != "gpt2" {
        return Err(format!(
            "tokenizer model \"{model}\" is not supported, only byte-level BPE (gpt2); put the \
             original tokenizer.json beside the file"
        ));
    }
    let tokens = texts(metadata, "tokenizer.ggml.tokens")?;
    let merges = texts(metadata, "tokenizer.ggml.merges")?;
    let kinds = metadata.list("tokenizer.ggml.token_type").unwrap_or_default();

    let mut vocab = Map::new();
    let mut added = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        vocab.insert((*token).to_string(), json!(id));
        let kind = match kinds.get(id) {
            Some(GgufValue::Signed(kind)) => u64::try_from(*kind).unwrap_or(0),
            Some(GgufValue::Unsigned(kind)) => *kind,
            _ => 0,
        };
        if kind == CONTROL || kind == USER_DEFINED {
            added.push(json!({
                "id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": kind == CONTROL,
            }));
        }
    }
    let pre = metadata.text("tokenizer.ggml.pre").unwrap_or("default");
    let style = Style::named(pre).ok_or_else(|| {
        format!(
            "pre-tokenizer \"{pre}\" is not supported (gpt-2, smollm, qwen2 and llama-bpe are); put \
             the original tokenizer.json beside the file"
        )
    })?;
    let add_bos = metadata.flag("tokenizer.ggml.add_bos_token").unwrap_or(style.adds_bos);
    Ok(json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": if style.nfc { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": style.pre_tokenizer,
        "post_processor": if add_bos { begin_of_text(metadata, &tokens)? } else { Value::Null },
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": style.ignore_merges, "vocab": vocab, "merges": merges,
        },
    }))
}

fn texts<'a>(metadata: &'a GgufMetadata, key: &str) -> Result<Vec<&'a str>, String> {
    let list = metadata.list(key).ok_or_else(|| format!("metadata has no list `{key}`"))?;
    list.iter()
        .map(|value| match value {
            GgufValue::Text(text) => Ok(text.as_str()),
            _ => Err(format!("metadata `{key}` holds something else than texts")),
        })
        .collect()
}

/// A post-processor that puts the begin-of-text token before every text.
fn begin_of_text(metadata: &GgufMetadata, tokens: &[&str]) -> Result<Value, String> {
    let id = metadata.integer("tokenizer.ggml.bos_token_id");
    let token = id.and_then(|id| tokens.get(usize::try_from(id).ok()?));
    let (Some(id), Some(token)) = (id, token) else {
        return Err("asks for a begin-of-text token but names none in its vocabulary".into());
    };
    let first = json!({"SpecialToken": {"id": token, "type_id": 0}});
    let text = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
    Ok(json!({
        "type": "TemplateProcessing",
        "single": [first, text("A", 0)],
        "pair": [first, text("A", 0), text("B", 1)],
        "special_tokens": {*token: {"id": token, "ids": [id], "tokens": [token]}},
    }))
}

struct Style {
    pre_tokenizer: Value,
    nfc: bool,
    ignore_merges: bool,
    adds_bos: bool,
}

impl Style {
    fn named(pre: &str) -> Option<Self> {
        let byte_level = |use_regex: bool| {
            json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex
            })
        };
        let split = |digits: &str| {
            let pattern = format!(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            );
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                byte_level(false),
            ]})
        };
        let plain =
            |pre_tokenizer| Style { pre_tokenizer, nfc: false, ignore_merges: false, adds_bos: false };
        Some(match pre {
            "gpt-2" | "gpt2" => plain(byte_level(true)),
            "smollm" => plain(json!({"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true},
                byte_level(true),
            ]})),
            "qwen2" => Style { nfc: true, ..plain(split(r"\p{N}")) },
            "llama-bpe" | "llama3" | "llama-v3" => {
                Style { ignore_merges: true, adds_bos: true, ..plain(split(r"\p{N}{1,3}")) }
            }
            _ => return None,
        })
    }
}
