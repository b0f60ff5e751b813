//! A model's weights as pointers, and where their gradients go.

use std::collections::HashMap;

use burn::tensor::{DType, Tensor};
use lm::adapter::{Adapter, LoraFactors, Projection, lora_name};
use lm::model::{Layer, Model};
use lm::nvidia::executor::{Borrowed, Executor, borrow};

use super::calls::{self, FULL, HALF};
use crate::trainee::EMBEDDING;

/// Rows of numbers: the address of the first, and numbers from one row to the next.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    pub pointer: u64,
    pub leading: usize,
}

/// Low-rank factors of a projection.
#[derive(Debug, Clone, Copy)]
pub struct Factors {
    /// `[rank, in]`, f32 as borrowed, bf16 once prepared.
    pub a: u64,
    /// `[out, rank]`, likewise.
    pub b: u64,
    pub rank: usize,
    pub scale: f32,
    /// Sums of their gradients.
    pub by_a: Option<u64>,
    pub by_b: Option<u64>,
    /// A random number per input column, where there is dropout.
    pub columns: Option<u64>,
}

/// A projection, with the adapter on it.
#[derive(Debug, Clone, Copy)]
pub struct Linear {
    pub projection: Projection,
    /// Numbers out and in.
    pub size: [usize; 2],
    pub weight: Rows,
    /// The model's own bias (bf16) and an adapter's (f32).
    pub own_bias: Option<u64>,
    pub extra_bias: Option<u64>,
    /// Their sum in f32, once prepared.
    pub bias: Option<u64>,
    pub lora: Option<Factors>,
    /// Sums of gradients, f32.
    pub by_weight: Option<u64>,
    pub by_bias: Option<u64>,
}

impl Linear {
    /// Whether something trains whose gradient needs the projection's input.
    pub fn needs_input(&self) -> bool {
        self.by_weight.is_some() || self.lora.is_some()
    }
}

/// A norm's weight and the sum of its gradients.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    pub weight: u64,
    pub by_weight: Option<u64>,
}

/// One layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerWeights {
    pub input_norm: Norm,
    pub post_norm: Norm,
    /// In the order of [`Projection::ALL`].
    pub linears: [Linear; 7],
    /// Biases of queries, keys and values one after the other in f32, once prepared.
    pub qkv_bias: Option<u64>,
}

impl LayerWeights {
    pub fn linear(&self, projection: Projection) -> &Linear {
        let index = Projection::ALL.iter().position(|&p| p == projection).unwrap_or_default();
        &self.linears[index]
    }
}

/// Everything that a pass reads and adds to.
pub struct Weights {
    pub embedding: Rows,
    pub by_embedding: Option<u64>,
    pub layers: Vec<LayerWeights>,
    pub norm: Norm,
    pub head: Rows,
    pub by_head: Option<u64>,
    /// Keeps the tensors where they are.
    pub _held: Vec<Borrowed>,
}

/// Borrows tensors one after the other; wrong formats make the whole fail.
struct Borrower<'a> {
    held: Vec<Borrowed>,
    gradients: &'a HashMap<String, u64>,
}

impl Borrower<'_> {
    fn rows<const D: usize>(&mut self, tensor: &Tensor<D>, dtype: DType) -> Option<Rows> {
        if tensor.dtype() != dtype {
            return None;
        }
        let borrowed = borrow(tensor)?;
        let rows = Rows { pointer: borrowed.pointer, leading: borrowed.leading };
        self.held.push(borrowed);
        Some(rows)
    }

    fn matrix(&mut self, tensor: &Tensor<2>) -> Option<Rows> {
        self.rows(tensor, DType::BF16).filter(|rows| rows.leading.is_multiple_of(8))
    }

    /// A matrix without gaps between its rows, in f32.
    fn factor(&mut self, tensor: &Tensor<2>) -> Option<u64> {
        let width = tensor.dims()[1];
        self.rows(tensor, DType::F32).filter(|rows| rows.leading == width).map(|rows| rows.pointer)
    }

    fn gradient(&self, name: &str) -> Option<u64> {
        self.gradients.get(name).copied()
    }

    fn norm(&mut self, weight: &Tensor<1>, name: &str) -> Option<Norm> {
        let weight = self.rows(weight, DType::BF16)?.pointer;
        Some(Norm { weight, by_weight: self.gradient(name) })
    }

    fn lora(
        &mut self,
        adapter: Option<&Adapter>,
        index: usize,
        projection: Projection,
    ) -> Option<Option<Factors>> {
        let Some(Adapter::Lora(lora)) = adapter else { return Some(None) };
        let Some(LoraFactors { a, b }) = lora.factors(index, projection) else { return Some(None) };
        let name = |factor| lora_name(index, projection, factor);
        let rank = a.dims()[0];
        if !rank.is_multiple_of(8) {
            return None;
        }
        Some(Some(Factors {
            a: self.factor(a)?,
            b: self.factor(b)?,
            rank,
            scale: lora.scale as f32,
            by_a: self.gradient(&name("A")),
            by_b: self.gradient(&name("B")),
            columns: None,
        }))
    }

    fn linear(
        &mut self,
        layer: &Layer,
        index: usize,
        projection: Projection,
        adapter: Option<&Adapter>,
    ) -> Option<Linear> {
        let linear = layer.projection(projection);
        let name = |part: &str| format!("model.layers.{index}.{}.{part}", projection.path());
        let own_bias = match &linear.bias {
            Some(bias) => Some(self.rows(bias, DType::BF16)?.pointer),
            None => None,
        };
        let extra_bias = match adapter {
            Some(Adapter::Bias(bias)) if bias.projection == projection => {
                Some(self.rows(&bias.biases[index], DType::F32)?.pointer)
            }
            _ => None,
        };
        Some(Linear {
            projection,
            size: linear.weight.dims(),
            weight: self.matrix(&linear.weight)?,
            own_bias,
            extra_bias,
            bias: None,
            lora: self.lora(adapter, index, projection)?,
            by_weight: self.gradient(&name("weight")),
            by_bias: self.gradient(&name("bias")),
        })
    }

    fn layer(&mut self, layer: &Layer, index: usize, adapter: Option<&Adapter>) -> Option<LayerWeights> {
        let name = |norm: &str| format!("model.layers.{index}.{norm}.weight");
        let mut linears = Vec::with_capacity(7);
        for projection in Projection::ALL {
            linears.push(self.linear(layer, index, projection, adapter)?);
        }
        Some(LayerWeights {
            input_norm: self.norm(&layer.input_norm.weight, &name("input_layernorm"))?,
            post_norm: self.norm(&layer.post_norm.weight, &name("post_attention_layernorm"))?,
            linears: linears.try_into().ok()?,
            qkv_bias: None,
        })
    }
}

impl Weights {
    /// The weights of a model in bf16 on a GPU; `None` for another format, or a layout that products do
    /// not read. `gradients` are the places of the sums, by the names of what trains.
    pub fn new(model: &Model, adapter: Option<&Adapter>, gradients: &HashMap<String, u64>) -> Option<Self> {
        let mut borrower = Borrower { held: Vec::new(), gradients };
        let embedding = borrower.matrix(model.embedding())?;
        let head = borrower.matrix(model.head())?;
        let norm = borrower.norm(&model.norm().weight, "model.norm.weight")?;
        let mut layers = Vec::with_capacity(model.layers().len());
        for (index, layer) in model.layers().iter().enumerate() {
            layers.push(borrower.layer(layer, index, adapter)?);
        }
        let tied = model.config().tie_word_embeddings;
        Some(Self {
            embedding,
            by_embedding: borrower.gradient(EMBEDDING),
            layers,
            norm,
            head,
            by_head: borrower.gradient(if tied { EMBEDDING } else { "lm_head.weight" }),
            _held: borrower.held,
        })
    }

    /// Takes room on the arena for biases in f32 and factors in bf16, and computes them. `columns` gives
    /// the numbers of dropout for the input of a layer's projection of this width.
    pub fn prepare(
        &mut self,
        e: &mut Executor,
        columns: Option<&dyn Fn(usize, Projection, usize) -> Vec<u32>>,
    ) {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            for linear in &mut layer.linears {
                let [out, input] = linear.size;
                if let Some(factors) = &mut linear.lora {
                    factors.a = rounded(e, factors.a, factors.rank * input);
                    factors.b = rounded(e, factors.b, factors.rank * out);
                    factors.columns =
                        columns.map(|columns| e.upload(&columns(index, linear.projection, input)));
                }
                let separate = !ATTENTION.contains(&linear.projection);
                if separate && (linear.own_bias.is_some() || linear.extra_bias.is_some()) {
                    let bias = e.take(out, FULL);
                    calls::sum_bias(e, linear.own_bias, linear.extra_bias, bias, out);
                    linear.bias = Some(bias);
                }
            }
            layer.qkv_bias = joint_bias(e, layer);
        }
    }
}

/// What reads the normed input of the attention.
pub const ATTENTION: [Projection; 3] = [Projection::Query, Projection::Key, Projection::Value];

fn rounded(e: &mut Executor, x: u64, len: usize) -> u64 {
    let to = e.take(len, HALF);
    calls::round(e, x, to, len);
    to
}

fn joint_bias(e: &mut Executor, layer: &LayerWeights) -> Option<u64> {
    let linears = ATTENTION.map(|projection| *layer.linear(projection));
    linears.iter().any(|l| l.own_bias.is_some() || l.extra_bias.is_some()).then(|| {
        let bias = e.take(linears.iter().map(|l| l.size[0]).sum(), FULL);
        let mut at = bias;
        for linear in linears {
            calls::sum_bias(e, linear.own_bias, linear.extra_bias, at, linear.size[0]);
            at += (linear.size[0] * FULL) as u64;
        }
        bias
    })
}
