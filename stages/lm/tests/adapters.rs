//! Adapters on the fly against the same change baked into the weights, and their gradients.

mod common;

use std::ops::ControlFlow;

use burn::tensor::{Device, Tensor};
use common::{Tiny, max_diff, tensor, values};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::checkpoint::Checkpoint;
use lm::config::ModelConfig;
use lm::generate::{Engine, EngineOptions, Request, Sample, SamplingParams};
use lm::model::{Model, Parameter};
use lm::rng::Stream;

/// Replaces every tensor of `adapter` by seeded normal numbers times `scale`.
fn randomise(adapter: Adapter, scale: f64) -> Adapter {
    adapter.map_parameters(|name, p| {
        let stream = Stream::named(5, name);
        let dims = p.dims();
        let n = dims.iter().product::<usize>() as u64;
        let v: Vec<f32> = (0..n).map(|i| (stream.normal(i) * scale) as f32).collect();
        let flat = Tensor::<1>::from_floats(v.as_slice(), &Device::flex());
        match p {
            Parameter::Vector(_) => flat.into(),
            Parameter::Matrix(_) => flat.reshape([dims[0], dims[1]]).into(),
        }
    })
}

fn bias(config: &ModelConfig, projection: Projection) -> Adapter {
    let zeros = BiasAdapter::zeros(config, projection, &Device::flex());
    randomise(Adapter::Bias(zeros), 0.5)
}

fn lora(config: &ModelConfig, projections: &[Projection]) -> Adapter {
    let lora = Lora::new(config, projections, 3, 6.0, 1, &Device::flex());
    randomise(Adapter::Lora(lora), 0.2)
}

/// The model with the LoRA product added to its weights.
fn merged(model: &Model, lora: &Lora) -> Model {
    model.map_parameters(|name, p| {
        let place = lora.projections.iter().find_map(|&projection| {
            let layer = (0..lora.layers.len())
                .find(|l| name == format!("model.layers.{l}.{}.weight", projection.path()))?;
            lora.factors(layer, projection)
        });
        match (place, p) {
            (Some(factors), Parameter::Matrix(w)) => {
                (w + factors.b.clone().matmul(factors.a.clone()).mul_scalar(lora.scale)).into()
            }
            (_, p) => p,
        }
    })
}

fn generate(model: &Model, adapter: Option<&Adapter>, tiny: &Tiny) -> Vec<Sample> {
    let params = SamplingParams { max_tokens: 12, ..SamplingParams::default() };
    let requests: Vec<Request> = tiny
        .prompts
        .iter()
        .map(|prompt| Request { prompt: prompt.clone(), seeds: vec![4], params: params.clone() })
        .collect();
    let mut engine = Engine::new(model, adapter, None, EngineOptions::default());
    let out = engine.generate(&requests, |_| ControlFlow::Continue(())).unwrap();
    out.samples.into_iter().flatten().collect()
}

fn assert_same_samples(a: &[Sample], b: &[Sample]) {
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.ids, b.ids);
        assert!(max_diff(&a.model_logprobs, &b.model_logprobs) < 1e-4);
    }
}

/// The steering vector of the studies: a Llama checkpoint with `mlp_bias` whose down-projection
/// bias is the adapter's, gate and up biases as they were.
#[test]
fn a_bias_adapter_is_a_checkpoint_with_the_bias_inside() {
    let tiny = Tiny::load("llama-mlp-bias");
    let config = tiny.model.config();
    let adapter = bias(config, Projection::Down);
    let Adapter::Bias(BiasAdapter { biases, .. }) = &adapter else { unreachable!() };
    let baked = tiny.model.map_parameters(|name, p| {
        let layer = (0..config.num_layers).find(|l| name == format!("model.layers.{l}.mlp.down_proj.bias"));
        match (layer, p) {
            (Some(layer), Parameter::Vector(b)) => (b + biases[layer].clone()).into(),
            (_, p) => p,
        }
    });
    let with = values(tiny.model.forward(tensor(&tiny.input_ids), Some(&adapter)));
    let inside = values(baked.forward(tensor(&tiny.input_ids), None));
    assert!(max_diff(&with, &inside) < 1e-5);
    assert!(max_diff(&with, &tiny.logits) > 1.0);
    let samples = generate(&tiny.model, Some(&adapter), &tiny);
    assert_same_samples(&samples, &generate(&baked, None, &tiny));
    assert_ne!(samples, generate(&tiny.model, None, &tiny));
}

#[test]
fn generation_and_tensor_path_agree_on_every_projection() {
    for name in ["qwen2-untied", "llama-attention-bias", "llama-head-dim"] {
        let tiny = Tiny::load(name);
        let config = tiny.model.config();
        for projection in Projection::ALL {
            for adapter in [bias(config, projection), lora(config, &[projection])] {
                let samples = generate(&tiny.model, Some(&adapter), &tiny);
                for (prompt, sample) in tiny.prompts.iter().zip(&samples) {
                    let want = logprobs(&tiny.model, &adapter, prompt, &sample.ids);
                    let diff = max_diff(&want, &sample.model_logprobs);
                    assert!(diff < 1e-4, "{name} {projection:?}: {diff}");
                }
            }
        }
    }
}

/// Log-probabilities of `ids` after `prompt` by the tensor path.
fn logprobs(model: &Model, adapter: &Adapter, prompt: &[u32], ids: &[u32]) -> Vec<f32> {
    let logits = model.forward(tensor(&[[prompt, ids].concat()]), Some(adapter));
    let vocab = model.config().vocab_size;
    let all = values(burn::tensor::activation::log_softmax(logits, 2));
    let at = |(i, &id): (usize, &u32)| all[(prompt.len() - 1 + i) * vocab + id as usize];
    ids.iter().enumerate().map(at).collect()
}

#[test]
fn lora_is_its_product_in_the_weights() {
    let tiny = Tiny::load("qwen2-untied");
    let adapter = lora(tiny.model.config(), &Projection::ALL);
    let Adapter::Lora(inner) = &adapter else { unreachable!() };
    let inside = merged(&tiny.model, inner);
    let with = values(tiny.model.forward(tensor(&tiny.input_ids), Some(&adapter)));
    let want = values(inside.forward(tensor(&tiny.input_ids), None));
    assert!(max_diff(&with, &want) < 2e-4, "{}", max_diff(&with, &want));
    assert!(max_diff(&with, &tiny.logits) > 1.0);
    assert_same_samples(&generate(&tiny.model, Some(&adapter), &tiny), &generate(&inside, None, &tiny));
}

#[test]
fn a_fresh_adapter_changes_nothing() {
    let tiny = Tiny::load("llama-gqa");
    let config = tiny.model.config();
    let device = Device::flex();
    for adapter in [
        Adapter::Bias(BiasAdapter::zeros(config, Projection::Down, &device)),
        Adapter::Lora(Lora::new(config, &[Projection::Query, Projection::Up], 4, 8.0, 3, &device)),
    ] {
        let logits = values(tiny.model.forward(tensor(&tiny.input_ids), Some(&adapter)));
        assert!(max_diff(&logits, &tiny.logits) < 1e-4);
    }
    // PEFT: A is uniform within 1/√in, so its standard deviation is 1/√(3·in).
    let wide = ModelConfig { hidden_size: 768, ..config.clone() };
    let lora = Lora::new(&wide, &[Projection::Gate], 64, 8.0, 3, &device);
    let a: Vec<f32> = lora.layers[0][0].a.to_data().try_to_vec().unwrap();
    let bound = 1.0 / 768f32.sqrt();
    assert!(a.iter().all(|v| v.abs() <= bound));
    let std = (a.iter().map(|v| v * v).sum::<f32>() / a.len() as f32).sqrt();
    assert!((std * 3f32.sqrt() / bound - 1.0).abs() < 0.02, "{std}");
}

/// Only the adapter is tracked; frozen weights stay on the plain device. The gradient of a bias is
/// the sum over positions of the gradient at the projection's output, so the slope along it must be
/// its squared norm.
#[test]
fn gradients_reach_the_adapter_of_every_layer() {
    let tiny = Tiny::load("llama-gqa");
    let config = tiny.model.config();
    let ids = tensor(&[tiny.input_ids[0][..7].to_vec()]);
    for adapter in [bias(config, Projection::Down), lora(config, &Projection::ALL)] {
        let tracked = adapter.map_parameters(|_, p| match p {
            Parameter::Vector(t) => t.autodiff().require_grad().into(),
            Parameter::Matrix(t) => t.autodiff().require_grad().into(),
        });
        let loss = |a: &Adapter| tiny.model.forward(ids.clone(), Some(a)).tanh().sum();
        let grads = loss(&tracked).backward();
        let gradient = |p: &Parameter| -> Vec<f32> {
            match p {
                Parameter::Vector(t) => values(t.grad(&grads).expect("a gradient")),
                Parameter::Matrix(t) => values(t.grad(&grads).expect("a gradient")),
            }
        };
        let all = tracked.named_parameters();
        assert_eq!(all.len(), adapter.named_parameters().len());
        let norm2: f32 = all.iter().flat_map(|(_, p)| gradient(p)).map(|g| g * g).sum();
        assert!(all.iter().all(|(_, p)| gradient(p).iter().any(|g| g.abs() > 1e-5)));
        // One step along the gradient, both ways.
        let step = 2e-3 / norm2.sqrt();
        let at = |h: f32| {
            let mut source = all.iter();
            let moved = adapter.map_parameters(|name, p| {
                let (n, tracked) = source.next().unwrap();
                assert_eq!(n, name);
                let g = Tensor::<1>::from_floats(gradient(tracked).as_slice(), &Device::flex());
                match p {
                    Parameter::Vector(t) => (t + g.mul_scalar(h)).into(),
                    Parameter::Matrix(t) => {
                        let dims = t.dims();
                        (t + g.mul_scalar(h).reshape(dims)).into()
                    }
                }
            });
            f64::from(loss(&moved).into_scalar::<f32>())
        };
        let slope = (at(step) - at(-step)) / f64::from(2.0 * step);
        assert!((slope / f64::from(norm2) - 1.0).abs() < 0.02, "{slope} {norm2}");
    }
}

#[test]
fn names_are_those_of_the_ecosystem() {
    let config = Checkpoint::open(&common::folder("llama-gqa")).unwrap().config().clone();
    let device = Device::flex();
    let lora = Lora::new(&config, &[Projection::Query, Projection::Down], 2, 4.0, 0, &device);
    let names: Vec<(String, Vec<usize>)> = Adapter::Lora(lora)
        .named_parameters()
        .into_iter()
        .map(|(name, p)| (name, p.dims()))
        .take(4)
        .collect();
    let prefix = "base_model.model.model.layers.0";
    assert_eq!(
        names,
        [
            (format!("{prefix}.self_attn.q_proj.lora_A.weight"), vec![2, 16]),
            (format!("{prefix}.self_attn.q_proj.lora_B.weight"), vec![16, 2]),
            (format!("{prefix}.mlp.down_proj.lora_A.weight"), vec![2, 24]),
            (format!("{prefix}.mlp.down_proj.lora_B.weight"), vec![16, 2]),
        ]
    );
    let bias = Adapter::Bias(BiasAdapter::zeros(&config, Projection::Down, &device));
    assert_eq!(bias.named_parameters()[1].0, "model.layers.1.mlp.down_proj.bias");
    for p in Projection::ALL {
        assert_eq!(Projection::parse(p.path()), Some(p));
        assert_eq!(Projection::parse(p.path().split('.').next_back().unwrap()), Some(p));
    }
    assert_eq!(Projection::parse("proj"), None);
}
