//! What trains: all of a model's parameters, or an adapter on a frozen model. Either way the truth
//! is a list of f32 masters; the model computes with copies in its own number format.

use std::collections::HashMap;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};
use lm::adapter::Adapter;
use lm::model::{Model, Parameter};

use crate::flat::{Flat, Layout};
use crate::loss::floats;
use crate::optim::{AdamW, Master, flat};
use crate::parallel::{Collective, copy_to, hand_out};

/// A model in training.
#[derive(Debug, Clone)]
pub struct Trainee {
    base: Model,
    adapter: Option<Adapter>,
    masters: Vec<Master>,
    layout: Arc<Layout>,
    /// Values, means and squares in buffers that the masters' tensors are views of, where updates beside burn
    /// change them where they lie.
    states: Option<[Flat; 3]>,
    /// The masters' present values in the model's number format, where updates keep them up to date.
    copies: Option<Flat>,
    spread: Option<Spread>,
}

/// The other devices that share the work.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    /// Copies of the base model, one per further device.
    pub replicas: Vec<Model>,
    pub collective: Arc<dyn Collective>,
}

/// Parameters as they are now: what computes a forward pass.
#[derive(Debug, Clone)]
pub struct Current {
    /// The model, updated where it trains.
    pub model: Model,
    /// The adapter, where one trains.
    pub adapter: Option<Adapter>,
}

/// The name of the token embedding, and of the head where the two are tied.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";

fn flatten(parameter: &Parameter) -> Tensor<1> {
    let len = parameter.dims().iter().product::<usize>();
    match parameter {
        Parameter::Vector(t) => t.clone(),
        Parameter::Matrix(t) => t.clone().reshape([len]),
    }
    .cast(DType::F32)
}

/// `base` and `adapter` with the parameters that train replaced by `values`, flat and in their order:
/// the adapter's where there is one, else the model's.
fn filled(base: &Model, adapter: Option<&Adapter>, values: Vec<Tensor<1>>) -> Current {
    let mut values = values.into_iter();
    let mut next = |_: &str, old: Parameter| {
        let value = values.next().expect("one value per parameter, in the same order");
        match old {
            Parameter::Matrix(old) => Parameter::Matrix(value.reshape(old.dims())),
            Parameter::Vector(_) => Parameter::Vector(value),
        }
    };
    match adapter {
        Some(adapter) => Current { model: base.clone(), adapter: Some(adapter.map_parameters(&mut next)) },
        None => Current { model: base.map_parameters(&mut next), adapter: None },
    }
}

impl Trainee {
    /// Every parameter of `model` trains.
    pub fn full(model: Model) -> Self {
        Self::new(model.named_parameters(), model, None)
    }

    /// `adapter` trains on the frozen `model`.
    pub fn adapter(model: Model, adapter: Adapter) -> Self {
        Self::new(adapter.named_parameters(), model, Some(adapter))
    }

    fn new(named: Vec<(String, Parameter)>, base: Model, adapter: Option<Adapter>) -> Self {
        let shapes: Vec<Vec<usize>> = named.iter().map(|(_, parameter)| parameter.dims()).collect();
        let layout = Layout::of(shapes.iter().map(Vec::as_slice));
        let mut trainee =
            Self { layout, base, adapter, masters: Vec::new(), states: None, copies: None, spread: None };
        #[cfg(feature = "cuda")]
        if crate::direct::updates(&trainee.base) && !named.is_empty() {
            let (layout, device) = (&trainee.layout, trainee.base.device().without_autodiff());
            let zeros = || Flat::zeros(layout, &device, DType::F32);
            let values = Flat::gathered(layout, named.iter().map(|(_, parameter)| flatten(parameter)));
            trainee.states = Some([values, zeros(), zeros()]);
            let aside = |((name, _), shape)| Master { name, shape, ..Master::aside() };
            trainee.masters = named.into_iter().zip(shapes).map(aside).collect();
            trainee.settle();
            return trainee;
        }
        let master = |((name, parameter), shape)| Master::new(name, shape, flatten(&parameter));
        trainee.masters = named.into_iter().zip(shapes).map(master).collect();
        trainee
    }

    /// The same, with the work of every update divided between the device that the model is on and
    /// `others`, whose gradients `collective` sums.
    #[must_use]
    pub fn on_devices(mut self, others: &[Device], collective: Arc<dyn Collective>) -> Self {
        let replicas = others.iter().map(|device| copy_to(&self.base, device)).collect();
        self.spread = (!others.is_empty()).then_some(Spread { replicas, collective });
        self
    }

    pub(crate) fn spread(&self) -> Option<&Spread> {
        self.spread.as_ref()
    }

    /// How many devices share the work.
    pub fn devices(&self) -> usize {
        1 + self.spread.as_ref().map_or(0, |spread| spread.replicas.len())
    }

    /// Where the masters lie in buffers of all of them.
    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// [`Trainee::current`] on every device, the model's own first.
    pub fn currents(&self) -> Vec<Current> {
        let Some(spread) = &self.spread else { return vec![self.current()] };
        let own = match &self.copies {
            Some(copies) => copies.clone(),
            None => Flat::gathered(&self.layout, self.values().into_iter()),
        };
        let devices: Vec<Device> = spread.replicas.iter().map(Model::device).collect();
        let others = hand_out(&own, &devices, &*spread.collective);
        let bases = std::iter::once(&self.base).chain(&spread.replicas);
        let flats = std::iter::once(own).chain(others);
        bases.zip(flats).map(|(base, flat)| filled(base, self.adapter.as_ref(), flat.parts())).collect()
    }

    /// The masters' present values, flat, in the number format that the model computes with: its own
    /// for its parameters, f32 for adapters.
    fn values(&self) -> Vec<Tensor<1>> {
        if let Some(copies) = &self.copies {
            return copies.parts();
        }
        let dtype = if self.adapter.is_some() { DType::F32 } else { self.base.dtype() };
        self.masters.iter().map(|master| master.value.clone().cast(dtype)).collect()
    }

    /// The trained parameters and their optimiser state.
    pub fn masters(&self) -> &[Master] {
        &self.masters
    }

    pub(crate) fn masters_mut(&mut self) -> &mut [Master] {
        (self.copies, self.states) = (None, None);
        &mut self.masters
    }

    /// Replaces value, mean and square of master `index`, which nobody else holds
    /// ([`Trainee::hold_alone`]).
    pub(crate) fn put(&mut self, index: usize, parts: [Vec<f32>; 3]) {
        self.copies = None;
        let Master { value, mean, square, .. } = &mut self.masters[index];
        for (tensor, values) in [value, mean, square].into_iter().zip(parts) {
            #[cfg(feature = "cuda")]
            if self.states.is_some() && lm::nvidia::overwrite(tensor, &values) {
                continue;
            }
            self.states = None;
            *tensor = flat(values, &tensor.device());
        }
    }

    /// Sees to it that nobody else holds the buffers that the masters are views of.
    pub(crate) fn hold_alone(&mut self) {
        #[cfg(feature = "cuda")]
        if self.states.is_some() {
            let (_, states, _) = self.changing();
            for bucket in states.iter_mut().flat_map(|flat| &mut flat.buckets) {
                if !crate::direct::sole(bucket) {
                    *bucket = bucket.clone().mul_scalar(1.0);
                }
            }
            self.settle();
        }
    }

    /// Update number `step` (counted from 1) by `gradients`, as [`AdamW::step`] does it.
    pub fn step(&mut self, optimizer: &AdamW, gradients: Vec<Tensor<1>>, step: u64, lr: f64) -> f64 {
        #[cfg(feature = "cuda")]
        if let Some(norm) = crate::direct::step(self, optimizer, &gradients, (step, lr)) {
            return norm;
        }
        optimizer.step(self.masters_mut(), gradients, step, lr)
    }

    /// What an update beside burn changes where it lies: the masters' values, means and squares, and the copies
    /// that a full model computes with, which are kept from now on. The masters' own tensors are put aside, so
    /// that a buffer tells whether somebody else holds it; [`Trainee::settle`] brings them back.
    #[cfg(feature = "cuda")]
    pub(crate) fn changing(&mut self) -> (&[Master], &mut [Flat; 3], Option<&mut Flat>) {
        if self.copies.is_none() && self.adapter.is_none() {
            self.copies = Some(Flat::gathered(&self.layout, self.values().into_iter()));
        }
        let (masters, layout) = (&mut self.masters, &self.layout);
        let states = self.states.get_or_insert_with(|| {
            let values = Flat::gathered(layout, masters.iter().map(|master| master.value.clone()));
            let means = Flat::gathered(layout, masters.iter().map(|master| master.mean.clone()));
            let squares = Flat::gathered(layout, masters.iter().map(|master| master.square.clone()));
            [values, means, squares]
        });
        for master in masters.iter_mut() {
            let aside = Master::aside();
            (master.value, master.mean, master.square) = (aside.value, aside.mean, aside.square);
        }
        (masters, states, self.copies.as_mut())
    }

    /// Makes the masters' tensors views of the buffers.
    #[cfg(feature = "cuda")]
    pub(crate) fn settle(&mut self) {
        let Some(states) = &self.states else { return };
        let [values, means, squares] = states.each_ref().map(Flat::parts);
        let parts = values.into_iter().zip(means).zip(squares);
        for (master, ((value, mean), square)) in self.masters.iter_mut().zip(parts) {
            (master.value, master.mean, master.square) = (value, mean, square);
        }
    }

    /// Replaces the values of master `index` by what `f` makes of them. Moments stay.
    ///
    /// # Panics
    /// When there is no such master.
    pub fn set(&mut self, index: usize, f: impl FnOnce(&mut [f32])) {
        let master = &mut self.masters_mut()[index];
        let device = master.value.device();
        let mut values = floats(master.value.clone());
        f(&mut values);
        master.value = flat(values, &device);
    }

    /// How many numbers train.
    pub fn len(&self) -> usize {
        self.masters.iter().map(|m| m.shape.iter().product::<usize>()).sum()
    }

    /// Whether nothing trains.
    pub fn is_empty(&self) -> bool {
        self.masters.is_empty()
    }

    /// Whether the model's own parameters train, rather than an adapter's.
    pub fn trains_all(&self) -> bool {
        self.adapter.is_none()
    }

    /// The model as it was before the first update: frozen under an adapter.
    pub fn base(&self) -> &Model {
        &self.base
    }

    /// Model and adapter with the masters' present values. Full models are in the base's dtype,
    /// adapters in f32.
    pub fn current(&self) -> Current {
        filled(&self.base, self.adapter.as_ref(), self.values())
    }

    /// The masters' places by name.
    pub(crate) fn places(&self) -> HashMap<String, usize> {
        self.masters.iter().enumerate().map(|(index, master)| (master.name.clone(), index)).collect()
    }

    /// The master that the head's gradient belongs to, where the head trains.
    pub(crate) fn head(&self) -> Option<usize> {
        let name = if self.base.config().tie_word_embeddings { EMBEDDING } else { "lm_head.weight" };
        self.masters.iter().position(|m| m.name == name)
    }
}

/// The decoder layer that a parameter's name places it in.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("layers.")?;
    rest.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::layer_of;

    #[test]
    fn names_tell_their_layer() {
        assert_eq!(layer_of("model.layers.12.mlp.down_proj.bias"), Some(12));
        assert_eq!(layer_of("base_model.model.model.layers.3.mlp.up_proj.lora_A.weight"), Some(3));
        assert_eq!(layer_of("model.norm.weight"), None);
    }
}
