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

fn masters(named: Vec<(String, Parameter)>) -> Vec<Master> {
    named.into_iter().map(|(name, p)| Master::new(name, p.dims(), flatten(&p))).collect()
}

impl Trainee {
    /// Every parameter of `model` trains.
    pub fn full(model: Model) -> Self {
        Self::new(masters(model.named_parameters()), model, None)
    }

    /// `adapter` trains on the frozen `model`.
    pub fn adapter(model: Model, adapter: Adapter) -> Self {
        Self::new(masters(adapter.named_parameters()), model, Some(adapter))
    }

    fn new(masters: Vec<Master>, base: Model, adapter: Option<Adapter>) -> Self {
        Self { layout: Layout::of(&masters), base, adapter, masters, copies: None, spread: None }
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
            None => Flat::gathered(&self.layout, self.values()),
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
        self.copies = None;
        &mut self.masters
    }

    /// Update number `step` (counted from 1) by `gradients`, as [`AdamW::step`] does it.
    pub fn step(&mut self, optimizer: &AdamW, gradients: Vec<Tensor<1>>, step: u64, lr: f64) -> f64 {
        #[cfg(feature = "cuda")]
        if let Some(norm) = crate::direct::step(self, optimizer, &gradients, (step, lr)) {
            return norm;
        }
        optimizer.step(self.masters_mut(), gradients, step, lr)
    }

    /// What an update beside burn changes where it lies: masters, and the copies that a full model computes
    /// with, which are kept from now on.
    #[cfg(feature = "cuda")]
    pub(crate) fn changing(&mut self) -> (&mut [Master], Option<&mut Flat>) {
        if self.copies.is_none() && self.adapter.is_none() {
            self.copies = Some(Flat::gathered(&self.layout, self.values()));
        }
        (&mut self.masters, self.copies.as_mut())
    }

    /// Replaces the values of master `index` by what `f` makes of them. Moments stay.
    ///
    /// # Panics
    /// When there is no such master.
    pub fn set(&mut self, index: usize, f: impl FnOnce(&mut [f32])) {
        self.copies = None;
        let master = &mut self.masters[index];
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
