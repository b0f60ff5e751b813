//! Which algorithm of cuBLASLt computes which product.
//!
//! What suits 8 rows takes 250 rows many times as long, and the other way round; but a row's numbers must
//! not depend on how many rows are computed beside it. So for each of a few numbers of rows the algorithm
//! that cuBLASLt proposes is tried on random numbers beside the one for [`REFERENCE`] rows, and taken only
//! if it gives the same bits. On an H200 all do: each sums the shared dimension in one order.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::stream::{Buffer, Stream};
use super::weights::{DeviceLayer, Matrix};
use crate::config::ModelConfig;
use crate::nvidia::lt::{Lt, Method, Shape};
use crate::rng;

/// Numbers of rows that algorithms are chosen for: up to so many.
const ROWS: [u32; 7] = [8, 16, 32, 64, 128, 256, 1024];
/// From there on.
const MANY: u32 = 4096;
/// The rows whose algorithm the others are held to.
const REFERENCE: u32 = 64;
/// Rows of a trial.
const TRIAL: u32 = 16;

/// A product's algorithms, each for up to so many rows.
type Methods = Vec<(u32, Method)>;

/// What was chosen by GPU, shape and alignment; `None` where nothing can be.
type Chosen = HashMap<(usize, Shape, u32), Option<Methods>>;

/// For all models of a process.
static CHOSEN: LazyLock<Mutex<Chosen>> = LazyLock::new(Mutex::default);

/// The products of a model through cuBLASLt.
pub struct Products {
    lt: Lt,
    /// By the matrix's address.
    methods: HashMap<u64, Methods>,
}

impl Products {
    /// `None` where one product of a layer cannot be computed so: then all are computed by kernels.
    pub fn new(
        stream: &Stream,
        lt: Lt,
        layers: &[DeviceLayer],
        head: &Matrix,
        config: &ModelConfig,
    ) -> Option<Self> {
        // Trials read the weights.
        stream.settle();
        let mut products = Self { lt, methods: HashMap::new() };
        let [hidden, inner] = [config.hidden_size, config.intermediate_size].map(|n| n as u32);
        let attended = (config.num_heads * config.head_dim) as u32;
        for layer in layers {
            let qkv: u32 = layer.qkv.iter().map(|m| m.outs).sum();
            let mut offset = 0;
            for matrix in &layer.qkv {
                products.add(stream, matrix, hidden, (qkv, true), offset)?;
                offset += matrix.outs;
            }
            products.add(stream, &layer.output, attended, (hidden, true), 0)?;
            products.add(stream, &layer.gate, hidden, (inner, false), 0)?;
            products.add(stream, &layer.up, hidden, (inner, false), 0)?;
            products.add(stream, &layer.down, inner, (hidden, true), 0)?;
        }
        // A vocabulary of odd size is left to the kernels.
        let _ = products.add(stream, head, hidden, (head.outs, true), 0);
        Some(products)
    }

    /// Chooses for a matrix whose results begin `offset` numbers into rows of `pitch`, f32 if `wide`.
    fn add(
        &mut self,
        stream: &Stream,
        matrix: &Matrix,
        k: u32,
        (pitch, wide): (u32, bool),
        offset: u32,
    ) -> Option<()> {
        let shape = Shape { outs: matrix.outs, k, stride: matrix.stride, pitch, wide };
        let size = if wide { 4 } else { 2 };
        // Where operands begin, and where their rows do.
        let begin = [matrix.pointer, u64::from(offset * size)];
        let rows = [pitch * size, 2 * k, 2 * matrix.stride];
        let aligned = |bytes: &u32| begin.iter().all(|place| place.is_multiple_of(u64::from(*bytes)));
        let alignment = [256, 16].into_iter().find(aligned)?;
        rows.iter().all(|row| row.is_multiple_of(16)).then_some(())?;
        let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (stream.gpu(), shape, alignment);
        let methods = chosen.entry(key).or_insert_with(|| self.choose(stream, matrix, shape, alignment));
        self.methods.insert(matrix.pointer, methods.clone()?);
        Some(())
    }

    fn choose(&self, stream: &Stream, matrix: &Matrix, shape: Shape, alignment: u32) -> Option<Methods> {
        let trial = Trial::new(stream, self.lt, matrix, shape);
        let reference = self.lt.choose(shape, REFERENCE, alignment)?;
        let expected = trial.run(&reference);
        let same = |rows| {
            let method = self.lt.choose(shape, rows, alignment)?;
            (method == reference || trial.run(&method) == expected).then_some((rows, method))
        };
        let mut methods: Methods = ROWS.into_iter().chain([MANY]).filter_map(same).collect();
        // What nothing else serves.
        if methods.last().is_none_or(|(rows, _)| *rows < MANY) {
            methods.push((MANY, reference));
        }
        Some(methods)
    }

    /// Whether it computes the products with this matrix.
    pub fn has(&self, matrix: &Matrix) -> bool {
        self.methods.contains_key(&matrix.pointer)
    }

    /// `x` `[rows, k]` times a matrix that it [has](Self::has), to `y`.
    ///
    /// # Safety
    /// `x` and `y` have the rows of the matrix's shape.
    pub unsafe fn multiply(&self, stream: &Stream, matrix: &Matrix, [x, y]: [u64; 2], rows: u32) {
        let methods = self.methods.get(&matrix.pointer).map_or(&[][..], Vec::as_slice);
        let fit = methods.iter().find(|(up_to, _)| rows <= *up_to).or(methods.last());
        if let Some((_, method)) = fit {
            // SAFETY: the caller's; weights are the model's.
            unsafe { stream.multiply(self.lt, method, [matrix.pointer, x, y], rows) };
        }
    }
}

/// A product of random rows, to try algorithms on.
struct Trial<'a> {
    stream: &'a Stream,
    lt: Lt,
    weights: u64,
    x: Buffer,
    y: Buffer,
    /// Bytes of `y`.
    bytes: u64,
}

impl<'a> Trial<'a> {
    fn new(stream: &'a Stream, lt: Lt, matrix: &Matrix, shape: Shape) -> Self {
        let numbers = rng::Stream::named(0, "trial");
        let x: Vec<half::bf16> = (0..u64::from(TRIAL * shape.k))
            .map(|i| half::bf16::from_f64(numbers.uniform(i) * 2.0 - 1.0))
            .collect();
        let bytes = u64::from(TRIAL) * u64::from(shape.pitch) * if shape.wide { 4 } else { 2 };
        let trial = Self {
            stream,
            lt,
            weights: matrix.pointer,
            x: stream.buffer(size_of_val(&x[..]) as u64),
            y: stream.buffer(bytes),
            bytes,
        };
        stream.write(trial.x.pointer, &x);
        trial
    }

    /// The bits of the product by this method.
    fn run(&self, method: &Method) -> Vec<u32> {
        self.stream.clear(self.y.pointer, self.bytes);
        // SAFETY: both have the rows.
        unsafe {
            self.stream.multiply(self.lt, method, [self.weights, self.x.pointer, self.y.pointer], TRIAL);
        }
        let numbers = self.stream.read(self.y.pointer, (self.bytes / 4) as usize);
        numbers.into_iter().map(f32::to_bits).collect()
    }
}
