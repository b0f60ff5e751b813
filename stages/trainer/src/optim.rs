//! AdamW with f32 masters, decay groups and clipping by the global norm.
//!
//! Not burn-optim: its AdamW keeps its moments in the gradient's number format and updates the
//! weights in theirs (in bf16 `1 - 1e-3 == 1`), and its clipping is per tensor. Masters, gradients
//! and moments here are flat f32 vectors, whatever the model computes in.

use burn::tensor::{DType, Device, Tensor, TensorData};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::fused::{self, Adam};
use crate::loss::floats;

/// AdamW (Loshchilov & Hutter 2019) as `torch.optim.AdamW` computes it, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, times the learning rate. Applies to matrices; norms, biases and
    /// steering vectors are exempt unless `decay_vectors`.
    pub weight_decay: f64,
    /// Whether vectors (norms, biases) decay too, as `torch.optim.AdamW(model.parameters())` does.
    pub decay_vectors: bool,
    /// Gradients are scaled down to this global norm when they exceed it; 0 turns clipping off.
    pub max_grad_norm: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            decay_vectors: false,
            max_grad_norm: 1.0,
        }
    }
}

/// One trained parameter: its f32 master and moments, all flat.
#[derive(Debug, Clone)]
pub struct Master {
    /// The parameter's Hugging Face (or PEFT) name.
    pub name: String,
    /// Its shape in the model.
    pub shape: Vec<usize>,
    /// The weights.
    pub value: Tensor<1>,
    /// Mean of gradients.
    pub mean: Tensor<1>,
    /// Mean of squared gradients.
    pub square: Tensor<1>,
}

impl Master {
    /// A master that starts at `value` (flat, f32) with zero moments.
    pub fn new(name: String, shape: Vec<usize>, value: Tensor<1>) -> Self {
        let mean = value.zeros_like();
        let square = value.zeros_like();
        Self { name, shape, value, mean, square }
    }

    /// One whose tensors are elsewhere for the moment.
    #[cfg(feature = "cuda")]
    pub(crate) fn aside() -> Self {
        let nothing = flat(vec![0.0], &Device::flex());
        let [value, mean, square] = [nothing.clone(), nothing.clone(), nothing];
        Self { name: String::new(), shape: Vec::new(), value, mean, square }
    }
}

impl AdamW {
    /// Refuses values that mean nothing.
    ///
    /// # Errors
    /// The first such value, as `optimizer.NAME`, and what to write instead.
    pub fn check(&self) -> Result<(), TrainError> {
        for (field, beta) in [("optimizer.beta1", self.beta1), ("optimizer.beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(TrainError::config(
                    field,
                    format!("{beta} is not a decay"),
                    "write a number from 0 to below 1",
                ));
            }
        }
        for (field, value) in
            [("optimizer.weight_decay", self.weight_decay), ("optimizer.max_grad_norm", self.max_grad_norm)]
        {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(TrainError::config(
                    field,
                    format!("{value} is not possible"),
                    "write a number that is not negative",
                ));
            }
        }
        // Also what f32, in which updates are computed, cannot tell from 0: a parameter without gradients
        // would become 0 / 0.
        if !(self.eps as f32 > 0.0 && (self.eps as f32).is_finite()) {
            return Err(TrainError::config(
                "optimizer.eps",
                format!("{:e} is no positive f32", self.eps),
                "write a small positive number such as 1e-8",
            ));
        }
        Ok(())
    }

    /// What gradients of this norm are multiplied with (`torch.nn.utils.clip_grad_norm_`).
    pub fn clip_factor(&self, norm: f64) -> f64 {
        if self.max_grad_norm == 0.0 { 1.0 } else { (self.max_grad_norm / (norm + 1e-6)).min(1.0) }
    }

    /// The numbers of update `step` (counted from 1) for a master with so many dimensions.
    pub(crate) fn on_master(&self, dimensions: usize, clip: f64, step: u64, lr: f64) -> Adam {
        let decays = (self.decay_vectors || dimensions > 1) && self.weight_decay > 0.0;
        Adam {
            clip,
            decay: if decays { 1.0 - lr * self.weight_decay } else { 1.0 },
            beta1: self.beta1,
            beta2: self.beta2,
            rate: lr / (1.0 - self.beta1.powf(step as f64)),
            root: (1.0 - self.beta2.powf(step as f64)).sqrt(),
            eps: self.eps,
        }
    }

    /// Update number `step` (counted from 1) of `masters` by `gradients` (flat f32, same order) at
    /// learning rate `lr`. Returns the norm of all gradients together, before clipping. When it is
    /// not finite, nothing is updated.
    pub fn step(&self, masters: &mut [Master], gradients: Vec<Tensor<1>>, step: u64, lr: f64) -> f64 {
        let norm = global_norm(&gradients);
        if !norm.is_finite() {
            return norm;
        }
        let clip = self.clip_factor(norm);
        for (master, mut gradient) in masters.iter_mut().zip(gradients) {
            let with = self.on_master(master.shape.len(), clip, step, lr);
            let operands = [&master.value, &master.mean, &master.square, &gradient];
            if let Some([value, mean, square]) = fused::adamw(operands, with) {
                (master.value, master.mean, master.square) = (value, mean, square);
                continue;
            }
            if clip < 1.0 {
                gradient = gradient.mul_scalar(clip);
            }
            if with.decay != 1.0 {
                master.value.inplace(|w| w.mul_scalar(with.decay));
            }
            let squared = gradient.clone().square().mul_scalar(1.0 - self.beta2);
            master.square.inplace(|v| v.mul_scalar(self.beta2) + squared);
            let scaled = gradient.mul_scalar(1.0 - self.beta1);
            master.mean.inplace(|m| m.mul_scalar(self.beta1) + scaled);
            let root = master.square.clone().sqrt().div_scalar(with.root);
            let update = master.mean.clone().mul_scalar(with.rate) / root.add_scalar(self.eps);
            master.value.inplace(|w| w - update);
        }
        norm
    }
}

/// The 2-norm of all tensors together.
pub fn global_norm(gradients: &[Tensor<1>]) -> f64 {
    if gradients.is_empty() {
        return 0.0;
    }
    // one read for all tensors
    if let Some(sums) = fused::square_sums(gradients) {
        return floats(sums).iter().map(|&s| f64::from(s)).sum::<f64>().sqrt();
    }
    let sums: Vec<Tensor<1>> = gradients.iter().map(|g| g.clone().square().sum()).collect();
    floats(Tensor::cat(sums, 0)).iter().map(|&s| f64::from(s)).sum::<f64>().sqrt()
}

/// A flat f32 tensor from host values.
pub(crate) fn flat(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), (device, DType::F32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::witness::{close, floats as numbers};

    fn master(name: &str, shape: &[usize], values: &[f32]) -> Master {
        Master::new(name.into(), shape.to_vec(), flat(values.to_vec(), &Device::flex()))
    }

    /// `tests/scripts/adamw.py`: five updates of a decayed matrix and an exempt vector, clipped.
    #[test]
    fn updates_are_those_of_torch() {
        let witness: serde_json::Value =
            serde_json::from_str(include_str!("../tests/scripts/adamw.json")).unwrap();
        let mut masters = [
            master("w", &[2, 3], &numbers(&witness["matrix"])),
            master("b", &[3], &numbers(&witness["vector"])),
        ];
        let optimizer = AdamW { beta2: 0.95, weight_decay: 0.1, ..AdamW::default() };
        for (index, step) in witness["steps"].as_array().unwrap().iter().enumerate() {
            let gradients = ["matrix_grad", "vector_grad"]
                .map(|name| flat(numbers(&step[name]), &Device::flex()))
                .to_vec();
            let lr = step["lr"].as_f64().unwrap();
            let norm = optimizer.step(&mut masters, gradients, index as u64 + 1, lr);
            assert!((norm - step["norm"].as_f64().unwrap()).abs() < 1e-5);
            close(&floats(masters[0].value.clone()), &numbers(&step["matrix"]), 1e-6);
            close(&floats(masters[1].value.clone()), &numbers(&step["vector"]), 1e-6);
        }
    }

    #[test]
    fn clipping_is_by_the_global_norm() {
        let device = Device::flex();
        let gradients = [flat(vec![3.0, 0.0], &device), flat(vec![0.0, 4.0], &device)];
        let norm = global_norm(&gradients);
        assert_eq!(norm, 5.0);
        let clip = AdamW { max_grad_norm: 1.0, ..AdamW::default() }.clip_factor(norm);
        assert!((clip - 0.2).abs() < 1e-6);
        assert_eq!(AdamW { max_grad_norm: 0.0, ..AdamW::default() }.clip_factor(norm), 1.0);
        assert_eq!(AdamW::default().clip_factor(0.5), 1.0);
    }

    #[test]
    fn small_updates_reach_the_master_that_bf16_would_lose() {
        // 100 updates of 6e-4 each: bf16 next to 1.0 has steps of 2^-8 below and would stay put
        let mut masters = [master("w", &[1], &[1.0])];
        let optimizer = AdamW { weight_decay: 0.0, ..AdamW::default() };
        for step in 1..=100 {
            optimizer.step(&mut masters, vec![flat(vec![1.0], &Device::flex())], step, 6e-4);
        }
        let got = floats(masters[0].value.clone())[0];
        assert!((got - 0.94).abs() < 1e-4, "{got}");
    }

    #[test]
    fn a_gradient_that_is_not_finite_updates_nothing() {
        let mut masters = [master("w", &[2], &[1.0, 2.0])];
        let gradient = flat(vec![f32::NAN, 1.0], &Device::flex());
        assert!(AdamW::default().step(&mut masters, vec![gradient], 1, 0.1).is_nan());
        assert_eq!(floats(masters[0].value.clone()), [1.0, 2.0]);
    }
}
