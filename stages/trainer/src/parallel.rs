//! The gradient of one update, over the batches of all devices.
//!
//! Every device computes the gradients of its share of the sequences, scaled by the tokens of the whole
//! update, so that shares of unequal token counts simply add up. They are summed once per update, in the
//! few buffers that they lie in; one device applies the update and hands out the new parameters with the
//! next one, in the model's own number format.

use std::ops::Range;

use burn::tensor::{Device, StreamId, Tensor};
use lm::model::Model;

use crate::data::Batch;
use crate::flat::Flat;
use crate::gradient::{Gradients, Pass, accumulate, evaluate};
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

/// The gradients of `scale · objective` over all of `shares`, the batches of each device
/// ([`Batching::shares`](crate::data::Batching::shares)): one flat f32 tensor per master on the first
/// device, and the sums of loss, entropy and the objective's diagnostics. `told` hears the names of the
/// work's parts as they end.
///
/// # Panics
/// When there are not as many shares as devices.
pub fn gradients(
    trainee: &Trainee,
    shares: &[Vec<Batch>],
    pass: Pass,
    scale: f64,
    objective: &Objective,
    mut told: impl FnMut(&str),
) -> (Vec<Tensor<1>>, Sums) {
    let currents = trainee.currents();
    assert_eq!(currents.len(), shares.len(), "every device has a share, if an empty one");
    let Some(spread) = trainee.spread() else {
        let (gradients, sums) = share(trainee, &currents[0], &shares[0], pass, scale, objective);
        told("passes");
        return (gradients.finish(trainee, &currents[0].model.device()), sums);
    };
    told("parameters");
    let parts = each(currents.iter().zip(shares), |(current, batches)| {
        let (gradients, sums) = share(trainee, current, batches, pass, scale, objective);
        (gradients.finish_flat(trainee, &current.model.device()), sums)
    });
    told("passes");
    let mut sums = Sums::default();
    let mut gradients = Vec::new();
    for (part, measured) in parts {
        for (name, value) in measured.iter() {
            sums.add(name, value);
        }
        gradients.push(part);
    }
    let gradients = reduce(gradients, &*spread.collective).parts();
    told("exchange");
    (gradients, sums)
}

/// One device's share of the work.
fn share(
    trainee: &Trainee,
    current: &Current,
    batches: &[Batch],
    pass: Pass,
    scale: f64,
    objective: &Objective,
) -> (Gradients, Sums) {
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
    (gradients, sums)
}

/// [`evaluate`] of each of `batches`, which the devices of `currents` share; in their order.
pub(crate) fn evaluate_all(currents: &[Current], batches: &[Batch], temperature: f32) -> Vec<RowValues> {
    if let [current] = currents {
        return batches.iter().map(|batch| evaluate(current, batch, temperature)).collect();
    }
    // batches come by length: those side by side take about as long
    let round = |batches: &[Batch]| {
        each(currents.iter().zip(batches), |(current, batch)| evaluate(current, batch, temperature))
    };
    batches.chunks(currents.len()).flat_map(round).collect()
}

/// Sums the gradients of all devices, buffer by buffer.
fn reduce(gradients: Vec<Flat>, collective: &dyn Collective) -> Flat {
    let like = gradients[0].like(Vec::new());
    let mut devices: Vec<_> = gradients.into_iter().map(|flat| flat.buckets.into_iter()).collect();
    let mut sums = Vec::new();
    // each device's buffer goes with the call, so that a sum may take its place
    while let Some(parts) = devices.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>() {
        sums.push(collective.sum(parts));
    }
    like.like(sums)
}

/// Copies of `values` on each of `others`, buffer by buffer.
pub(crate) fn hand_out(values: &Flat, others: &[Device], collective: &dyn Collective) -> Vec<Flat> {
    let mut copies = vec![Vec::with_capacity(values.buckets.len()); others.len()];
    for bucket in &values.buckets {
        for (copy, received) in copies.iter_mut().zip(collective.copy(bucket, others)) {
            copy.push(received);
        }
    }
    copies.into_iter().map(|buckets| values.like(buckets)).collect()
}

/// A copy of `model` on `device`.
pub(crate) fn copy_to(model: &Model, device: &Device) -> Model {
    use lm::model::Parameter;
    model.map_parameters(|_, p| match p {
        Parameter::Vector(t) => t.to_device(device).into(),
        Parameter::Matrix(t) => t.to_device(device).into(),
    })
}
