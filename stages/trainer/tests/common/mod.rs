//! Small models and data for the trainer's tests.
#![allow(dead_code)] // every test binary uses its own part

use burn::tensor::{Device, Tensor};
use lm::config::ModelConfig;
use lm::model::Model;
use lm::rng::Stream;
use trainer::data::Sequence;
use trainer::trainee::Trainee;

/// A Qwen2 shape with grouped queries and two layers.
pub fn config(tied: bool) -> ModelConfig {
    let text = format!(
        r#"{{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
            "vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": {tied}}}"#
    );
    ModelConfig::from_json(serde_json::from_str(&text).unwrap(), "config.json".as_ref()).unwrap()
}

/// A random model, with weights ten times those of a fresh one so that nothing is negligible.
pub fn model(config: &ModelConfig, seed: u64) -> Model {
    use lm::model::Parameter;
    Model::random(config, seed, &Device::flex()).map_parameters(|_, p| match p {
        Parameter::Matrix(t) => t.mul_scalar(10.0).into(),
        vector => vector,
    })
}

/// Random texts of these lengths.
pub fn sequences(lengths: &[usize]) -> Vec<Sequence> {
    let stream = Stream::new(9, 9);
    let mut counter = 0;
    lengths
        .iter()
        .map(|&len| {
            let tokens = (0..len)
                .map(|_| {
                    counter += 1;
                    (stream.bits(counter) % 29) as u32
                })
                .collect();
            Sequence::text(tokens)
        })
        .collect()
}

/// The values on the host.
pub fn flatten(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().unwrap()
}

/// The trainee with master `index` moved by `distance` times `direction`.
pub fn moved(trainee: &Trainee, index: usize, direction: &[f32], distance: f64) -> Trainee {
    let mut moved = trainee.clone();
    moved.set(index, |values| {
        for (value, d) in values.iter_mut().zip(direction) {
            *value += (f64::from(*d) * distance) as f32;
        }
    });
    moved
}
