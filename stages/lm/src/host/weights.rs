//! A model's weights as f32 slices on the host, borrowed from the tensors where they lie there.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor};

use crate::adapter::{Adapter, Projection};
use crate::model::{Layer, Linear, Model};

/// A tensor whose values are one f32 slice.
pub(super) struct Slice(FlexTensor);

impl Slice {
    /// Shares the memory of a contiguous f32 tensor on the CPU; copies otherwise.
    pub fn new<const D: usize>(tensor: &Tensor<D>) -> Self {
        let cpu = burn::tensor::Device::flex();
        let tensor = tensor.clone().without_autodiff();
        let tensor = match tensor.device() == cpu {
            true => tensor,
            false => tensor.to_device(&cpu),
        };
        match tensor.cast(DType::F32).try_into_primitive::<Flex>() {
            Ok(flex) => Self(flex.to_contiguous()),
            Err(error) => unreachable!("a tensor on the flex device: {error:?}"),
        }
    }

    pub fn values(&self) -> &[f32] {
        match self.0.as_slice() {
            Some(values) => values,
            None => unreachable!("made contiguous and f32"),
        }
    }
}

/// Low-rank factors and their scale.
pub(super) struct HostLora {
    pub a: Slice,
    pub b: Slice,
    pub scale: f32,
}

/// A projection with whatever an adapter adds to it.
pub(super) struct HostLinear {
    pub weight: Slice,
    pub bias: Option<Vec<f32>>,
    pub lora: Option<HostLora>,
    pub input: usize,
    pub output: usize,
}

impl HostLinear {
    fn new(linear: &Linear, place: Option<(&Adapter, usize, Projection)>) -> Self {
        let [output, input] = linear.weight.dims();
        let mut bias = linear.bias.as_ref().map(|b| Slice::new(b).values().to_vec());
        let mut lora = None;
        match place {
            Some((Adapter::Bias(adapter), layer, projection)) if adapter.projection == projection => {
                let extra = Slice::new(&adapter.biases[layer]);
                let sum = bias.get_or_insert_with(|| vec![0.0; output]);
                sum.iter_mut().zip(extra.values()).for_each(|(s, e)| *s += e);
            }
            Some((Adapter::Lora(adapter), layer, projection)) => {
                lora = adapter.factors(layer, projection).map(|f| HostLora {
                    a: Slice::new(&f.a),
                    b: Slice::new(&f.b),
                    scale: adapter.scale as f32,
                });
            }
            _ => {}
        }
        Self { weight: Slice::new(&linear.weight), bias, lora, input, output }
    }

    /// The output head.
    fn head(weight: &Tensor<2>) -> Self {
        Self::new(&Linear { weight: weight.clone(), bias: None }, None)
    }
}

pub(super) struct HostLayer {
    pub input_norm: Slice,
    pub post_norm: Slice,
    pub query: HostLinear,
    pub key: HostLinear,
    pub value: HostLinear,
    pub output: HostLinear,
    pub gate: HostLinear,
    pub up: HostLinear,
    pub down: HostLinear,
}

impl HostLayer {
    fn new(layer: &Layer, index: usize, adapter: Option<&Adapter>) -> Self {
        let linear = |p| HostLinear::new(layer.projection(p), adapter.map(|adapter| (adapter, index, p)));
        Self {
            input_norm: Slice::new(&layer.input_norm.weight),
            post_norm: Slice::new(&layer.post_norm.weight),
            query: linear(Projection::Query),
            key: linear(Projection::Key),
            value: linear(Projection::Value),
            output: linear(Projection::Output),
            gate: linear(Projection::Gate),
            up: linear(Projection::Up),
            down: linear(Projection::Down),
        }
    }
}

/// Everything the CPU forward pass reads.
pub(super) struct Weights {
    pub embedding: Slice,
    pub layers: Vec<HostLayer>,
    pub norm: Slice,
    pub head: HostLinear,
}

impl Weights {
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> Self {
        Self {
            embedding: Slice::new(model.embedding()),
            layers: model
                .layers()
                .iter()
                .enumerate()
                .map(|(index, layer)| HostLayer::new(layer, index, adapter))
                .collect(),
            norm: Slice::new(&model.norm().weight),
            head: HostLinear::head(model.head()),
        }
    }
}
