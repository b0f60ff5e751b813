//! The formula for memory against peaks that were measured.

use lm::config::ModelConfig;
use serde_json::{Value, json};
use trainer::memory::Load;

/// Within 15 % of every measured peak.
#[test]
fn needs_are_what_was_measured() {
    let data: Value = serde_json::from_str(include_str!("data/peaks.json")).unwrap();
    let peaks = data["peaks"].as_array().unwrap();
    assert!(peaks.len() >= 6);
    for peak in peaks {
        let mut config = peak["config"].as_object().unwrap().clone();
        let class = if config["model_type"] == "llama" { "LlamaForCausalLM" } else { "Qwen2ForCausalLM" };
        for (key, value) in [
            ("architectures", json!([class])),
            ("hidden_act", json!("silu")),
            ("max_position_embeddings", json!(32768)),
            ("rms_norm_eps", json!(1e-6)),
            ("rope_theta", json!(1e6)),
        ] {
            config.insert(key.to_owned(), value);
        }
        let number = |name: &str| peak[name].as_u64().unwrap();
        let load = Load {
            config: ModelConfig::from_json(config, "peaks.json".as_ref()).unwrap(),
            number: 2,
            trained: number("trained"),
            full: peak["method"] == "full",
            recompute: peak["recompute"].as_bool().unwrap(),
            beside: peak["pass"] == "beside burn",
            rows: number("rows"),
            seq: number("seq"),
            rollouts: None,
        };
        let (needs, measured) = (load.needs().total() as f64 / 1e9, peak["gigabytes"].as_f64().unwrap());
        println!(
            "{} {} {}x{}: {needs:.2} for {measured:.2}",
            peak["shape"], peak["method"], load.rows, load.seq
        );
        assert!((needs / measured - 1.0).abs() < 0.15, "{needs:.2} GB for {measured:.2} GB: {peak}");
    }
}
