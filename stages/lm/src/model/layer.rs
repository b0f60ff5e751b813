//! The building blocks of a decoder: linear projection, RMSNorm, one layer.

use burn::tensor::{DType, Tensor, activation::silu};

use super::attention::attend;
use super::rope::rotate;
use crate::adapter::{Adapter, Projection};
use crate::config::ModelConfig;
use crate::product::product;

/// `y = x·Wᵀ + b`, with the weight `[out, in]` as Hugging Face checkpoints hold it.
#[derive(Debug, Clone)]
pub struct Linear {
    /// `[out, in]`
    pub weight: Tensor<2>,
    /// `[out]`
    pub bias: Option<Tensor<1>>,
}

impl Linear {
    /// `x` `[rows, in]` to `[rows, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = product(x, self.weight.clone().transpose());
        match &self.bias {
            Some(bias) => y + bias.clone().unsqueeze(),
            None => y,
        }
    }
}

/// Root-mean-square normalisation (Zhang & Sennrich 2019): normalised in f32, brought back to the
/// input's dtype, then scaled, in the order of `LlamaRMSNorm`.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    /// `[hidden]`
    pub weight: Tensor<1>,
    /// Added to the mean square.
    pub eps: f64,
}

impl RmsNorm {
    /// Normalises the last dimension of `x` `[.., hidden]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dtype = x.dtype();
        let x = x.cast(DType::F32);
        let mean_square = x.clone().square().mean_dim(D - 1);
        let x = x / (mean_square + self.eps).sqrt();
        x.cast(dtype) * self.weight.clone().unsqueeze()
    }
}

/// One decoder layer: attention and gated MLP, each behind a norm and a residual connection.
#[derive(Debug, Clone)]
pub struct Layer {
    /// `input_layernorm`
    pub input_norm: RmsNorm,
    /// `self_attn.q_proj`
    pub query: Linear,
    /// `self_attn.k_proj`
    pub key: Linear,
    /// `self_attn.v_proj`
    pub value: Linear,
    /// `self_attn.o_proj`
    pub output: Linear,
    /// `post_attention_layernorm`
    pub post_norm: RmsNorm,
    /// `mlp.gate_proj`
    pub gate: Linear,
    /// `mlp.up_proj`
    pub up: Linear,
    /// `mlp.down_proj`
    pub down: Linear,
}

/// An adapter together with the number of the layer it is asked about.
#[derive(Clone, Copy)]
pub(crate) struct LayerAdapter<'a> {
    pub adapter: Option<&'a Adapter>,
    pub layer: usize,
}

impl LayerAdapter<'_> {
    fn linear(&self, projection: Projection, linear: &Linear, x: Tensor<2>) -> Tensor<2> {
        match self.adapter {
            None => linear.forward(x),
            Some(adapter) => {
                let y = linear.forward(x.clone());
                adapter.apply(self.layer, projection, &x, y)
            }
        }
    }
}

impl Layer {
    /// The projection called `projection`.
    pub fn projection(&self, projection: Projection) -> &Linear {
        match projection {
            Projection::Query => &self.query,
            Projection::Key => &self.key,
            Projection::Value => &self.value,
            Projection::Output => &self.output,
            Projection::Gate => &self.gate,
            Projection::Up => &self.up,
            Projection::Down => &self.down,
        }
    }

    /// Rotated queries `[batch, seq, heads, head_dim]`, rotated keys and values
    /// `[batch, kv_heads, seq, head_dim]` of `hidden` `[batch, seq, hidden]`.
    pub(crate) fn qkv(
        &self,
        config: &ModelConfig,
        hidden: Tensor<3>,
        cos: &Tensor<4>,
        sin: &Tensor<4>,
        adapter: LayerAdapter,
    ) -> [Tensor<4>; 3] {
        let [batch, seq, width] = hidden.dims();
        let x = self.input_norm.forward(hidden).reshape([batch * seq, width]);
        let heads = |y: Tensor<2>, n: usize| y.reshape([batch, seq, n, config.head_dim]);
        let q = adapter.linear(Projection::Query, &self.query, x.clone());
        let k = adapter.linear(Projection::Key, &self.key, x.clone());
        let v = adapter.linear(Projection::Value, &self.value, x);
        [
            rotate(heads(q, config.num_heads), cos, sin),
            rotate(heads(k, config.num_kv_heads), cos, sin).swap_dims(1, 2),
            heads(v, config.num_kv_heads).swap_dims(1, 2),
        ]
    }

    /// What follows the attention: `attended` `[batch, seq, heads * head_dim]` is projected and
    /// added to `hidden` `[batch, seq, hidden]`, then the MLP.
    pub(crate) fn finish(&self, hidden: Tensor<3>, attended: Tensor<3>, adapter: LayerAdapter) -> Tensor<3> {
        let [batch, seq, width] = hidden.dims();
        let rows = batch * seq;
        let [_, _, attended_width] = attended.dims();
        let attended = attended.reshape([rows, attended_width]);
        let hidden =
            hidden.reshape([rows, width]) + adapter.linear(Projection::Output, &self.output, attended);
        let x = self.post_norm.forward(hidden.clone());
        let gate = adapter.linear(Projection::Gate, &self.gate, x.clone());
        let up = adapter.linear(Projection::Up, &self.up, x);
        let down = adapter.linear(Projection::Down, &self.down, silu(gate) * up);
        (hidden + down).reshape([batch, seq, width])
    }

    /// The whole layer over complete sequences (no cache).
    pub(crate) fn forward(
        &self,
        config: &ModelConfig,
        hidden: Tensor<3>,
        context: &super::AttentionContext,
        adapter: LayerAdapter,
    ) -> Tensor<3> {
        let [q, k, v] = self.qkv(config, hidden.clone(), &context.cos, &context.sin, adapter);
        let attended = attend(q, k, v, context.mask().clone());
        self.finish(hidden, attended, adapter)
    }
}
