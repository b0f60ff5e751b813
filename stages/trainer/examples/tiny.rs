//! Speed of full-parameter SFT on a model of about a million parameters:
//! `cargo run --release -p trainer --example tiny -- [steps] [batch] [length] [micro_tokens]`.

use std::time::Instant;

use burn::tensor::Device;
use lm::config::ModelConfig;
use lm::model::Model;
use lm::rng::Stream;
use trainer::data::{Batching, Sequence};
use trainer::schedule::Schedule;
use trainer::sft::{SftConfig, train};
use trainer::trainee::Trainee;
use trainer::{Control, Saving};

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().expect("a number")).collect();
    let get = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (steps, batch, length, micro) = (get(0, 5), get(1, 32), get(2, 96), get(3, 4096));
    let text = r#"{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
        "vocab_size": 512, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true}"#;
    let json = serde_json::from_str(text).expect("valid JSON");
    let config = ModelConfig::from_json(json, "config.json".as_ref()).expect("a valid shape");
    let trainee = Trainee::full(Model::random(&config, 0, &Device::flex()));
    println!("{} parameters", trainee.len());
    let stream = Stream::new(0, 0);
    let data: Vec<Sequence> = (0..batch * 4)
        .map(|i| Sequence::text((0..length).map(|j| (stream.bits((i * length + j) as u64) % 512) as u32).collect()))
        .collect();
    let settings = SftConfig {
        steps: Some(steps as u64),
        batch,
        schedule: Schedule { lr: 1e-3, ..Schedule::default() },
        batching: Batching { micro_tokens: micro, pack: false },
        ..SftConfig::default()
    };
    let start = Instant::now();
    train(&settings, trainee, &data, &[], &Saving::default(), &mut |p| {
        println!("{:?} loss {:.3}", p.timing.get("update"), p.metrics.get("loss").unwrap_or(f64::NAN));
        Control::Continue
    })
    .expect("training runs");
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.0} tokens/s", (steps * batch * length) as f64 / seconds);
}
