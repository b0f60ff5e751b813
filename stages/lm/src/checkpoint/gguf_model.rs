//! A GGUF file as a Hugging Face model: tensor names, row order, configuration.
//!
//! The maps follow llama.cpp's `gguf-py/gguf/tensor_mapping.py` and
//! `convert_hf_to_gguf.py`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::CheckpointError;
use super::convert::{self, Stored};
use super::gguf::{Entry, Metadata};
use crate::config::{Architecture, ModelConfig};

/// Llama 3.1's published constants; llama.cpp stores only the resulting factors.
const LLAMA3_LOW: f64 = 1.0;
const LLAMA3_HIGH: f64 = 4.0;
const LLAMA3_ORIGINAL: f64 = 8192.0;

/// The Hugging Face name of a llama.cpp tensor, if the model families here have it.
pub(super) fn tensor_name(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some("model.embed_tokens.weight".into()),
        "output_norm.weight" => return Some("model.norm.weight".into()),
        "output.weight" => return Some("lm_head.weight".into()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let (part, kind) = rest.split_once('.')?;
    let part = match part {
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        _ => return None,
    };
    matches!(kind, "weight" | "bias").then(|| format!("model.layers.{layer}.{part}.{kind}"))
}

/// Heads of a q or k projection whose rows the converter interleaved: the llama family's only.
pub(super) fn interleaved_heads(config: &ModelConfig, name: &str) -> Option<usize> {
    if config.architecture != Architecture::Llama {
        return None;
    }
    if name.contains(".self_attn.q_proj.") {
        Some(config.num_heads)
    } else if name.contains(".self_attn.k_proj.") {
        Some(config.num_kv_heads)
    } else {
        None
    }
}

/// The configuration that the file's metadata and tensor list describe.
pub(super) fn config(
    metadata: &Metadata,
    entries: &[Entry],
    bytes: &[u8],
) -> Result<ModelConfig, CheckpointError> {
    let file = metadata.file.as_path();
    let missing = |key: &str| CheckpointError::header(file, format!("metadata has no usable `{key}`"));
    let arch = metadata.text("general.architecture").ok_or_else(|| missing("general.architecture"))?;
    let class = match arch {
        "llama" => "LlamaForCausalLM",
        "qwen2" => "Qwen2ForCausalLM",
        other => {
            let detail = format!("architecture \"{other}\" is not supported; supported are llama and qwen2");
            return Err(CheckpointError::header(file, detail));
        }
    };
    if let Some(parts) = metadata.integer("split.count").filter(|parts| *parts > 1) {
        let detail = format!(
            "is one of {parts} parts; join them with llama.cpp's `llama-gguf-split --merge`, or use the safetensors \
             checkpoint"
        );
        return Err(CheckpointError::header(file, detail));
    }
    let key = |name: &str| format!("{arch}.{name}");
    let integer = |name: &str| metadata.integer(&key(name)).ok_or_else(|| missing(&key(name)));
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let embedding = entries
        .iter()
        .find(|entry| entry.name == "token_embd.weight")
        .and_then(|entry| entry.shape.first())
        .ok_or_else(|| CheckpointError::tensor(file, "token_embd.weight", "is missing"))?;

    let heads = integer("attention.head_count")?;
    let hidden = integer("embedding_length")?;
    let mut map = Map::new();
    let mut set = |name: &str, value: Value| map.insert(name.to_string(), value);
    set("architectures", json!([class]));
    set("model_type", json!(arch));
    set("vocab_size", json!(embedding));
    set("hidden_size", json!(hidden));
    set("intermediate_size", json!(integer("feed_forward_length")?));
    set("num_hidden_layers", json!(integer("block_count")?));
    set("num_attention_heads", json!(heads));
    set("num_key_value_heads", json!(metadata.integer(&key("attention.head_count_kv")).unwrap_or(heads)));
    if let Some(width) = metadata.integer(&key("attention.key_length")) {
        if metadata.integer(&key("attention.value_length")).is_some_and(|v| v != width) {
            return Err(CheckpointError::header(
                file,
                "keys and values of different widths are not supported",
            ));
        }
        set("head_dim", json!(width));
    }
    set("rms_norm_eps", json!(metadata.number(&key("attention.layer_norm_rms_epsilon"))));
    set("max_position_embeddings", json!(integer("context_length")?));
    set("tie_word_embeddings", json!(!has("output.weight")));
    set("hidden_act", json!("silu"));
    if arch == "llama" {
        set("attention_bias", json!(has("blk.0.attn_q.bias")));
        set("mlp_bias", json!(has("blk.0.ffn_down.bias")));
    }
    // Refused by name when the configuration is parsed.
    let width = metadata.integer(&key("attention.key_length")).or(hidden.checked_div(heads));
    let rotated = metadata.integer(&key("rope.dimension_count"));
    if let (Some(rotated), Some(width)) = (rotated, width)
        && rotated != width
    {
        set("partial_rotary_factor", json!(rotated as f64 / width as f64));
    }
    if let Some(window) = metadata.integer(&key("attention.sliding_window")).filter(|window| *window > 0) {
        set("sliding_window", json!(window));
        set("use_sliding_window", json!(true));
        set("max_window_layers", json!(0));
    }
    if let Some(experts) = metadata.integer(&key("expert_count")) {
        set("num_experts", json!(experts));
    }
    let rope = rope(metadata, &key, entries, bytes)?;
    // As transformers 4 reads it as well, which ignores the newer key.
    set("rope_theta", rope["rope_theta"].clone());
    if rope["rope_type"] != "default" {
        set("rope_scaling", rope.clone());
    }
    set("rope_parameters", rope);
    for (ours, theirs) in [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")] {
        set(ours, json!(metadata.integer(&format!("tokenizer.ggml.{theirs}_token_id"))));
    }
    set("dtype", json!("float32"));
    Ok(ModelConfig::from_json(map, file)?)
}

fn rope(
    metadata: &Metadata,
    key: &dyn Fn(&str) -> String,
    entries: &[Entry],
    bytes: &[u8],
) -> Result<Value, CheckpointError> {
    let theta = metadata.number(&key("rope.freq_base"));
    if let Some(factors) = entries.iter().find(|entry| entry.name == "rope_freqs.weight") {
        return llama3_rope(metadata, theta, factors, bytes);
    }
    let factor = metadata.number(&key("rope.scaling.factor")).or(metadata.number(&key("rope.scale_linear")));
    Ok(match metadata.text(&key("rope.scaling.type")) {
        Some("none") => json!({"rope_type": "default", "rope_theta": theta}),
        None if factor.is_none_or(|f| f == 1.0) => {
            json!({"rope_type": "default", "rope_theta": theta})
        }
        None | Some("linear") => {
            json!({"rope_type": "linear", "rope_theta": theta, "factor": factor})
        }
        // Refused by name when the configuration is parsed.
        Some(other) => json!({"rope_type": other, "rope_theta": theta}),
    })
}

/// Llama 3's scaling from the divisors of each frequency that the converter precomputed.
///
/// The parameters are Llama 3.1's own; the divisors that they give must be the file's.
fn llama3_rope(
    metadata: &Metadata,
    theta: Option<f64>,
    entry: &Entry,
    bytes: &[u8],
) -> Result<Value, CheckpointError> {
    let stored = Stored { bytes: &bytes[entry.range.clone()], format: entry.format, interleaved: None };
    let factors = convert::to_vec::<f32>(stored);
    let factor = factors.iter().fold(1.0f64, |max, f| max.max(f64::from(*f)));
    let base = theta.unwrap_or(f64::NAN);
    let dim = 2.0 * factors.len() as f64;
    let agree = factors.iter().enumerate().all(|(i, found)| {
        let wavelength = 2.0 * std::f64::consts::PI * base.powf(2.0 * i as f64 / dim);
        let expected = if wavelength < LLAMA3_ORIGINAL / LLAMA3_HIGH {
            1.0
        } else if wavelength > LLAMA3_ORIGINAL / LLAMA3_LOW {
            factor
        } else {
            let smooth = (LLAMA3_ORIGINAL / wavelength - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
            1.0 / ((1.0 - smooth) / factor + smooth)
        };
        (f64::from(*found) - expected).abs() <= 1e-4 * expected
    });
    if !agree {
        let detail = "holds rotary factors other than Llama 3's; use the safetensors checkpoint";
        return Err(CheckpointError::tensor(&metadata.file, &entry.name, detail));
    }
    Ok(json!({
        "rope_type": "llama3", "rope_theta": theta, "factor": factor,
        "low_freq_factor": LLAMA3_LOW, "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_ORIGINAL as u64,
    }))
}

/// The single `.gguf` file of a folder.
pub(super) fn find_in_folder(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    let entries = std::fs::read_dir(folder).map_err(|e| CheckpointError::io(folder, e))?;
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")))
        .collect();
    found.sort();
    match found.len() {
        0 => Ok(None),
        1 => Ok(found.pop()),
        n => Err(CheckpointError::NotACheckpoint {
            path: folder.to_path_buf(),
            detail: format!("holds {n} .gguf files; name one of them"),
        }),
    }
}
