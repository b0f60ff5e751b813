//! Which algorithm of cuBLASLt computes which product.

use std::collections::HashMap;

use super::stream::Stream;
use super::weights::{DeviceLayer, Matrix};
use crate::config::ModelConfig;
use crate::nvidia::lt::{Lt, Method, Shape};

/// Rows that the algorithms for decoding are chosen for, and those for prompts.
const FEW: u32 = 64;
const MANY: u32 = 2048;

/// A product's algorithms, for decoding and for prompts. Each serves any number of rows.
#[derive(Clone, Copy)]
struct Methods {
    few: Method,
    many: Method,
}

/// The products of a model through cuBLASLt.
pub struct Products {
    lt: Lt,
    /// By the matrix's address.
    methods: HashMap<u64, Methods>,
    /// By shape and alignment: a model's layers are alike.
    chosen: HashMap<(Shape, u32), Methods>,
}

impl Products {
    /// `None` where one product of a layer cannot be computed so: then all are computed by kernels.
    pub fn new(lt: Lt, layers: &[DeviceLayer], head: &Matrix, config: &ModelConfig) -> Option<Self> {
        let mut products = Self { lt, methods: HashMap::new(), chosen: HashMap::new() };
        let [hidden, inner] = [config.hidden_size, config.intermediate_size].map(|n| n as u32);
        let attended = (config.num_heads * config.head_dim) as u32;
        for layer in layers {
            let qkv: u32 = layer.qkv.iter().map(|m| m.outs).sum();
            let mut offset = 0;
            for matrix in &layer.qkv {
                products.add(matrix, hidden, qkv, true, offset)?;
                offset += matrix.outs;
            }
            products.add(&layer.output, attended, hidden, true, 0)?;
            products.add(&layer.gate, hidden, inner, false, 0)?;
            products.add(&layer.up, hidden, inner, false, 0)?;
            products.add(&layer.down, inner, hidden, true, 0)?;
        }
        // A vocabulary of odd size is left to the kernels.
        let _ = products.add(head, hidden, head.outs, true, 0);
        Some(products)
    }

    /// Chooses for a matrix whose results begin `offset` numbers into rows of `pitch`.
    fn add(&mut self, matrix: &Matrix, k: u32, pitch: u32, wide: bool, offset: u32) -> Option<()> {
        let shape = Shape { outs: matrix.outs, k, stride: matrix.stride, pitch, wide };
        let size = if wide { 4 } else { 2 };
        // Where operands begin, and where their rows do.
        let begin = [matrix.pointer, u64::from(offset * size)];
        let rows = [pitch * size, 2 * k, 2 * matrix.stride];
        let aligned = |bytes: &u32| begin.iter().all(|place| place.is_multiple_of(u64::from(*bytes)));
        let alignment = [256, 16].into_iter().find(aligned)?;
        rows.iter().all(|row| row.is_multiple_of(16)).then_some(())?;
        let methods = match self.chosen.get(&(shape, alignment)) {
            Some(&methods) => methods,
            None => {
                let choose = |rows| self.lt.choose(shape, rows, alignment);
                let methods = Methods { few: choose(FEW)?, many: choose(MANY)? };
                self.chosen.insert((shape, alignment), methods);
                methods
            }
        };
        self.methods.insert(matrix.pointer, methods);
        Some(())
    }

    /// Whether it computes the products with this matrix.
    pub fn has(&self, matrix: &Matrix) -> bool {
        self.methods.contains_key(&matrix.pointer)
    }

    /// `x` `[rows, k]` times a matrix that it [has](Self::has), to `y`, as in prompts or decoding.
    ///
    /// # Safety
    /// `x` and `y` have the rows of the matrix's shape.
    pub unsafe fn multiply(
        &self,
        stream: &Stream,
        matrix: &Matrix,
        [x, y]: [u64; 2],
        rows: u32,
        prompt: bool,
    ) {
        if let Some(methods) = self.methods.get(&matrix.pointer) {
            let method = if prompt { &methods.many } else { &methods.few };
            // SAFETY: the caller's; weights are the model's.
            unsafe { stream.multiply(self.lt, method, [matrix.pointer, x, y], rows) };
        }
    }
}
