//! Reads the keys of a `config.json` and refuses what this crate does not compute.

use serde_json::{Map, Value};

use super::{Architecture, ConfigErrorKind, FloatType, ModelConfig, Rope, RopeScaling};

/// No dimension of a model is larger than this; a larger one is a damaged file.
const MAX_DIMENSION: u64 = 1 << 28;
/// No supported model has more layers; bounds what a hostile `config.json` makes us list.
const MAX_LAYERS: u64 = 4096;

type Kind<T> = Result<T, ConfigErrorKind>;

/// The configuration in a `config.json`'s content.
pub(super) fn parse(json: Map<String, Value>) -> Kind<ModelConfig> {
    let fields = Fields(&json);
    let architecture = architecture(&fields)?;
    refuse_unsupported(&fields)?;

    let num_layers = fields.size("num_hidden_layers")?;
    if num_layers as u64 > MAX_LAYERS {
        return Err(fields.invalid("num_hidden_layers", "at most 4096 layers"));
    }
    refuse_sliding_window(&fields, architecture, num_layers)?;
    let hidden_size = fields.size("hidden_size")?;
    let num_heads = fields.size("num_attention_heads")?;
    let num_kv_heads = match (fields.present("num_key_value_heads"), architecture) {
        (None, Architecture::Llama) => num_heads,
        _ => fields.size("num_key_value_heads")?,
    };
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(
            fields.invalid("num_key_value_heads", &format!("a divisor of num_attention_heads ({num_heads})"))
        );
    }
    let head_dim = match fields.present("head_dim") {
        Some(_) => fields.size("head_dim")?,
        None if hidden_size.is_multiple_of(num_heads) => hidden_size / num_heads,
        None => {
            return Err(fields.invalid(
                "hidden_size",
                &format!("a multiple of num_attention_heads ({num_heads}), or a `head_dim`"),
            ));
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(ConfigErrorKind::Invalid {
            key: "head_dim".into(),
            found: head_dim.to_string(),
            expected: "an even number (rotary pairs)".into(),
        });
    }
    let rms_norm_eps = fields.number("rms_norm_eps")?.ok_or_else(|| fields.missing("rms_norm_eps"))?;
    if !(rms_norm_eps > 0.0 && rms_norm_eps < 1.0) {
        return Err(fields.invalid("rms_norm_eps", "a small positive number"));
    }
    let (qkv_bias, o_bias, mlp_bias) = match architecture {
        Architecture::Qwen2 => (true, false, false),
        Architecture::Llama => {
            let attention = fields.flag("attention_bias")?;
            (attention, attention, fields.flag("mlp_bias")?)
        }
    };

    Ok(ModelConfig {
        architecture,
        vocab_size: fields.size("vocab_size")?,
        hidden_size,
        intermediate_size: fields.size("intermediate_size")?,
        num_layers,
        num_heads,
        num_kv_heads,
        head_dim,
        rms_norm_eps,
        rope: rope(&fields)?,
        max_position_embeddings: fields.size("max_position_embeddings")?,
        tie_word_embeddings: fields.flag("tie_word_embeddings")?,
        qkv_bias,
        o_bias,
        mlp_bias,
        bos_token_id: fields.token_ids("bos_token_id")?.first().copied(),
        eos_token_ids: fields.token_ids("eos_token_id")?,
        pad_token_id: fields.token_ids("pad_token_id")?.first().copied(),
        dtype: dtype(&fields)?,
        json,
    })
}

fn unsupported(feature: &str, detail: impl Into<String>) -> ConfigErrorKind {
    ConfigErrorKind::Unsupported { feature: feature.into(), detail: detail.into() }
}

/// Typed access to the keys of a configuration; `null` counts as absent, as in transformers.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn present(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn missing(&self, key: &str) -> ConfigErrorKind {
        ConfigErrorKind::Missing {
            key: key.into(),
            hint: "copy it from the original model's config.json".into(),
        }
    }

    fn invalid(&self, key: &str, expected: &str) -> ConfigErrorKind {
        let found = self.0.get(key).map_or("absent".into(), Value::to_string);
        ConfigErrorKind::Invalid { key: key.into(), found, expected: expected.into() }
    }

    fn size(&self, key: &str) -> Kind<usize> {
        let value = self.present(key).ok_or_else(|| self.missing(key))?;
        match value.as_u64() {
            Some(n) if (1..=MAX_DIMENSION).contains(&n) => Ok(n as usize),
            _ => Err(self.invalid(key, "a positive whole number below 2^28")),
        }
    }

    fn number(&self, key: &str) -> Kind<Option<f64>> {
        let Some(value) = self.present(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(n) if n.is_finite() => Ok(Some(n)),
            _ => Err(self.invalid(key, "a number")),
        }
    }

    fn flag(&self, key: &str) -> Kind<bool> {
        match self.present(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.invalid(key, "true or false")),
        }
    }

    fn text(&self, key: &str) -> Kind<Option<&str>> {
        match self.present(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.invalid(key, "a string")),
        }
    }

    /// One id or a list of ids. Negative ids mean "none" in some published files.
    fn token_ids(&self, key: &str) -> Kind<Vec<u32>> {
        let one = |value: &Value| match value.as_i64() {
            Some(id) if id < 0 => Ok(None),
            Some(id) if id <= i64::from(u32::MAX) => Ok(Some(id as u32)),
            _ => Err(self.invalid(key, "a token id or a list of token ids")),
        };
        match self.present(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(ids)) => ids.iter().filter_map(|id| one(id).transpose()).collect(),
            Some(value) => Ok(one(value)?.into_iter().collect()),
        }
    }
}

fn architecture(fields: &Fields) -> Kind<Architecture> {
    let class = fields.present("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
    let model_type = fields.text("model_type")?;
    let (key, name) = match (model_type, class) {
        (Some(model_type), _) => ("model_type", model_type),
        (None, Some(class)) => ("architectures", class),
        (None, None) => return Err(fields.missing("model_type")),
    };
    if name.to_lowercase().contains("moe") || name.to_lowercase().contains("mixtral") {
        return Err(unsupported("mixture of experts", format!("`{key}` is \"{name}\"")));
    }
    let found = [Architecture::Qwen2, Architecture::Llama]
        .into_iter()
        .find(|a| name == a.model_type() || name == a.class_name());
    let Some(found) = found else {
        return Err(unsupported(
            "this architecture",
            format!("`{key}` is \"{name}\"; supported are qwen2 and llama"),
        ));
    };
    match class {
        Some(class) if class != found.class_name() => Err(unsupported(
            "this architecture",
            format!("`architectures` names \"{class}\"; supported is {}", found.class_name()),
        )),
        _ => Ok(found),
    }
}

fn refuse_unsupported(fields: &Fields) -> Kind<()> {
    for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if fields.number(key)?.is_some_and(|n| n > 0.0) {
            return Err(unsupported("mixture of experts", format!("`{key}` is set")));
        }
    }
    if let Some(quantization) = fields.present("quantization_config") {
        let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed");
        return Err(unsupported(
            "a quantised safetensors checkpoint",
            format!("`quantization_config` says \"{method}\"; use the bf16 weights or a GGUF file"),
        ));
    }
    for key in ["hidden_act", "hidden_activation"] {
        match fields.text(key)? {
            None | Some("silu" | "swish") => {}
            Some(other) => {
                return Err(unsupported(
                    "this activation",
                    format!("`{key}` is \"{other}\"; supported is silu"),
                ));
            }
        }
    }
    Ok(())
}

/// Qwen2 carries window sizes that are switched off; only a window in use is refused.
fn refuse_sliding_window(fields: &Fields, architecture: Architecture, layers: usize) -> Kind<()> {
    let refuse = |why: &str| Err(unsupported("sliding-window attention", why));
    if let Some(types) = fields.present("layer_types") {
        let list = types.as_array().ok_or_else(|| fields.invalid("layer_types", "a list"))?;
        return match list.iter().find(|kind| kind.as_str() != Some("full_attention")) {
            Some(kind) => refuse(&format!("`layer_types` holds {kind}")),
            None => Ok(()),
        };
    }
    match architecture {
        Architecture::Qwen2 => {
            // transformers: layer i slides when use_sliding_window and i >= max_window_layers (default 28).
            let first = fields.number("max_window_layers")?.unwrap_or(28.0);
            let window =
                fields.present("sliding_window").is_some() || !fields.0.contains_key("sliding_window");
            if fields.flag("use_sliding_window")? && window && first < layers as f64 {
                return refuse("`use_sliding_window` is true");
            }
            Ok(())
        }
        Architecture::Llama if fields.present("sliding_window").is_some() => {
            refuse("`sliding_window` is set")
        }
        Architecture::Llama => Ok(()),
    }
}

fn rope(fields: &Fields) -> Kind<Rope> {
    if let Some(fraction) = fields.number("partial_rotary_factor")?.filter(|f| *f != 1.0) {
        return Err(unsupported(
            "partial rotary embedding",
            format!("`partial_rotary_factor` is {fraction}"),
        ));
    }
    let nested = match (fields.present("rope_parameters"), fields.present("rope_scaling")) {
        (Some(value), _) => Some(("rope_parameters", value)),
        (None, Some(value)) => Some(("rope_scaling", value)),
        (None, None) => None,
    };
    let empty = Map::new();
    let map = match nested {
        None => &empty,
        Some((_, Value::Object(map))) => map,
        Some((key, _)) => return Err(fields.invalid(key, "an object")),
    };
    let inner = Fields(map);
    if let Some((key, _)) = map.iter().find(|(_, value)| value.is_object()) {
        return Err(unsupported("rotary embedding per layer type", format!("`rope_parameters.{key}`")));
    }
    if let Some(fraction) = inner.number("partial_rotary_factor")?.filter(|f| *f != 1.0) {
        return Err(unsupported(
            "partial rotary embedding",
            format!("`partial_rotary_factor` is {fraction}"),
        ));
    }

    let theta = match (inner.number("rope_theta")?, fields.number("rope_theta")?) {
        (Some(inner), Some(outer)) if inner != outer => {
            return Err(fields.invalid("rope_theta", &format!("{inner}, as `rope_parameters` says")));
        }
        (inner, outer) => inner.or(outer),
    };
    let Some(theta) = theta else {
        return Err(ConfigErrorKind::Missing {
            key: "rope_theta".into(),
            hint: "no default is assumed because a wrong base ruins the model silently; take it \
                   from the original config.json (Llama 1 and 2: 10000.0)"
                .into(),
        });
    };
    if theta <= 1.0 {
        return Err(ConfigErrorKind::Invalid {
            key: "rope_theta".into(),
            found: theta.to_string(),
            expected: "a number above 1".into(),
        });
    }

    // `type` is the older spelling of `rope_type`.
    let kind = inner.text("rope_type")?.or(inner.text("type")?).unwrap_or("default");
    let need = |key: &str| -> Kind<f64> {
        match inner.number(key)? {
            Some(n) if n > 0.0 => Ok(n),
            Some(_) => Err(inner.invalid(key, "a positive number")),
            None => Err(inner.missing(key)),
        }
    };
    let scaling = match kind {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: need("factor")? },
        "llama3" => {
            let scaling = RopeScaling::Llama3 {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_max_position_embeddings: inner.size("original_max_position_embeddings")?,
            };
            if need("low_freq_factor")? >= need("high_freq_factor")? {
                return Err(inner.invalid("low_freq_factor", "less than high_freq_factor"));
            }
            scaling
        }
        other => {
            return Err(unsupported(
                "this rotary scaling",
                format!("`rope_type` is \"{other}\"; supported are default, linear and llama3"),
            ));
        }
    };
    Ok(Rope { theta, scaling })
}

fn dtype(fields: &Fields) -> Kind<Option<FloatType>> {
    let key = if fields.present("dtype").is_some() { "dtype" } else { "torch_dtype" };
    match fields.text(key)? {
        None => Ok(None),
        Some(name) => FloatType::from_torch_name(name)
            .map(Some)
            .ok_or_else(|| fields.invalid(key, "float32, float16 or bfloat16")),
    }
}
