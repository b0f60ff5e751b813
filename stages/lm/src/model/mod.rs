//! Decoder-only transformers of the Qwen2 and Llama families.
//!
//! | module | what |
//! |---|---|
//! | `rope` | rotary position embedding |
//! | `attention` | grouped-query attention, positions and visibility |
//! | `layer` | linear, RMSNorm, decoder layer |
//! | `parameters` | parameters by name, initialisation |
//! | `stream` | logits with one layer in memory at a time |
//!
//! The forward pass comes in pieces (embed, layer by layer, norm, logits), so that a trainer can
//! keep or recompute activations as it likes. Nothing here knows about automatic differentiation:
//! whichever tensors live on an autodiff device are tracked.

mod attention;
mod layer;
mod parameters;
mod rope;
mod stream;

use burn::tensor::{DType, Device, Int, Tensor};

pub use attention::AttentionContext;
pub(crate) use attention::{attend, hidden_where};
pub(crate) use layer::LayerAdapter;
pub use layer::{Layer, Linear, RmsNorm};
pub use parameters::Parameter;
pub use rope::{Rope, rotate};
pub use stream::logits_by_layer;

use crate::adapter::Adapter;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::ModelConfig;
use crate::product::product;

/// The parameters of a checkpoint, on a device, in a number format.
struct FromCheckpoint<'a>(&'a Checkpoint, &'a Device, DType);

impl parameters::Source for FromCheckpoint<'_> {
    type Error = CheckpointError;
    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor<1>, CheckpointError> {
        self.0.load(name, [len], self.1, self.2)
    }
    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Tensor<2>, CheckpointError> {
        self.0.load(name, shape, self.1, self.2)
    }
}

/// A language model. Cloning shares the weights.
#[derive(Debug, Clone)]
pub struct Model {
    config: ModelConfig,
    rope: Rope,
    embedding: Tensor<2>,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Option<Tensor<2>>,
}

impl Model {
    /// Reads the weights of `checkpoint` onto `device`, as `dtype`.
    ///
    /// # Errors
    /// A tensor that is missing, has another shape, or cannot be read; one that the configuration has no
    /// place for.
    pub fn load(checkpoint: &Checkpoint, device: &Device, dtype: DType) -> Result<Self, CheckpointError> {
        // What is left over would have changed the numbers: more layers, a bias, a head of its own.
        checkpoint.check_complete(&checkpoint.config().tensor_shapes())?;
        let mut source = FromCheckpoint(checkpoint, device, dtype);
        parameters::build(checkpoint.config(), &mut source)
    }

    /// A new model in f32, initialised as `transformers` would (normal weights with standard
    /// deviation 0.02, zero biases, unit norms), a function of `config` and `seed` alone.
    pub fn random(config: &ModelConfig, seed: u64, device: &Device) -> Self {
        match parameters::build(config, &mut parameters::Init { seed, device }) {
            Ok(model) => model,
            Err(never) => match never {},
        }
    }

    /// A model of noise, made on the device in `dtype`: for measuring speed, where the values do not
    /// matter and a large model's would take long to make on the host.
    pub fn noise(config: &ModelConfig, device: &Device, dtype: DType) -> Self {
        match parameters::build(config, &mut parameters::Noise { device, dtype }) {
            Ok(model) => model,
            Err(never) => match never {},
        }
    }

    /// The hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The rotary embedding, for building an [`AttentionContext`].
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// The decoder layers, first to last.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Token embeddings `[vocab, hidden]`.
    pub fn embedding(&self) -> &Tensor<2> {
        &self.embedding
    }

    /// The output head `[vocab, hidden]`: the embedding where the two are tied.
    pub fn head(&self) -> &Tensor<2> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// The norm before the head.
    pub fn norm(&self) -> &RmsNorm {
        &self.norm
    }

    /// The device that the embedding lives on.
    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    /// The number format of the weights.
    pub fn dtype(&self) -> DType {
        self.embedding.dtype()
    }

    /// Token ids `[batch, seq]` to hidden states `[batch, seq, hidden]`.
    pub fn embed(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        burn::tensor::module::embedding(self.embedding.clone(), ids)
    }

    /// Layer `index` over complete sequences: `[batch, seq, hidden]` to the same shape.
    ///
    /// # Panics
    /// When there is no layer `index`.
    pub fn layer(
        &self,
        index: usize,
        hidden: Tensor<3>,
        context: &AttentionContext,
        adapter: Option<&Adapter>,
    ) -> Tensor<3> {
        let adapter = LayerAdapter { adapter, layer: index };
        self.layers[index].forward(&self.config, hidden, context, adapter)
    }

    /// The norm before the head, over `[batch, seq, hidden]`.
    pub fn final_norm(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.norm.forward(hidden)
    }

    /// Logits `[rows, vocab]` in f32 of normalised hidden states `[rows, hidden]`. Rows are cheap to
    /// select beforehand and the vocabulary is large: pass only the rows whose logits are needed.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        product(hidden, self.head().clone().transpose()).cast(DType::F32)
    }

    /// The whole forward pass over right-padded rows: ids `[batch, seq]` to logits
    /// `[batch, seq, vocab]` in f32.
    pub fn forward(&self, ids: Tensor<2, Int>, adapter: Option<&Adapter>) -> Tensor<3> {
        let [_, seq] = ids.dims();
        let context = AttentionContext::causal(&self.rope, seq, &self.device().without_autodiff());
        self.forward_in(ids, &context, adapter)
    }

    /// [`Model::forward`] with positions and visibility of one's own.
    pub fn forward_in(
        &self,
        ids: Tensor<2, Int>,
        context: &AttentionContext,
        adapter: Option<&Adapter>,
    ) -> Tensor<3> {
        let [batch, seq] = ids.dims();
        let mut hidden = self.embed(ids);
        for index in 0..self.layers.len() {
            hidden = self.layer(index, hidden, context, adapter);
        }
        let rows = batch * seq;
        let hidden = self.final_norm(hidden).reshape([rows, self.config.hidden_size]);
        self.logits(hidden).reshape([batch, seq, self.config.vocab_size])
    }
}
