//! The gradient of one update, over the batches of all devices.
//!
//! Every device computes the gradients of its share of the micro-batches, scaled by the tokens of the
//! whole update, so that shares of unequal token counts simply add up. They are summed once per
//! update, flattened into a few buckets; one device applies the update and hands out the new
//! parameters with the next one, in the model's own number format.

use std::ops::Range;

use burn::tensor::{Device, StreamId, Tensor};
use lm::model::Model;

use crate::data::Batch;
use crate::gradient::{Gradients, Pass, accumulate};
use crate::loss::RowValues;
use crate::objective::{Diagnostic, TokenLoss};
use crate::trainee::{Current, Trainee};

/// An objective over one batch: the rows of the head that are ready, and their values.
pub type Objective<'a> = dyn Fn(&Batch, Range<usize>, &RowValues) -> TokenLoss + Sync + 'a;

/// Sums tensors over devices and hands out copies.
pub trait Collective: std::fmt::Debug + Send + Sync {
    /// The sum of `parts`, one of equal length per device and living there, on the first device.
    fn sum(&self, parts: Vec<Tensor<1>>) -> Tensor<1>;

    /// `value`, which lives on the first device, on each of `others`.
    fn copy(&self, value: &Tensor<1>, others: &[Device]) -> Vec<Tensor<1>>;
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

    fn copy(&self, value: &Tensor<1>, others: &[Device]) -> Vec<Tensor<1>> {
        others.iter().map(|device| value.clone().to_device(device)).collect()
    }
}

/// NCCL between NVIDIA GPUs of one process.
#[cfg(feature = "cuda")]
#[derive(Debug, Clone, Copy)]
pub struct Nccl(lm::nvidia::nccl::Team);

#[cfg(feature = "cuda")]
impl Nccl {
    /// Connects the GPUs with these indices; the first is the one that the model is on.
    ///
    /// # Errors
    /// NCCL is not installed, or cannot connect them.
    pub fn new(gpus: &[usize]) -> Result<Self, String> {
        lm::nvidia::nccl::Team::new(gpus).map(Self)
    }
}

#[cfg(feature = "cuda")]
impl Collective for Nccl {
    fn sum(&self, parts: Vec<Tensor<1>>) -> Tensor<1> {
        let team = self.0;
        let sums = each(parts.into_iter().enumerate(), |(rank, part)| team.sum(part, rank == 0));
        sums.into_iter().next().expect("there is at least one device")
    }

    fn copy(&self, value: &Tensor<1>, others: &[Device]) -> Vec<Tensor<1>> {
        let team = self.0;
        let room = |device| Tensor::empty(value.shape(), (device, value.dtype()));
        let parts = std::iter::once(value.clone()).chain(others.iter().map(room));
        each(parts.enumerate(), |(rank, part)| team.copy(part, rank == 0)).split_off(1)
    }
}

/// `work` on each item, each in a thread of its own; results in the order of the items.
///
/// All threads work on the caller's stream of their device: every stream has memory of its own, which a
/// thread that ends leaves behind.
pub(crate) fn each<I: Send, T: Send>(items: impl Iterator<Item = I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let (work, stream) = (&work, StreamId::current());
    std::thread::scope(|scope| {
        let spawn = |item| scope.spawn(move || stream.executes(|| work(item)));
        let threads: Vec<_> = items.map(spawn).collect();
        threads.into_iter().map(join).collect()
    })
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
    let currents = trainee.currents();
    let Some(spread) = trainee.spread() else {
        let all: Vec<&Batch> = batches.iter().collect();
        return share(trainee, &currents[0], &all, pass, scale, objective);
    };
    let shares = divide(batches, currents.len());
    let parts = each(currents.iter().zip(&shares), |(current, batches)| {
        share(trainee, current, batches, pass, scale, objective)
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
    current: &Current,
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
            current,
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
    (gradients.finish(trainee, &current.model.device()), sums)
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
    for bucket in buckets(&lengths) {
        let flat = |of: &Vec<Tensor<1>>| Tensor::cat(of[bucket.clone()].to_vec(), 0);
        let sum = collective.sum(gradients.iter().map(flat).collect());
        sums.extend(apart(sum, &lengths[bucket]));
    }
    sums
}

/// Copies of `values` on each of `others`, bucket by bucket.
pub(crate) fn hand_out(
    values: &[Tensor<1>],
    others: &[Device],
    collective: &dyn Collective,
) -> Vec<Vec<Tensor<1>>> {
    let lengths: Vec<usize> = values.iter().map(|v| v.dims()[0]).collect();
    let mut copies = vec![Vec::with_capacity(values.len()); others.len()];
    for bucket in buckets(&lengths) {
        let flat = Tensor::cat(values[bucket.clone()].to_vec(), 0);
        for (copy, flat) in copies.iter_mut().zip(collective.copy(&flat, others)) {
            copy.extend(apart(flat, &lengths[bucket.clone()]));
        }
    }
    copies
}

/// Ranges of tensors of these lengths that make up a bucket each.
fn buckets(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut buckets = Vec::new();
    let mut start = 0;
    while start < lengths.len() {
        let mut end = start + 1;
        let mut size = lengths[start];
        while end < lengths.len() && size + lengths[end] <= BUCKET {
            size += lengths[end];
            end += 1;
        }
        buckets.push(start..end);
        start = end;
    }
    buckets
}

/// The tensors of these lengths that lie in `bucket` one after the other.
fn apart(bucket: Tensor<1>, lengths: &[usize]) -> Vec<Tensor<1>> {
    let mut start = 0;
    let part = |&length: &usize| {
        start += length;
        bucket.clone().narrow(0, start - length, length)
    };
    lengths.iter().map(part).collect()
}

/// A copy of `model` on `device`.
pub(crate) fn copy_to(model: &Model, device: &Device) -> Model {
    use lm::model::Parameter;
    model.map_parameters(|_, p| match p {
        Parameter::Vector(t) => t.to_device(device).into(),
        Parameter::Matrix(t) => t.to_device(device).into(),
    })
}
