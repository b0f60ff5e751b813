//! `pipeline bench check`: whether a device generates as the CPU does, and whether a sample depends on
//! nothing but its own prompt, seed and parameters.

use std::ops::ControlFlow;
use std::path::PathBuf;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use engine::cli::CliError;
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::config::ModelConfig;
use lm::generate::{Engine, EngineOptions, Request, Sample, SamplingParams};
use lm::model::{Model, Parameter};
use lm::product::rounds_factors;
use lm::rng::Stream;
use serde_json::{Value, json};

use super::generate::{load, prompt};
use super::shape::Shape;
use crate::commands::failed;
use crate::commands::model::from_name;
use crate::model::Precision;

/// Most that log-probabilities (nats) may differ from the CPU's on average, for the same tokens before.
/// bf16 keeps eight bits: 0.002 to 0.004 with the tiny model of the examples, 0.01 to 0.02 with
/// SmolLM2-135M.
const MEAN: f64 = 0.03;
/// The same in f32.
const MEAN_F32: f64 = 1e-4;
/// Most that a logit in f32 may differ from the CPU's, as a share of the largest one. Two ways of summing
/// in f32 are 1e-6 apart with the tiny model and 8e-6 with SmolLM2-135M; factors rounded to TF32 make that
/// 8e-4 with the tiny model.
const LOGITS: f64 = 3e-5;
/// Most that log-probabilities in f32 may differ between batches on the path of tensor operations, whose
/// products choose their way of summing by their shape.
const ACROSS: f32 = 1e-4;
/// As [`LOGITS`], where products round their factors to TF32 and say so.
const LOGITS_TF32: f64 = 3e-3;
/// Of the tokens that had the same ones before them, the share that may differ: where two are about as likely,
/// a low bit decides ...
const FLIPS: f64 = 0.03;
/// ... and where many are a little likely, rounding shifts all borders between them: so much more, times the
/// mean difference of log-probabilities and the root of the perplexity (independent shifts of that many
/// tokens add up so). In bf16 0.013 differ with the tiny model and 0.15 with SmolLM2-135M, at temperature 1
/// after random tokens.
const SHIFT: f64 = 3.0;

/// Arguments of `bench check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A checkpoint folder or GGUF file.
    #[arg(required_unless_present = "shape")]
    model: Option<PathBuf>,
    /// Random weights of this model's shape instead: only whether samples depend on others is checked.
    #[arg(long, value_enum, conflicts_with = "model")]
    shape: Option<Shape>,
    /// The device to check.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Its number format: `auto` (bf16 on a GPU, f32 on the CPU), `f32` or `bf16`.
    #[arg(long, default_value = "auto", value_parser = from_name::<Precision>)]
    precision: Precision,
    /// Prompts to compare with the CPU: random tokens, and what the model makes of them.
    #[arg(long, default_value_t = 8)]
    prompts: usize,
    /// Tokens generated for each.
    #[arg(long, default_value_t = 32)]
    new: usize,
    /// Samples to compare among different batches.
    #[arg(long, default_value_t = 256)]
    samples: usize,
}

/// A way of choosing tokens, by name.
fn ways() -> [(&'static str, SamplingParams); 6] {
    let with = |f: fn(&mut SamplingParams)| {
        let mut params = SamplingParams::default();
        f(&mut params);
        params
    };
    [
        ("greedy", with(|p| p.temperature = 0.0)),
        ("temperature 1", with(|_| {})),
        ("top-k 20", with(|p| (p.temperature, p.top_k) = (1.2, 20))),
        ("top-p 0.9", with(|p| (p.temperature, p.top_p) = (0.8, 0.9))),
        ("min-p 0.05", with(|p| p.min_p = 0.05)),
        ("repetition penalty 1.3", with(|p| (p.temperature, p.repetition_penalty) = (0.7, 1.3))),
    ]
}

/// Adapters by name, with numbers from a seed.
fn adapters(config: &ModelConfig, device: &Device) -> Vec<(String, Adapter)> {
    let mut all: Vec<(String, Adapter)> = Projection::ALL
        .iter()
        .map(|&p| (format!("bias on {}", p.path()), Adapter::Bias(BiasAdapter::zeros(config, p, device))))
        .collect();
    // Alone, in part and together: what is computed together is adapted together.
    let some = [Projection::Key, Projection::Up];
    for (name, projections) in
        [("q, v", &[Projection::Query, Projection::Value][..]), ("k, up", &some), ("all", &Projection::ALL)]
    {
        let lora = Lora::new(config, projections, 4, 8.0, 1, device);
        all.push((format!("LoRA on {name}"), Adapter::Lora(lora)));
    }
    all.into_iter().map(|(name, adapter)| (name, randomise(&adapter, device))).collect()
}

fn randomise(adapter: &Adapter, device: &Device) -> Adapter {
    adapter.map_parameters(|name, parameter| {
        let (stream, dims) = (Stream::named(5, name), parameter.dims());
        let numbers: Vec<f32> =
            (0..dims.iter().product::<usize>() as u64).map(|i| (stream.normal(i) * 0.05) as f32).collect();
        let flat = Tensor::<1>::from_floats(numbers.as_slice(), device);
        match parameter {
            Parameter::Vector(_) => flat.into(),
            Parameter::Matrix(_) => flat.reshape([dims[0], dims[1]]).into(),
        }
    })
}

fn generate(
    model: &Model,
    adapter: Option<&Adapter>,
    requests: &[Request],
    options: EngineOptions,
) -> Result<(Vec<Sample>, Value), CliError> {
    let mut engine = Engine::new(model, adapter, None, options);
    let out = engine.generate(requests, |_| ControlFlow::Continue(())).map_err(failed)?;
    let how = json!({"path": engine.path(), "graphs": engine.graphs()});
    Ok((out.samples.into_iter().flatten().collect(), how))
}

/// Logits of one text, `[seq, vocab]` row by row.
fn forward(model: &Model, adapter: Option<&Adapter>, ids: &[u32]) -> Result<Vec<f32>, CliError> {
    let numbers: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
    let data = TensorData::new(numbers, [1, ids.len()]);
    let ids = Tensor::<2, Int>::from_data(data, (&model.device(), DType::I32));
    model.forward(ids, adapter).into_data().try_into_vec().map_err(|error| failed(format!("{error:?}")))
}

/// How far a device's samples agree with the CPU's.
fn compare(name: &str, want: &[Sample], have: &[Sample], how: &Value, limit: f64) -> Value {
    let (mut equal, mut alike, mut tokens) = (0, 0, 0);
    let (mut worst, mut sum, mut surprise) = (0f32, 0f64, 0f64);
    for (a, b) in want.iter().zip(have) {
        let same = a.ids.iter().zip(&b.ids).take_while(|(x, y)| x == y).count();
        equal += usize::from(a.ids == b.ids);
        alike += same;
        tokens += a.ids.len();
        for (x, y) in a.model_logprobs.iter().zip(&b.model_logprobs).take(same) {
            worst = worst.max((x - y).abs());
            sum += f64::from((x - y).abs());
            surprise -= f64::from(*x);
        }
    }
    let [mean, surprise] = [sum, surprise].map(|sum| sum / alike.max(1) as f64);
    let flips = (want.len() - equal) as f64 / (alike + want.len() - equal).max(1) as f64;
    let may_flip = FLIPS + SHIFT * mean * surprise.exp().sqrt();
    let fine = want.len() == have.len() && mean <= limit && flips <= may_flip;
    json!({
        "check": name, "fine": fine, "path": how["path"], "samples": want.len(), "equal_samples": equal,
        "tokens": tokens, "tokens_before_the_first_difference": alike, "flips": flips, "may_flip": may_flip,
        "mean_logprob_difference": mean, "worst_logprob_difference": worst,
    })
}

/// Whether two samples are the same: their tokens, and each log-probability to the bit, or within `apart`.
fn same(a: &Sample, b: &Sample, apart: f32) -> bool {
    let near = |a: &[f32], b: &[f32]| {
        let each = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || (x - y).abs() <= apart;
        a.len() == b.len() && a.iter().zip(b).all(each)
    };
    a.ids == b.ids && near(&a.logprobs, &b.logprobs) && near(&a.model_logprobs, &b.model_logprobs)
}

impl Check {
    /// Checks; says whether all is fine.
    pub fn run(&self) -> Result<(Value, bool), CliError> {
        let dtype = self.precision.on(&self.device);
        let device = lm::device::open(&self.device).map_err(failed)?;
        let model = match (&self.model, self.shape) {
            (Some(path), _) => load(path, &self.device, dtype)?,
            (None, Some(shape)) => Model::noise(&shape.config()?, &device, dtype),
            (None, None) => return Err(CliError::usage("name a model, or a --shape")),
        };
        let mut checks = Vec::new();
        if let Some(path) = &self.model {
            let reference = load(path, "cpu", DType::F32)?;
            self.against(&reference, &model, &device, &mut checks)?;
            let wide =
                if dtype == DType::F32 { model.clone() } else { load(path, &self.device, DType::F32)? };
            self.logits(&reference, &wide, &device, &mut checks)?;
        }
        self.among_themselves(&model, &mut checks)?;
        let fine = checks.iter().all(|check| check["fine"] == true);
        Ok((json!({"device": self.device, "fine": fine, "checks": checks}), fine))
    }

    fn random_prompts(&self, config: &ModelConfig) -> Vec<Vec<u32>> {
        let length = |row: u64| 5 + 13 * row as usize;
        (0..self.prompts as u64).map(|row| prompt(config.vocab_size, length(row), 1, row)).collect()
    }

    /// Compares logits in f32 with the CPU's, without an adapter and with LoRA everywhere, and what is
    /// generated in f32.
    fn logits(
        &self,
        reference: &Model,
        model: &Model,
        device: &Device,
        checks: &mut Vec<Value>,
    ) -> Result<(), CliError> {
        let (limit, products) = match rounds_factors(device) {
            true => (LOGITS_TF32, "TF32"),
            false => (LOGITS, "f32"),
        };
        let prompts = self.random_prompts(model.config());
        let lora = |device| Lora::new(model.config(), &Projection::ALL, 4, 8.0, 1, device);
        let adapted = |device| randomise(&Adapter::Lora(lora(device)), device);
        let adapters = [("", None), (" with LoRA on all", Some([adapted(&Device::flex()), adapted(device)]))];
        for (name, adapter) in adapters {
            let (mut worst, mut largest) = (0f64, 0f64);
            for ids in &prompts {
                let want = forward(reference, adapter.as_ref().map(|a| &a[0]), ids)?;
                let have = forward(model, adapter.as_ref().map(|a| &a[1]), ids)?;
                for (x, y) in want.iter().zip(&have) {
                    let apart = f64::from((x - y).abs());
                    // `max` alone would pass over what is no number
                    worst = if apart.is_nan() { f64::INFINITY } else { worst.max(apart) };
                    largest = largest.max(f64::from(x.abs()));
                }
            }
            checks.push(json!({
                "check": format!("logits in f32{name}"), "fine": worst <= limit * largest, "products": products,
                "worst_difference": worst, "largest_logit": largest, "share": worst / largest, "limit": limit,
            }));
        }
        let limit = if products == "f32" { MEAN_F32 } else { MEAN };
        let params = SamplingParams::greedy(self.new);
        let request =
            |ids: &Vec<u32>| Request { prompt: ids.clone(), seeds: vec![0], params: params.clone() };
        let requests: Vec<Request> = prompts.iter().map(request).collect();
        let (want, _) = generate(reference, None, &requests, EngineOptions::default())?;
        let (have, how) = generate(model, None, &requests, EngineOptions::default())?;
        checks.push(compare("greedy in f32", &want, &have, &how, limit));
        Ok(())
    }

    /// Compares with the CPU: every way of choosing, every adapter.
    fn against(
        &self,
        reference: &Model,
        model: &Model,
        device: &Device,
        checks: &mut Vec<Value>,
    ) -> Result<(), CliError> {
        let config = model.config();
        let mut prompts = self.random_prompts(config);
        let exact = model.dtype() == DType::F32 && !rounds_factors(device);
        let limit = if exact { MEAN_F32 } else { MEAN };
        let requests = |prompts: &[Vec<u32>], params: &SamplingParams| -> Vec<Request> {
            let params = SamplingParams { max_tokens: self.new, ..params.clone() };
            let seeds: Vec<u64> = (0..if params.temperature > 0.0 { 4 } else { 1 }).collect();
            let request = |ids: &Vec<u32>| Request {
                prompt: ids.clone(),
                seeds: seeds.clone(),
                params: params.clone(),
            };
            prompts.iter().map(request).collect()
        };
        let options = EngineOptions::default;
        for (name, params) in ways() {
            let requests = requests(&prompts, &params);
            let (want, _) = generate(reference, None, &requests, options())?;
            let (have, how) = generate(model, None, &requests, options())?;
            checks.push(compare(name, &want, &have, &how, limit));
            if params.temperature == 0.0 {
                // After random tokens thousands are about as likely, and the lowest bit decides among
                // them. From here on the prompts go on as the model itself would.
                prompts.iter_mut().zip(&want).for_each(|(ids, sample)| ids.extend(&sample.ids));
            }
        }
        let requests = requests(&prompts, &SamplingParams::greedy(self.new));
        let (plain, _) = generate(reference, None, &requests, options())?;
        let here = adapters(config, &Device::flex());
        for ((name, cpu), (_, there)) in here.iter().zip(adapters(config, device)) {
            let (want, _) = generate(reference, Some(cpu), &requests, options())?;
            let (have, how) = generate(model, Some(&there), &requests, options())?;
            let mut check = compare(name, &want, &have, &how, limit);
            // An adapter that changed nothing would agree without being there.
            let changed = plain.iter().zip(&want).any(|(a, b)| !same(a, b, 0.0));
            check["fine"] = (check["fine"] == true && changed).into();
            checks.push(check);
        }
        Ok(())
    }

    /// Compares samples of one batch with the same in smaller ones, in another order, with prompts cut
    /// otherwise: all equal to the bit, or within [`ACROSS`] where tensor operations compute.
    fn among_themselves(&self, model: &Model, checks: &mut Vec<Value>) -> Result<(), CliError> {
        let ways = ways();
        let vocab = model.config().vocab_size;
        let requests: Vec<Request> = (0..self.samples)
            .map(|i| {
                let params = &ways[i % (ways.len() - 1)].1;
                let max_tokens = 4 + i * 7 % 25;
                let mut ids = prompt(vocab, 1 + i * 37 % 300, 2, i as u64);
                if i % 8 == 5 {
                    // Begins as its neighbour does.
                    let mut shared = prompt(vocab, 1 + (i - 1) * 37 % 300, 2, i as u64 - 1);
                    shared.truncate(shared.len() / 2);
                    shared.append(&mut ids);
                    ids = shared;
                }
                let params = SamplingParams { max_tokens, ..params.clone() };
                Request { prompt: ids, seeds: vec![i as u64], params }
            })
            .collect();
        let options = |max_batch, prefill_tokens| EngineOptions {
            max_batch,
            prefill_tokens,
            ..EngineOptions::default()
        };
        let (all, how) = generate(model, None, &requests, options(self.samples, None))?;
        let apart = if how["path"] == "tensors" { ACROSS } else { 0.0 };
        for (batch, prefill, backwards) in [(64, None, true), (7, Some(61), false), (1, None, true)] {
            // One at a time, some of them.
            let count = if batch == 1 { self.samples.min(24) } else { self.samples };
            let mut order: Vec<usize> = (0..count).collect();
            if backwards {
                order.reverse();
            }
            let some: Vec<Request> = order.iter().map(|&i| requests[i].clone()).collect();
            let (have, how) = generate(model, None, &some, options(batch, prefill))?;
            let equal = order.iter().zip(&have).filter(|(i, sample)| same(&all[**i], sample, apart)).count();
            checks.push(json!({
                "check": format!("{count} samples in batches of {batch} as of {}", self.samples),
                "fine": equal == count && have.len() == count, "path": how["path"], "graphs": how["graphs"],
                "equal": equal, "apart": apart, "order": if backwards { "backwards" } else { "the same" },
            }));
        }
        if how["path"].as_str().is_some_and(|path| path.starts_with("cuda")) {
            let graphs = how["graphs"].as_u64().unwrap_or(0);
            checks.push(json!({"check": "steps are graphs", "fine": graphs > 0, "graphs": graphs}));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The CPU agrees with itself in every check.
    #[test]
    fn the_cpu_passes() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
        let check = Check {
            model: Some(model),
            shape: None,
            device: "cpu".into(),
            precision: Precision::Auto,
            prompts: 2,
            new: 6,
            samples: 16,
        };
        let (result, fine) = check.run().unwrap();
        assert!(fine, "{result:#}");
        assert_eq!(result["checks"].as_array().unwrap().len(), 6 + 10 + 3 + 3);
    }

    #[test]
    fn what_differs_is_amiss() {
        let sample = |ids: &[u32], logprob: f32| Sample {
            ids: ids.to_vec(),
            logprobs: vec![logprob; ids.len()],
            model_logprobs: vec![logprob; ids.len()],
            text: String::new(),
            finish: lm::generate::FinishReason::Length,
        };
        let ids: Vec<u32> = (0..60).collect();
        let other_at = |place: usize| {
            let mut ids = ids.clone();
            ids[place] = 99;
            sample(&ids, -1.0)
        };
        let a = [sample(&ids, -1.0)];
        let fine = |b: Sample| compare("", &a, &[b], &json!({}), MEAN)["fine"] == true;
        assert!(fine(sample(&ids, -1.0)));
        assert!(fine(sample(&ids, -1.01)));
        assert!(!fine(sample(&ids, -1.1)));
        // one of sixty tokens differs, and one of ten
        assert!(fine(other_at(59)));
        assert!(!fine(other_at(9)));
        assert!(!fine(other_at(0)));
        // where e⁶ tokens are as likely, a difference of 0.01 moves more of them
        let flat = compare(
            "",
            &[sample(&ids, -6.0)],
            &[Sample { ids: other_at(9).ids, ..sample(&ids, -6.01) }],
            &json!({}),
            MEAN,
        );
        assert_eq!(flat["fine"], true, "{flat}");
        let a = [sample(&[1, 2, 3, 4], -1.0)];
        assert!(!same(&a[0], &sample(&[1, 2, 3, 4], -1.000_000_1), 0.0));
        assert!(same(&a[0], &sample(&[1, 2, 3, 4], -1.000_01), ACROSS));
        assert!(!same(&a[0], &sample(&[1, 2, 3, 4], -1.001), ACROSS));
        assert!(!same(&a[0], &sample(&[1, 2, 3, 5], -1.0), ACROSS));
        assert!(!same(&a[0], &sample(&[1, 2, 3, 4], f32::NAN), ACROSS));
    }
}
