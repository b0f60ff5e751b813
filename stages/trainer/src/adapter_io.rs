//! Adapters on disk: LoRA as PEFT writes and reads it (`adapter_config.json`,
//! `adapter_model.safetensors`), steering vectors as a safetensors file of biases under the names that
//! a checkpoint with such biases would give them; and merging into plain weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::config::ModelConfig;
use lm::model::{Model, Parameter};
use lm::product::product;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::TrainError;
use crate::checkpoint::{Floats, read_floats, write_synced};
use crate::loss::floats;
use crate::trainee::layer_of;

const LORA_CONFIG: &str = "adapter_config.json";
const LORA_TENSORS: &str = "adapter_model.safetensors";
const BIAS_TENSORS: &str = "bias.safetensors";

/// Writes `adapter` into `folder`, which is created. `base` names the model it belongs to (PEFT's
/// `base_model_name_or_path`). Tensors are f32.
///
/// # Errors
/// The file system's.
pub fn write(folder: &Path, adapter: &Adapter, base: &str) -> Result<(), TrainError> {
    fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, e))?;
    let mut tensors = BTreeMap::new();
    for (name, parameter) in adapter.named_parameters() {
        let shape = parameter.dims();
        let values = match parameter {
            Parameter::Vector(t) => floats(t),
            Parameter::Matrix(t) => floats(t),
        };
        tensors.insert(name, Floats::new(shape, &values));
    }
    let file = match adapter {
        Adapter::Bias(_) => BIAS_TENSORS,
        Adapter::Lora(lora) => {
            let path = folder.join(LORA_CONFIG);
            let text = serde_json::to_vec_pretty(&peft_config(lora, base))
                .map_err(|e| TrainError::format(&path, e.to_string()))?;
            write_synced(&path, &text)?;
            LORA_TENSORS
        }
    };
    let path = folder.join(file);
    let info = [("format".to_owned(), "pt".to_owned())].into();
    let bytes =
        safetensors::serialize(&tensors, Some(info)).map_err(|e| TrainError::format(&path, e.to_string()))?;
    write_synced(&path, &bytes)
}

/// The settings PEFT needs to rebuild the adapter.
fn peft_config(lora: &Lora, base: &str) -> Value {
    let rank = lora.layers.first().and_then(|l| l.first()).map_or(0, |f| f.a.dims()[0]);
    let targets: Vec<&str> =
        lora.projections.iter().map(|p| p.path().rsplit('.').next().unwrap_or_default()).collect();
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": lora.scale * rank as f64,
        "lora_dropout": 0.0,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "use_dora": false,
        "use_rslora": false,
    })
}

/// Reads the adapter in `folder`, for a model of shape `config`.
///
/// # Errors
/// A folder that holds no adapter, an adapter for another shape, or one that uses what is not
/// implemented here (DoRA, per-layer ranks, trained biases).
pub fn read(folder: &Path, config: &ModelConfig, device: &Device) -> Result<Adapter, TrainError> {
    let bias = folder.join(BIAS_TENSORS);
    if bias.exists() {
        return read_bias(&bias, config, device).map(Adapter::Bias);
    }
    let path = folder.join(LORA_CONFIG);
    if path.exists() {
        let text = fs::read(&path).map_err(|e| TrainError::io(&path, e))?;
        let settings =
            serde_json::from_slice(&text).map_err(|e| TrainError::format(&path, format!("not JSON: {e}")))?;
        let (targets, rank, scale) = lora_settings(&settings, &path)?;
        return read_lora(&folder.join(LORA_TENSORS), (targets, rank, scale), config, device)
            .map(Adapter::Lora);
    }
    Err(TrainError::format(
        folder,
        format!(
            "no adapter: neither {BIAS_TENSORS} nor {LORA_CONFIG}; point at the folder that a training wrote"
        ),
    ))
}

/// Target projections, rank and scale of a PEFT configuration.
fn lora_settings(settings: &Value, path: &Path) -> Result<(Vec<Projection>, usize, f64), TrainError> {
    let wrong = |problem: String| TrainError::format(path, problem);
    if settings["peft_type"] != "LORA" {
        return Err(wrong(format!("peft_type is {}; only LORA can be read", settings["peft_type"])));
    }
    let set = |key: &str| match &settings[key] {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => text != "none",
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
        _ => true,
    };
    let beyond = [
        "use_dora",
        "fan_in_fan_out",
        "rank_pattern",
        "alpha_pattern",
        "bias",
        "modules_to_save",
        "layers_to_transform",
    ];
    if let Some(key) = beyond.into_iter().find(|key| set(key)) {
        return Err(wrong(format!(
            "`{key}` is {}; this is not implemented, merge the adapter with PEFT and use the merged model",
            settings[key]
        )));
    }
    let rank = settings["r"].as_u64().filter(|&r| r > 0);
    let rank = rank.ok_or_else(|| wrong("`r` is not a rank".into()))? as usize;
    let alpha = settings["lora_alpha"].as_f64();
    let alpha = alpha.ok_or_else(|| wrong("`lora_alpha` is not a number".into()))?;
    let divisor = if set("use_rslora") { (rank as f64).sqrt() } else { rank as f64 };
    let names = settings["target_modules"].as_array();
    let names = names.ok_or_else(|| wrong("`target_modules` is not a list of names".into()))?;
    let mut targets = Vec::new();
    for name in names {
        let target = name.as_str().and_then(Projection::parse);
        targets.push(target.ok_or_else(|| {
            wrong(format!("`target_modules` names {name}, which is no projection of a layer"))
        })?);
    }
    // PEFT keeps a set; the order of a forward pass is ours
    targets.sort();
    Ok((targets, rank, alpha / divisor))
}

fn read_lora(
    path: &Path,
    (targets, rank, scale): (Vec<Projection>, usize, f64),
    config: &ModelConfig,
    device: &Device,
) -> Result<Lora, TrainError> {
    // the shapes of a fresh adapter are the shapes to find
    let mut lora = Lora::new(config, &targets, rank, scale * rank as f64, 0, device);
    lora.scale = scale;
    match fill(path, &Adapter::Lora(lora), device)? {
        Adapter::Lora(lora) => Ok(lora),
        Adapter::Bias(_) => unreachable!("filling keeps the kind of an adapter"),
    }
}

fn read_bias(path: &Path, config: &ModelConfig, device: &Device) -> Result<BiasAdapter, TrainError> {
    let bytes = fs::read(path).map_err(|e| TrainError::io(path, e))?;
    let tensors = parse(path, &bytes)?;
    let projection = tensors.names().into_iter().find_map(|name| {
        let (_, inside) = name.split_once("layers.")?.1.split_once('.')?;
        Projection::parse(inside.strip_suffix(".bias")?)
    });
    let projection = projection.ok_or_else(|| {
        TrainError::format(path, "holds no bias such as `model.layers.0.mlp.down_proj.bias`")
    })?;
    match fill(path, &Adapter::Bias(BiasAdapter::zeros(config, projection, device)), device)? {
        Adapter::Bias(bias) => Ok(bias),
        Adapter::Lora(_) => unreachable!("filling keeps the kind of an adapter"),
    }
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, TrainError> {
    SafeTensors::deserialize(bytes)
        .map_err(|e| TrainError::format(path, format!("not a safetensors file: {e}")))
}

/// `like` with its tensors replaced by those of the file, which holds exactly these.
fn fill(path: &Path, like: &Adapter, device: &Device) -> Result<Adapter, TrainError> {
    let bytes = fs::read(path).map_err(|e| TrainError::io(path, e))?;
    let tensors = parse(path, &bytes)?;
    let mut problem = None;
    let mut found = 0;
    let filled = like.map_parameters(|name, parameter| {
        let shape = parameter.dims();
        match tensors.tensor(name) {
            Ok(view) if view.shape() == shape => match to_f32(view.dtype(), view.data()) {
                Some(values) => {
                    found += 1;
                    let data = TensorData::new(values, shape);
                    let options = (device, DType::F32);
                    return match parameter {
                        Parameter::Vector(_) => Tensor::<1>::from_data(data, options).into(),
                        Parameter::Matrix(_) => Tensor::<2>::from_data(data, options).into(),
                    };
                }
                None => problem = Some(format!("`{name}` is {:?}, not floating point", view.dtype())),
            },
            Ok(view) => {
                let got = view.shape();
                problem = Some(format!(
                    "`{name}` has shape {got:?}, the model needs {shape:?}; use the adapter's own base model"
                ));
            }
            Err(_) => problem = Some(format!("`{name}` is missing; use the adapter's own base model")),
        }
        parameter
    });
    if problem.is_none() && found < tensors.len() {
        let known: Vec<String> = like.named_parameters().into_iter().map(|(name, _)| name).collect();
        let names = tensors.names();
        let extra = names.into_iter().find(|name| !known.iter().any(|k| k == name));
        problem =
            extra.map(|name| format!("`{name}` has no place in the model; use the adapter's own base model"));
    }
    match problem {
        Some(problem) => Err(TrainError::format(path, problem)),
        None => Ok(filled),
    }
}

fn to_f32(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    let halves = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match dtype {
        Dtype::F32 => Some(read_floats(bytes)),
        Dtype::BF16 => Some(halves.map(|h| f32::from_bits(u32::from(h) << 16)).collect()),
        Dtype::F16 => Some(halves.map(|h| burn::tensor::f16::from_bits(h).to_f32()).collect()),
        _ => None,
    }
}

/// `model` with `adapter` folded into its weights: `W + scale·B·A`, or a bias added to the bias that is
/// there. Computed in f32, then rounded to the model's dtype once.
///
/// # Errors
/// A bias for a projection without one: the checkpoint's architecture has no place for it.
pub fn merge(model: &Model, adapter: &Adapter) -> Result<Model, TrainError> {
    match adapter {
        Adapter::Lora(lora) => Ok(model.map_parameters(|name, parameter| merge_lora(lora, name, parameter))),
        Adapter::Bias(bias) => {
            if model.layers().iter().any(|layer| layer.projection(bias.projection).bias.is_none()) {
                return Err(TrainError::config(
                    "adapter",
                    format!("the model has no bias on {}", bias.projection.path()),
                    "convert it to an architecture that has one (Llama with `mlp_bias`) first",
                ));
            }
            let suffix = format!("{}.bias", bias.projection.path());
            Ok(model.map_parameters(|name, parameter| match (layer_of(name), parameter) {
                (Some(layer), Parameter::Vector(own)) if name.ends_with(&suffix) => {
                    let dtype = own.dtype();
                    let sum = own.cast(DType::F32) + bias.biases[layer].clone();
                    sum.cast(dtype).into()
                }
                (_, other) => other,
            }))
        }
    }
}

fn merge_lora(lora: &Lora, name: &str, parameter: Parameter) -> Parameter {
    let place = layer_of(name).and_then(|layer| {
        let projection =
            Projection::parse(name.split_once("layers.")?.1.split_once('.')?.1.strip_suffix(".weight")?)?;
        lora.factors(layer, projection)
    });
    match (place, parameter) {
        (Some(factors), Parameter::Matrix(weight)) => {
            let dtype = weight.dtype();
            let product = product(factors.b.clone().cast(DType::F32), factors.a.clone().cast(DType::F32));
            (weight.cast(DType::F32) + product.mul_scalar(lora.scale)).cast(dtype).into()
        }
        (_, other) => other,
    }
}
