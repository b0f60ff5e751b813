//! Parameters by their Hugging Face names: building a model from a source of tensors, listing them,
//! replacing them.

use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};

use super::{Layer, Linear, Model, RmsNorm, Rope};
use crate::config::ModelConfig;
use crate::rng::Stream;

/// A parameter of either rank.
#[derive(Debug, Clone)]
pub enum Parameter {
    /// A norm's weight or a bias.
    Vector(Tensor<1>),
    /// A projection `[out, in]` or an embedding `[vocab, hidden]`.
    Matrix(Tensor<2>),
}

impl From<Tensor<1>> for Parameter {
    fn from(tensor: Tensor<1>) -> Self {
        Self::Vector(tensor)
    }
}

impl From<Tensor<2>> for Parameter {
    fn from(tensor: Tensor<2>) -> Self {
        Self::Matrix(tensor)
    }
}

impl Parameter {
    /// The vector.
    ///
    /// # Panics
    /// When it is a matrix.
    pub fn into_vector(self) -> Tensor<1> {
        match self {
            Self::Vector(tensor) => tensor,
            Self::Matrix(_) => panic!("a vector parameter was replaced by a matrix"),
        }
    }

    /// The matrix.
    ///
    /// # Panics
    /// When it is a vector.
    pub fn into_matrix(self) -> Tensor<2> {
        match self {
            Self::Matrix(tensor) => tensor,
            Self::Vector(_) => panic!("a matrix parameter was replaced by a vector"),
        }
    }

    /// Its dimensions.
    pub fn dims(&self) -> Vec<usize> {
        match self {
            Self::Vector(tensor) => tensor.dims().to_vec(),
            Self::Matrix(tensor) => tensor.dims().to_vec(),
        }
    }

    /// The values on the host, in the parameter's own dtype.
    pub fn to_data(&self) -> TensorData {
        match self {
            Self::Vector(tensor) => tensor.to_data(),
            Self::Matrix(tensor) => tensor.to_data(),
        }
    }
}

/// Where the tensors of a new model come from.
pub(super) trait Source {
    type Error;
    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor<1>, Self::Error>;
    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Tensor<2>, Self::Error>;
}

/// Random initialisation as `transformers` does it (`_init_weights`): matrices normal with standard
/// deviation 0.02, biases zero, norms one; every tensor from a stream of its own name.
pub(super) struct Init<'a> {
    pub seed: u64,
    pub device: &'a Device,
}

const INIT_STD: f64 = 0.02;

impl Source for Init<'_> {
    type Error = std::convert::Infallible;

    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor<1>, Self::Error> {
        let options = (self.device, DType::F32);
        Ok(if name.ends_with(".bias") { Tensor::zeros([len], options) } else { Tensor::ones([len], options) })
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Tensor<2>, Self::Error> {
        let stream = Stream::named(self.seed, name);
        let values: Vec<f32> =
            (0..(shape[0] * shape[1]) as u64).map(|i| (stream.normal(i) * INIT_STD) as f32).collect();
        let data = TensorData::new(values, shape);
        Ok(Tensor::from_data(data, (self.device, DType::F32)))
    }
}

/// Uniform noise of the same standard deviation, made on the device: for measuring speed.
pub(super) struct Noise<'a> {
    pub device: &'a Device,
    pub dtype: DType,
}

impl Source for Noise<'_> {
    type Error = std::convert::Infallible;

    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor<1>, Self::Error> {
        let options = (self.device, self.dtype);
        Ok(if name.ends_with(".bias") { Tensor::zeros([len], options) } else { Tensor::ones([len], options) })
    }

    fn matrix(&mut self, _: &str, shape: [usize; 2]) -> Result<Tensor<2>, Self::Error> {
        let bound = INIT_STD * 3f64.sqrt();
        Ok(Tensor::random(shape, Distribution::Uniform(-bound, bound), (self.device, self.dtype)))
    }
}

fn linear<S: Source>(
    source: &mut S,
    prefix: &str,
    shape: [usize; 2],
    bias: bool,
) -> Result<Linear, S::Error> {
    Ok(Linear {
        weight: source.matrix(&format!("{prefix}.weight"), shape)?,
        bias: bias.then(|| source.vector(&format!("{prefix}.bias"), shape[0])).transpose()?,
    })
}

/// A model of this shape, filled from `source`.
pub(super) fn build<S: Source>(config: &ModelConfig, source: &mut S) -> Result<Model, S::Error> {
    let embedding = embedding(config, source)?;
    let layers = (0..config.num_layers).map(|index| layer(config, source, index));
    let layers = layers.collect::<Result<_, _>>()?;
    Ok(Model {
        embedding,
        layers,
        norm: norm(config, source, "model.norm")?,
        head: head(config, source)?,
        rope: Rope::new(config),
        config: config.clone(),
    })
}

pub(super) fn embedding<S: Source>(config: &ModelConfig, source: &mut S) -> Result<Tensor<2>, S::Error> {
    source.matrix("model.embed_tokens.weight", [config.vocab_size, config.hidden_size])
}

/// The output head, where it is not the embedding.
pub(super) fn head<S: Source>(config: &ModelConfig, source: &mut S) -> Result<Option<Tensor<2>>, S::Error> {
    let shape = [config.vocab_size, config.hidden_size];
    (!config.tie_word_embeddings).then(|| source.matrix("lm_head.weight", shape)).transpose()
}

pub(super) fn norm<S: Source>(config: &ModelConfig, source: &mut S, name: &str) -> Result<RmsNorm, S::Error> {
    let weight = source.vector(&format!("{name}.weight"), config.hidden_size)?;
    Ok(RmsNorm { weight, eps: config.rms_norm_eps })
}

/// Decoder layer `index`.
pub(super) fn layer<S: Source>(
    config: &ModelConfig,
    source: &mut S,
    index: usize,
) -> Result<Layer, S::Error> {
    use crate::adapter::Projection as P;
    let at = |name: &str| format!("model.layers.{index}.{name}");
    let mut projection = |p: P, bias: bool| linear(source, &at(p.path()), p.shape(config), bias);
    let query = projection(P::Query, config.qkv_bias)?;
    let key = projection(P::Key, config.qkv_bias)?;
    let value = projection(P::Value, config.qkv_bias)?;
    let output = projection(P::Output, config.o_bias)?;
    let gate = projection(P::Gate, config.mlp_bias)?;
    let up = projection(P::Up, config.mlp_bias)?;
    let down = projection(P::Down, config.mlp_bias)?;
    Ok(Layer {
        input_norm: norm(config, source, &at("input_layernorm"))?,
        query,
        key,
        value,
        output,
        post_norm: norm(config, source, &at("post_attention_layernorm"))?,
        gate,
        up,
        down,
    })
}

type Replace<'a> = dyn FnMut(&str, Parameter) -> Parameter + 'a;

fn matrix(name: &str, tensor: &mut Tensor<2>, f: &mut Replace) {
    *tensor = f(name, tensor.clone().into()).into_matrix();
}

fn vector(name: &str, tensor: &mut Tensor<1>, f: &mut Replace) {
    *tensor = f(name, tensor.clone().into()).into_vector();
}

impl Model {
    /// Every parameter with its Hugging Face name, in the order of
    /// [`ModelConfig::tensor_shapes`]. Tied embeddings appear once.
    pub fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let mut named = Vec::new();
        self.clone().replace_each(&mut |name, p| {
            named.push((name.to_owned(), p.clone()));
            p
        });
        named
    }

    /// The same model with every parameter replaced by what `f` makes of it (moved to an autodiff
    /// device, updated by an optimiser, cast), in the order of [`Model::named_parameters`]. `f`
    /// keeps rank and shape.
    pub fn map_parameters(&self, mut f: impl FnMut(&str, Parameter) -> Parameter) -> Self {
        let mut model = self.clone();
        model.replace_each(&mut f);
        model
    }

    fn replace_each(&mut self, f: &mut Replace) {
        matrix("model.embed_tokens.weight", &mut self.embedding, f);
        for (index, layer) in self.layers.iter_mut().enumerate() {
            layer.replace_each(index, f);
        }
        vector("model.norm.weight", &mut self.norm.weight, f);
        if let Some(head) = &mut self.head {
            matrix("lm_head.weight", head, f);
        }
    }
}

impl Layer {
    /// [`Model::map_parameters`] for layer number `index` alone.
    pub fn map_parameters(&self, index: usize, mut f: impl FnMut(&str, Parameter) -> Parameter) -> Self {
        let mut layer = self.clone();
        layer.replace_each(index, &mut f);
        layer
    }

    fn replace_each(&mut self, index: usize, f: &mut Replace) {
        use crate::adapter::Projection as P;
        let at = |name: &str| format!("model.layers.{index}.{name}");
        for (p, linear) in [
            (P::Query, &mut self.query),
            (P::Key, &mut self.key),
            (P::Value, &mut self.value),
            (P::Output, &mut self.output),
            (P::Gate, &mut self.gate),
            (P::Up, &mut self.up),
            (P::Down, &mut self.down),
        ] {
            matrix(&at(&format!("{}.weight", p.path())), &mut linear.weight, f);
            if let Some(bias) = &mut linear.bias {
                vector(&at(&format!("{}.bias", p.path())), bias, f);
            }
        }
        vector(&at("input_layernorm.weight"), &mut self.input_norm.weight, f);
        vector(&at("post_attention_layernorm.weight"), &mut self.post_norm.weight, f);
    }
}
