//! Adapters as manifests write them, and as `train` leaves them on disk.

use std::path::Path;

use burn::tensor::Device;
use engine::kind::{ParamProblem, StageError};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::config::ModelConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A small trainable part on a frozen model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum AdapterParams {
    /// A steering vector per layer: a bias on one projection, added at every position.
    Bias(BiasParams),
    /// Low-rank factors on some projections.
    Lora(LoraParams),
}

/// Where steering vectors are added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BiasParams {
    /// The projection, such as `down_proj`.
    pub projection: String,
}

impl Default for BiasParams {
    fn default() -> Self {
        Self { projection: "down_proj".into() }
    }
}

/// LoRA's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraParams {
    /// Rank of the factors.
    pub rank: usize,
    /// The product of the factors is scaled by `alpha / rank`.
    pub alpha: f64,
    /// The projections, such as `q_proj` or `down_proj`.
    pub targets: Vec<String>,
    /// Share of the factors' inputs that training sets to zero.
    pub dropout: f64,
}

impl Default for LoraParams {
    fn default() -> Self {
        Self { rank: 16, alpha: 16.0, targets: vec!["q_proj".into(), "v_proj".into()], dropout: 0.0 }
    }
}

impl AdapterParams {
    /// Unknown projections and values out of range; `param` is where these params stand.
    pub fn check(&self, param: &str) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut wrong = |name: &str, message: String, help: String| {
            problems.push(ParamProblem { param: format!("{param}.{name}"), message, help });
        };
        let known = || Projection::ALL.map(|p| p.path().rsplit('.').next().unwrap_or_default()).join(", ");
        match self {
            Self::Bias(bias) if Projection::parse(&bias.projection).is_none() => {
                wrong(
                    "projection",
                    format!("no projection `{}`", bias.projection),
                    format!("use one of {}", known()),
                );
            }
            Self::Bias(_) => {}
            Self::Lora(lora) => {
                if lora.rank == 0 || !lora.alpha.is_finite() || lora.alpha <= 0.0 {
                    wrong(
                        "rank",
                        "rank and alpha must be positive".into(),
                        "write rank = 4, alpha = 4, say".into(),
                    );
                }
                if !(0.0..1.0).contains(&lora.dropout) {
                    let message = format!("{} is no share", lora.dropout);
                    wrong("dropout", message, "write a number from 0 to below 1, such as 0.05".into());
                }
                if lora.targets.is_empty() {
                    wrong("targets", "no projection to adapt".into(), format!("use some of {}", known()));
                }
                for target in lora.targets.iter().filter(|target| Projection::parse(target).is_none()) {
                    wrong("targets", format!("no projection `{target}`"), format!("use some of {}", known()));
                }
            }
        }
        problems
    }

    /// LoRA's dropout.
    pub fn dropout(&self) -> f64 {
        match self {
            Self::Bias(_) => 0.0,
            Self::Lora(lora) => lora.dropout,
        }
    }

    /// How many numbers of it train on a model of this shape.
    pub fn count(&self, config: &ModelConfig) -> usize {
        let sizes = |name: &String| Projection::parse(name).map_or([0, 0], |p| p.shape(config));
        config.num_layers
            * match self {
                Self::Bias(bias) => sizes(&bias.projection)[0],
                Self::Lora(lora) => {
                    lora.targets.iter().map(|target| lora.rank * sizes(target).iter().sum::<usize>()).sum()
                }
            }
    }

    /// An adapter that does not change the model yet: zero biases, or PEFT's initial LoRA.
    pub fn fresh(&self, config: &ModelConfig, seed: u64, device: &Device) -> Result<Adapter, StageError> {
        let projection = |name: &String| {
            Projection::parse(name).ok_or_else(|| StageError::input(format!("no projection `{name}`")))
        };
        Ok(match self {
            Self::Bias(bias) => {
                Adapter::Bias(BiasAdapter::zeros(config, projection(&bias.projection)?, device))
            }
            Self::Lora(lora) => {
                let targets = lora.targets.iter().map(projection).collect::<Result<Vec<_>, _>>()?;
                Adapter::Lora(Lora::new(config, &targets, lora.rank, lora.alpha, seed, device))
            }
        })
    }
}

/// Reads an adapter folder: what `train` or PEFT wrote.
pub fn read_adapter(folder: &Path, config: &ModelConfig, device: &Device) -> Result<Adapter, StageError> {
    let nested = folder.join("adapter");
    let folder = if nested.is_dir() { &nested } else { folder };
    trainer::adapter_io::read(folder, config, device).map_err(StageError::input)
}

/// Reads an adapter that is to be of the kind and size of `like`.
pub fn read_like(
    folder: &Path,
    like: &Adapter,
    config: &ModelConfig,
    device: &Device,
) -> Result<Adapter, StageError> {
    let adapter = read_adapter(folder, config, device)?;
    let (is, wanted) = (describe(&adapter), describe(like));
    if is == wanted {
        return Ok(adapter);
    }
    let problem = format!("{} is {is}, and `adapter` asks for {wanted}", folder.display());
    Err(StageError::input(problem).with_help("write in `adapter` what it is"))
}

fn describe(adapter: &Adapter) -> String {
    let name = |p: &Projection| p.path().rsplit('.').next().unwrap_or_default().to_owned();
    match adapter {
        Adapter::Bias(bias) => format!("a bias on {}", name(&bias.projection)),
        Adapter::Lora(lora) => {
            let rank = lora.layers.iter().flatten().next().map_or(0, |factors| factors.a.dims()[0]);
            let mut names: Vec<String> = lora.projections.iter().map(name).collect();
            names.sort_unstable();
            let alpha = lora.scale * rank as f64;
            format!("a LoRA of rank {rank} and alpha {alpha} on {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_projections_are_named_with_the_known_ones() {
        let lora = LoraParams { targets: vec!["down_proj".into(), "w1".into()], ..LoraParams::default() };
        let problems = AdapterParams::Lora(lora).check("adapter");
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("w1") && problems[0].help.contains("down_proj"));
        assert!(AdapterParams::Bias(BiasParams::default()).check("adapter").is_empty());
        assert_eq!(AdapterParams::Bias(BiasParams { projection: "x".into() }).check("adapter").len(), 1);
    }
}
