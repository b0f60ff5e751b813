//! The pass beside burn and the pass through burn against one in f32, on the same device.

use burn::tensor::DType;
use lm::model::Parameter;

use super::{evaluate, why_not};
use crate::data::Batch;
use crate::gradient::{Gradients, Pass, accumulate_through_burn, evaluate_through_burn};
use crate::loss::{RowValues, floats};
use crate::objective::{TokenLoss, entropy, sft};
use crate::optim::{AdamW, Master};
use crate::trainee::{Current, Trainee};

/// How far the two passes in bf16 are from the one in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Apart {
    /// What was compared: `values`, or the name of what trains.
    pub name: String,
    /// Of the pass beside burn: the norm of the difference over that of the gradient in f32; for `values`
    /// the root of the mean square.
    pub beside: f64,
    /// The same of the pass through burn.
    pub through: f64,
    /// The norm in f32.
    pub norm: f64,
}

/// Differences of values and of every gradient of one batch, the largest first; and whether a second pass
/// gave the same bits as the first.
///
/// # Errors
/// Why the pass does not go beside burn here.
pub fn compare(trainee: &Trainee, batch: &Batch, pass: Pass) -> Result<(Vec<Apart>, bool), &'static str> {
    let current = trainee.current();
    if let Some(why) = why_not(&current) {
        return Err(why);
    }
    let device = current.model.device();
    // both kinds of derivatives are asked for
    let objective = |_: usize, rows: &RowValues| -> TokenLoss {
        let (a, b) = (sft::evaluate(&rows.log_prob), entropy::evaluate(&rows.entropy));
        TokenLoss { loss: a.loss + b.loss, by_entropy: b.by_entropy, ..a }
    };
    let scale = 1.0 / batch.targets.len() as f64;
    let beside = || {
        let mut sums = Gradients::new(trainee);
        let went = super::accumulate(trainee, &current, batch, pass, scale, objective, &mut sums);
        let all = sums.finish(trainee, &device).into_iter().map(floats).collect::<Vec<_>>();
        went.then_some(all).ok_or("the shapes or a layout of the weights")
    };
    let first = beside()?;
    let repeats = first == beside()?;
    let burn = |trainee: &Trainee, current: &Current| {
        let mut sums = Gradients::new(trainee);
        accumulate_through_burn(trainee, current, batch, pass, scale, objective, &mut sums);
        let gradients: Vec<_> = sums.finish(trainee, &device).into_iter().map(floats).collect();
        (gradients, evaluate_through_burn(current, batch, pass.temperature))
    };
    let (through, through_values) = burn(trainee, &current);
    let wide = wide(&current);
    let (truth, true_values) = burn(&wide, &wide.current());
    let beside_values = evaluate(&current, batch, pass.temperature).unwrap_or_default();
    let mut all = Vec::new();
    for ((master, truth), (a, b)) in trainee.masters().iter().zip(&truth).zip(first.iter().zip(&through)) {
        let norm = norm(truth.iter().map(|&v| f64::from(v)));
        let off = |of: &[f32]| difference(of, truth) / norm.max(1e-30);
        all.push(Apart { name: master.name.clone(), beside: off(a), through: off(b), norm });
    }
    all.sort_by(|a, b| (b.beside - b.through).total_cmp(&(a.beside - a.through)));
    all.insert(0, values(&beside_values, &through_values, &true_values));
    Ok((all, repeats))
}

/// Whether three updates beside burn give masters and moments of the same bits as those through burn, while
/// somebody else holds the masters (the first) and afterwards; and leave what that one holds alone.
///
/// # Errors
/// Why updates do not go beside burn here.
pub fn compare_updates(trainee: &Trainee, batch: &Batch, pass: Pass) -> Result<bool, &'static str> {
    let (optimizer, device) = (AdamW::default(), trainee.base().device());
    let numbers = |of: &Trainee| -> Vec<Vec<f32>> {
        let parts = |m: &Master| [m.value.clone(), m.mean.clone(), m.square.clone()].map(floats);
        of.masters().iter().flat_map(parts).collect()
    };
    let before = numbers(trainee);
    let (mut beside, mut through) = (trainee.clone(), trainee.clone());
    let mut agree = true;
    for step in 1..=3 {
        let scale = 1.0 / batch.targets.len() as f64;
        let gradients = |of: &Trainee| {
            let mut sums = Gradients::new(of);
            let objective = |_: usize, rows: &RowValues| sft::evaluate(&rows.log_prob);
            crate::gradient::accumulate(of, &of.current(), batch, pass, scale, objective, &mut sums);
            sums.finish(of, &device)
        };
        let sums = gradients(&beside);
        let norm = super::step(&mut beside, &optimizer, &sums, (step, 1e-3));
        let norm = norm.ok_or("a layout of the masters")?;
        let sums = gradients(&through);
        let other = optimizer.step(through.masters_mut(), sums, step, 1e-3);
        agree &= norm == other && numbers(&beside) == numbers(&through);
    }
    Ok(agree && numbers(trainee) == before && numbers(&beside) != before)
}

/// The same model in f32.
fn wide(current: &Current) -> Trainee {
    let model = current.model.map_parameters(|_, parameter| match parameter {
        Parameter::Vector(t) => t.cast(DType::F32).into(),
        Parameter::Matrix(t) => t.cast(DType::F32).into(),
    });
    match &current.adapter {
        Some(adapter) => Trainee::adapter(model, adapter.clone()),
        None => Trainee::full(model),
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

fn difference(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return f64::NAN;
    }
    norm(a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b)))
}

fn values(beside: &RowValues, through: &RowValues, truth: &RowValues) -> Apart {
    let all = |of: &RowValues| [&of.log_prob[..], &of.entropy[..]].concat();
    let truth = all(truth);
    let root = (truth.len() as f64).sqrt();
    let off = |of: &RowValues| difference(&all(of), &truth) / root;
    let norm = norm(truth.iter().map(|&v| f64::from(v))) / root;
    Apart { name: "values".to_owned(), beside: off(beside), through: off(through), norm }
}
