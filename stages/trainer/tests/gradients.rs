//! Gradients through whole models: against finite differences of another path, against each other,
//! and independent of how the work is cut.

mod common;

use common::{config, flatten, model, sequences};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use trainer::data::{Batching, Sequence};
use trainer::gradient::{Gradients, Pass, accumulate, evaluate};
use trainer::objective::{TokenLoss, sft};
use trainer::trainee::Trainee;

const PASS: Pass = Pass { temperature: 1.0, recompute: false, dropout: None };

fn lora(trainee_model: &lm::model::Model) -> Adapter {
    let device = trainee_model.device();
    let mut adapter =
        Lora::new(trainee_model.config(), &[Projection::Query, Projection::Down], 2, 4.0, 5, &device);
    // B away from zero, so that A has a gradient too
    for layer in &mut adapter.layers {
        for factors in layer {
            factors.b = factors.b.clone().add_scalar(0.05);
        }
    }
    Adapter::Lora(adapter)
}

fn bias(of: &lm::model::Model) -> Adapter {
    Adapter::Bias(BiasAdapter::zeros(of.config(), Projection::Down, &of.device()))
}

fn trainees() -> Vec<(&'static str, Trainee)> {
    let tied = model(&config(true), 1);
    vec![
        ("full, tied", Trainee::full(tied.clone())),
        ("full, untied", Trainee::full(model(&config(false), 2))),
        ("bias", Trainee::adapter(tied.clone(), bias(&tied))),
        ("lora", Trainee::adapter(tied.clone(), lora(&tied))),
    ]
}

fn nll(_: usize, rows: &trainer::loss::RowValues) -> TokenLoss {
    sft::evaluate(&rows.log_prob)
}

fn gradient(trainee: &Trainee, data: &[Sequence], batching: Batching, pass: Pass) -> Vec<Vec<f32>> {
    let members: Vec<usize> = (0..data.len()).collect();
    let tokens: usize = data.iter().map(|s| s.targets.len()).sum();
    let mut gradients = Gradients::new(trainee);
    for batch in batching.split(data, &members) {
        accumulate(trainee, &trainee.current(), &batch, pass, 1.0 / tokens as f64, nll, &mut gradients);
    }
    gradients.finish(trainee, &trainee.base().device()).into_iter().map(flatten).collect()
}

/// Largest difference, as a share of the largest gradient.
fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    let largest = a.iter().flatten().fold(0.0f32, |m, v| m.max(v.abs()));
    assert!(largest > 0.0);
    let difference =
        a.iter().flatten().zip(b.iter().flatten()).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
    difference / largest
}

#[test]
fn recomputing_gives_the_gradients_of_keeping() {
    let data = sequences(&[5, 9, 7]);
    for (name, trainee) in trainees() {
        let kept = gradient(&trainee, &data, Batching::default(), PASS);
        let recompute = Pass { recompute: true, ..PASS };
        let again = gradient(&trainee, &data, Batching::default(), recompute);
        let d = distance(&kept, &again);
        assert!(d < 1e-5, "{name}: {d}");
        for (master, g) in trainee.masters().iter().zip(&again) {
            // a key bias shifts every score of a query alike, so its gradient is zero
            if !master.name.ends_with("k_proj.bias") {
                assert!(g.iter().any(|v| *v != 0.0), "{name}: nothing reached {}", master.name);
            }
        }
    }
}

#[test]
fn micro_batches_of_unequal_token_counts_equal_one_batch() {
    // 11 and 101 trained tokens: an average of averages would be far off
    let data = sequences(&[12, 102]);
    for (name, trainee) in trainees() {
        let whole = Batching { micro_tokens: 10_000, pack: false };
        let one = gradient(&trainee, &data, whole, PASS);
        let two = gradient(&trainee, &data, Batching { micro_tokens: 1, pack: false }, PASS);
        let d = distance(&one, &two);
        assert!(d < 2e-5, "{name}: {d}");
    }
}

#[test]
fn packed_sequences_do_not_see_each_other() {
    let data = sequences(&[5, 6, 11, 3]);
    for (name, trainee) in trainees() {
        let apart = gradient(&trainee, &data, Batching { micro_tokens: 1, pack: false }, PASS);
        let packed = Batching { micro_tokens: 1000, pack: true };
        let d = distance(&apart, &gradient(&trainee, &data, packed, PASS));
        assert!(d < 2e-5, "{name}: {d}");

        let members: Vec<usize> = (0..data.len()).collect();
        let losses = |batching: Batching| {
            let mut of = vec![Vec::new(); data.len()];
            for batch in batching.split(&data, &members) {
                let rows = evaluate(&trainee.current(), &batch, 1.0);
                batch.scatter(&data, &rows.log_prob, &mut of);
            }
            of.concat()
        };
        let (a, b) = (losses(packed), losses(Batching { micro_tokens: 1, pack: false }));
        assert_eq!(a.len(), 21);
        for (x, y) in a.iter().zip(&b) {
            assert!((x - y).abs() < 1e-5, "{name}: {x} against {y}");
        }
    }
}

/// Full gradients against central differences of the loss, along the gradient's own direction and in
/// single parameters of every kind.
#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let data = sequences(&[5, 9]);
    let members = [0, 1];
    let batch = &Batching::default().split(&data, &members)[0];
    let tokens = batch.targets.len() as f64;
    for (name, trainee) in trainees() {
        let gradients = gradient(&trainee, &data, Batching::default(), PASS);
        for (index, master) in trainee.masters().iter().enumerate() {
            let g = &gradients[index];
            let norm = g.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            if norm < 1e-3 {
                continue; // below what differences of f32 losses resolve
            }
            // along its gradient the loss rises at the gradient's norm
            let loss = |distance: f64| {
                let moved = common::moved(&trainee, index, g, distance / norm);
                -evaluate(&moved.current(), batch, 1.0).log_prob.iter().map(|&lp| f64::from(lp)).sum::<f64>()
                    / tokens
            };
            let step = 1e-2;
            let slope = (loss(step) - loss(-step)) / (2.0 * step);
            assert!(
                (slope - norm).abs() < 0.02 * norm + 2e-4,
                "{name} {}: slope {slope}, gradient {norm}",
                master.name
            );
        }
    }
}

/// ∂L/∂b of a bias on `mlp.down_proj` is the sum of ∂L/∂(MLP output) over the positions that are not
/// padding: moving each position's output by itself changes the loss by as much in total.
#[test]
fn a_bias_collects_its_gradient_from_every_position_but_padding() {
    let base = model(&config(true), 1);
    let adapter = bias(&base);
    let data = sequences(&[4, 9]);
    // alone there is no padding; together the shorter row has five padding places
    let trainee = Trainee::adapter(base, adapter);
    let together = gradient(&trainee, &data, Batching { micro_tokens: 100, pack: false }, PASS);
    let alone = gradient(&trainee, &data, Batching { micro_tokens: 1, pack: false }, PASS);
    assert!(distance(&alone, &together) < 1e-5);
    // and prompt positions take part: a loss on the last token alone reaches the bias through all
    let mut last = data[1].clone();
    last.positions = vec![7];
    last.targets = vec![last.tokens[8]];
    let by_last = gradient(&trainee, &[last], Batching::default(), PASS);
    assert!(by_last.iter().all(|layer| layer.iter().any(|v| *v != 0.0)));
}

/// With dropout, too, gradients are slopes, and they depend on neither batches nor recomputation.
#[test]
fn dropped_inputs_are_the_same_in_every_pass_and_batch() {
    let data = sequences(&[5, 9, 7]);
    let base = model(&config(true), 1);
    let trainee = Trainee::adapter(base.clone(), lora(&base));
    let dropout = |step| Some(trainer::gradient::Dropout { rate: 0.5, seed: 3, step });
    let pass = Pass { dropout: dropout(2), ..PASS };
    let one = gradient(&trainee, &data, Batching::default(), pass);
    let two = gradient(&trainee, &data, Batching { micro_tokens: 1, pack: false }, pass);
    let packed = gradient(&trainee, &data, Batching { micro_tokens: 100, pack: true }, pass);
    let again = gradient(&trainee, &data, Batching::default(), Pass { recompute: true, ..pass });
    for (other, what) in [(&two, "apart"), (&packed, "packed"), (&again, "recomputed")] {
        let d = distance(&one, other);
        assert!(d < 2e-5, "{what}: {d}");
    }
    let later = gradient(&trainee, &data, Batching::default(), Pass { dropout: dropout(3), ..PASS });
    assert!(distance(&one, &later) > 1e-2, "another update drops other numbers");
    assert!(distance(&one, &gradient(&trainee, &data, Batching::default(), PASS)) > 1e-2);

    // the loss under the same masks rises along its gradient at the gradient's norm
    let members = [0, 1, 2];
    let batch = &Batching::default().split(&data, &members)[0];
    let tokens = batch.targets.len() as f64;
    for (index, g) in one.iter().enumerate() {
        let norm = g.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        let loss = |distance: f64| {
            let moved = common::moved(&trainee, index, g, distance / norm);
            let mut sum = 0.0;
            let objective = |_: usize, rows: &trainer::loss::RowValues| {
                sum -= rows.log_prob.iter().map(|&lp| f64::from(lp)).sum::<f64>();
                sft::evaluate(&rows.log_prob)
            };
            let mut unused = Gradients::new(&moved);
            accumulate(&moved, &moved.current(), batch, pass, 1.0, objective, &mut unused);
            sum / tokens
        };
        let step = 1e-2;
        let slope = (loss(step) - loss(-step)) / (2.0 * step);
        assert!((slope - norm).abs() < 0.02 * norm + 2e-4, "{index}: slope {slope}, gradient {norm}");
    }
}
