//! The vocabulary head: log-probabilities, entropies and their gradients, in chunks of rows, so that
//! `[tokens, vocabulary]` never exists whole (at 152k tokens of vocabulary it would be the largest
//! tensor of a step by far).
//!
//! The head is differentiated by hand. With `z = h·Wᵀ/τ`, `p = softmax(z)`, log-probability
//! `lp = z_y - lse(z)` and entropy `H = lse(z) - Σ p·z`:
//!
//! `∂lp/∂z = onehot(y) - p` and `∂H/∂z = -p·(ln p + H)`.
//!
//! Objectives say what `∂L/∂lp` and `∂L/∂H` are for each row, as soon as the chunk's values are
//! known, so that one pass over the vocabulary computes loss and gradients.

use burn::tensor::{DType, IndexingUpdateOp, Int, Tensor, TensorData};
use lm::product::{product, wide_product};

use crate::fused;
use crate::objective::TokenLoss;

/// The output head, and how to go over it.
#[derive(Debug, Clone)]
pub struct Head {
    /// `[vocab, hidden]`, on a device without autodiff.
    pub weight: Tensor<2>,
    /// Logits are divided by this before the softmax.
    pub temperature: f32,
    /// Rows per chunk. Decides memory and speed; results change by rounding only.
    pub chunk: usize,
    /// Whether the gradient of `weight` is wanted.
    pub trains: bool,
}

/// Log-probability of its target and entropy (in nats) of each row, both at the head's temperature.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowValues {
    /// `ln p(target)`
    pub log_prob: Vec<f32>,
    /// `-Σ p ln p`
    pub entropy: Vec<f32>,
}

/// Gradients of a loss by the head's two operands.
#[derive(Debug, Clone)]
pub struct HeadGradients {
    /// `[rows, hidden]`, in the dtype of the hidden states.
    pub by_hidden: Tensor<2>,
    /// `[vocab, hidden]` f32, where the head trains.
    pub by_weight: Option<Tensor<2>>,
}

/// How many rows of a vocabulary of this size fit a chunk. On a CPU a chunk stays within a cache, on
/// a GPU it fills the card.
pub fn chunk_rows(vocab: usize, on_cpu: bool) -> usize {
    let elements = if on_cpu { 1 << 18 } else { 1 << 27 };
    (elements / vocab.max(1)).clamp(16, 8192)
}

/// A chunk of logits.
struct Chunk {
    /// Unscaled logits `[rows, vocab]` f32.
    logits: Tensor<2>,
    /// Target ids `[rows, 1]`.
    targets: Tensor<2, Int>,
    /// What the logits are multiplied with.
    factor: f32,
    /// Log-probabilities of the targets and entropies, `[2 * rows]`.
    values: Tensor<1>,
    /// What the values follow from, where tensor operations computed them.
    parts: Option<Parts>,
}

/// What follows from the scaled logits of a chunk.
struct Parts {
    /// Scaled logits `[rows, vocab]`.
    logits: Tensor<2>,
    /// Probabilities `[rows, vocab]`.
    probs: Tensor<2>,
    /// Log-sum-exp `[rows, 1]`.
    lse: Tensor<2>,
    /// Entropy `[rows, 1]`.
    entropy: Tensor<2>,
}

impl Parts {
    fn new(mut logits: Tensor<2>, factor: f32) -> Self {
        if factor != 1.0 {
            logits = logits.mul_scalar(factor);
        }
        let max = logits.clone().max_dim(1);
        let exp = (logits.clone() - max.clone()).exp();
        let sum = exp.clone().sum_dim(1);
        let lse = max + sum.clone().log();
        let probs = exp / sum;
        let entropy = lse.clone() - (probs.clone() * logits.clone()).sum_dim(1);
        Self { logits, probs, lse, entropy }
    }

    fn values(&self, targets: &Tensor<2, Int>) -> Tensor<1> {
        let log_prob = self.logits.clone().gather(1, targets.clone()) - self.lse.clone();
        let rows = log_prob.dims()[0];
        Tensor::cat(vec![log_prob, self.entropy.clone()], 0).reshape([2 * rows])
    }
}

impl Head {
    fn chunk(&self, hidden: Tensor<2>, targets: &[u32]) -> Chunk {
        let device = hidden.device();
        let ids: Vec<i32> = targets.iter().map(|&t| t as i32).collect();
        let targets = Tensor::from_data(TensorData::new(ids, [targets.len(), 1]), (&device, DType::I32));
        let bf16 = hidden.dtype() == DType::BF16;
        let logits = wide_product(hidden, self.weight.clone().transpose());
        let factor = 1.0 / self.temperature;
        let fused = if bf16 { fused::row_values(&logits, &targets, factor) } else { None };
        match fused {
            Some(values) => Chunk { logits, targets, factor, values, parts: None },
            None => {
                let parts = Parts::new(logits.clone(), factor);
                let values = parts.values(&targets);
                Chunk { logits, targets, factor, values, parts: Some(parts) }
            }
        }
    }

    /// Log-probability and entropy of each row: `hidden` `[rows, hidden]` without autodiff, one
    /// target per row.
    pub fn values(&self, hidden: &Tensor<2>, targets: &[u32]) -> RowValues {
        let mut values = RowValues::default();
        for start in (0..targets.len()).step_by(self.chunk) {
            let len = self.chunk.min(targets.len() - start);
            let chunk = self.chunk(hidden.clone().narrow(0, start, len), &targets[start..start + len]);
            let (log_prob, entropy) = chunk.read();
            values.log_prob.extend(log_prob);
            values.entropy.extend(entropy);
        }
        values
    }

    /// The gradients of `scale · objective`. `objective` is called once per chunk, in order, with the
    /// number of the chunk's first row and its values.
    pub fn gradients(
        &self,
        hidden: &Tensor<2>,
        targets: &[u32],
        scale: f64,
        mut objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    ) -> HeadGradients {
        let mut by_hidden = Vec::new();
        let mut by_weight: Option<Tensor<2>> = None;
        for start in (0..targets.len()).step_by(self.chunk) {
            let len = self.chunk.min(targets.len() - start);
            let rows = hidden.clone().narrow(0, start, len);
            let chunk = self.chunk(rows.clone(), &targets[start..start + len]);
            let (log_prob, entropy) = chunk.read();
            let loss = objective(start, &RowValues { log_prob, entropy });
            let by_logits = chunk.gradient(&loss, scale / f64::from(self.temperature)).cast(hidden.dtype());
            if self.trains {
                let part = wide_product(by_logits.clone().transpose(), rows);
                by_weight = Some(match by_weight {
                    Some(sum) => sum + part,
                    None => part,
                });
            }
            by_hidden.push(product(by_logits, self.weight.clone()));
        }
        HeadGradients { by_hidden: Tensor::cat(by_hidden, 0), by_weight }
    }
}

impl Chunk {
    /// Log-probabilities of the targets and entropies, on the host.
    fn read(&self) -> (Vec<f32>, Vec<f32>) {
        let both = floats(self.values.clone());
        let (log_prob, entropy) = both.split_at(both.len() / 2);
        (log_prob.to_vec(), entropy.to_vec())
    }

    /// The gradient of the loss by the unscaled logits, times `scale`.
    fn gradient(self, loss: &TokenLoss, scale: f64) -> Tensor<2> {
        let [rows, _] = self.logits.dims();
        let scaled = |values: &[f32]| -> Vec<f32> {
            let zeros = std::iter::repeat_n(0.0, rows - values.len().min(rows));
            values.iter().map(|&v| (f64::from(v) * scale) as f32).chain(zeros).collect()
        };
        let both = [scaled(&loss.by_log_prob), scaled(&loss.by_entropy)].concat();
        let data = TensorData::new(both, [2 * rows]);
        let by: Tensor<1> = Tensor::from_data(data, (&self.logits.device(), DType::F32));
        match self.parts {
            Some(parts) => parts.gradient(self.targets, by, !loss.by_entropy.is_empty()),
            None => fused::row_gradients(&self.logits, &self.targets, &self.values, &by, self.factor)
                .expect("what computed the values computes their gradients"),
        }
    }
}

impl Parts {
    /// The gradient by the scaled logits; `by` holds those of log-probabilities and of entropies.
    fn gradient(self, targets: Tensor<2, Int>, by: Tensor<1>, of_entropy: bool) -> Tensor<2> {
        let [rows, _] = self.logits.dims();
        let by = by.reshape([2, rows, 1]);
        let half = |i: usize| by.clone().narrow(0, i, 1).reshape([rows, 1]);
        let by_log_prob = half(0);
        let mut weight = by_log_prob.clone();
        if of_entropy {
            let by_entropy = half(1) * (self.logits - (self.lse - self.entropy));
            let gradient = (self.probs * (by_entropy + weight)).neg();
            return gradient.scatter(1, targets, by_log_prob, IndexingUpdateOp::Add);
        }
        weight = weight.neg();
        (self.probs * weight).scatter(1, targets, by_log_prob, IndexingUpdateOp::Add)
    }
}

/// A tensor's values as f32 on the host.
pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().expect("the data was just converted to f32")
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use serde_json::Value;

    use super::*;
    use crate::objective::witness::{close, floats as numbers, load};
    use crate::objective::{entropy, psft, sft};

    fn matrix(value: &Value, shape: [usize; 2]) -> Tensor<2> {
        Tensor::from_data(TensorData::new(numbers(value), shape), (&Device::flex(), DType::F32))
    }

    fn check(name: &str, objective: impl Fn(usize, &RowValues) -> TokenLoss) {
        let witness = load();
        let witness = &witness["head"];
        let case = &witness[name];
        let hidden = matrix(&witness["hidden"], [5, 4]);
        let targets: Vec<u32> = numbers(&witness["targets"]).iter().map(|&t| t as u32).collect();
        // chunks that divide the rows, that do not, and one that holds them all
        for chunk in [1, 2, 5, 9] {
            let head = Head {
                weight: matrix(&witness["weight"], [7, 4]),
                temperature: case["temperature"].as_f64().unwrap() as f32,
                chunk,
                trains: true,
            };
            let mut loss = 0.0;
            let scale = 0.5;
            let got = head.gradients(&hidden, &targets, scale, |start, values| {
                let part = objective(start, values);
                loss += part.loss;
                part
            });
            assert!((loss - case["loss"].as_f64().unwrap()).abs() < 1e-4, "{name}: {loss}");
            let halved = |v: &Value| numbers(v).iter().map(|g| g * 0.5).collect::<Vec<_>>();
            close(&floats(got.by_hidden), &halved(&case["by_hidden"]), 1e-5);
            close(&floats(got.by_weight.unwrap()), &halved(&case["by_weight"]), 1e-5);
        }
    }

    #[test]
    fn gradients_are_those_of_torch() {
        let reference = numbers(&load()["head"]["reference"]);
        check("sft", |_, v| sft::evaluate(&v.log_prob));
        check("psft", |start, v| {
            let reference = &reference[start..start + v.log_prob.len()];
            psft::evaluate(&v.log_prob, reference, psft::Psft::default())
        });
        check("entropy", |_, v| entropy::evaluate(&v.entropy));
        check("both", |_, v| {
            let (a, b) = (sft::evaluate(&v.log_prob), entropy::evaluate(&v.entropy));
            TokenLoss {
                loss: a.loss + 0.3 * b.loss,
                by_log_prob: a.by_log_prob,
                by_entropy: b.by_entropy.iter().map(|g| 0.3 * g).collect(),
                diagnostics: Vec::new(),
            }
        });
    }

    #[test]
    fn a_uniform_distribution_over_a_large_vocabulary_has_entropy_ln_v() {
        let device = Device::flex();
        for dtype in [DType::F32, DType::BF16] {
            let head = Head {
                weight: Tensor::zeros([151_936, 2], (&device, dtype)),
                temperature: 0.5,
                chunk: 1,
                trains: false,
            };
            let hidden = Tensor::ones([2, 2], (&device, dtype));
            let got = head.values(&hidden, &[5, 151_935]);
            for (h, lp) in got.entropy.iter().zip(&got.log_prob) {
                assert!((h - 11.931_214).abs() < 2e-3, "{h}");
                assert!((lp + 11.931_214).abs() < 2e-3, "{lp}");
            }
            let gradients = head.gradients(&hidden, &[5, 151_935], 1.0, |_, v| entropy::evaluate(&v.entropy));
            assert!(floats(gradients.by_hidden).iter().all(|g| g.is_finite()));
        }
    }

    #[test]
    fn extreme_logits_stay_finite() {
        let device = Device::flex();
        let weight = Tensor::from_data(TensorData::new(vec![1.0f32, 0.0, -1.0], [3, 1]), &device);
        let head = Head { weight, temperature: 1.0, chunk: 4, trains: true };
        let hidden = Tensor::from_data(TensorData::new(vec![1000.0f32], [1, 1]), &device);
        let got = head.values(&hidden, &[2]);
        assert_eq!(got.log_prob, [-2000.0]);
        assert_eq!(got.entropy, [0.0]);
        let gradients = head.gradients(&hidden, &[2], 1.0, |_, v| {
            let mut loss = sft::evaluate(&v.log_prob);
            loss.by_entropy = vec![1.0];
            loss
        });
        assert!(floats(gradients.by_hidden).iter().all(|g| g.is_finite()));
    }
}
