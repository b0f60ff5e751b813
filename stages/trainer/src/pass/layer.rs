//! A decoder layer: forward pass, what it keeps of it, backward pass.

use burn::tensor::{Device, Tensor, activation::sigmoid, activation::silu};
use lm::adapter::{Adapter, Projection};
use lm::config::ModelConfig;
use lm::model::{AttentionContext, Layer, Model, rotate};

use super::attention::{Attention, block_rows};
use super::linear::Projected;
use super::{Masks, Sink, norm_backward, norm_forward};
use crate::fused;

/// One layer of a model, with the adapter on it.
#[derive(Clone, Copy)]
pub(crate) struct LayerPass<'a> {
    config: &'a ModelConfig,
    layer: &'a Layer,
    index: usize,
    adapter: Option<&'a Adapter>,
    context: &'a AttentionContext,
    masks: Option<&'a Masks>,
}

/// What the backward pass of a layer needs. All `[rows, ..]`, with `rows` of the batch times tokens.
pub(crate) struct Kept {
    /// The layer's input `[batch, seq, hidden]`.
    input: Tensor<3>,
    /// Between attention and MLP, `[rows, hidden]`.
    middle: Tensor<2>,
    /// What could be computed again from these two.
    products: Option<Products>,
}

/// Results of products that the backward pass looks at.
struct Products {
    /// Queries and keys, rotated, and values, `[batch, heads, seq, head_dim]`.
    qkv: [Tensor<4>; 3],
    /// Gate and up `[rows, intermediate]`.
    gate_up: [Tensor<2>; 2],
}

impl<'a> LayerPass<'a> {
    /// Layer `index` of `model`.
    pub fn new(
        model: &'a Model,
        index: usize,
        adapter: Option<&'a Adapter>,
        context: &'a AttentionContext,
        masks: Option<&'a Masks>,
    ) -> Self {
        Self { config: model.config(), layer: &model.layers()[index], index, adapter, context, masks }
    }

    fn projected(&self, projection: Projection) -> Projected<'a> {
        Projected {
            layer: self.layer,
            index: self.index,
            projection,
            adapter: self.adapter,
            masks: self.masks,
        }
    }

    fn norm_name(&self, norm: &str) -> String {
        format!("model.layers.{}.{norm}.weight", self.index)
    }

    /// `[batch, seq, hidden]` normed, as rows.
    fn attention_input(&self, input: &Tensor<3>) -> Tensor<2> {
        let [batch, seq, hidden] = input.dims();
        norm_forward(&self.layer.input_norm, &input.clone().reshape([batch * seq, hidden]))
    }

    /// Rotated queries and keys, and values, `[batch, heads, seq, head_dim]`.
    fn qkv(&self, input: &Tensor<3>) -> [Tensor<4>; 3] {
        let [batch, seq, _] = input.dims();
        let x = self.attention_input(input);
        let heads = |projection, count| {
            let y = self.projected(projection).forward(x.clone());
            y.reshape([batch, seq, count, self.config.head_dim])
        };
        let q = heads(Projection::Query, self.config.num_heads);
        let k = heads(Projection::Key, self.config.num_kv_heads);
        let v = heads(Projection::Value, self.config.num_kv_heads);
        let (cos, sin) = (self.context.cos(), self.context.sin());
        let turn = |t: Tensor<4>| {
            fused::turn(&t, cos, sin, false).unwrap_or_else(|| rotate(t, cos, sin).swap_dims(1, 2))
        };
        let v = v.swap_dims(1, 2);
        [turn(q), turn(k), fused::dense_copy(&v).unwrap_or(v)]
    }

    fn attention(&self, qkv: &[Tensor<4>; 3]) -> Attention<'a> {
        let [batch, heads, seq, _] = qkv[0].dims();
        let block = block_rows(batch, heads, seq, qkv[0].device() == Device::flex());
        Attention::new(qkv.clone(), self.context, block)
    }

    fn gate_up(&self, x: Tensor<2>) -> [Tensor<2>; 2] {
        let gate = self.projected(Projection::Gate).forward(x.clone());
        [gate, self.projected(Projection::Up).forward(x)]
    }

    /// The layer's output `[batch, seq, hidden]`, and what its backward pass needs: everything, or with
    /// `recompute` only what the rest follows from.
    pub fn forward(&self, input: Tensor<3>, recompute: bool) -> (Tensor<3>, Kept) {
        let [batch, seq, hidden] = input.dims();
        let qkv = self.qkv(&input);
        let attended = self.attention(&qkv).forward();
        let attended_width = attended.dims()[2];
        let attended = attended.reshape([batch * seq, attended_width]);
        let rows = input.clone().reshape([batch * seq, hidden]);
        let middle = rows + self.projected(Projection::Output).forward(attended);
        let gate_up = self.gate_up(norm_forward(&self.layer.post_norm, &middle));
        let down = self.projected(Projection::Down).forward(gated(&gate_up));
        let output = (middle.clone() + down).reshape([batch, seq, hidden]);
        let products = (!recompute).then_some(Products { qkv, gate_up });
        (output, Kept { input, middle, products })
    }

    /// The gradient of the layer's input from that of its output, `[batch, seq, hidden]`. Gradients of
    /// what trains go to `sink`.
    pub fn backward(&self, kept: Kept, by_output: Tensor<3>, sink: &mut Sink) -> Tensor<3> {
        let Kept { input, middle, products } = kept;
        let (qkv, gate_up) = match products {
            Some(Products { qkv, gate_up }) => (Some(qkv), Some(gate_up)),
            None => (None, None),
        };
        let [batch, seq, hidden] = input.dims();
        let by_middle = self.mlp_backward(middle, gate_up, by_output.reshape([batch * seq, hidden]), sink);
        self.attention_backward(input, qkv, by_middle, sink)
    }

    fn mlp_backward(
        &self,
        middle: Tensor<2>,
        gate_up: Option<[Tensor<2>; 2]>,
        by_output: Tensor<2>,
        sink: &mut Sink,
    ) -> Tensor<2> {
        let x = norm_forward(&self.layer.post_norm, &middle);
        let gate_up = gate_up.unwrap_or_else(|| self.gate_up(x.clone()));
        let down = self.projected(Projection::Down);
        let by_inner = down.backward(|| gated(&gate_up), by_output.clone(), sink);
        let [by_gate, by_up] = gated_backward(gate_up, by_inner);
        let input = || x.clone();
        let by_x = self.projected(Projection::Gate).backward(input, by_gate, sink)
            + self.projected(Projection::Up).backward(input, by_up, sink);
        let name = self.norm_name("post_attention_layernorm");
        norm_backward(&self.layer.post_norm, &name, middle, by_x, by_output, sink)
    }

    fn attention_backward(
        &self,
        input: Tensor<3>,
        qkv: Option<[Tensor<4>; 3]>,
        by_middle: Tensor<2>,
        sink: &mut Sink,
    ) -> Tensor<3> {
        let [batch, seq, hidden] = input.dims();
        let rows = batch * seq;
        let x = self.attention_input(&input);
        let qkv = qkv.unwrap_or_else(|| self.qkv(&input));
        let attention = self.attention(&qkv);
        let output = self.projected(Projection::Output);
        let width = self.config.num_heads * self.config.head_dim;
        let attended = || attention.forward().reshape([rows, width]);
        let by_attended = output.backward(attended, by_middle.clone(), sink);
        let [by_q, by_k, by_v] = attention.backward(by_attended.reshape([batch, seq, width]));
        let (cos, sin) = (self.context.cos(), self.context.sin());
        let back = |t: Tensor<4>| {
            let plain = |t: Tensor<4>| rotate(t.swap_dims(1, 2), cos, &sin.clone().neg());
            fused::turn(&t, cos, sin, true).unwrap_or_else(|| plain(t))
        };
        let mut by_x: Option<Tensor<2>> = None;
        for (projection, by) in [
            (Projection::Query, back(by_q)),
            (Projection::Key, back(by_k)),
            (Projection::Value, by_v.swap_dims(1, 2)),
        ] {
            let [_, _, heads, dim] = by.dims();
            let part =
                self.projected(projection).backward(|| x.clone(), by.reshape([rows, heads * dim]), sink);
            by_x = Some(match by_x {
                Some(sum) => sum + part,
                None => part,
            });
        }
        let by_x = by_x.expect("three projections read the input");
        let name = self.norm_name("input_layernorm");
        let input = input.reshape([rows, hidden]);
        let by_input = norm_backward(&self.layer.input_norm, &name, input, by_x, by_middle, sink);
        by_input.reshape([batch, seq, hidden])
    }
}

/// `silu(gate)·up`.
fn gated([gate, up]: &[Tensor<2>; 2]) -> Tensor<2> {
    fused::gate_up(gate, up).unwrap_or_else(|| silu(gate.clone()) * up.clone())
}

/// Gradients of gate and up from that of [`gated`]: with `silu(g) = g·σ(g)`,
/// `silu'(g) = σ(g)·(1 + g·(1 - σ(g)))`.
fn gated_backward([gate, up]: [Tensor<2>; 2], by: Tensor<2>) -> [Tensor<2>; 2] {
    if let Some(both) = fused::gate_up_backward(&gate, &up, &by) {
        return both;
    }
    let sigma = sigmoid(gate.clone());
    let by_up = by.clone() * gate.clone() * sigma.clone();
    let slope = sigma.clone() * (gate * (sigma.neg() + 1.0) + 1.0);
    [by * up * slope, by_up]
}
