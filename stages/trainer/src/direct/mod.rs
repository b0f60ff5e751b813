//! A pass over a batch on a stream of our own, beside burn: bf16 models on NVIDIA GPUs.
//!
//! | module | what |
//! |---|---|
//! | `sizes` | the shapes of a pass, where its batch lies |
//! | `weights` | a model's weights as pointers, and where their gradients go |
//! | `calls` | kernels and products on pointers |
//! | `attention`, `linear`, `layer` | a layer's parts and their backward passes |
//! | `run` | the whole pass |
//! | `update` | AdamW and the global norm |
//! | [`check`] | this pass against that through burn |
//!
//! The mathematics is that of [`crate::pass`], which stays the way of CPUs and of other number formats,
//! and what this one is checked against. A launch through burn takes 60 µs of the host and a product
//! outside burn waits for the device before and after; here a launch takes a few, and the host waits
//! where an objective wants to see a chunk's values. `PIPELINE_PASS=burn` turns it off.

mod attention;
mod calls;
pub mod check;
mod layer;
mod linear;
mod run;
mod sizes;
#[cfg(test)]
mod tests;
mod update;
mod weights;

pub(crate) use self::update::{sole, step, updates};

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use burn::tensor::{DType, Device};
use lm::adapter::{Adapter, Projection};
use lm::config::ModelConfig;
use lm::model::Rope;
use lm::nvidia::executor::{Borrowed, Executor, borrow, executor};

use self::calls::HALF;
use self::layer::{Keep, Shared};
use self::linear::{Drop, Over};
use self::run::Run;
use self::sizes::{Places, Sizes};
use self::weights::Weights;
use crate::data::Batch;
use crate::flat::Place;
use crate::gradient::{Gradients, Pass};
use crate::loss::RowValues;
use crate::memory::Load;
use crate::objective::TokenLoss;
use crate::pass::Dropout;
use crate::trainee::{Current, Trainee};

static WANTED: LazyLock<bool> = LazyLock::new(|| !crate::knobs::knobs().through_burn);

/// Why passes over models of this shape on a GPU go through burn instead; `None` where they do not.
pub(crate) fn why_not_shape(config: &ModelConfig, dtype: DType) -> Option<&'static str> {
    if !*WANTED {
        Some("PIPELINE_PASS=burn")
    } else if dtype != DType::BF16 {
        Some("not in bf16")
    } else if !Sizes::new(config, 1, 1).fit() {
        Some("widths that are no multiples of 8")
    } else if !lm::nvidia::blas_available() {
        Some("no cuBLAS")
    } else {
        None
    }
}

/// Why a model's passes go through burn instead; `None` where they do not.
pub(crate) fn why_not(current: &Current) -> Option<&'static str> {
    let odd_rank = match &current.adapter {
        Some(Adapter::Lora(lora)) => {
            lora.layers.iter().flatten().any(|factors| !factors.a.dims()[0].is_multiple_of(8))
        }
        _ => false,
    };
    if current.model.device() == Device::flex() {
        return Some("on a CPU");
    }
    let of_shape = why_not_shape(current.model.config(), current.model.dtype());
    of_shape.or(odd_rank.then_some("a rank that is no multiple of 8"))
}

/// A batch and a model whose pass goes this way.
struct Prepared<'a> {
    weights: Weights,
    sizes: Sizes,
    batch: &'a Batch,
    rope: &'a Rope,
    gpu: usize,
}

impl<'a> Prepared<'a> {
    fn new(current: &'a Current, batch: &'a Batch, gradients: &HashMap<String, u64>) -> Option<Self> {
        let model = &current.model;
        let sizes = Sizes::new(model.config(), batch.rows, batch.width);
        if why_not(current).is_some() || !sizes.fit() || batch.targets.is_empty() {
            return None;
        }
        let (gpu, weights) = lm::nvidia::near(model.embedding(), || {
            let gpu = borrow(model.embedding())?.gpu;
            Some((gpu, Weights::new(model, current.adapter.as_ref(), gradients)?))
        })?;
        Some(Self { weights, sizes, batch, rope: model.rope(), gpu })
    }

    /// Does `work` on the GPU's stream, and waits for it.
    fn run<T>(
        self,
        temperature: f32,
        dropout: Option<Dropout>,
        work: impl FnOnce(&mut Run) -> T,
    ) -> Option<T> {
        let shared = executor(self.gpu)?;
        let mut e = Executor::enter(&shared);
        Some(self.on(&mut e, temperature, dropout, work))
    }

    fn on<T>(
        mut self,
        e: &mut Executor,
        temperature: f32,
        dropout: Option<Dropout>,
        work: impl FnOnce(&mut Run) -> T,
    ) -> T {
        let base = e.mark();
        let places = places(e, self.batch, self.rope);
        let drop = dropout.map(|dropout| Drop {
            rows: e.upload(&dropout.row_numbers(&self.batch.origins)),
            below: dropout.below(),
            factor: half::bf16::from_f32(dropout.factor()).to_f32(),
        });
        let columns = dropout.map(|dropout| {
            move |layer: usize, projection: Projection, width: usize| {
                dropout.column_numbers(layer, projection, width)
            }
        });
        self.weights.prepare(e, columns.as_ref().map(|f| f as &dyn Fn(usize, Projection, usize) -> Vec<u32>));
        let over = Over { tokens: self.sizes.tokens(), drop };
        let shared = Shared { s: &self.sizes, places: &places, over };
        let mut run = Run { e, weights: &self.weights, shared, batch: self.batch, temperature };
        let result = work(&mut run);
        e.finish();
        e.release(base);
        result
    }
}

/// The tables of angles and what else the attention needs to know.
fn places(e: &mut Executor, batch: &Batch, rope: &Rope) -> Places {
    let last = match &batch.segments {
        Some((positions, _)) => positions.iter().max().map_or(1, |&p| p as usize + 1),
        None => batch.width,
    };
    let table = table(rope, last);
    let half = rope.half_dim();
    let [cos, sin] = [&table.0, &table.1].map(|values| e.upload(&values[..last * half]));
    let segments = batch.segments.as_ref();
    Places {
        cos,
        sin,
        positions: segments.map(|(positions, _)| e.upload(positions)),
        segments: segments.map(|(_, segments)| e.upload(segments)),
    }
}

type Table = Arc<(Vec<f32>, Vec<f32>)>;

/// Cosines and sines of the positions up to `len` at least. The last table is kept: making one takes
/// milliseconds of the host.
fn table(rope: &Rope, len: usize) -> Table {
    static LAST: Mutex<Option<(Rope, usize, Table)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, known, table)) = &*last
        && of == rope
        && *known >= len
    {
        return table.clone();
    }
    let table = Arc::new(rope.table(0..len as u32));
    *last = Some((rope.clone(), len, table.clone()));
    table
}

/// [`crate::gradient::evaluate`] this way, where it goes.
pub(crate) fn evaluate(current: &Current, batch: &Batch, temperature: f32) -> Option<RowValues> {
    let prepared = Prepared::new(current, batch, &HashMap::new())?;
    prepared.run(temperature, None, |run| run.evaluate())
}

/// [`crate::gradient::accumulate`] this way; false where it does not go and nothing was done.
pub(crate) fn accumulate(
    trainee: &Trainee,
    current: &Current,
    batch: &Batch,
    pass: Pass,
    scale: f64,
    objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    gradients: &mut Gradients,
) -> bool {
    if why_not(current).is_some() || !Sizes::new(current.model.config(), batch.rows, batch.width).fit() {
        return false;
    }
    let sums = gradients.flat(trainee, &current.model.device());
    // the buffers are written beside burn: nobody else may hold them meanwhile
    let Some(buckets) = sums.buckets.iter().map(borrow).collect::<Option<Vec<Borrowed>>>() else {
        return false;
    };
    let pointer = |place: &Place| buckets[place.bucket].pointer + 4 * place.start as u64;
    let pointers = trainee.masters().iter().zip(sums.places().iter().map(pointer));
    let places: HashMap<String, u64> =
        pointers.map(|(master, pointer)| (master.name.clone(), pointer)).collect();
    let Some(prepared) = Prepared::new(current, batch, &places) else { return false };
    let load = load(trainee, batch, pass.recompute);
    let layers = load.config.num_layers;
    let work = |run: &mut Run| {
        // the last layers: their backward passes come first, when the stack is highest
        let keeping = load.keeps(room(run.e, &load));
        let keep = |layer| Keep { heads: true, gate_up: layer >= layers - keeping };
        run.accumulate(scale, keep, objective);
    };
    prepared.run(pass.temperature, pass.dropout, work).is_some()
}

fn load(trainee: &Trainee, batch: &Batch, recompute: bool) -> Load {
    Load {
        config: trainee.base().config().clone(),
        number: HALF as u64,
        trained: trainee.len() as u64,
        full: trainee.trains_all(),
        recompute,
        beside: true,
        rows: batch.rows as u64,
        seq: batch.width as u64,
        rollouts: None,
    }
}

/// Bytes that are left alone beside what an update needs.
const MARGIN: u64 = 1 << 30;

/// Bytes that the stack may take: `PIPELINE_PASS_GIGABYTES`, or what is free on the GPU beyond what
/// follows the pass.
fn room(e: &Executor, load: &Load) -> u64 {
    if let Some(bytes) = crate::knobs::knobs().pass_bytes {
        return bytes;
    }
    let needs = load.needs();
    let later = needs.update - needs.apart + needs.overhead / 4 + MARGIN;
    e.free().map_or(0, |free| (free + e.held() as u64).saturating_sub(later))
}
