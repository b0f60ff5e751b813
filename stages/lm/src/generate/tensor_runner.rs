//! A step as tensor operations, for every device that burn has.
//!
//! Sequences that decode are one batch `[slots, 1]` in which idle slots are dummies, so that its
//! shape stays the same while sequences come and go; prompts are a second batch, right-padded.
//! Dummies and padding write to a slot of their own that nothing reads.

use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData};

use crate::adapter::Adapter;
use crate::host::Segment;
use crate::model::{LayerAdapter, Model, Parameter, attend, hidden_where};

/// Cached lengths are rounded up to a multiple of this, so that few shapes occur.
const KEY_BLOCK: usize = 64;

/// A model and its cache on a device.
pub(super) struct TensorRunner {
    model: Model,
    adapter: Option<Adapter>,
    device: Device,
    /// Per layer `[slots + 1, kv_heads, capacity, head_dim]`; the last slot takes what is not kept.
    keys: Vec<Tensor<4>>,
    values: Vec<Tensor<4>>,
    slots: usize,
    capacity: usize,
}

/// One row of a batch: a segment, or a dummy.
#[derive(Clone, Copy)]
struct Row<'a> {
    segment: Option<&'a Segment>,
    slot: usize,
}

fn plain(_: &str, parameter: Parameter) -> Parameter {
    match parameter {
        Parameter::Vector(t) => t.without_autodiff().into(),
        Parameter::Matrix(t) => t.without_autodiff().into(),
    }
}

impl TensorRunner {
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> Self {
        let model = model.map_parameters(plain);
        Self {
            device: model.device(),
            adapter: adapter.map(|a| a.map_parameters(plain)),
            model,
            keys: Vec::new(),
            values: Vec::new(),
            slots: 0,
            capacity: 0,
        }
    }

    pub fn number_size(&self) -> usize {
        self.model.dtype().size()
    }

    pub fn reserve(&mut self, slots: usize, capacity: usize) -> bool {
        if slots <= self.slots && capacity <= self.capacity {
            return true;
        }
        let config = self.model.config();
        (self.slots, self.capacity) = (slots, capacity.next_multiple_of(KEY_BLOCK));
        let shape = [slots + 1, config.num_kv_heads, self.capacity, config.head_dim];
        let layers = config.num_layers;
        let options = (&self.device, self.model.dtype());
        // Freed before the larger ones are allocated.
        (self.keys, self.values) = (Vec::new(), Vec::new());
        self.keys = (0..layers).map(|_| Tensor::zeros(shape, options)).collect();
        self.values = (0..layers).map(|_| Tensor::zeros(shape, options)).collect();
        false
    }

    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) {
        let config = self.model.config();
        let (heads, dim) = (config.num_kv_heads, config.head_dim);
        for cache in self.keys.iter_mut().chain(&mut self.values) {
            let prefix = cache.clone().slice([from..from + 1, 0..heads, 0..len, 0..dim]);
            cache.inplace(|c| c.slice_assign([to..to + 1, 0..heads, 0..len, 0..dim], prefix));
        }
    }

    pub fn forward(&mut self, segments: &[Segment]) -> Vec<f32> {
        let mut logits: Vec<Option<Vec<f32>>> = vec![None; segments.len()];
        let decoding = |s: &Segment| s.tokens.len() == 1;
        if let Some(last) = segments.iter().filter(|s| decoding(s)).map(|s| s.slot).max() {
            let at = |slot| segments.iter().find(|s| decoding(s) && s.slot == slot);
            let rows: Vec<Row> = (0..=last).map(|slot| Row { segment: at(slot), slot }).collect();
            self.batch(&rows, true, segments, &mut logits);
        }
        let prompts = segments.iter().filter(|s| !decoding(s));
        let rows: Vec<Row> = prompts.map(|s| Row { segment: Some(s), slot: s.slot }).collect();
        if !rows.is_empty() {
            self.batch(&rows, false, segments, &mut logits);
        }
        logits.into_iter().flatten().flatten().collect()
    }

    /// Computes `rows` as one batch; `dense` when they are the slots 0, 1, 2, … in order.
    fn batch(&mut self, rows: &[Row], dense: bool, segments: &[Segment], logits: &mut [Option<Vec<f32>>]) {
        let plan = Plan::new(rows, self.slots, self.capacity);
        let Plan { width, keys, .. } = plan;
        let [n, hidden_size] = [rows.len(), self.model.config().hidden_size];
        let ids = self.ints([n, width], &plan.ids);
        let [cos, sin] = self.model.rope().tensors(&plan.positions, n, &self.device);
        let mask = {
            let query = self.ints([n, 1, 1, width, 1], &plan.positions);
            let key = Tensor::<1, Int>::arange(0..keys as i64, &self.device)
                .cast(DType::I32)
                .reshape([1, 1, 1, 1, keys]);
            let shape = [n, 1, 1, width, keys];
            hidden_where(key.expand(shape).greater(query.expand(shape)))
        };
        let writes = self.write_index(&plan.writes);
        let slots: Vec<u32> = rows.iter().map(|row| row.slot as u32).collect();
        let slots = self.ints([n], &slots);
        let mut hidden = self.model.embed(ids);
        for layer in 0..self.model.config().num_layers {
            let adapter = LayerAdapter { adapter: self.adapter.as_ref(), layer };
            let weights = &self.model.layers()[layer];
            let [q, k, v] = weights.qkv(self.model.config(), hidden.clone(), &cos, &sin, adapter);
            let [k, v] = [(&mut self.keys[layer], k), (&mut self.values[layer], v)].map(|(cache, new)| {
                let [_, heads, _, dim] = new.dims();
                let new = new.reshape([n * heads * width, dim]);
                cache.inplace(|c| c.scatter_nd(writes.clone(), new, IndexingUpdateOp::Assign));
                let seen = cache.clone().narrow(2, 0, keys);
                match dense {
                    true => seen.narrow(0, 0, n),
                    false => seen.select(0, slots.clone()),
                }
            });
            hidden = weights.finish(hidden, attend(q, k, v, mask.clone()), adapter);
        }
        let mut last = Vec::new();
        let mut owners = Vec::new();
        for (row, segment) in rows.iter().enumerate().filter_map(|(r, row)| Some((r, row.segment?))) {
            if segment.wants_logits {
                last.push((row * width + segment.tokens.len() - 1) as u32);
                owners.extend(segments.iter().position(|s| s.slot == segment.slot));
            }
        }
        if last.is_empty() {
            return;
        }
        let picked = hidden.reshape([n * width, hidden_size]).select(0, self.ints([last.len()], &last));
        let values = self.model.logits(self.model.norm().forward(picked)).into_data();
        let values: Vec<f32> = values.try_to_vec().unwrap_or_default();
        let vocab = self.model.config().vocab_size;
        for (owner, row) in owners.into_iter().zip(values.chunks_exact(vocab)) {
            logits[owner] = Some(row.to_vec());
        }
    }

    /// Where each head's row `[n, kv_heads, width]` of new keys goes: `[.., 3]` of slot, head and
    /// position.
    fn write_index(&self, writes: &[Vec<(usize, usize)>]) -> Tensor<2, Int> {
        let heads = self.model.config().num_kv_heads;
        let mut index = Vec::new();
        for row in writes {
            for head in 0..heads {
                for &(slot, position) in row {
                    index.extend([slot as u32, head as u32, position as u32]);
                }
            }
        }
        self.ints([index.len() / 3, 3], &index)
    }

    fn ints<const D: usize>(&self, shape: [usize; D], values: &[u32]) -> Tensor<D, Int> {
        let values: Vec<i32> = values.iter().map(|&v| v as i32).collect();
        Tensor::from_data(TensorData::new(values, shape), (&self.device, DType::I32))
    }
}

/// A batch in numbers, padded to one width.
struct Plan {
    /// `[rows, width]`
    ids: Vec<u32>,
    positions: Vec<u32>,
    /// Slot and position that each token's keys and values go to.
    writes: Vec<Vec<(usize, usize)>>,
    width: usize,
    /// Cached positions that some row may see.
    keys: usize,
}

impl Plan {
    fn new(rows: &[Row], trash: usize, capacity: usize) -> Self {
        let len = |row: &Row| row.segment.map_or(1, |s| s.tokens.len());
        let end = |row: &Row| row.segment.map_or(1, |s| s.start + s.tokens.len());
        let width = rows.iter().map(len).max().unwrap_or(1);
        let keys = rows.iter().map(end).max().unwrap_or(1);
        let (mut ids, mut positions, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let (tokens, start): (&[u32], usize) = row.segment.map_or((&[], 0), |s| (&s.tokens, s.start));
            let mut places = Vec::with_capacity(width);
            for i in 0..width {
                ids.push(tokens.get(i).copied().unwrap_or(0));
                let real = i < tokens.len();
                positions.push(if real { (start + i) as u32 } else { 0 });
                places.push(if real { (row.slot, start + i) } else { (trash, i) });
            }
            writes.push(places);
        }
        let keys = keys.next_multiple_of(KEY_BLOCK).min(capacity);
        Self { ids, positions, writes, width, keys }
    }
}
