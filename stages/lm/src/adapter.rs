//! Small trainable modules on named projections of a frozen model.
//!
//! Both kinds are applied on the fly, so that one frozen copy of the weights serves the base model,
//! every adapter and their training: a bias (steering vector) is added to a projection's output at
//! every position, and LoRA (Hu et al. 2021) adds `scale · (x·Aᵀ)·Bᵀ`. Shapes and names of LoRA are
//! PEFT's: `lora_A` is `[rank, in]`, `lora_B` is `[out, rank]`.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::config::ModelConfig;
use crate::product::product;
use crate::rng::Stream;

/// A linear projection inside a decoder layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Projection {
    /// `self_attn.q_proj`
    Query,
    /// `self_attn.k_proj`
    Key,
    /// `self_attn.v_proj`
    Value,
    /// `self_attn.o_proj`
    Output,
    /// `mlp.gate_proj`
    Gate,
    /// `mlp.up_proj`
    Up,
    /// `mlp.down_proj`
    Down,
}

impl Projection {
    /// Every projection, in the order of the forward pass.
    pub const ALL: [Self; 7] =
        [Self::Query, Self::Key, Self::Value, Self::Output, Self::Gate, Self::Up, Self::Down];

    /// The path inside a layer, as Hugging Face checkpoints spell it: `mlp.down_proj`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::Output => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    /// The projection called `name`: a path inside a layer (`mlp.down_proj`) or its last part
    /// (`down_proj`), as in PEFT's `target_modules`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|p| p.path() == name || p.path().split_once('.').is_some_and(|(_, s)| s == name))
    }

    /// Output and input width in a model of this shape.
    pub fn shape(self, config: &ModelConfig) -> [usize; 2] {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let q = config.num_heads * config.head_dim;
        let kv = config.num_kv_heads * config.head_dim;
        match self {
            Self::Query => [q, hidden],
            Self::Key | Self::Value => [kv, hidden],
            Self::Output => [hidden, q],
            Self::Gate | Self::Up => [inner, hidden],
            Self::Down => [hidden, inner],
        }
    }
}

/// A bias added to the output of one projection in every layer, at every position.
#[derive(Debug, Clone)]
pub struct BiasAdapter {
    /// Where the bias is added.
    pub projection: Projection,
    /// One `[out]` vector per layer.
    pub biases: Vec<Tensor<1>>,
}

impl BiasAdapter {
    /// A bias of zeros on `projection` in every layer.
    pub fn zeros(config: &ModelConfig, projection: Projection, device: &Device) -> Self {
        let [out, _] = projection.shape(config);
        Self {
            projection,
            biases: (0..config.num_layers).map(|_| Tensor::zeros([out], (device, DType::F32))).collect(),
        }
    }
}

/// The two low-rank factors on one projection of one layer.
#[derive(Debug, Clone)]
pub struct LoraFactors {
    /// `[rank, in]`
    pub a: Tensor<2>,
    /// `[out, rank]`
    pub b: Tensor<2>,
}

/// LoRA on a list of projections.
#[derive(Debug, Clone)]
pub struct Lora {
    /// What the product is multiplied with: `alpha / rank`.
    pub scale: f64,
    /// Where the adapter sits.
    pub projections: Vec<Projection>,
    /// Factors per layer, in the order of `projections`.
    pub layers: Vec<Vec<LoraFactors>>,
}

impl Lora {
    /// PEFT's initialisation: A uniform in ±1/√in (`kaiming_uniform_(a=√5)`), B zero, so that the
    /// adapted model starts as the base model.
    pub fn new(
        config: &ModelConfig,
        projections: &[Projection],
        rank: usize,
        alpha: f64,
        seed: u64,
        device: &Device,
    ) -> Self {
        let factors = |layer: usize, projection: Projection| {
            let [out, input] = projection.shape(config);
            let bound = 1.0 / (input as f64).sqrt();
            let stream = Stream::named(seed, &lora_name(layer, projection, "A"));
            let a: Vec<f32> = (0..(rank * input) as u64)
                .map(|i| ((stream.uniform(i) * 2.0 - 1.0) * bound) as f32)
                .collect();
            LoraFactors {
                a: Tensor::from_data(TensorData::new(a, [rank, input]), (device, DType::F32)),
                b: Tensor::zeros([out, rank], (device, DType::F32)),
            }
        };
        Self {
            scale: alpha / rank as f64,
            projections: projections.to_vec(),
            layers: (0..config.num_layers)
                .map(|layer| projections.iter().map(|&p| factors(layer, p)).collect())
                .collect(),
        }
    }

    /// The factors on `projection` of layer `layer`, where there are any.
    pub fn factors(&self, layer: usize, projection: Projection) -> Option<&LoraFactors> {
        let index = self.projections.iter().position(|&p| p == projection)?;
        Some(&self.layers[layer][index])
    }
}

/// PEFT's name of a factor, `A` or `B`, on `projection` of layer `layer`.
pub fn lora_name(layer: usize, projection: Projection, factor: &str) -> String {
    format!("base_model.model.model.layers.{layer}.{}.lora_{factor}.weight", projection.path())
}

/// An adapter of either kind.
#[derive(Debug, Clone)]
pub enum Adapter {
    /// A bias per layer.
    Bias(BiasAdapter),
    /// Low-rank factors per layer.
    Lora(Lora),
}

impl Adapter {
    /// The adapted output of `projection` in layer `layer`: `y` `[rows, out]` is the frozen
    /// projection of `x` `[rows, in]`. Products run in `x`'s dtype.
    pub fn apply(&self, layer: usize, projection: Projection, x: &Tensor<2>, y: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Bias(bias) if bias.projection == projection => {
                let dtype = y.dtype();
                y + bias.biases[layer].clone().cast(dtype).unsqueeze()
            }
            Self::Bias(_) => y,
            Self::Lora(lora) => match lora.factors(layer, projection) {
                Some(LoraFactors { a, b }) => {
                    let dtype = y.dtype();
                    let inner = product(x.clone(), a.clone().cast(dtype).transpose());
                    y + product(inner, b.clone().cast(dtype).transpose()).mul_scalar(lora.scale)
                }
                None => y,
            },
        }
    }

    /// Every trainable tensor with its name: `model.layers.N.mlp.down_proj.bias` for a bias, PEFT's
    /// `base_model.model.model.layers.N.mlp.down_proj.lora_A.weight` for LoRA. Layer by layer.
    pub fn named_parameters(&self) -> Vec<(String, crate::model::Parameter)> {
        use crate::model::Parameter;
        let mut named = Vec::new();
        let mut copy = self.clone();
        copy.each(&mut |name, p| {
            named.push((name.to_owned(), p.clone()));
            p
        });
        debug_assert!(named.iter().all(|(_, p)| !matches!(p, Parameter::Vector(t) if t.dims()[0] == 0)));
        named
    }

    /// The same adapter with every tensor replaced by what `f` makes of it, in the order of
    /// [`Adapter::named_parameters`]. `f` keeps the rank.
    pub fn map_parameters(
        &self,
        mut f: impl FnMut(&str, crate::model::Parameter) -> crate::model::Parameter,
    ) -> Self {
        let mut copy = self.clone();
        copy.each(&mut f);
        copy
    }

    fn each(&mut self, f: &mut dyn FnMut(&str, crate::model::Parameter) -> crate::model::Parameter) {
        match self {
            Self::Bias(bias) => {
                for (layer, b) in bias.biases.iter_mut().enumerate() {
                    let name = format!("model.layers.{layer}.{}.bias", bias.projection.path());
                    *b = f(&name, b.clone().into()).into_vector();
                }
            }
            Self::Lora(lora) => {
                for (layer, factors) in lora.layers.iter_mut().enumerate() {
                    for (&projection, pair) in lora.projections.iter().zip(factors) {
                        let name = |factor| lora_name(layer, projection, factor);
                        pair.a = f(&name("A"), pair.a.clone().into()).into_matrix();
                        pair.b = f(&name("B"), pair.b.clone().into()).into_matrix();
                    }
                }
            }
        }
    }
}
