//! `pipeline bench passes`: gradients of the training pass beside burn, and of that through burn, against
//! f32.

use burn::tensor::{DType, Device, Distribution, Tensor};
use engine::cli::CliError;
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::model::{Model, Parameter};
use lm::rng::Stream;
use serde_json::{Value, json};
use trainer::check::{Apart, compare, compare_updates};
use trainer::data::{Batching, Sequence};
use trainer::gradient::{Dropout, Pass};
use trainer::trainee::Trainee;

use super::shape::Shape;
use crate::commands::failed;

/// Arguments of `bench passes`.
#[derive(Debug, clap::Args)]
pub struct Passes {
    /// The GPU, `cuda:N`.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// The small cases only.
    #[arg(long)]
    small: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Full,
    Steering(Projection),
    Lora(f64),
}

struct Case {
    name: &'static str,
    shape: Shape,
    what: What,
    /// Lengths of the sequences.
    lengths: &'static [usize],
    pack: bool,
    recompute: bool,
}

const CASES: [Case; 8] = [
    Case {
        name: "full, padded",
        shape: Shape::Tiny,
        what: What::Full,
        lengths: &[41, 37, 20],
        pack: false,
        recompute: false,
    },
    Case {
        name: "full, packed, recomputed",
        shape: Shape::Tiny,
        what: What::Full,
        lengths: &[64, 40, 20, 30, 33],
        pack: true,
        recompute: true,
    },
    Case {
        name: "steering down",
        shape: Shape::Tiny,
        what: What::Steering(Projection::Down),
        lengths: &[48, 48],
        pack: false,
        recompute: true,
    },
    Case {
        name: "steering query",
        shape: Shape::Tiny,
        what: What::Steering(Projection::Query),
        lengths: &[48, 48],
        pack: false,
        recompute: false,
    },
    Case {
        name: "lora with dropout",
        shape: Shape::Tiny,
        what: What::Lora(0.25),
        lengths: &[56, 31],
        pack: false,
        recompute: true,
    },
    Case {
        name: "full, mid",
        shape: Shape::Smol,
        what: What::Full,
        lengths: &[300, 255, 280],
        pack: false,
        recompute: true,
    },
    Case {
        name: "lora, blocks",
        shape: Shape::QwenHalfB,
        what: What::Lora(0.0),
        lengths: &[1101, 1100, 1000, 999, 1024, 1070, 1000, 800],
        pack: false,
        recompute: true,
    },
    Case {
        name: "lora, packed, blocks",
        shape: Shape::Smol,
        what: What::Lora(0.0),
        lengths: &[2047, 1500, 1301, 1024, 1020, 900, 700, 441, 2041],
        pack: true,
        recompute: false,
    },
];

/// bf16 rounds at other places in the two passes: each is off by its own rounding. Beside burn may be off by
/// this much more, as a share of what burn is off by, ...
const SHARE: f64 = 0.25;
/// ... and this much in any case (relative for gradients, nats for values).
const ALWAYS: f64 = 0.01;

impl Passes {
    /// Compares.
    pub fn run(&self) -> Result<Value, CliError> {
        let device = lm::device::open(&self.device).map_err(failed)?;
        device.seed(0);
        let cases: Vec<&Case> =
            CASES.iter().filter(|c| !self.small || matches!(c.shape, Shape::Tiny)).collect();
        let mut results = Vec::new();
        for case in cases {
            let result = run(case, &device)?;
            // each as it comes: what follows may fail
            eprintln!("{result}");
            results.push(result);
        }
        let agree = results.iter().all(|r| r["agree"] == json!(true));
        Ok(json!({ "agree": agree, "share": SHARE, "always": ALWAYS, "cases": results }))
    }
}

fn noisy(parameter: Parameter, std: f64) -> Parameter {
    match parameter {
        Parameter::Vector(t) => {
            let noise = Tensor::random(t.dims(), Distribution::Normal(0.0, std), (&t.device(), t.dtype()));
            Parameter::Vector(t + noise)
        }
        Parameter::Matrix(t) => {
            let noise = Tensor::random(t.dims(), Distribution::Normal(0.0, std), (&t.device(), t.dtype()));
            Parameter::Matrix(t + noise)
        }
    }
}

fn trainee(case: &Case, device: &Device) -> Result<Trainee, CliError> {
    let config = case.shape.config()?;
    let model = Model::noise(&config, device, DType::BF16).map_parameters(|_, p| noisy(p, 0.05));
    let adapter = match case.what {
        What::Full => return Ok(Trainee::full(model)),
        What::Steering(projection) => Adapter::Bias(BiasAdapter::zeros(&config, projection, device)),
        What::Lora(_) => Adapter::Lora(Lora::new(&config, &Projection::ALL, 8, 16.0, 0, device)),
    };
    Ok(Trainee::adapter(model, adapter.map_parameters(|_, p| noisy(p, 0.05))))
}

fn run(case: &Case, device: &Device) -> Result<Value, CliError> {
    let trainee = trainee(case, device)?;
    let vocab = case.shape.config()?.vocab_size as u64;
    let sequence = |(index, &length): (usize, &usize)| {
        let stream = Stream::new(3, index as u64);
        Sequence::text((0..length as u64).map(|i| (stream.bits(i) % vocab) as u32).collect())
    };
    let sequences: Vec<Sequence> = case.lengths.iter().enumerate().map(sequence).collect();
    let members: Vec<usize> = (0..sequences.len()).collect();
    let batching = Batching { micro_tokens: 1 << 20, pack: case.pack };
    let batch = batching.split(&sequences, &members).swap_remove(0);
    let dropout = match case.what {
        What::Lora(rate) if rate > 0.0 => Some(Dropout { rate, seed: 5, step: 2 }),
        _ => None,
    };
    let pass = Pass { temperature: 1.25, recompute: case.recompute, dropout };
    let (apart, repeats) = match compare(&trainee, &batch, pass) {
        Ok(compared) => compared,
        Err(why) => return Ok(json!({ "case": case.name, "agree": false, "not_beside_burn": why })),
    };
    let updates = match case.shape {
        // all masters come to the host several times
        Shape::Tiny => compare_updates(&trainee, &batch, pass).unwrap_or(false),
        _ => true,
    };
    let near = |a: &Apart| a.beside <= a.through * (1.0 + SHARE) + ALWAYS;
    let show = |a: &Apart| json!([a.name, a.beside, a.through, a.norm]);
    let worst: Vec<Value> = apart.iter().take(6).map(show).collect();
    Ok(json!({
        "case": case.name,
        "agree": apart.iter().all(near) && repeats && updates,
        "repeats": repeats,
        "updates": updates,
        "compared": apart.len(),
        "beyond": apart.iter().filter(|a| !near(a)).count(),
        "worst": worst,
    }))
}
