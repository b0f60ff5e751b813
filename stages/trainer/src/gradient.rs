//! One forward and backward pass over a batch: from an objective to gradients of the masters.
//!
//! Two ways to the same gradients. Keeping what products gave is fastest. Recomputing keeps only the
//! hidden states before and between the halves of every layer, and computes from them what the layer's
//! backward pass needs.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lm::config::ModelConfig;
use lm::model::{AttentionContext, Model};

use crate::data::Batch;
#[cfg(feature = "cuda")]
use crate::direct;
use crate::flat::Flat;
use crate::loss::{Head, RowValues, chunk_rows};
use crate::objective::TokenLoss;
use crate::optim::Master;
pub use crate::pass::Dropout;
use crate::pass::{Kept, LayerPass, Masks, Sink, embedding_gradient, norm_backward, norm_forward};
use crate::trainee::{Current, EMBEDDING, Trainee};

/// How a pass is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Logits are divided by this before the softmax.
    pub temperature: f32,
    /// Recompute each layer's products in the backward pass instead of keeping them.
    pub recompute: bool,
    /// Dropout on the inputs of LoRA's factors.
    pub dropout: Option<Dropout>,
}

impl Default for Pass {
    fn default() -> Self {
        Self { temperature: 1.0, recompute: false, dropout: None }
    }
}

/// Why passes over this model go through burn's tensors; `None` where they go beside burn, which is
/// faster and rounds at other places.
pub fn through_burn(current: &Current) -> Option<&'static str> {
    #[cfg(feature = "cuda")]
    return direct::why_not(current);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = current;
        Some("built for the CPU only")
    }
}

/// Whether passes over models of this shape in this number format go beside burn on `device`, as far as
/// can be told before there is a model.
pub fn beside_burn(config: &ModelConfig, dtype: DType, device: &str) -> bool {
    #[cfg(feature = "cuda")]
    return device != "cpu" && direct::why_not_shape(config, dtype).is_none();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (config, dtype, device);
        false
    }
}

/// Dropout at `rate` in update `step`, if there is any.
pub(crate) fn dropout(rate: f64, seed: u64, step: u64) -> Option<Dropout> {
    (rate > 0.0).then_some(Dropout { rate, seed, step })
}

/// Sums of gradients, one flat f32 vector per master.
#[derive(Debug, Clone)]
pub struct Gradients {
    sums: Vec<Option<Tensor<1>>>,
    /// What passes beside burn add to in place.
    flat: Option<Flat>,
}

impl Gradients {
    /// Nothing yet, for every master of `trainee`.
    pub fn new(trainee: &Trainee) -> Self {
        Self { sums: vec![None; trainee.masters().len()], flat: None }
    }

    pub(crate) fn add(&mut self, index: usize, gradient: Tensor<1>) {
        let gradient = gradient.cast(DType::F32);
        self.sums[index] = Some(match self.sums[index].take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
    }

    /// The buffers of all sums, zero at first.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn flat(&mut self, trainee: &Trainee, device: &Device) -> &Flat {
        self.flat.get_or_insert_with(|| Flat::zeros(trainee.layout(), device, DType::F32))
    }

    /// The sum so far for master `index`, zeros before the first; it begins anew.
    fn take(&mut self, index: usize, len: usize, device: &Device) -> Tensor<1> {
        self.sums[index].take().unwrap_or_else(|| Tensor::zeros([len], (device, DType::F32)))
    }

    /// The sums in the order of the masters, on the device that computed them; zeros where nothing
    /// arrived.
    pub fn finish(self, trainee: &Trainee, device: &Device) -> Vec<Tensor<1>> {
        let len = |master: &Master| master.shape.iter().product::<usize>();
        let zeros = |master: &Master| Tensor::zeros([len(master)], (device, DType::F32));
        let mut beside = self.flat.map(|flat| flat.parts().into_iter());
        let sum = |(sum, master): (Option<Tensor<1>>, &Master)| {
            let beside = beside.as_mut().and_then(Iterator::next);
            match (sum, beside) {
                (Some(sum), Some(beside)) => sum + beside,
                (Some(sum), None) | (None, Some(sum)) => sum,
                (None, None) => zeros(master),
            }
        };
        self.sums.into_iter().zip(trainee.masters()).map(sum).collect()
    }

    /// The same in a few buffers, which devices can exchange.
    pub(crate) fn finish_flat(self, trainee: &Trainee, device: &Device) -> Flat {
        match self.flat {
            Some(flat) if self.sums.iter().all(Option::is_none) => flat,
            flat => {
                let parts = Self { sums: self.sums, flat }.finish(trainee, device);
                Flat::gathered(trainee.layout(), parts.into_iter())
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
            Some((positions, segments)) => {
                AttentionContext::segmented(model.rope(), positions, segments, batch.rows, &device)
            }
        };
        Self {
            ids: ints(&batch.ids, [batch.rows, batch.width], model),
            context,
            places: ints(&batch.places, [batch.places.len()], model),
        }
    }
}

fn head(current: &Current, temperature: f32, trains: bool) -> Head {
    let weight = current.model.head().clone();
    let on_cpu = weight.device() == Device::flex();
    Head { chunk: chunk_rows(weight.dims()[0], on_cpu), weight, temperature, trains }
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
    Tensor::cat(vec![by_hidden, zero], 0).select(0, ints(&inverse, [inverse.len()], model)).reshape([
        batch.rows,
        batch.width,
        size,
    ])
}

/// Log-probability of every target of `batch` and entropy of every distribution, without gradients.
pub fn evaluate(current: &Current, batch: &Batch, temperature: f32) -> RowValues {
    #[cfg(feature = "cuda")]
    if let Some(values) = direct::evaluate(current, batch, temperature) {
        return values;
    }
    evaluate_through_burn(current, batch, temperature)
}

/// [`evaluate`] with burn's tensors.
pub(crate) fn evaluate_through_burn(current: &Current, batch: &Batch, temperature: f32) -> RowValues {
    let Current { model, adapter } = current;
    let input = Input::new(model, batch);
    let mut hidden = model.embed(input.ids);
    for layer in 0..model.layers().len() {
        let pass = LayerPass::new(model, layer, adapter.as_ref(), &input.context, None);
        (hidden, _) = pass.forward(hidden, true);
    }
    let hidden = norm_forward(model.norm(), &at_places(hidden, &input.places));
    head(current, temperature, false).values(&hidden, &batch.targets)
}

/// Adds the gradients of `scale · objective` over `batch` to `gradients`. `current` is what `trainee`
/// is now. `objective` sees the rows of the head in chunks: the number of the first row and the values.
pub fn accumulate(
    trainee: &Trainee,
    current: &Current,
    batch: &Batch,
    pass: Pass,
    scale: f64,
    mut objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    gradients: &mut Gradients,
) {
    #[cfg(feature = "cuda")]
    if direct::accumulate(trainee, current, batch, pass, scale, &mut objective, gradients) {
        return;
    }
    accumulate_through_burn(trainee, current, batch, pass, scale, &mut objective, gradients);
}

/// [`accumulate`] with burn's tensors.
pub(crate) fn accumulate_through_burn(
    trainee: &Trainee,
    current: &Current,
    batch: &Batch,
    pass: Pass,
    scale: f64,
    objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    gradients: &mut Gradients,
) {
    let Current { model, adapter } = current;
    let input = Input::new(model, batch);
    let masks = pass.dropout.map(|dropout| Masks::new(dropout, &batch.origins, &model.device()));
    let layers: Vec<LayerPass> = (0..model.layers().len())
        .map(|layer| LayerPass::new(model, layer, adapter.as_ref(), &input.context, masks.as_ref()))
        .collect();
    let mut hidden = model.embed(input.ids.clone());
    let mut kept: Vec<Kept> = Vec::with_capacity(layers.len());
    for layer in &layers {
        let (output, keep) = layer.forward(hidden, pass.recompute);
        kept.push(keep);
        hidden = output;
    }

    let places = trainee.places();
    let mut sink = Sink { places: &places, gradients };
    let index = trainee.head();
    let head = head(current, pass.temperature, index.is_some());
    // only the places of the head are normed and differentiated
    let last = at_places(hidden, &input.places);
    let normed = norm_forward(model.norm(), &last);
    let by = head.gradients(&normed, &batch.targets, scale, objective);
    if let (Some(index), Some(by_weight)) = (index, by.by_weight) {
        let len = by_weight.dims().iter().product::<usize>();
        sink.gradients.add(index, by_weight.reshape([len]));
    }
    let skip = last.zeros_like();
    let by_last = norm_backward(model.norm(), "model.norm.weight", last, by.by_hidden, skip, &mut sink);
    let mut by_hidden = spread(by_last, batch, model);
    for (layer, kept) in layers.iter().zip(kept).rev() {
        by_hidden = layer.backward(kept, by_hidden, &mut sink);
    }
    if let Some(&index) = places.get(EMBEDDING) {
        let [vocab, size] = model.embedding().dims();
        let sum = gradients.take(index, vocab * size, &model.device()).reshape([vocab, size]);
        let by_hidden = by_hidden.reshape([batch.ids.len(), size]);
        let sum = embedding_gradient(sum, &batch.ids, by_hidden);
        gradients.add(index, sum.reshape([vocab * size]));
    }
}
