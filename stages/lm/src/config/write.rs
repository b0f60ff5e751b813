//! A configuration back into a `config.json`.

use serde_json::{Map, Value, json};

use super::{Architecture, FloatType, ModelConfig, RopeScaling, parse};

/// Keys of Qwen2 that mean something else, or an error, in a Llama configuration.
const QWEN2_ONLY: [&str; 4] = ["use_sliding_window", "sliding_window", "max_window_layers", "layer_types"];

impl ModelConfig {
    /// The content of a `config.json` for weights stored as `dtype`.
    ///
    /// What was read is kept; only keys whose value has changed since are written anew, so a
    /// configuration that was only read comes out as it was.
    pub fn to_json(&self, dtype: FloatType) -> Map<String, Value> {
        let mut json = self.json.clone();
        let before = parse::parse(self.json.clone()).ok();
        let before = before.as_ref();
        // transformers 4 reads only the older of the two names, transformers 5 both.
        for key in ["torch_dtype", "dtype"] {
            json.insert(key.into(), json!(dtype.torch_name()));
        }
        let mut set = |changed: bool, key: &str, value: Value| {
            if changed {
                json.insert(key.to_string(), value);
            }
        };
        let old = |same: &dyn Fn(&ModelConfig) -> bool| !before.is_some_and(same);

        set(old(&|b| b.vocab_size == self.vocab_size), "vocab_size", json!(self.vocab_size));
        set(old(&|b| b.hidden_size == self.hidden_size), "hidden_size", json!(self.hidden_size));
        let inner = self.intermediate_size;
        set(old(&|b| b.intermediate_size == inner), "intermediate_size", json!(inner));
        set(old(&|b| b.num_layers == self.num_layers), "num_hidden_layers", json!(self.num_layers));
        set(old(&|b| b.num_heads == self.num_heads), "num_attention_heads", json!(self.num_heads));
        set(old(&|b| b.num_kv_heads == self.num_kv_heads), "num_key_value_heads", json!(self.num_kv_heads));
        set(old(&|b| b.head_dim == self.head_dim), "head_dim", json!(self.head_dim));
        set(old(&|b| b.rms_norm_eps == self.rms_norm_eps), "rms_norm_eps", json!(self.rms_norm_eps));
        let context = self.max_position_embeddings;
        set(old(&|b| b.max_position_embeddings == context), "max_position_embeddings", json!(context));
        let tied = self.tie_word_embeddings;
        set(old(&|b| b.tie_word_embeddings == tied), "tie_word_embeddings", json!(tied));
        set(old(&|b| b.bos_token_id == self.bos_token_id), "bos_token_id", json!(self.bos_token_id));
        set(old(&|b| b.pad_token_id == self.pad_token_id), "pad_token_id", json!(self.pad_token_id));
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            list => json!(list),
        };
        set(old(&|b| b.eos_token_ids == self.eos_token_ids), "eos_token_id", eos);

        let architecture = old(&|b| b.architecture == self.architecture);
        set(architecture, "architectures", json!([self.architecture.class_name()]));
        set(architecture, "model_type", json!(self.architecture.model_type()));
        if self.architecture == Architecture::Llama {
            set(
                old(&|b| b.qkv_bias == self.qkv_bias) || architecture,
                "attention_bias",
                json!(self.qkv_bias),
            );
            set(old(&|b| b.mlp_bias == self.mlp_bias) || architecture, "mlp_bias", json!(self.mlp_bias));
        }
        if architecture && self.architecture == Architecture::Llama {
            json.retain(|key, _| !QWEN2_ONLY.contains(&key.as_str()));
        }
        if old(&|b| b.rope == self.rope) {
            self.write_rope(&mut json);
        }
        json
    }

    fn write_rope(&self, json: &mut Map<String, Value>) {
        let scaling = match self.rope.scaling {
            RopeScaling::Default => json!({"rope_type": "default"}),
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => json!({
                "rope_type": "llama3", "factor": factor, "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original_max_position_embeddings,
            }),
        };
        let plain = self.rope.scaling == RopeScaling::Default;
        let mut parameters = scaling.clone();
        parameters["rope_theta"] = json!(self.rope.theta);
        json.insert("rope_theta".into(), json!(self.rope.theta));
        json.insert("rope_scaling".into(), if plain { Value::Null } else { scaling });
        json.insert("rope_parameters".into(), parameters);
    }
}
