//! `convert`: a model and its adapter become one plain checkpoint, checked to compute the same.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use lm::adapter::{Adapter, BiasAdapter, Projection};
use lm::checkpoint::{Checkpoint, CheckpointError, TensorSpec, WriteOptions, write_folder};
use lm::config::{Architecture, FloatType, ModelConfig};
use lm::model::{Model, logits_by_layer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::adapter::read_adapter;
use crate::gpu_use::GpuUse;
use crate::model::{OpenModel, Precision, device, float_type};

/// Folds an adapter into a plain checkpoint in `model/` that any runtime loads.
///
/// LoRA is merged in f32 and rounded once. Steering vectors need a bias that Qwen2 does not have:
/// the model is re-badged as Llama with `mlp_bias` (and `attention_bias`, where the source has
/// biases on q, k and v); the vectors go to `down_proj`, every other new bias is zero. Without an
/// adapter the model is rewritten as it is, quantised GGUF files as plain numbers.
///
/// The equivalence gate then runs source and result on probe texts: the stage fails when their f32
/// logits differ by more than `tolerance` anywhere, or the likeliest token differs in the serving
/// format. A merged LoRA is rounded to that format, which no adapter beside the weights is: where the
/// f32 logits of two tokens lie no further apart than the format's rounding moves them, it may prefer
/// the other one. The f32 logits are the CPU's, one layer in memory at a time, since a GPU
/// without cuBLAS multiplies f32 in shorter numbers (TF32). Its figures are in `equivalence.json`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Convert {
    /// The model.
    pub model: Input,
    /// The adapter to fold in: the folder that `train` or PEFT wrote.
    #[serde(default)]
    pub adapter: Option<Input>,
    /// Number format of the result. `auto` keeps the source's.
    #[serde(default)]
    pub dtype: Precision,
    /// Number format in which the result will serve, for the gate's comparison of tokens.
    #[serde(default)]
    pub serving: Precision,
    /// Largest difference of f32 logits that passes.
    #[serde(default = "default_tolerance")]
    pub tolerance: f64,
    /// Texts that both models are run on.
    #[serde(default = "default_probes")]
    pub probes: Vec<String>,
}

fn default_tolerance() -> f64 {
    1e-3
}

fn default_probes() -> Vec<String> {
    [
        "What is 2 + 2?",
        "Question: Tom has 12 apples and gives 5 away. How many are left?\nAnswer:",
        "Let $f(x) = x^2 - 4x + 3$. Find the sum of the roots of $f$.",
        "The quick brown fox jumps over the lazy dog.",
    ]
    .map(str::to_owned)
    .into()
}

impl Stage for Convert {
    const KIND: &'static str = "convert";
    const VERSION: u32 = 3;

    fn outputs(&self) -> Vec<String> {
        vec!["model".into(), "equivalence.json".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        if !(self.tolerance.is_finite() && self.tolerance >= 0.0) {
            problems.push(ParamProblem {
                param: "tolerance".into(),
                message: format!("{} is no tolerance", self.tolerance),
                help: "write a number such as 1e-3".into(),
            });
        }
        if self.probes.iter().all(String::is_empty) {
            problems.push(ParamProblem {
                param: "probes".into(),
                message: "nothing to compare the models on".into(),
                help: "give a few texts, or leave `probes` out".into(),
            });
        }
        problems
    }

    fn environment(&self, device_class: &str) -> std::collections::BTreeMap<String, String> {
        self.serving.environment(device_class)
    }

    fn default_gpus(&self) -> u32 {
        1
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let _watched = GpuUse::of(ctx);
        let source = OpenModel::open(&ctx.input(&self.model)?)?;
        let adapter = match &self.adapter {
            Some(adapter) => {
                Some(read_adapter(&ctx.input(adapter)?, source.checkpoint.config(), &Device::flex())?)
            }
            None => None,
        };
        let folder = ctx.out().join("model");
        self.write(&source, adapter.as_ref(), &folder)?;
        let result = OpenModel::open(&folder)?;
        self.gate(ctx, &source, adapter.as_ref(), &result)
    }
}

impl Convert {
    /// Writes the converted checkpoint, tensor by tensor.
    fn write(&self, source: &OpenModel, adapter: Option<&Adapter>, folder: &Path) -> Result<(), StageError> {
        let checkpoint = &source.checkpoint;
        let config = target(checkpoint.config(), adapter)?;
        let kept = checkpoint.config().dtype.unwrap_or(FloatType::F32);
        let dtype = match self.dtype {
            Precision::Auto => kept,
            other => float_type(other.on("cpu")),
        };
        let specs = TensorSpec::all(&config, dtype);
        let options = WriteOptions { source: Some(checkpoint), ..WriteOptions::default() };
        write_folder(folder, &config, &specs, &options, |spec| {
            let values = values(checkpoint, adapter, spec)?;
            Ok(Cow::Owned(bytes(values, &spec.shape, dtype)))
        })
        .map_err(StageError::environment)
    }

    /// Compares source and result on the probes.
    fn gate(
        &self,
        ctx: &StageCtx,
        source: &OpenModel,
        adapter: Option<&Adapter>,
        result: &OpenModel,
    ) -> Result<(), StageError> {
        let probes = self
            .probes
            .iter()
            .filter(|probe| !probe.is_empty())
            .map(|probe| source.tokenizer.encode(probe).map_err(StageError::input))
            .collect::<Result<Vec<_>, _>>()?;
        let exact = |opened: &OpenModel, adapter: Option<&Adapter>| {
            let logits = logits_by_layer(&opened.checkpoint, adapter, &probes, &Device::flex());
            Ok(logits.map_err(StageError::input)?.into_iter().map(floats).collect::<Vec<_>>())
        };
        let (before, after) = (exact(source, adapter)?, exact(result, None)?);
        let difference = largest_difference(&before, &after);
        let serving = self.serving.on(ctx.device());
        let on = device(ctx)?;
        let served = |opened: &OpenModel, adapter: Option<&Adapter>| {
            let model = Model::load(&opened.checkpoint, &on, serving).map_err(StageError::input)?;
            let adapter = adapter.map(|adapter| to_device(adapter, &on));
            Ok(probes.iter().map(|ids| run(&model, adapter.as_ref(), ids, &on)).collect::<Vec<_>>())
        };
        let exactly = Likeliest { logits: &before, vocab: source.checkpoint.config().vocab_size };
        let flips = match serving {
            DType::F32 => exactly.flips(&before, &after, difference),
            _ => exactly.flips(&served(source, adapter)?, &served(result, None)?, difference),
        };
        // Only a merged LoRA computes otherwise than its source: anything else has no excuse.
        let flipped = flips.all - if matches!(adapter, Some(Adapter::Lora(_))) { flips.ties } else { 0 };
        let positions: usize = probes.iter().map(Vec::len).sum();
        let report = json!({
            "probes": probes.len(),
            "positions": positions,
            "max_logit_difference": difference,
            "tolerance": self.tolerance,
            "serving_dtype": float_type(serving).torch_name(),
            "argmax_flips": flips.all,
            "argmax_ties": flips.ties,
        });
        let path = ctx.out().join("equivalence.json");
        fs::write(&path, format!("{report:#}\n")).map_err(|error| StageError::io(&path, error))?;
        // Written so that a difference that is not a number fails, too.
        if difference <= self.tolerance && flipped == 0 {
            return Ok(());
        }
        let message = format!(
            "the converted model is not equivalent: f32 logits differ by up to {difference:.3e} \
             (tolerance {:.1e}), and {flipped} of {positions} likeliest tokens differ",
            self.tolerance
        );
        Err(StageError::input(message).with_help(
            "a narrower `dtype` rounds the adapter: write `dtype = \"f32\"`, or raise `tolerance` knowingly",
        ))
    }
}

/// The result's configuration: the source's, with a place for steering vectors where there are any.
fn target(source: &ModelConfig, adapter: Option<&Adapter>) -> Result<ModelConfig, StageError> {
    let mut config = source.clone();
    let Some(Adapter::Bias(bias)) = adapter else { return Ok(config) };
    match bias.projection {
        Projection::Gate | Projection::Up | Projection::Down => config.mlp_bias = true,
        other => {
            return Err(StageError::input(format!(
                "no architecture has a place for a bias on {}",
                other.path()
            ))
            .with_help("train the bias on `down_proj`"));
        }
    }
    config.architecture = Architecture::Llama;
    // Llama's one flag covers q, k, v and o.
    config.o_bias = config.qkv_bias;
    Ok(config)
}

/// The f32 values of one tensor of the result.
fn values(
    source: &Checkpoint,
    adapter: Option<&Adapter>,
    spec: &TensorSpec,
) -> Result<Vec<f32>, CheckpointError> {
    let device = Device::flex();
    let own = match (source.info(&spec.name).is_some(), spec.shape.as_slice()) {
        (false, _) => vec![0.0; spec.shape.iter().product()],
        (true, [rows, columns]) => {
            floats(source.load::<2>(&spec.name, [*rows, *columns], &device, DType::F32)?)
        }
        (true, shape) => {
            floats(source.load::<1>(&spec.name, [shape.iter().product()], &device, DType::F32)?)
        }
    };
    let Some((layer, projection, part)) = place(&spec.name) else { return Ok(own) };
    Ok(match adapter {
        Some(Adapter::Bias(BiasAdapter { projection: on, biases }))
            if *on == projection && part == "bias" =>
        {
            own.iter().zip(floats(biases[layer].clone())).map(|(own, learnt)| own + learnt).collect()
        }
        Some(Adapter::Lora(lora)) if part == "weight" => match lora.factors(layer, projection) {
            Some(factors) => {
                let product = factors.b.clone().matmul(factors.a.clone()).mul_scalar(lora.scale);
                own.iter().zip(floats(product)).map(|(own, learnt)| own + learnt).collect()
            }
            None => own,
        },
        _ => own,
    })
}

/// Layer, projection and part (`weight`, `bias`) that a tensor's name stands for.
fn place(name: &str) -> Option<(usize, Projection, &str)> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (projection, part) = rest.rsplit_once('.')?;
    Some((layer.parse().ok()?, Projection::parse(projection)?, part))
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().expect("just converted to f32")
}

fn bytes(values: Vec<f32>, shape: &[usize], dtype: FloatType) -> Vec<u8> {
    let data = TensorData::new(values, shape.to_vec());
    let data = match dtype {
        FloatType::F32 => data,
        FloatType::F16 => data.convert_dtype(DType::F16),
        FloatType::BF16 => data.convert_dtype(DType::BF16),
    };
    data.as_bytes().to_vec()
}

fn to_device(adapter: &Adapter, device: &Device) -> Adapter {
    use lm::model::Parameter;
    adapter.map_parameters(|_, parameter| match parameter {
        Parameter::Vector(tensor) => tensor.to_device(device).into(),
        Parameter::Matrix(tensor) => tensor.to_device(device).into(),
    })
}

/// Logits of every position of a text, row after row.
fn run(model: &Model, adapter: Option<&Adapter>, ids: &[u32], device: &Device) -> Vec<f32> {
    let ids: Vec<i32> = ids.iter().map(|id| *id as i32).collect();
    let shape = [1, ids.len()];
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), device);
    floats(model.forward(ids, adapter))
}

fn largest_difference(before: &[Vec<f32>], after: &[Vec<f32>]) -> f64 {
    let pairs = before.iter().flatten().zip(after.iter().flatten());
    // `max` would skip what is not a number.
    pairs.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

/// What f32 says of the probes, to judge other logits by.
struct Likeliest<'a> {
    /// A text each, position after position.
    logits: &'a [Vec<f32>],
    vocab: usize,
}

/// Positions whose likeliest token differs.
#[derive(Debug, PartialEq)]
struct Flips {
    all: usize,
    /// Those of them where f32 cannot tell the two tokens apart by more than rounding moves them.
    ties: usize,
}

impl Likeliest<'_> {
    /// Compares `before` and `after`, whose f32 logits differ by up to `difference`. What rounding moves is
    /// the distance between `before` and f32 at the same position.
    fn flips(&self, before: &[Vec<f32>], after: &[Vec<f32>], difference: f64) -> Flips {
        let best = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at);
        let rows = |all: &[Vec<f32>]| -> Vec<Vec<f32>> {
            all.iter().flat_map(|one| one.chunks(self.vocab).map(<[f32]>::to_vec)).collect()
        };
        let mut flips = Flips { all: 0, ties: 0 };
        for ((exact, before), after) in rows(self.logits).iter().zip(rows(before)).zip(rows(after)) {
            let (Some(one), Some(other)) = (best(&before), best(&after)) else { continue };
            if one == other {
                continue;
            }
            flips.all += 1;
            let moved = largest_difference(std::slice::from_ref(exact), &[before]) + difference;
            flips.ties += usize::from(f64::from((exact[one] - exact[other]).abs()) <= 2.0 * moved);
        }
        flips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_a_number_is_never_equal() {
        assert!(largest_difference(&[vec![1.0]], &[vec![f32::NAN]]).is_nan());
        assert_eq!(largest_difference(&[vec![1.0, 2.0]], &[vec![1.5, 2.0]]), 0.5);
    }

    #[test]
    fn a_flip_is_a_position_not_a_logit() {
        let before = [vec![0.0, 1.0, /* next position */ 3.0, 2.0]];
        let exactly = Likeliest { logits: &before, vocab: 2 };
        let flips = |after: &[Vec<f32>]| exactly.flips(&before, after, 0.0);
        assert_eq!(flips(&[vec![0.4, 0.5, 2.0, 2.5]]), Flips { all: 1, ties: 0 });
        assert_eq!(flips(&before), Flips { all: 0, ties: 0 });
    }

    #[test]
    fn a_tie_lies_within_what_rounding_moves() {
        let exact = [vec![1.00, 1.03, 0.0, /* next position */ 1.0, 1.5, 0.0]];
        let exactly = Likeliest { logits: &exact, vocab: 3 };
        let served = [vec![1.00, 1.02, 0.0, 1.0, 1.48, 0.0]];
        let merged = [vec![1.02, 1.01, 0.0, 1.5, 1.48, 0.0]];
        assert_eq!(exactly.flips(&served, &merged, 0.0), Flips { all: 2, ties: 0 });
        assert_eq!(exactly.flips(&served, &merged, 0.01), Flips { all: 2, ties: 1 });
    }

    #[test]
    fn names_tell_their_place() {
        assert_eq!(place("model.layers.3.mlp.down_proj.bias"), Some((3, Projection::Down, "bias")));
        assert_eq!(place("model.layers.0.input_layernorm.weight"), None);
        assert_eq!(place("model.norm.weight"), None);
    }
}
