//! Adapters on disk and in plain weights, against PEFT (`tests/scripts/peft_adapter.py`).

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use common::{config, model};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::checkpoint::Checkpoint;
use lm::model::{Model, Parameter};
use serde_json::Value;
use trainer::adapter_io::{merge, read, write};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/peft")
}

fn case() -> Value {
    serde_json::from_str(&fs::read_to_string(data().join("case.json")).unwrap()).unwrap()
}

fn base(dtype: DType) -> Model {
    let checkpoint = Checkpoint::open(&data().join("base")).unwrap();
    Model::load(&checkpoint, &Device::flex(), dtype).unwrap()
}

fn logits(model: &Model, adapter: Option<&Adapter>) -> Vec<f32> {
    let ids: Vec<i32> = serde_json::from_value(case()["ids"].clone()).unwrap();
    let ids = TensorData::new(ids.clone(), [1, ids.len()]);
    let ids = Tensor::<2, Int>::from_data(ids, &Device::flex());
    model.forward(ids, adapter).into_data().convert::<f32>().try_into_vec().unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |m, (x, y)| m.max((x - y).abs()))
}

#[test]
fn what_peft_wrote_gives_pefts_logits_applied_and_merged() {
    let model = base(DType::F32);
    let adapter = read(&data().join("adapter"), model.config(), &Device::flex()).unwrap();
    let want: Vec<f32> = serde_json::from_value(case()["logits"].clone()).unwrap();
    let applied = logits(&model, Some(&adapter));
    assert!(largest_difference(&applied, &want) < 1e-4);
    assert!(largest_difference(&logits(&model, None), &want) > 0.1);
    let merged = logits(&merge(&model, &adapter).unwrap(), None);
    assert!(largest_difference(&merged, &want) < 1e-4);
}

#[test]
fn merging_into_bf16_rounds_once() {
    let adapter_of = |m: &Model| read(&data().join("adapter"), m.config(), &Device::flex()).unwrap();
    let (exact, coarse) = (base(DType::F32), base(DType::BF16));
    let want = logits(&exact, Some(&adapter_of(&exact)));
    let merged = merge(&coarse, &adapter_of(&coarse)).unwrap();
    assert_eq!(merged.dtype(), DType::BF16);
    let scale = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    // bf16 has 8 bits of precision: the rounding of two layers' weights and activations
    let difference = largest_difference(&logits(&merged, None), &want);
    assert!(difference < 0.05 * scale, "{difference} of {scale}");
    let unmerged = largest_difference(&logits(&coarse, Some(&adapter_of(&coarse))), &want);
    assert!(unmerged < 0.05 * scale, "{unmerged} of {scale}");
}

#[test]
fn a_fresh_lora_starts_as_pefts_does() {
    let model = base(DType::F32);
    let lora = Lora::new(model.config(), &[Projection::Query, Projection::Down], 3, 5.0, 1, &Device::flex());
    let initial = case()["initial"].clone();
    for (name, parameter) in Adapter::Lora(lora).named_parameters() {
        let Parameter::Matrix(t) = parameter else { panic!("{name} is a vector") };
        let peft = &initial[name.replace(".weight", ".default.weight")];
        assert_eq!(serde_json::json!(t.dims()), peft[1], "{name}");
        let largest = t.abs().max().into_scalar::<f32>();
        if name.contains("lora_B") {
            assert_eq!(largest, 0.0);
        } else {
            // uniform in ±1/√in: the largest of 48 or more values is close below the bound
            let bound = if name.contains("q_proj") { 0.25 } else { 1.0 / 24f32.sqrt() };
            let pefts = peft[0].as_f64().unwrap() as f32;
            assert!(largest <= bound && largest > 0.85 * bound, "{name}: {largest}");
            assert!(pefts <= bound && pefts > 0.85 * bound, "{name}: PEFT has {pefts}");
        }
    }
}

fn values(adapter: &Adapter) -> Vec<(String, Vec<u8>)> {
    let named = adapter.named_parameters();
    named.into_iter().map(|(name, p)| (name, p.to_data().as_bytes().to_vec())).collect()
}

#[test]
fn what_is_written_is_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let shape = config(true);
    let mut bias = BiasAdapter::zeros(&shape, Projection::Down, &device);
    bias.biases[1] = bias.biases[1].clone().add_scalar(0.3);
    let lora = Lora::new(&shape, &[Projection::Query, Projection::Up], 2, 3.0, 5, &device);
    for (name, adapter) in [("bias", Adapter::Bias(bias)), ("lora", Adapter::Lora(lora))] {
        let folder = dir.path().join(name);
        write(&folder, &adapter, "base").unwrap();
        let again = read(&folder, &shape, &device).unwrap();
        assert_eq!(values(&again), values(&adapter));
        if let (Adapter::Lora(a), Adapter::Lora(b)) = (&adapter, &again) {
            assert_eq!((a.scale, &a.projections), (b.scale, &b.projections));
        }
    }
}

#[test]
fn what_is_written_after_reading_pefts_files_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let shape = base(DType::F32).config().clone();
    let adapter = read(&data().join("adapter"), &shape, &Device::flex()).unwrap();
    write(dir.path(), &adapter, "base").unwrap();
    let tensors = |folder: &Path| {
        let bytes = fs::read(folder.join("adapter_model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut all: Vec<_> = file
            .iter()
            .map(|(name, view)| (name.to_owned(), view.shape().to_vec(), view.data().to_vec()))
            .collect();
        all.sort();
        all
    };
    assert_eq!(tensors(dir.path()), tensors(&data().join("adapter")));
    let settings = |folder: &Path| -> Value {
        serde_json::from_slice(&fs::read(folder.join("adapter_config.json")).unwrap()).unwrap()
    };
    let (ours, pefts) = (settings(dir.path()), settings(&data().join("adapter")));
    for (key, value) in ours.as_object().unwrap() {
        match key.as_str() {
            "base_model_name_or_path" => assert_eq!(value, "base"),
            "target_modules" => {
                let names = |v: &Value| {
                    let mut names: Vec<String> = serde_json::from_value(v.clone()).unwrap();
                    names.sort();
                    names
                };
                assert_eq!(names(value), names(&pefts[key]));
            }
            "lora_alpha" => assert_eq!(value.as_f64(), pefts[key].as_f64()),
            _ => assert_eq!(value, &pefts[key], "{key}"),
        }
    }
}

#[test]
fn a_bias_merges_where_there_is_a_place_for_it() {
    let shape = config(true);
    let plain = model(&shape, 1);
    let mut bias = BiasAdapter::zeros(&shape, Projection::Query, &Device::flex());
    for (i, b) in bias.biases.iter_mut().enumerate() {
        *b = b.clone().add_scalar(0.1 * (i + 1) as f64);
    }
    // Qwen2 has a bias on q_proj and none on down_proj
    let query = Adapter::Bias(bias);
    let difference =
        largest_difference(&logits(&merge(&plain, &query).unwrap(), None), &logits(&plain, Some(&query)));
    assert!(difference < 1e-5, "{difference}");
    let down = Adapter::Bias(BiasAdapter::zeros(&shape, Projection::Down, &Device::flex()));
    let error = merge(&plain, &down).unwrap_err().to_string();
    assert!(error.contains("mlp.down_proj") && error.contains("mlp_bias"), "{error}");
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let shape = base(DType::F32).config().clone();
    let of = |folder: &Path| read(folder, &shape, &Device::flex()).unwrap_err().to_string();
    assert!(of(dir.path()).contains("no adapter"));
    let copy = |change: &dyn Fn(&mut Value)| {
        let folder = tempfile::tempdir().unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            fs::copy(data().join("adapter").join(file), folder.path().join(file)).unwrap();
        }
        let path = folder.path().join("adapter_config.json");
        let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut settings);
        fs::write(&path, settings.to_string()).unwrap();
        folder
    };
    assert!(of(copy(&|s| s["use_dora"] = true.into()).path()).contains("use_dora"));
    assert!(of(copy(&|s| s["r"] = 4.into()).path()).contains("shape"));
    assert!(of(copy(&|s| s["target_modules"] = serde_json::json!(["q_proj"])).path()).contains("no place"));
    assert!(of(copy(&|s| s["target_modules"] = serde_json::json!(["w9"])).path()).contains("w9"));
}
