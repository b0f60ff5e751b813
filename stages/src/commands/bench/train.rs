//! `pipeline bench train`: updates on random sequences.

use burn::tensor::Device;
use clap::ValueEnum;
use engine::cli::CliError;
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::model::Model;
use lm::rng::Stream;
use serde_json::{Value, json};
use trainer::data::{Batching, Sequence};
use trainer::sft::{SftConfig, train};
use trainer::trainee::Trainee;
use trainer::{Control, Progress, Saving};

use super::shape::Shape;
use crate::commands::failed;

/// What trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// A steering vector per layer on `down_proj`.
    Bias,
    /// Low-rank factors on all seven projections.
    Lora,
    /// Every parameter.
    Full,
}

/// Arguments of `bench train`.
#[derive(Debug, clap::Args)]
pub struct Train {
    /// The model's shape.
    #[arg(long, value_enum, default_value = "smollm2-135m")]
    shape: Shape,
    /// What trains.
    #[arg(long, value_enum, default_value = "lora")]
    method: What,
    /// Rank of LoRA.
    #[arg(long, default_value_t = 16)]
    rank: usize,
    /// Sequences per update.
    #[arg(long, default_value_t = 8)]
    rows: usize,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 1024)]
    seq: usize,
    /// Sequences that go through the model at once; all by default.
    #[arg(long)]
    micro_batch: Option<usize>,
    /// Recompute activations in the backward pass.
    #[arg(long)]
    recompute: bool,
    /// Updates that are not counted.
    #[arg(long, default_value_t = 2)]
    warm_up: u64,
    /// Updates that are.
    #[arg(long, default_value_t = 5)]
    repeat: u64,
    /// The device, `cpu` or `cuda:N`.
    #[arg(long, default_value = "cpu")]
    device: String,
}

impl Train {
    /// Measures.
    pub fn run(&self) -> Result<Value, CliError> {
        run(self)
    }
}

/// Runs the updates and says what they took.
fn run(args: &Train) -> Result<Value, CliError> {
    let device = lm::device::open(&args.device).map_err(failed)?;
    let trainee = trainee(args.shape, args.method, args.rank, &args.device)?;
    let pass = pass(&trainee);
    let trained = trainee.len();
    let data = sequences(args)?;
    let config = SftConfig {
        steps: Some(args.warm_up + args.repeat),
        batch: args.rows,
        batching: Batching { micro_tokens: args.seq * args.micro_batch.unwrap_or(args.rows), pack: false },
        recompute: args.recompute,
        ..SftConfig::default()
    };
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    let mut cards = vec![memory(&device, &args.device)];
    let mut watch = |progress: &Progress| {
        cards.push(memory(&device, &args.device));
        seconds.extend(progress.timing.get("update"));
        losses.extend(progress.metrics.get("loss"));
        Control::Continue
    };
    train(&config, trainee, &data, &[], &Saving::default(), &mut watch).map_err(failed)?;
    let counted = &mut seconds[args.warm_up.min(config.steps.unwrap_or(0)) as usize..].to_vec();
    counted.sort_by(f64::total_cmp);
    let median = counted.get(counted.len() / 2).copied().unwrap_or(f64::NAN);
    Ok(json!({
        "shape": args.shape.name(),
        "method": args.method.to_possible_value().map(|value| value.get_name().to_owned()),
        "trained_parameters": trained,
        "rows": args.rows,
        "seq": args.seq,
        "micro_batch": args.micro_batch.unwrap_or(args.rows),
        "recompute": args.recompute,
        "device": args.device,
        "milliseconds": median * 1e3,
        "fastest_milliseconds": counted.first().map(|s| s * 1e3),
        "tokens_per_second": (args.rows * args.seq) as f64 / median,
        "first_update_seconds": seconds.first(),
        "losses": losses,
        "pass": pass,
        "profile": profile(&args.device),
        "gigabytes": memory(&device, &args.device),
        "cards": cards,
        "libraries": libraries(),
    }))
}

/// Random weights of a shape, and what trains on them.
pub(super) fn trainee(shape: Shape, method: What, rank: usize, device: &str) -> Result<Trainee, CliError> {
    let dtype = lm::device::default_dtype(device);
    let device = lm::device::open(device).map_err(failed)?;
    device.seed(0);
    let model = Model::noise(&shape.config()?, &device, dtype);
    let config = model.config().clone();
    Ok(match method {
        What::Full => Trainee::full(model),
        What::Bias => {
            let bias = BiasAdapter::zeros(&config, Projection::Down, &device);
            Trainee::adapter(model, Adapter::Bias(bias))
        }
        What::Lora => {
            let lora = Lora::new(&config, &Projection::ALL, rank, rank as f64, 0, &device);
            Trainee::adapter(model, Adapter::Lora(lora))
        }
    })
}

/// Random sequences, a new one for every place of every update.
fn sequences(args: &Train) -> Result<Vec<Sequence>, CliError> {
    let vocab = args.shape.config()?.vocab_size as u64;
    let count = args.rows as u64 * (args.warm_up + args.repeat);
    let sequence = |index: u64| {
        let stream = Stream::new(1, index);
        Sequence::text((0..args.seq as u64).map(|i| (stream.bits(i) % vocab) as u32).collect())
    };
    Ok((0..count).map(sequence).collect())
}

/// Gigabytes (10⁹ bytes) on the device: what tensors hold, what the allocator has reserved (it never
/// gives back, so this is the peak), and what the card says is in use.
pub(super) fn memory(device: &Device, name: &str) -> Value {
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    let pools = device.memory_pool_usage();
    let card = crate::gpu::memory(name).map(|(free, total)| gigabytes(total - free));
    json!({
        "in_use": pools.map(|p| gigabytes(p.bytes_in_use)),
        "reserved": pools.map(|p| gigabytes(p.bytes_reserved)),
        "card": card,
        "stack": stack(name),
    })
}

/// Whether passes go beside burn or through it, and why.
fn pass(trainee: &Trainee) -> String {
    match trainer::gradient::through_burn(&trainee.current()) {
        None => "beside burn".to_owned(),
        Some(why) => format!("through burn ({why})"),
    }
}

/// Gigabytes that the pass beside burn holds.
fn stack(device: &str) -> Option<f64> {
    let gpu = crate::gpu::index(device)?;
    #[cfg(feature = "cuda")]
    if let Some(executor) = lm::nvidia::executor::executor(gpu) {
        let executor = executor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        return Some(executor.held() as f64 / 1e9);
    }
    let _ = gpu;
    None
}

/// What the pass beside burn called, how often and for how many milliseconds, where `PIPELINE_PROFILE`
/// is set (each call is then waited for).
fn profile(device: &str) -> Value {
    #[cfg(feature = "cuda")]
    if let Some(executor) = crate::gpu::index(device).and_then(lm::nvidia::executor::executor) {
        let all = executor.lock().unwrap_or_else(std::sync::PoisonError::into_inner).profile();
        let entry = |(name, calls, seconds): &(&str, u64, f64)| json!([name, calls, seconds * 1e3]);
        return all.iter().map(entry).collect();
    }
    let _ = device;
    Value::Null
}

/// Which of NVIDIA's libraries are used.
fn libraries() -> Vec<&'static str> {
    #[cfg(feature = "cuda")]
    if lm::nvidia::blas_available() {
        return vec!["cublas"];
    }
    Vec::new()
}
