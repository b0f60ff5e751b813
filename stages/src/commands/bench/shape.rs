//! Shapes of published models.

use clap::ValueEnum;
use engine::cli::CliError;
use lm::config::ModelConfig;
use serde_json::json;

use crate::commands::failed;

/// A model's shape by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Qwen2.5-7B: 7.6 G parameters.
    #[value(name = "qwen2.5-7b")]
    Qwen7b,
    /// Qwen2.5-1.5B: 1.5 G parameters, tied embedding.
    #[value(name = "qwen2.5-1.5b")]
    Qwen1And5b,
    /// Qwen2.5-0.5B: 0.5 G parameters, tied embedding.
    #[value(name = "qwen2.5-0.5b")]
    QwenHalfB,
    /// SmolLM2-135M: 0.13 G parameters, tied embedding.
    #[value(name = "smollm2-135m")]
    Smol,
    /// 0.2 M parameters, to try the command.
    Tiny,
}

impl Shape {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The hyper-parameters, as the model's own `config.json` has them.
    pub fn config(self) -> Result<ModelConfig, CliError> {
        let (kind, sizes, theta, eps, tied) = match self {
            Self::Qwen7b => ("qwen2", [152_064, 3584, 18_944, 28, 28, 4, 32_768], 1e6, 1e-6, false),
            Self::Qwen1And5b => ("qwen2", [151_936, 1536, 8960, 28, 12, 2, 32_768], 1e6, 1e-6, true),
            Self::QwenHalfB => ("qwen2", [151_936, 896, 4864, 24, 14, 2, 32_768], 1e6, 1e-6, true),
            Self::Smol => ("llama", [49_152, 576, 1536, 30, 9, 3, 8192], 1e5, 1e-5, true),
            Self::Tiny => ("qwen2", [512, 64, 160, 2, 4, 2, 2048], 1e4, 1e-6, true),
        };
        let [vocab, hidden, inner, layers, heads, kv_heads, context] = sizes;
        let class = if kind == "qwen2" { "Qwen2ForCausalLM" } else { "LlamaForCausalLM" };
        let json = json!({
            "model_type": kind,
            "architectures": [class],
            "hidden_act": "silu",
            "vocab_size": vocab,
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "max_position_embeddings": context,
            "rms_norm_eps": eps,
            "rope_theta": theta,
            "tie_word_embeddings": tied,
        });
        let fields = json.as_object().cloned().unwrap_or_default();
        ModelConfig::from_json(fields, self.name().as_ref()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_published_parameter_counts() {
        // from the safetensors index of each model on the hub
        let wanted =
            [(Shape::Qwen7b, 7_615_616_512), (Shape::QwenHalfB, 494_032_768), (Shape::Smol, 134_515_008)];
        for (shape, count) in wanted {
            let shapes = shape.config().unwrap().tensor_shapes();
            let sum: usize = shapes.iter().map(|(_, dims)| dims.iter().product::<usize>()).sum();
            assert_eq!(sum, count, "{shape:?}");
        }
    }
}
