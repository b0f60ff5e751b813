//! One forward and backward pass over a batch: from an objective to gradients of the masters.
//!
//! Two ways to the same gradients. Keeping activations is fastest: the layers are recorded once and
//! differentiated once. Recomputing them keeps only the input of every layer: layer by layer, from
//! the last, the layer is run again, recorded, and differentiated with the gradient that arrived at
//! its output. Burn's own checkpointing recomputes elementwise operations only and keeps every
//! matrix product, which is where the memory is.

use burn::tensor::{DType, Gradients as Tape, Int, Tensor, TensorData};
use lm::model::{AttentionContext, Model, Parameter};

use crate::data::Batch;
use crate::loss::{Head, RowValues, chunk_rows};
use crate::objective::TokenLoss;
use crate::trainee::{Current, Tracked, Trainee, layer_of};

/// How a pass is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Logits are divided by this before the softmax.
    pub temperature: f32,
    /// Recompute each layer in the backward pass instead of keeping its activations.
    pub recompute: bool,
}

/// Sums of gradients, one flat f32 vector per master.
#[derive(Debug, Clone)]
pub struct Gradients {
    sums: Vec<Option<Tensor<1>>>,
}

impl Gradients {
    /// Nothing yet, for every master of `trainee`.
    pub fn new(trainee: &Trainee) -> Self {
        Self { sums: vec![None; trainee.masters().len()] }
    }

    fn add(&mut self, index: usize, gradient: Tensor<1>) {
        let gradient = gradient.cast(DType::F32);
        self.sums[index] = Some(match self.sums[index].take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
    }

    /// The sums in the order of the masters; zeros where nothing arrived.
    pub fn finish(self, trainee: &Trainee) -> Vec<Tensor<1>> {
        self.sums
            .into_iter()
            .zip(trainee.masters())
            .map(|(sum, master)| sum.unwrap_or_else(|| master.value.zeros_like()))
            .collect()
    }

    fn take(&mut self, leaves: &[Parameter], tape: &mut Tape, wanted: impl Fn(usize) -> bool) {
        for (index, leaf) in leaves.iter().enumerate().filter(|(i, _)| wanted(*i)) {
            let gradient = match leaf {
                Parameter::Vector(t) => t.grad_remove(tape),
                Parameter::Matrix(t) => {
                    let len = t.dims().iter().product::<usize>();
                    t.grad_remove(tape).map(|g| g.reshape([len]))
                }
            };
            if let Some(gradient) = gradient {
                self.add(index, gradient);
            }
        }
    }
}

/// A batch's tensors on the model's device.
struct Input {
    ids: Tensor<2, Int>,
    context: AttentionContext,
    places: Tensor<1, Int>,
}

fn ints<const D: usize>(values: &[u32], shape: [usize; D], model: &Model) -> Tensor<D, Int> {
    let values: Vec<i32> = values.iter().map(|&v| v as i32).collect();
    Tensor::from_data(TensorData::new(values, shape), &model.device().without_autodiff())
}

impl Input {
    fn new(model: &Model, batch: &Batch) -> Self {
        let device = model.device().without_autodiff();
        let context = match &batch.segments {
            None => AttentionContext::causal(model.rope(), batch.width, &device),
            Some((positions, segments)) => AttentionContext::segmented(
                model.rope(),
                positions,
                segments,
                batch.rows,
                &device,
            ),
        };
        Self {
            ids: ints(&batch.ids, [batch.rows, batch.width], model),
            context,
            places: ints(&batch.places, [batch.places.len()], model),
        }
    }
}

fn head(current: &Current, temperature: f32, trains: bool) -> Head {
    let weight = current.model.head().clone().inner();
    let on_cpu = weight.device() == burn::tensor::Device::flex();
    Head {
        chunk: chunk_rows(weight.dims()[0], on_cpu),
        weight,
        temperature,
        trains,
    }
}

/// `hidden` `[rows, width, hidden]` at the places of the head, `[places, hidden]`.
fn at_places(hidden: Tensor<3>, places: &Tensor<1, Int>) -> Tensor<2> {
    let [rows, width, size] = hidden.dims();
    hidden.reshape([rows * width, size]).select(0, places.clone())
}

/// The gradient of all hidden states from that of the places: zero elsewhere. A gather through the
/// inverse index, which is deterministic and needs no atomics.
fn spread(by_hidden: Tensor<2>, batch: &Batch, model: &Model) -> Tensor<3> {
    let [places, size] = by_hidden.dims();
    let mut inverse = vec![places as u32; batch.ids.len()];
    for (row, &place) in batch.places.iter().enumerate() {
        inverse[place as usize] = row as u32;
    }
    let zero = by_hidden.clone().narrow(0, 0, 1).zeros_like();
    Tensor::cat(vec![by_hidden, zero], 0)
        .select(0, ints(&inverse, [inverse.len()], model))
        .reshape([batch.rows, batch.width, size])
}

/// Log-probability of every target of `batch` and entropy of every distribution, without gradients.
pub fn evaluate(current: &Current, batch: &Batch, temperature: f32) -> RowValues {
    let Current { model, adapter } = current;
    let input = Input::new(model, batch);
    let mut hidden = model.embed(input.ids);
    for layer in 0..model.layers().len() {
        hidden = model.layer(layer, hidden, &input.context, adapter.as_ref());
    }
    let hidden = at_places(model.final_norm(hidden), &input.places);
    head(current, temperature, false).values(&hidden, &batch.targets)
}

/// Adds the gradients of `scale · objective` over `batch` to `gradients`. `objective` sees the rows of
/// the head in chunks: the number of the first row and the values.
pub fn accumulate(
    trainee: &Trainee,
    batch: &Batch,
    pass: Pass,
    scale: f64,
    objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    gradients: &mut Gradients,
) {
    let tracked = trainee.tracked();
    let input = Input::new(trainee.base(), batch);
    let mut head = HeadPass { trainee, batch, pass, scale, objective };
    if pass.recompute {
        recomputed(&tracked, &input, &mut head, gradients);
    } else {
        kept(&tracked, &input, &mut head, gradients);
    }
}

/// What happens between the forward and the backward pass.
struct HeadPass<'a, F> {
    trainee: &'a Trainee,
    batch: &'a Batch,
    pass: Pass,
    scale: f64,
    objective: F,
}

impl<F: FnMut(usize, &RowValues) -> TokenLoss> HeadPass<'_, F> {
    /// The gradient of the normed hidden states `[rows, width, hidden]`.
    fn run(
        &mut self,
        current: &Current,
        hidden: Tensor<3>,
        input: &Input,
        gradients: &mut Gradients,
    ) -> Tensor<3> {
        let index = self.trainee.head();
        let head = head(current, self.pass.temperature, index.is_some());
        let hidden = at_places(hidden, &input.places);
        let by = head.gradients(&hidden, &self.batch.targets, self.scale, &mut self.objective);
        if let (Some(index), Some(by_weight)) = (index, by.by_weight) {
            let len = by_weight.dims().iter().product::<usize>();
            gradients.add(index, by_weight.reshape([len]));
        }
        spread(by.by_hidden, self.batch, self.trainee.base())
    }
}

/// Differentiates `output` with `by_output` arriving at it.
fn backward(output: Tensor<3>, by_output: Tensor<3>) -> Tape {
    (output * by_output).sum().backward()
}

fn kept<F: FnMut(usize, &RowValues) -> TokenLoss>(
    tracked: &Tracked,
    input: &Input,
    head: &mut HeadPass<F>,
    gradients: &mut Gradients,
) {
    let Current { model, adapter } = &tracked.current;
    let mut hidden = model.embed(input.ids.clone());
    for layer in 0..model.layers().len() {
        hidden = model.layer(layer, hidden, &input.context, adapter.as_ref());
    }
    let output = model.final_norm(hidden);
    let by_output = head.run(&tracked.current, output.clone().inner(), input, gradients);
    let mut tape = backward(output, by_output);
    gradients.take(&tracked.leaves, &mut tape, |_| true);
}

fn recomputed<F: FnMut(usize, &RowValues) -> TokenLoss>(
    tracked: &Tracked,
    input: &Input,
    head: &mut HeadPass<F>,
    gradients: &mut Gradients,
) {
    let trainee = head.trainee;
    let plain = trainee.current();
    let layers: Vec<Option<usize>> =
        trainee.masters().iter().map(|m| layer_of(&m.name)).collect();
    let mut hidden = plain.model.embed(input.ids.clone());
    let mut inputs = Vec::new();
    for layer in 0..plain.model.layers().len() {
        inputs.push(hidden.clone());
        hidden = plain.model.layer(layer, hidden, &input.context, plain.adapter.as_ref());
    }
    let Current { model, adapter } = &tracked.current;

    let top = hidden.autodiff().require_grad();
    let output = model.final_norm(top.clone());
    let by_output = head.run(&plain, output.clone().inner(), input, gradients);
    let mut tape = backward(output, by_output);
    // everything outside the layers but the embedding, which is differentiated last
    gradients.take(&tracked.leaves, &mut tape, |i| layers[i].is_none());
    let mut arrived = top.grad_remove(&mut tape).expect("the norm's input requires a gradient");

    for (layer, hidden) in inputs.into_iter().enumerate().rev() {
        let hidden = hidden.autodiff().require_grad();
        let output = model.layer(layer, hidden.clone(), &input.context, adapter.as_ref());
        let mut tape = backward(output, arrived);
        gradients.take(&tracked.leaves, &mut tape, |i| layers[i] == Some(layer));
        arrived = hidden.grad_remove(&mut tape).expect("a layer's input requires a gradient");
    }
    let output = model.embed(input.ids.clone());
    if output.is_tracked() {
        let mut tape = backward(output, arrived);
        gradients.take(&tracked.leaves, &mut tape, |i| layers[i].is_none());
    }
}
