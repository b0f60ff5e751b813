//! `config.json` of both generations, and what is refused by name.

use std::path::Path;

use lm::config::{Architecture, FloatType, GenerationConfig, ModelConfig, Rope, RopeScaling};
use serde_json::{Map, Value, json};

fn parse(value: Value) -> Result<ModelConfig, String> {
    let Value::Object(map) = value else { unreachable!() };
    ModelConfig::from_json(map, Path::new("model/config.json")).map_err(|e| e.to_string())
}

/// Qwen2.5-7B-Instruct's file.
fn qwen() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
        "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
        "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false,
        "vocab_size": 152064
    })
}

/// Llama-3.2-1B-Instruct's file.
fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu",
        "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
        "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "vocab_size": 128256
    })
}

fn with(mut base: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

#[test]
fn reads_published_files() {
    let config = parse(qwen()).unwrap();
    assert_eq!(config.architecture, Architecture::Qwen2);
    assert_eq!((config.num_heads, config.num_kv_heads, config.head_dim), (28, 4, 128));
    assert_eq!((config.qkv_bias, config.o_bias, config.mlp_bias), (true, false, false));
    assert_eq!(config.rope, Rope { theta: 1e6, scaling: RopeScaling::Default });
    assert_eq!(config.dtype, Some(FloatType::BF16));
    assert_eq!(config.eos_token_ids, [151645]);
    let config = parse(llama()).unwrap();
    assert_eq!(config.eos_token_ids, [128001, 128008, 128009]);
    let RopeScaling::Llama3 { factor, original_max_position_embeddings, .. } = config.rope.scaling else {
        panic!("{:?}", config.rope)
    };
    assert_eq!((factor, original_max_position_embeddings), (32.0, 8192));
    assert!(config.tie_word_embeddings);
}

#[test]
fn both_generations_mean_the_same() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
    for name in ["qwen2-untied", "llama-gqa", "llama-rope-linear", "llama-rope-llama3"] {
        let read = |file: &str| ModelConfig::from_file(&tiny.join(name).join(file)).unwrap();
        let (mut new, mut old) = (read("config.json"), read("config-v4.json"));
        assert_ne!(new.json, old.json);
        new.json.clear();
        old.json.clear();
        assert_eq!(new, old, "{name}");
    }
}

#[test]
fn refuses_by_name() {
    for (change, words) in [
        (json!({"use_sliding_window": true, "max_window_layers": 20}), "sliding-window attention"),
        (json!({"layer_types": ["full_attention", "sliding_attention"]}), "sliding-window attention"),
        (json!({"num_experts": 8}), "mixture of experts"),
        (json!({"model_type": "qwen2_moe", "architectures": null}), "mixture of experts"),
        (json!({"model_type": "gemma", "architectures": null}), "\"gemma\"; supported are qwen2 and llama"),
        (json!({"architectures": ["Qwen2ForSequenceClassification"]}), "Qwen2ForSequenceClassification"),
        (json!({"quantization_config": {"quant_method": "gptq"}}), "\"gptq\""),
        (json!({"rope_scaling": {"type": "yarn", "factor": 4.0}}), "`rope_type` is \"yarn\""),
        (json!({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}), "per layer type"),
        (json!({"partial_rotary_factor": 0.5}), "partial rotary"),
        (json!({"hidden_act": "gelu"}), "\"gelu\""),
    ] {
        let error = parse(with(qwen(), change.clone())).expect_err(&change.to_string());
        assert!(error.contains(words), "{change}: {error}");
        assert!(error.contains("not supported") && error.starts_with("model/config.json: "), "{error}");
    }
    let error = parse(with(llama(), json!({"sliding_window": 4096}))).unwrap_err();
    assert!(error.contains("sliding-window"), "{error}");
    // A window that no layer reaches is none.
    parse(with(qwen(), json!({"use_sliding_window": true, "max_window_layers": 28}))).unwrap();
    parse(with(qwen(), json!({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})))
        .unwrap();
}

#[test]
fn what_decides_results_has_no_default() {
    for key in ["rope_theta", "rms_norm_eps", "vocab_size", "hidden_size", "num_key_value_heads"] {
        let mut file = qwen();
        file.as_object_mut().unwrap().remove(key);
        let error = parse(file).unwrap_err();
        assert!(error.contains(&format!("`{key}` is missing")), "{error}");
    }
    let mut file = llama();
    file.as_object_mut().unwrap().remove("num_key_value_heads");
    assert_eq!(parse(file).unwrap().num_kv_heads, 32, "Llama without the key is multi-head");
}

#[test]
fn bad_values_are_shown() {
    for (change, words) in [
        (json!({"hidden_size": -1}), "`hidden_size` is -1; expected a positive whole number"),
        (json!({"hidden_size": "big"}), "`hidden_size` is \"big\""),
        (json!({"num_hidden_layers": 1_000_000_000_000u64}), "num_hidden_layers"),
        (json!({"num_hidden_layers": 100_000}), "at most 4096 layers"),
        (json!({"num_attention_heads": 27}), "num_key_value_heads"),
        (json!({"num_attention_heads": 36}), "a multiple of num_attention_heads"),
        (json!({"head_dim": 127}), "even number"),
        (json!({"rms_norm_eps": 0}), "rms_norm_eps"),
        (json!({"rope_theta": -1.0}), "rope_theta"),
        (
            json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}),
            "as `rope_parameters` says",
        ),
        (json!({"rope_scaling": {"type": "linear"}}), "`factor` is missing"),
        (json!({"tie_word_embeddings": 1}), "true or false"),
        (json!({"eos_token_id": [1.5]}), "token id"),
        (json!({"torch_dtype": "float8"}), "float32, float16 or bfloat16"),
    ] {
        let error = parse(with(qwen(), change.clone())).expect_err(&change.to_string());
        assert!(error.contains(words), "{change}: {error}");
    }
}

#[test]
fn a_configuration_comes_back_as_it_was() {
    for file in [qwen(), llama()] {
        let config = parse(file.clone()).unwrap();
        let mut written = config.to_json(FloatType::BF16);
        assert_eq!(written.remove("dtype"), Some(json!("bfloat16")));
        assert_eq!(Value::Object(written), file);
    }
}

#[test]
fn changes_are_written() {
    let mut config = parse(qwen()).unwrap();
    config.tie_word_embeddings = true;
    config.eos_token_ids = vec![151645, 151643];
    config.rope = Rope { theta: 5e5, scaling: RopeScaling::Linear { factor: 2.0 } };
    let written = parse(Value::Object(config.to_json(FloatType::F32))).unwrap();
    assert_eq!(written.dtype, Some(FloatType::F32));
    config.dtype = written.dtype;
    config.json = written.json.clone();
    assert_eq!(written, config);
}

/// Qwen2 with a bias on its MLP is a Llama with biases: what steering vectors are merged into.
#[test]
fn qwen2_becomes_llama() {
    let mut config = parse(qwen()).unwrap();
    config.architecture = Architecture::Llama;
    (config.o_bias, config.mlp_bias) = (true, true);
    let json = config.to_json(FloatType::BF16);
    assert_eq!(json["architectures"], json!(["LlamaForCausalLM"]));
    assert_eq!((&json["attention_bias"], &json["mlp_bias"]), (&json!(true), &json!(true)));
    assert!(!json.contains_key("sliding_window") && !json.contains_key("use_sliding_window"));
    let written = parse(Value::Object(json)).unwrap();
    assert_eq!((written.qkv_bias, written.o_bias, written.mlp_bias), (true, true, true));
    assert_eq!(written.rope, config.rope);
}

#[test]
fn generation_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let config = parse(qwen()).unwrap();
    let read = || GenerationConfig::from_folder(folder.path(), &config);
    assert_eq!(read().unwrap().eos_token_ids, [151645], "config.json's where there is no file");
    let file = folder.path().join("generation_config.json");
    // Qwen2.5-7B-Instruct's file.
    let text = r#"{"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true,
        "eos_token_id": [151645, 151643], "repetition_penalty": 1.05, "temperature": 0.7,
        "top_p": 0.8, "top_k": 20, "transformers_version": "4.37.0"}"#;
    std::fs::write(&file, text).unwrap();
    let found = read().unwrap();
    assert_eq!(found.eos_token_ids, [151645, 151643]);
    assert_eq!((found.top_k, found.repetition_penalty, found.min_p), (Some(20), Some(1.05), None));
    std::fs::write(&file, r#"{"top_k": -1}"#).unwrap();
    assert!(read().unwrap_err().to_string().contains("`top_k` is -1"));
}

#[test]
fn tensor_list_counts_parameters() {
    let count = |config: ModelConfig| -> usize {
        config.tensor_shapes().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    };
    // The models' published parameter counts.
    assert_eq!(count(parse(qwen()).unwrap()), 7_615_616_512);
    assert_eq!(count(parse(llama()).unwrap()), 1_235_814_400);
    assert_eq!(
        parse(json!(Map::new())).unwrap_err(),
        "model/config.json: `model_type` is missing; copy it from the original model's config.json"
    );
}
