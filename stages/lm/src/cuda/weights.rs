//! A model's weights as device buffers, borrowed from its tensors.

use burn::backend::Cuda;
use burn::tensor::{DType, Tensor};
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::kernels::fragment::STEP;
use crate::adapter::{Adapter, LoraFactors, Projection};
use crate::model::{Layer, Linear, Model};

/// Rows of numbers in a device buffer.
#[derive(Clone)]
pub struct Matrix {
    pub handle: Handle,
    /// Rows.
    pub outs: u32,
    /// Numbers from the start of a row to the next.
    pub stride: u32,
}

/// Low-rank factors in f32.
pub struct DeviceLora {
    pub a: Matrix,
    pub b: Matrix,
    pub rank: u32,
    pub scale: f32,
}

pub struct DeviceLayer {
    pub input_norm: Handle,
    pub post_norm: Handle,
    /// Query, key, value.
    pub qkv: [Matrix; 3],
    pub output: Matrix,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
    /// Biases in f32, an adapter's included, where there are any: of query, key and value together,
    /// of output, of gate and up together, of down.
    pub qkv_bias: Option<Handle>,
    pub output_bias: Option<Handle>,
    pub gated_bias: Option<Handle>,
    pub down_bias: Option<Handle>,
    /// In the order of [`Projection::ALL`].
    pub lora: [Option<DeviceLora>; 7],
}

/// Everything the forward pass reads.
pub struct DeviceWeights {
    pub client: Client,
    pub embedding: Matrix,
    pub layers: Vec<DeviceLayer>,
    pub norm: Handle,
    pub head: Matrix,
}

/// A tensor's buffer where it lies, if it is one run of rows of this number format.
fn borrow<const D: usize>(tensor: &Tensor<D>, dtype: DType) -> Option<(Client, Matrix)> {
    let tensor = tensor.clone().without_autodiff();
    let primitive = tensor.try_into_primitive::<Cuda>().ok()?;
    let (shape, strides) = (primitive.meta.shape(), primitive.meta.strides());
    if primitive.dtype != dtype || strides[D - 1] != 1 {
        return None;
    }
    let (outs, stride) = if D == 1 { (1, shape[0]) } else { (shape[0], strides[0]) };
    // Lines are loaded whole.
    if D == 2 && !(stride * dtype.size()).is_multiple_of(16) {
        return None;
    }
    let matrix = Matrix {
        handle: primitive.handle,
        outs: u32::try_from(outs).ok()?,
        stride: u32::try_from(stride).ok()?,
    };
    Some((primitive.client, matrix))
}

fn matrix(tensor: &Tensor<2>) -> Option<Matrix> {
    let [_, width] = tensor.dims();
    (width % STEP as usize == 0).then(|| borrow(tensor, DType::BF16)).flatten().map(|(_, m)| m)
}

fn vector(tensor: &Tensor<1>) -> Option<Handle> {
    borrow(tensor, DType::BF16).map(|(_, m)| m.handle)
}

fn values(tensor: &Tensor<1>) -> Vec<f32> {
    let data = tensor.clone().without_autodiff().cast(DType::F32).into_data();
    data.try_to_vec().unwrap_or_default()
}

/// The biases of projections that are computed together, with what an adapter adds; `None` where
/// all are absent.
fn biases(
    client: &Client,
    layer: &Layer,
    index: usize,
    projections: &[Projection],
    adapter: Option<&Adapter>,
) -> Option<Handle> {
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
    any.then(|| client.create_from_slice(f32::as_bytes(&all)))
}

/// `None` where the factors cannot be read, `Some(None)` where there are none.
fn lora(adapter: Option<&Adapter>, layer: usize, projection: Projection) -> Option<Option<DeviceLora>> {
    let Some(Adapter::Lora(lora)) = adapter else { return Some(None) };
    let Some(LoraFactors { a, b }) = lora.factors(layer, projection) else { return Some(None) };
    let factor = |t: &Tensor<2>| {
        let t = t.clone().without_autodiff().cast(DType::F32);
        let primitive = t.try_into_primitive::<Cuda>().ok()?;
        let (shape, strides) = (primitive.meta.shape(), primitive.meta.strides());
        (strides[1] == 1).then(|| Matrix {
            outs: shape[0] as u32,
            stride: strides[0] as u32,
            handle: primitive.handle.clone(),
        })
    };
    let (a, b) = (factor(a)?, factor(b)?);
    Some(Some(DeviceLora { rank: a.outs, a, b, scale: lora.scale as f32 }))
}

impl DeviceLayer {
    fn new(client: &Client, layer: &Layer, index: usize, adapter: Option<&Adapter>) -> Option<Self> {
        use Projection as P;
        let weight = |p: P| matrix(&layer.projection(p).weight);
        let bias = |ps: &[P]| biases(client, layer, index, ps, adapter);
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
        let (client, embedding) = borrow(model.embedding(), DType::BF16)?;
        let layers = model.layers().iter().enumerate();
        let layers: Option<Vec<DeviceLayer>> =
            layers.map(|(index, layer)| DeviceLayer::new(&client, layer, index, adapter)).collect();
        let layers = layers?;
        let even = |l: &DeviceLayer| {
            let [q, k, v] = l.qkv.each_ref().map(|m| m.stride);
            q == k && k == v && l.gate.stride == l.up.stride
        };
        layers.iter().all(even).then_some(())?;
        Some(Self {
            embedding,
            layers,
            norm: vector(&model.norm().weight)?,
            head: matrix(model.head())?,
            client,
        })
    }
}
