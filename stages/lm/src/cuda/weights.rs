//! A model's weights as device buffers, borrowed from its tensors.

use std::any::Any;
use std::rc::Rc;

use burn::tensor::{DType, Tensor};

use super::kernels::fragment::STEP;
use super::products::Products;
use super::stream::{Buffer, Stream};
use crate::adapter::{Adapter, LoraFactors, Projection};
use crate::model::{Layer, Linear, Model};
use crate::nvidia::{Held, hold};

/// Rows of numbers in a device buffer.
pub struct Matrix {
    pub pointer: u64,
    /// Rows.
    pub outs: u32,
    /// Numbers from the start of a row to the next.
    pub stride: u32,
    _held: Held,
}

/// A vector in a device buffer.
pub struct Numbers {
    pub pointer: u64,
    _held: Box<dyn Any>,
}

/// Low-rank factors in f32.
pub struct DeviceLora {
    pub a: Matrix,
    pub b: Matrix,
    pub rank: u32,
    pub scale: f32,
}

pub struct DeviceLayer {
    pub input_norm: Numbers,
    pub post_norm: Numbers,
    /// Query, key, value.
    pub qkv: [Matrix; 3],
    pub output: Matrix,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
    /// Biases in f32, an adapter's included, where there are any: of query, key and value together,
    /// of output, of gate and up together, of down.
    pub qkv_bias: Option<Numbers>,
    pub output_bias: Option<Numbers>,
    pub gated_bias: Option<Numbers>,
    pub down_bias: Option<Numbers>,
    /// In the order of [`Projection::ALL`].
    pub lora: [Option<DeviceLora>; 7],
}

/// Everything the forward pass reads.
pub struct DeviceWeights {
    pub stream: Rc<Stream>,
    pub embedding: Matrix,
    pub layers: Vec<DeviceLayer>,
    pub norm: Numbers,
    pub head: Matrix,
    /// Products through cuBLASLt, where it takes all of a layer's.
    pub products: Option<Products>,
}

/// A tensor's buffer where it lies, if it is one run of rows of this number format.
fn borrow<const D: usize>(tensor: &Tensor<D>, dtype: DType) -> Option<Matrix> {
    if tensor.dtype() != dtype {
        return None;
    }
    let (_, pointer, stride, held) = hold(tensor)?;
    // Lines are loaded whole.
    if D == 2 && !(stride * dtype.size()).is_multiple_of(16) {
        return None;
    }
    let outs = if D == 1 { 1 } else { u32::try_from(tensor.dims()[0]).ok()? };
    Some(Matrix { pointer, outs, stride: u32::try_from(stride).ok()?, _held: held })
}

fn matrix(tensor: &Tensor<2>) -> Option<Matrix> {
    let [_, width] = tensor.dims();
    (width % STEP as usize == 0).then(|| borrow(tensor, DType::BF16)).flatten()
}

fn vector(tensor: &Tensor<1>) -> Option<Numbers> {
    let Matrix { pointer, _held, .. } = borrow(tensor, DType::BF16)?;
    Some(Numbers { pointer, _held })
}

fn values(tensor: &Tensor<1>) -> Vec<f32> {
    let data = tensor.clone().without_autodiff().cast(DType::F32).into_data();
    data.try_to_vec().unwrap_or_default()
}

/// The biases of projections that are computed together, with what an adapter adds; `None` where
/// all are absent.
fn biases(
    stream: &Stream,
    layer: &Layer,
    index: usize,
    projections: &[Projection],
    adapter: Option<&Adapter>,
) -> Option<Numbers> {
    let mut any = false;
    let mut all = Vec::new();
    for &projection in projections {
        let linear: &Linear = layer.projection(projection);
        let [outs, _] = linear.weight.dims();
        let mut bias = linear.bias.as_ref().map(values);
        if let Some(Adapter::Bias(adapter)) = adapter
            && adapter.projection == projection
        {
            let extra = values(&adapter.biases[index]);
            let sum = bias.get_or_insert_with(|| vec![0.0; outs]);
            sum.iter_mut().zip(extra).for_each(|(s, e)| *s += e);
        }
        any |= bias.is_some();
        all.extend(bias.unwrap_or_else(|| vec![0.0; outs]));
    }
    any.then(|| {
        let buffer: Buffer = stream.upload(&all);
        Numbers { pointer: buffer.pointer, _held: Box::new(buffer) }
    })
}

/// `None` where the factors cannot be read, `Some(None)` where there are none.
fn lora(adapter: Option<&Adapter>, layer: usize, projection: Projection) -> Option<Option<DeviceLora>> {
    let Some(Adapter::Lora(lora)) = adapter else { return Some(None) };
    let Some(LoraFactors { a, b }) = lora.factors(layer, projection) else { return Some(None) };
    let factor = |t: &Tensor<2>| {
        let t = t.clone().without_autodiff().cast(DType::F32);
        let (_, pointer, stride, held) = hold(&t)?;
        Some(Matrix { pointer, outs: t.dims()[0] as u32, stride: stride as u32, _held: held })
    };
    let (a, b) = (factor(a)?, factor(b)?);
    Some(Some(DeviceLora { rank: a.outs, a, b, scale: lora.scale as f32 }))
}

impl DeviceLayer {
    fn new(stream: &Stream, layer: &Layer, index: usize, adapter: Option<&Adapter>) -> Option<Self> {
        use Projection as P;
        let weight = |p: P| matrix(&layer.projection(p).weight);
        let bias = |ps: &[P]| biases(stream, layer, index, ps, adapter);
        let mut factors = [const { None }; 7];
        for (place, projection) in factors.iter_mut().zip(P::ALL) {
            *place = lora(adapter, index, projection)?;
        }
        Some(Self {
            input_norm: vector(&layer.input_norm.weight)?,
            post_norm: vector(&layer.post_norm.weight)?,
            qkv: [weight(P::Query)?, weight(P::Key)?, weight(P::Value)?],
            output: weight(P::Output)?,
            gate: weight(P::Gate)?,
            up: weight(P::Up)?,
            down: weight(P::Down)?,
            qkv_bias: bias(&[P::Query, P::Key, P::Value]),
            output_bias: bias(&[P::Output]),
            gated_bias: bias(&[P::Gate, P::Up]),
            down_bias: bias(&[P::Down]),
            lora: factors,
        })
    }
}

impl DeviceWeights {
    /// The weights of a model in bf16 on a CUDA device; `None` for another format or device, or a
    /// layout that the kernels do not read.
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> Option<Self> {
        if model.embedding().dtype() != DType::BF16 {
            return None;
        }
        let (gpu, ..) = hold(model.embedding())?;
        let stream = Stream::new(gpu).ok()?;
        let embedding = borrow(model.embedding(), DType::BF16)?;
        let layers = model.layers().iter().enumerate();
        let layers: Option<Vec<DeviceLayer>> =
            layers.map(|(index, layer)| DeviceLayer::new(&stream, layer, index, adapter)).collect();
        let layers = layers?;
        let even = |l: &DeviceLayer| {
            let [q, k, v] = l.qkv.each_ref().map(|m| m.stride);
            q == k && k == v && l.gate.stride == l.up.stride
        };
        layers.iter().all(even).then_some(())?;
        let norm = vector(&model.norm().weight)?;
        let head = matrix(model.head())?;
        let products = stream.lt().and_then(|lt| Products::new(&stream, lt, &layers, &head, model.config()));
        Some(Self { stream, embedding, layers, norm, head, products })
    }
}
