//! The gradient of one update, over the batches of all devices.
//!
//! Every device computes the gradients of its share of the micro-batches, scaled by the tokens of the
//! whole update, so that shares of unequal token counts simply add up. They are summed once per
//! update, flattened into a few buckets; one device applies the update, and the others take over the
//! new parameters with the next one.

use std::ops::Range;

use burn::tensor::{Device, Tensor};
use lm::model::Model;

use crate::data::Batch;
use crate::gradient::{Gradients, Pass, accumulate};
use crate::loss::RowValues;
use crate::objective::{Diagnostic, TokenLoss};
use crate::trainee::Trainee;

/// An objective over one batch: the rows of the head that are ready, and their values.
pub type Objective<'a> = dyn Fn(&Batch, Range<usize>, &RowValues) -> TokenLoss + Sync + 'a;

/// Sums tensors over devices.
pub trait Collective: std::fmt::Debug + Send + Sync {
    /// The sum of `parts`, one of equal length per device and living there, on the first device.
    fn sum(&self, parts: Vec<Tensor<1>>) -> Tensor<1>;
}

/// Adds on the first device, in the order of devices, copying through the host where there is no
/// direct way. Serves any device.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnFirst;

impl Collective for OnFirst {
    fn sum(&self, parts: Vec<Tensor<1>>) -> Tensor<1> {
        let mut parts = parts.into_iter();
        let first = parts.next().expect("there is at least one device");
        let device = first.device();
        parts.fold(first, |sum, part| sum + part.to_device(&device))
    }
}

/// Burn's all-reduce (NCCL between CUDA devices of one process).
#[cfg(feature = "cuda")]
#[derive(Debug, Clone, Copy, Default)]
pub struct AllReduce;

#[cfg(feature = "cuda")]
impl Collective for AllReduce {
    fn sum(&self, parts: Vec<Tensor<1>>) -> Tensor<1> {
        use burn::tensor::distributed::{ReduceOperation, all_reduce};
        let devices: Vec<Device> = parts.iter().map(|part| part.device()).collect();
        // each device calls from a thread of its own
        let sums: Vec<Tensor<1>> = std::thread::scope(|scope| {
            let calls: Vec<_> = parts
                .into_iter()
                .map(|part| {
                    let devices = devices.clone();
                    scope.spawn(move || all_reduce(part, ReduceOperation::Sum, devices).resolve())
                })
                .collect();
            calls.into_iter().map(join).collect()
        });
        sums.into_iter().next().expect("there is at least one device")
    }
}

fn join<T>(thread: std::thread::ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sums by name of what an update measured over its tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums(Vec<Diagnostic>);

impl Sums {
    /// Adds `value` to the sum called `name`.
    pub fn add(&mut self, name: &'static str, value: f64) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum += value,
            None => self.0.push((name, value)),
        }
    }

    /// The sums.
    pub fn iter(&self) -> impl Iterator<Item = Diagnostic> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn add_rows(&mut self, rows: &RowValues) {
        self.add("entropy", rows.entropy.iter().map(|&h| f64::from(h)).sum());
    }

    fn add_loss(&mut self, loss: &TokenLoss) {
        self.add("loss", loss.loss);
        for &(name, sum) in &loss.diagnostics {
            self.add(name, sum);
        }
    }
}

/// Elements per bucket of the reduction: 256 MiB of f32.
const BUCKET: usize = 1 << 26;

/// The gradients of `scale · objective` over `batches`, one flat f32 tensor per master on the first
/// device, and the sums of loss, entropy and the objective's diagnostics.
pub fn gradients(
    trainee: &Trainee,
    batches: &[Batch],
    pass: Pass,
    scale: f64,
    objective: &Objective,
) -> (Vec<Tensor<1>>, Sums) {
    let Some(spread) = trainee.spread() else {
        let all: Vec<&Batch> = batches.iter().collect();
        return share(trainee, &all, pass, scale, objective);
    };
    let mut replicas = vec![trainee.clone()];
    replicas.extend(spread.replicas.iter().map(|base| trainee.replica(base.clone())));
    let shares = divide(batches, replicas.len());
    let parts: Vec<(Vec<Tensor<1>>, Sums)> = std::thread::scope(|scope| {
        let threads: Vec<_> = replicas
            .iter()
            .zip(&shares)
            .map(|(replica, batches)| scope.spawn(move || share(replica, batches, pass, scale, objective)))
            .collect();
        threads.into_iter().map(join).collect()
    });
    let mut sums = Sums::default();
    let mut gradients = Vec::new();
    for (part, measured) in parts {
        for (name, value) in measured.iter() {
            sums.add(name, value);
        }
        gradients.push(part);
    }
    (reduce(gradients, &*spread.collective), sums)
}

/// One device's share of the work.
fn share(
    trainee: &Trainee,
    batches: &[&Batch],
    pass: Pass,
    scale: f64,
    objective: &Objective,
) -> (Vec<Tensor<1>>, Sums) {
    let mut sums = Sums::default();
    let mut gradients = Gradients::new(trainee);
    for batch in batches {
        accumulate(
            trainee,
            batch,
            pass,
            scale,
            |start, rows| {
                let loss = objective(batch, start..start + rows.log_prob.len(), rows);
                sums.add_rows(rows);
                sums.add_loss(&loss);
                loss
            },
            &mut gradients,
        );
    }
    (gradients.finish(trainee), sums)
}

/// Batches for each of `devices`: the largest first, each to who has least to do.
fn divide(batches: &[Batch], devices: usize) -> Vec<Vec<&Batch>> {
    let mut shares: Vec<(usize, Vec<&Batch>)> = vec![(0, Vec::new()); devices];
    let mut sorted: Vec<&Batch> = batches.iter().collect();
    sorted.sort_by_key(|batch| std::cmp::Reverse(batch.ids.len()));
    for batch in sorted {
        let least = shares.iter_mut().min_by_key(|(load, _)| *load);
        let (load, share) = least.expect("there is at least one device");
        *load += batch.ids.len();
        share.push(batch);
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

/// Sums the gradients of all devices (device by device, master by master), bucket by bucket.
fn reduce(gradients: Vec<Vec<Tensor<1>>>, collective: &dyn Collective) -> Vec<Tensor<1>> {
    let lengths: Vec<usize> = gradients[0].iter().map(|g| g.dims()[0]).collect();
    let mut sums = Vec::with_capacity(lengths.len());
    let mut start = 0;
    while start < lengths.len() {
        let mut end = start + 1;
        let mut size = lengths[start];
        while end < lengths.len() && size + lengths[end] <= BUCKET {
            size += lengths[end];
            end += 1;
        }
        let flat = |of: &Vec<Tensor<1>>| Tensor::cat(of[start..end].to_vec(), 0);
        let mut bucket = collective.sum(gradients.iter().map(flat).collect());
        for &length in &lengths[start..end] {
            sums.push(bucket.clone().narrow(0, 0, length));
            let rest = bucket.dims()[0] - length;
            if rest > 0 {
                bucket = bucket.narrow(0, length, rest);
            }
        }
        start = end;
    }
    sums
}

/// A copy of `model` on `device`.
pub(crate) fn copy_to(model: &Model, device: &Device) -> Model {
    use lm::model::Parameter;
    model.map_parameters(|_, p| match p {
        Parameter::Vector(t) => t.to_device(device).into(),
        Parameter::Matrix(t) => t.to_device(device).into(),
    })
}
