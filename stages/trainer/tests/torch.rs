//! Gradients of whole models and short trainings against torch, transformers and PEFT
//! (`scripts/trainings.py`).

mod common;

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use common::flatten;
use lm::adapter::{Adapter, BiasAdapter, Projection};
use lm::checkpoint::Checkpoint;
use lm::model::Model;
use serde_json::Value;
use trainer::data::{Batch, Batching, Sequence};
use trainer::gradient::{Gradients, Pass, accumulate};
use trainer::loss::RowValues;
use trainer::objective::entropy::Mask;
use trainer::objective::{TokenLoss, entropy, psft, rloo, sft, spft};
use trainer::optim::AdamW;
use trainer::schedule::{Schedule, Shape};
use trainer::sft::{Objective, SftConfig, train};
use trainer::trainee::Trainee;
use trainer::{Control, Metrics, Progress, Saving};

fn witness() -> Value {
    serde_json::from_str(include_str!("scripts/trainings.json")).unwrap()
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/peft")
}

fn trainee(kind: &str) -> Trainee {
    let checkpoint = Checkpoint::open(&data().join("base")).unwrap();
    let model = Model::load(&checkpoint, &Device::flex(), DType::F32).unwrap();
    let (config, device) = (model.config().clone(), model.device());
    match kind {
        "full" => Trainee::full(model),
        "bias" => {
            let zeros = BiasAdapter::zeros(&config, Projection::Down, &device);
            Trainee::adapter(model, Adapter::Bias(zeros))
        }
        _ => {
            let adapter = trainer::adapter_io::read(&data().join("adapter"), &config, &device).unwrap();
            Trainee::adapter(model, adapter)
        }
    }
}

type Row = (Vec<u32>, Vec<u32>);

fn rows(of: &Value) -> Vec<Row> {
    serde_json::from_value(of.clone()).unwrap()
}

fn completions(rows: &[Row]) -> Vec<Sequence> {
    rows.iter().map(|(prompt, completion)| Sequence::completion(prompt, completion)).collect()
}

fn observed(rows: &[Row], mask: Mask) -> Vec<Sequence> {
    let sequence = |(prompt, completion): &Row| {
        let positions = mask.positions(prompt.len(), completion.len());
        Sequence::observed([&prompt[..], completion].concat(), positions)
    };
    rows.iter().map(sequence).collect()
}

/// Norm, and product with cos(0), cos(1), …
fn in_two_numbers(gradient: &[f32]) -> [f64; 2] {
    let values = || gradient.iter().map(|&g| f64::from(g));
    let norm = values().map(|g| g * g).sum::<f64>().sqrt();
    [norm, values().enumerate().map(|(i, g)| g * (i as f64).cos()).sum()]
}

#[test]
fn gradients_of_whole_models_are_those_of_torch() {
    let witness = witness();
    let rows = rows(&witness["rows"]);
    let advantages: Vec<f32> = serde_json::from_value(witness["advantages"].clone()).unwrap();
    let tokens: usize = rows.iter().map(|(_, completion)| completion.len()).sum();
    for kind in ["full", "bias", "lora"] {
        let trainee = trainee(kind);
        for (name, sequences, temperature) in [
            ("sft", completions(&rows), 1.0),
            ("rloo", completions(&rows), 0.7),
            ("entropy_causal", observed(&rows, Mask::Causal), 0.5),
            ("entropy_reference", observed(&rows, Mask::Reference), 0.5),
        ] {
            let per_token: Vec<Vec<f32>> =
                sequences.iter().zip(&advantages).map(|(s, &a)| vec![a; s.targets.len()]).collect();
            let objective = |batch: &Batch, start: usize, values: &RowValues| -> TokenLoss {
                let end = start + values.log_prob.len();
                match name {
                    "sft" => sft::evaluate(&values.log_prob),
                    "rloo" => rloo::evaluate(&values.log_prob, &batch.gather(&per_token)[start..end]),
                    _ => entropy::evaluate(&values.entropy),
                }
            };
            // padded, packed, one row at a time
            for (micro_tokens, pack) in [(1000, false), (1000, true), (1, false)] {
                let members: Vec<usize> = (0..sequences.len()).collect();
                let pass = Pass { temperature, ..Pass::default() };
                let (mut sums, mut loss) = (Gradients::new(&trainee), 0.0);
                for batch in (Batching { micro_tokens, pack }).split(&sequences, &members) {
                    let objective = |start: usize, values: &RowValues| {
                        let part = objective(&batch, start, values);
                        loss += part.loss / tokens as f64;
                        part
                    };
                    let scale = 1.0 / tokens as f64;
                    accumulate(&trainee, &trainee.current(), &batch, pass, scale, objective, &mut sums);
                }
                let case = &witness["gradients"][kind][name];
                let want = case["loss"].as_f64().unwrap();
                assert!((loss - want).abs() < 1e-5 * (1.0 + want.abs()), "{kind}, {name}: {loss}, {want}");
                let got = sums.finish(&trainee, &Device::flex());
                assert_eq!(got.len(), case["gradients"].as_object().unwrap().len(), "{kind}, {name}");
                for (master, got) in trainee.masters().iter().zip(got) {
                    let got = in_two_numbers(&flatten(got));
                    let want: [f64; 2] =
                        serde_json::from_value(case["gradients"][&master.name].clone()).unwrap();
                    let near = got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-4 * want[0] + 1e-6);
                    assert!(near, "{kind}, {name}, {}: {got:?}, {want:?}", master.name);
                }
            }
        }
    }
}

#[test]
fn trainings_follow_those_of_torch() {
    let witness = witness();
    let (data, held_out) = (completions(&rows(&witness["rows"])), completions(&rows(&witness["held_out"])));
    for kind in ["full", "bias", "lora"] {
        for (name, objective) in [
            ("sft", Objective::Sft),
            ("psft", Objective::Psft(psft::Psft::default())),
            ("spft", Objective::Spft(spft::Spft::default())),
        ] {
            let config = SftConfig {
                steps: Some(6),
                batch: 3,
                objective,
                schedule: Schedule { lr: 5e-3, warmup_steps: 1, shape: Shape::Cosine, floor: 0.0 },
                optimizer: AdamW { beta2: 0.95, weight_decay: 0.1, ..AdamW::default() },
                batching: Batching { micro_tokens: 20, pack: kind == "full" },
                shuffle: false,
                eval_every: 1,
                ..SftConfig::default()
            };
            let mut go = |_: &Progress| Control::Continue;
            let outcome =
                train(&config, trainee(kind), &data, &held_out, &Saving::default(), &mut go).unwrap();
            let case = &witness["trainings"][kind][name];
            for (step, line) in outcome.metrics.iter().enumerate() {
                let metrics: Metrics = serde_json::from_str(line).unwrap();
                for of in ["loss", "grad_norm", "lr", "tokens", "held_out_loss"] {
                    let (got, want) = (metrics.get(of).unwrap(), case[of][step].as_f64().unwrap());
                    // f32 against f64; AdamW turns a gradient near nothing into a whole step
                    let near = (got - want).abs() < 1e-3 * want.abs() + 1e-4;
                    assert!(near, "{kind}, {name}, update {}: {of} {got}, torch {want}", step + 1);
                }
            }
        }
    }
}
