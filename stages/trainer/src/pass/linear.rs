//! A projection with the adapter on it.

use burn::tensor::Tensor;
use lm::adapter::{Adapter, LoraFactors, Projection, lora_name};
use lm::model::Layer;
use lm::product::{product, wide_product};

use super::{Masks, Sink, column_sums};

/// One projection of one layer.
#[derive(Clone, Copy)]
pub(super) struct Projected<'a> {
    pub layer: &'a Layer,
    pub index: usize,
    pub projection: Projection,
    pub adapter: Option<&'a Adapter>,
    /// Dropout on the inputs of LoRA's factors.
    pub masks: Option<&'a Masks>,
}

impl Projected<'_> {
    fn weight_name(&self) -> String {
        format!("model.layers.{}.{}.weight", self.index, self.projection.path())
    }

    fn factors(&self) -> Option<(&LoraFactors, f64)> {
        match self.adapter {
            Some(Adapter::Lora(lora)) => Some((lora.factors(self.index, self.projection)?, lora.scale)),
            _ => None,
        }
    }

    /// `x` as the factors see it.
    fn dropped(&self, x: Tensor<2>) -> Tensor<2> {
        match self.masks {
            Some(masks) => masks.apply(x, self.index, self.projection),
            None => x,
        }
    }

    /// `x` `[rows, in]` to `[rows, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let linear = self.layer.projection(self.projection);
        if self.masks.is_some()
            && let Some((LoraFactors { a, b }, scale)) = self.factors()
        {
            let dtype = x.dtype();
            let inner = product(self.dropped(x.clone()), a.clone().cast(dtype).transpose());
            return linear.forward(x) + product(inner, b.clone().cast(dtype).transpose()).mul_scalar(scale);
        }
        match self.adapter {
            None => linear.forward(x),
            Some(adapter) => {
                let y = linear.forward(x.clone());
                adapter.apply(self.index, self.projection, &x, y)
            }
        }
    }

    /// Whether something trains whose gradient needs the projection's input.
    fn needs_input(&self, sink: &Sink) -> bool {
        sink.wants(&self.weight_name()) || self.factors().is_some()
    }

    /// The gradient of the input `[rows, in]` from that of the output `[rows, out]`. `input` is asked
    /// for where something trains that needs it.
    pub fn backward(
        &self,
        input: impl FnOnce() -> Tensor<2>,
        by_output: Tensor<2>,
        sink: &mut Sink,
    ) -> Tensor<2> {
        let linear = self.layer.projection(self.projection);
        let by_input = product(by_output.clone(), linear.weight.clone());
        // the bias of the projection, or the steering vector on it
        sink.add(&format!("model.layers.{}.{}.bias", self.index, self.projection.path()), || {
            column_sums(by_output.clone())
        });
        if !self.needs_input(sink) {
            return by_input;
        }
        let input = input();
        sink.add(&self.weight_name(), || wide_product(by_output.clone().transpose(), input.clone()));
        let Some((LoraFactors { a, b }, scale)) = self.factors() else { return by_input };
        let input = self.dropped(input);
        let dtype = by_output.dtype();
        let (a, b) = (a.clone().cast(dtype), b.clone().cast(dtype));
        let by_inner = product(by_output.clone(), b).mul_scalar(scale);
        sink.add(&lora_name(self.index, self.projection, "B"), || {
            let inner = product(input.clone(), a.clone().transpose());
            wide_product(by_output.clone().transpose(), inner).mul_scalar(scale)
        });
        sink.add(&lora_name(self.index, self.projection, "A"), || {
            wide_product(by_inner.clone().transpose(), input.clone())
        });
        by_input + self.dropped(product(by_inner, a))
    }
}
