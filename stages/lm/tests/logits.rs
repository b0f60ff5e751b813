//! The forward pass against `transformers`, and what must not change it.

mod common;

use burn::tensor::{Device, Tensor};
use common::{Tiny, max_diff, tensor, values};
use lm::adapter::{Adapter, Lora, Projection};
use lm::checkpoint::Checkpoint;
use lm::model::{AttentionContext, Model, Parameter, logits_by_layer};

/// f32 sums in another order; logits of the tiny models go up to about 30.
const TOLERANCE: f32 = 1e-4;

#[test]
fn logits_are_those_of_transformers() {
    for tiny in Tiny::all() {
        let logits = values(tiny.model.forward(tensor(&tiny.input_ids), None));
        let diff = max_diff(&logits, &tiny.logits);
        assert!(diff < TOLERANCE, "{}: {diff}", tiny.name);
        // a witness that can fail: the logits are no constant
        assert!(tiny.logits.iter().copied().fold(0.0, f32::max) > 1.0);
    }
}

#[test]
fn layer_by_layer_they_are_the_whole_models() {
    for tiny in Tiny::all() {
        let checkpoint = Checkpoint::open(&common::folder(&tiny.name)).unwrap();
        let config = tiny.model.config();
        let lora = Lora::new(config, &[Projection::Query, Projection::Down], 2, 4.0, 0, &Device::flex());
        // B begins as zeros, which would change nothing
        let lora = Adapter::Lora(lora).map_parameters(|_, parameter| match parameter {
            Parameter::Matrix(matrix) => (matrix + 0.1).into(),
            other => other,
        });
        for adapter in [None, Some(&lora)] {
            let got = logits_by_layer(&checkpoint, adapter, &tiny.input_ids, &Device::flex()).unwrap();
            for (ids, got) in tiny.input_ids.iter().zip(got) {
                let want = tiny.model.forward(tensor(std::slice::from_ref(ids)), adapter);
                assert_eq!(values(got), values(want), "{}", tiny.name);
            }
        }
        let [plain, adapted] =
            [None, Some(&lora)].map(|adapter| values(tiny.model.forward(tensor(&tiny.input_ids), adapter)));
        assert!(max_diff(&plain, &adapted) > 0.01);
    }
}

/// Rows `[rows, len]` of logits `[vocab]` of a forward pass.
fn rows(logits: &[f32], vocab: usize) -> Vec<&[f32]> {
    logits.chunks_exact(vocab).collect()
}

#[test]
fn right_padding_changes_nothing() {
    for tiny in Tiny::all() {
        let vocab = tiny.model.config().vocab_size;
        let padded: Vec<Vec<u32>> = tiny.input_ids.iter().map(|ids| [&ids[..], &[0; 7]].concat()).collect();
        let logits = values(tiny.model.forward(tensor(&padded), None));
        let got = rows(&logits, vocab);
        let want = rows(&tiny.logits, vocab);
        for row in 0..2 {
            for t in 0..40 {
                let diff = max_diff(got[row * 47 + t], want[row * 40 + t]);
                assert!(diff < TOLERANCE, "{} row {row} token {t}: {diff}", tiny.name);
            }
        }
    }
}

#[test]
fn left_padding_changes_nothing() {
    for tiny in Tiny::all() {
        let vocab = tiny.model.config().vocab_size;
        let pads = [0usize, 5];
        let seq = 45;
        let (mut ids, mut positions, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        for (row, pad) in pads.into_iter().enumerate() {
            let tail = seq - pad - 40;
            let line = [&vec![0; pad][..], &tiny.input_ids[row], &vec![0; tail]].concat();
            ids.push(line);
            positions.extend((0..seq).map(|t| t.saturating_sub(pad) as u32));
            segments.extend((0..seq).map(|t| u32::from((pad..pad + 40).contains(&t))));
        }
        let context =
            AttentionContext::segmented(tiny.model.rope(), &positions, &segments, 2, &Device::flex());
        let logits = values(tiny.model.forward_in(tensor(&ids), &context, None));
        let got = rows(&logits, vocab);
        let want = rows(&tiny.logits, vocab);
        for row in 0..2 {
            for t in 0..40 {
                let diff = max_diff(got[row * seq + pads[row] + t], want[row * 40 + t]);
                assert!(diff < TOLERANCE, "{} row {row} token {t}: {diff}", tiny.name);
            }
        }
    }
}

#[test]
fn packed_sequences_do_not_see_each_other() {
    for tiny in Tiny::all() {
        let packed = vec![tiny.input_ids.concat()];
        let positions: Vec<u32> = (0..40).chain(0..40).collect();
        let segments: Vec<u32> = [1; 40].into_iter().chain([2; 40]).collect();
        let context =
            AttentionContext::segmented(tiny.model.rope(), &positions, &segments, 1, &Device::flex());
        let logits = values(tiny.model.forward_in(tensor(&packed), &context, None));
        let diff = max_diff(&logits, &tiny.logits);
        assert!(diff < TOLERANCE, "{}: {diff}", tiny.name);
    }
}

/// Every parameter gets a gradient, and the gradient is the slope of the loss (central difference).
#[test]
fn gradients_of_all_parameters_are_slopes() {
    for name in ["qwen2-tied", "llama-mlp-bias", "llama-attention-bias"] {
        let tiny = Tiny::load(name);
        let ids = tensor(&[tiny.input_ids[0][..6].to_vec()]);
        let loss = |model: &Model| model.forward(ids.clone(), None).tanh().sum();
        let tracked = tiny.model.map_parameters(|_, p| match p {
            Parameter::Vector(t) => t.autodiff().require_grad().into(),
            Parameter::Matrix(t) => t.autodiff().require_grad().into(),
        });
        let grads = loss(&tracked).backward();
        for (name, p) in tracked.named_parameters() {
            // The slope along the gradient itself is its squared norm.
            let (direction, norm) = match &p {
                Parameter::Vector(t) => {
                    let g = t.grad(&grads).expect("a gradient");
                    let norm = g.clone().square().sum().sqrt().into_scalar::<f32>();
                    (Parameter::from(g / norm), norm)
                }
                Parameter::Matrix(t) => {
                    let g = t.grad(&grads).expect("a gradient");
                    let norm = g.clone().square().sum().sqrt().into_scalar::<f32>();
                    (Parameter::from(g / norm), norm)
                }
            };
            // A key's bias moves no softmax but through its rotation, so its gradient is small.
            assert!(norm > 1e-4, "{name}: {norm}");
            let step = 2e-3;
            let at = |h: f32| {
                let moved = tiny.model.map_parameters(|n, p| match (n == name, p, &direction) {
                    (true, Parameter::Vector(t), Parameter::Vector(d)) => (t + d.clone() * h).into(),
                    (true, Parameter::Matrix(t), Parameter::Matrix(d)) => (t + d.clone() * h).into(),
                    (_, p, _) => p,
                });
                f64::from(loss(&moved).into_scalar::<f32>())
            };
            let slope = (at(step) - at(-step)) / f64::from(2.0 * step);
            let error = (slope - f64::from(norm)).abs() / f64::from(norm).max(0.5);
            assert!(error < 0.05, "{name}: gradient {norm}, slope {slope}");
        }
    }
}

#[test]
fn random_initialisation_is_a_function_of_the_seed() {
    let config = Tiny::load("qwen2-untied").model.config().clone();
    let device = Device::flex();
    let flat = |seed| -> Vec<f32> {
        Model::random(&config, seed, &device)
            .named_parameters()
            .into_iter()
            .flat_map(|(_, p)| p.to_data().try_to_vec::<f32>().unwrap())
            .collect()
    };
    let first = flat(1);
    let _: Tensor<1> = Tensor::random([10], burn::tensor::Distribution::Default, &device);
    assert_eq!(first, flat(1));
    assert_ne!(first, flat(2));
    let model = Model::random(&config, 1, &device);
    let names: Vec<(String, Vec<usize>)> =
        model.named_parameters().into_iter().map(|(name, p)| (name, p.dims())).collect();
    assert_eq!(names, config.tensor_shapes());
}
