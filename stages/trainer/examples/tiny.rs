//! Speed of training a model of about a million parameters on a CPU:
//! `cargo run --release -p trainer --example tiny -- sft|bias|lora [steps] [devices] [micro_tokens]`.
//! SFT trains everything on 32 sequences of 96 tokens per update; the adapters train by RLOO on 8 × 8
//! rollouts of up to 64 tokens.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::config::ModelConfig;
use lm::generate::SamplingParams;
use lm::model::Model;
use lm::rng::Stream;
use trainer::data::{Batching, Sequence};
use trainer::parallel::OnFirst;
use trainer::rl::RlConfig;
use trainer::rollout::Rollout;
use trainer::schedule::Schedule;
use trainer::sft::SftConfig;
use trainer::trainee::Trainee;
use trainer::{Control, Progress, Saving};

const SHAPE: &str = r#"{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true}"#;

fn tokens(stream: u64, length: usize) -> Vec<u32> {
    let stream = Stream::new(0, stream);
    (0..length as u64).map(|i| (stream.bits(i) % 512) as u32).collect()
}

fn report(progress: &Progress) -> Control {
    let loss = progress.metrics.get("loss").unwrap_or(f64::NAN);
    println!("loss {loss:?}, seconds {}", serde_json::Value::Object(progress.timing.values.clone()));
    Control::Continue
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |i: usize, default: usize| arguments.get(i).map_or(default, |a| a.parse().expect("a number"));
    let (steps, devices, micro_tokens) = (number(1, 5), number(2, 1), number(3, 4096));
    let json = serde_json::from_str(SHAPE).expect("valid JSON");
    let config = ModelConfig::from_json(json, "config.json".as_ref()).expect("a valid shape");
    let device = Device::flex();
    let model = Model::random(&config, 0, &device);
    let mode = arguments.first().map_or("sft", String::as_str);
    let trainee = match mode {
        "sft" => Trainee::full(model),
        "bias" => {
            let bias = BiasAdapter::zeros(&config, Projection::Down, &device);
            Trainee::adapter(model, Adapter::Bias(bias))
        }
        _ => {
            let lora = Lora::new(&config, &[Projection::Down], 8, 8.0, 0, &device);
            Trainee::adapter(model, Adapter::Lora(lora))
        }
    };
    let trainee = trainee.on_devices(&vec![device; devices - 1], Arc::new(OnFirst));
    println!("{} numbers train", trainee.len());
    let batching = Batching { micro_tokens, pack: false };
    let schedule = Schedule { lr: 1e-3, ..Schedule::default() };
    let start = Instant::now();
    if mode == "sft" {
        let data: Vec<Sequence> = (0..128).map(|i| Sequence::text(tokens(i, 96))).collect();
        let settings = SftConfig { steps: Some(steps as u64), batching, schedule, ..SftConfig::default() };
        trainer::sft::train(&settings, trainee, &data, &[], &Saving::default(), &mut report)
            .expect("training runs");
        let rate = (steps * 32 * 96) as f64 / start.elapsed().as_secs_f64();
        println!("{rate:.0} tokens/s");
    } else {
        let prompts: Vec<Vec<u32>> = (0..32).map(|i| tokens(i, 48)).collect();
        let sampling =
            SamplingParams { max_tokens: 64, stop_token_ids: vec![1, 2, 3], ..SamplingParams::default() };
        let settings = RlConfig { steps: steps as u64, sampling, batching, schedule, ..RlConfig::default() };
        let mut grade = |rollouts: &[Rollout]| -> Result<Vec<f32>, String> {
            Ok(rollouts.iter().map(|r| (r.sample.ids.len() % 2) as f32).collect())
        };
        trainer::rl::train(&settings, trainee, &prompts, None, &mut grade, &Saving::default(), &mut report)
            .expect("training runs");
        println!("{:.3} s per update", start.elapsed().as_secs_f64() / steps as f64);
    }
}
