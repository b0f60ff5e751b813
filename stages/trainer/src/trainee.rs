//! What trains: all of a model's parameters, or an adapter on a frozen model. Either way the truth
//! is a list of f32 masters; the model computes with copies in its own number format.

use burn::tensor::{DType, Tensor};
use lm::adapter::Adapter;
use lm::model::{Model, Parameter};

use crate::loss::floats;
use crate::optim::{Master, flat};

/// A model in training.
#[derive(Debug, Clone)]
pub struct Trainee {
    base: Model,
    adapter: Option<Adapter>,
    masters: Vec<Master>,
}

/// Parameters as they are now: what computes a forward pass.
#[derive(Debug, Clone)]
pub struct Current {
    /// The model, updated where it trains.
    pub model: Model,
    /// The adapter, where one trains.
    pub adapter: Option<Adapter>,
}

/// [`Current`] on an autodiff device, with the leaves that receive gradients.
pub(crate) struct Tracked {
    pub current: Current,
    /// In the order of the masters.
    pub leaves: Vec<Parameter>,
}

fn flatten(parameter: &Parameter) -> Tensor<1> {
    let len = parameter.dims().iter().product::<usize>();
    match parameter {
        Parameter::Vector(t) => t.clone(),
        Parameter::Matrix(t) => t.clone().reshape([len]),
    }
    .cast(DType::F32)
}

/// `flat` in the shape of `like`, which says only whether it is a vector or a matrix.
fn shaped(flat: Tensor<1>, shape: &[usize], dtype: DType) -> Parameter {
    match *shape {
        [rows, columns] => Parameter::Matrix(flat.reshape([rows, columns]).cast(dtype)),
        _ => Parameter::Vector(flat.cast(dtype)),
    }
}

fn track(parameter: Parameter) -> Parameter {
    match parameter {
        Parameter::Vector(t) => t.autodiff().require_grad().into(),
        Parameter::Matrix(t) => t.autodiff().require_grad().into(),
    }
}

fn masters(named: Vec<(String, Parameter)>) -> Vec<Master> {
    named
        .into_iter()
        .map(|(name, p)| Master::new(name, p.dims(), flatten(&p)))
        .collect()
}

impl Trainee {
    /// Every parameter of `model` trains.
    pub fn full(model: Model) -> Self {
        let masters = masters(model.named_parameters());
        Self { base: model, adapter: None, masters }
    }

    /// `adapter` trains on the frozen `model`.
    pub fn adapter(model: Model, adapter: Adapter) -> Self {
        let masters = masters(adapter.named_parameters());
        Self { base: model, adapter: Some(adapter), masters }
    }

    /// The trained parameters and their optimiser state.
    pub fn masters(&self) -> &[Master] {
        &self.masters
    }

    pub(crate) fn masters_mut(&mut self) -> &mut [Master] {
        &mut self.masters
    }

    /// Replaces the values of master `index` by what `f` makes of them. Moments stay.
    ///
    /// # Panics
    /// When there is no such master.
    pub fn set(&mut self, index: usize, f: impl FnOnce(&mut [f32])) {
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

    /// The model as it was before the first update: frozen under an adapter.
    pub fn base(&self) -> &Model {
        &self.base
    }

    /// Model and adapter with the masters' present values. Full models are in the base's dtype,
    /// adapters in f32.
    pub fn current(&self) -> Current {
        self.with(|p| p)
    }

    pub(crate) fn tracked(&self) -> Tracked {
        let mut leaves = Vec::with_capacity(self.masters.len());
        let current = self.with(|p| {
            let leaf = track(p);
            leaves.push(leaf.clone());
            leaf
        });
        Tracked { current, leaves }
    }

    fn with(&self, mut f: impl FnMut(Parameter) -> Parameter) -> Current {
        let mut masters = self.masters.iter();
        let mut next = |dtype| {
            let master = masters.next().expect("one master per parameter, in the same order");
            f(shaped(master.value.clone(), &master.shape, dtype))
        };
        match &self.adapter {
            Some(adapter) => Current {
                model: self.base.clone(),
                adapter: Some(adapter.map_parameters(|_, _| next(DType::F32))),
            },
            None => {
                let dtype = self.base.dtype();
                Current { model: self.base.map_parameters(|_, _| next(dtype)), adapter: None }
            }
        }
    }

    /// The master that the head's gradient belongs to, where the head trains.
    pub(crate) fn head(&self) -> Option<usize> {
        let name = if self.base.config().tie_word_embeddings {
            "model.embed_tokens.weight"
        } else {
            "lm_head.weight"
        };
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
