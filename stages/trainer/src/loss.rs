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

/// A chunk of logits and what follows from them.
struct Chunk {
    /// Scaled logits `[rows, vocab]`.
    logits: Tensor<2>,
    /// Probabilities `[rows, vocab]`.
    probs: Tensor<2>,
    /// Log-sum-exp `[rows, 1]`.
    lse: Tensor<2>,
    /// Entropy `[rows, 1]`.
    entropy: Tensor<2>,
    /// Target ids `[rows, 1]`.
    targets: Tensor<2, Int>,
}

impl Head {
    fn chunk(&self, hidden: Tensor<2>, targets: &[u32]) -> Chunk {
        let device = hidden.device();
        let ids: Vec<i32> = targets.iter().map(|&t| t as i32).collect();
        let targets = Tensor::from_data(TensorData::new(ids, [targets.len(), 1]), &device);
        let mut logits = hidden.matmul(self.weight.clone().transpose()).cast(DType::F32);
        if self.temperature != 1.0 {
            logits = logits.div_scalar(self.temperature);
        }
        let max = logits.clone().max_dim(1);
        let exp = (logits.clone() - max.clone()).exp();
        let sum = exp.clone().sum_dim(1);
        let lse = max + sum.clone().log();
        let probs = exp / sum;
        let entropy = lse.clone() - (probs.clone() * logits.clone()).sum_dim(1);
        Chunk { logits, probs, lse, entropy, targets }
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
            let by_logits = chunk
                .gradient(&loss, scale / f64::from(self.temperature))
                .cast(hidden.dtype());
            if self.trains {
                let part = by_logits.clone().transpose().matmul(rows).cast(DType::F32);
                by_weight = Some(match by_weight {
                    Some(sum) => sum + part,
                    None => part,
                });
            }
            by_hidden.push(by_logits.matmul(self.weight.clone()));
        }
        HeadGradients {
            by_hidden: Tensor::cat(by_hidden, 0),
            by_weight,
        }
    }
}

impl Chunk {
    /// Log-probabilities of the targets and entropies, on the host.
    fn read(&self) -> (Vec<f32>, Vec<f32>) {
        let log_prob = self.logits.clone().gather(1, self.targets.clone()) - self.lse.clone();
        let rows = log_prob.dims()[0];
        let both = floats(Tensor::cat(vec![log_prob, self.entropy.clone()], 0));
        (both[..rows].to_vec(), both[rows..].to_vec())
    }

    /// The gradient of the loss by the unscaled logits, times `scale`.
    fn gradient(self, loss: &TokenLoss, scale: f64) -> Tensor<2> {
        let device = self.logits.device();
        let column = |values: &[f32]| -> Tensor<2> {
            let scaled: Vec<f32> = values.iter().map(|&v| (f64::from(v) * scale) as f32).collect();
            let len = scaled.len();
            Tensor::from_data(TensorData::new(scaled, [len, 1]), (&device, DType::F32))
        };
        let by_log_prob = (!loss.by_log_prob.is_empty()).then(|| column(&loss.by_log_prob));
        let mut weight = by_log_prob.clone();
        if !loss.by_entropy.is_empty() {
            let by_entropy = column(&loss.by_entropy)
                * (self.logits - (self.lse - self.entropy));
            weight = Some(match weight {
                Some(weight) => by_entropy + weight,
                None => by_entropy,
            });
        }
        let gradient = match weight {
            Some(weight) => (self.probs * weight).neg(),
            None => self.probs.zeros_like(),
        };
        match by_log_prob {
            Some(by) => gradient.scatter(1, self.targets, by, IndexingUpdateOp::Add),
            None => gradient,
        }
    }
}

/// A tensor's values as f32 on the host.
pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .into_data()
        .convert::<f32>()
        .try_into_vec()
        .expect("the data was just converted to f32")
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
            let gradients =
                head.gradients(&hidden, &[5, 151_935], 1.0, |_, v| entropy::evaluate(&v.entropy));
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
