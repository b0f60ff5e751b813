//! Rotary position embedding in the rotate-half form of `transformers` (`modeling_llama.py`).
//!
//! Su et al. 2021; the llama3 frequency scaling is `_compute_llama3_parameters` in
//! `transformers/modeling_rope_utils.py`. Angles and their cosines are f32, as there.

use burn::tensor::{Device, Tensor, TensorData};

use crate::config::{ModelConfig, RopeScaling};

/// The rotation frequencies of a model, on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    inv_freq: Vec<f32>,
}

impl Rope {
    /// Frequencies for `config`: `head_dim / 2` of them, scaled as its `rope_scaling` says.
    pub fn new(config: &ModelConfig) -> Self {
        let dim = config.head_dim;
        let mut inv_freq: Vec<f64> =
            (0..dim / 2).map(|i| config.rope.theta.powf(-((2 * i) as f64) / dim as f64)).collect();
        match config.rope.scaling {
            RopeScaling::Default => {}
            RopeScaling::Linear { factor } => inv_freq.iter_mut().for_each(|f| *f /= factor),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let context = original_max_position_embeddings as f64;
                let (low, high) = (context / low_freq_factor, context / high_freq_factor);
                for f in &mut inv_freq {
                    let wavelength = std::f64::consts::TAU / *f;
                    if wavelength > low {
                        *f /= factor;
                    } else if wavelength >= high {
                        let smooth =
                            (context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        *f = (1.0 - smooth) * *f / factor + smooth * *f;
                    }
                }
            }
        }
        Self { inv_freq: inv_freq.into_iter().map(|f| f as f32).collect() }
    }

    /// Half the head dimension: the number of rotated pairs.
    pub fn half_dim(&self) -> usize {
        self.inv_freq.len()
    }

    /// Cosines and sines at `positions`, each `[positions, head_dim / 2]`, row-major.
    pub fn table(&self, positions: impl Iterator<Item = u32>) -> (Vec<f32>, Vec<f32>) {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in positions {
            for f in &self.inv_freq {
                let (s, c) = (position as f32 * f).sin_cos();
                cos.push(c);
                sin.push(s);
            }
        }
        (cos, sin)
    }

    /// [`Rope::table`] as tensors `[batch, seq, 1, head_dim / 2]` that broadcast over heads.
    /// `positions` holds `batch * seq` values, row by row.
    pub fn tensors(&self, positions: &[u32], batch: usize, device: &Device) -> [Tensor<4>; 2] {
        let seq = positions.len() / batch;
        let (cos, sin) = self.table(positions.iter().copied());
        [cos, sin].map(|t| {
            let data = TensorData::new(t, [batch, seq, 1, self.half_dim()]);
            Tensor::from_data(data, (device, burn::tensor::DType::F32))
        })
    }
}

/// Rotates `x` `[batch, seq, heads, head_dim]` by `cos`, `sin` `[batch or 1, seq, 1, head_dim / 2]`.
/// Computed in f32, returned in `x`'s dtype.
pub fn rotate(x: Tensor<4>, cos: &Tensor<4>, sin: &Tensor<4>) -> Tensor<4> {
    let dtype = x.dtype();
    let half = x.dims()[3] / 2;
    let x = x.cast(burn::tensor::DType::F32);
    let a = x.clone().narrow(3, 0, half);
    let b = x.narrow(3, half, half);
    let low = a.clone() * cos.clone() - b.clone() * sin.clone();
    let high = b * cos.clone() + a * sin.clone();
    Tensor::cat(vec![low, high], 3).cast(dtype)
}
