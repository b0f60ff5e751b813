//! The whole pass: embedding, layers, head, and back.

use lm::nvidia::executor::Executor;
use lm::nvidia::{Operand, Target};

use super::calls::{self, FULL, HALF, after};
use super::layer::{Keep, Kept, Shared};
use super::sizes::Sizes;
use super::weights::Weights;
use crate::data::Batch;
use crate::fused::kernels::rows::NOWHERE;
use crate::loss::{RowValues, chunk_rows};
use crate::objective::TokenLoss;

/// One pass over a batch.
pub struct Run<'a> {
    pub e: &'a mut Executor,
    pub weights: &'a Weights,
    pub shared: Shared<'a>,
    pub batch: &'a Batch,
    pub temperature: f32,
}

/// The hidden states at the places of the head.
struct Last {
    /// As the last layer gave them, `[places, hidden]`.
    hidden: u64,
    normed: u64,
    /// The targets, i32.
    targets: u64,
}

impl Run<'_> {
    fn sizes(&self) -> &Sizes {
        self.shared.s
    }

    fn hidden_rows(&mut self, rows: usize) -> u64 {
        let hidden = self.sizes().hidden;
        self.e.take(rows * hidden, HALF)
    }

    fn embed(&mut self, to: u64) {
        let s = *self.sizes();
        let mark = self.e.mark();
        let ids = self.e.upload(&self.batch.ids);
        let table = self.weights.embedding;
        calls::gather(self.e, table.pointer, ids, to, [s.tokens(), s.hidden], table.leading);
        self.e.release(mark);
    }

    fn last(&mut self, hidden: u64) -> Last {
        let s = *self.sizes();
        let places = self.batch.places.len();
        let index = self.e.upload(&self.batch.places);
        let targets = self.e.upload(&self.batch.targets);
        let [last, normed] = [self.hidden_rows(places), self.hidden_rows(places)];
        calls::gather(self.e, hidden, index, last, [places, s.hidden], s.hidden);
        calls::norm(self.e, last, self.weights.norm.weight, normed, [places, s.hidden], s.eps);
        Last { hidden: last, normed, targets }
    }

    /// Logits (f32) and values of the head's rows `start..start + len`.
    fn logits(&mut self, last: &Last, start: usize, len: usize) -> (u64, u64) {
        let s = *self.sizes();
        let head = self.weights.head;
        let logits = self.e.take(len * s.vocab, FULL);
        let values = self.e.take(2 * len, FULL);
        let rows = Operand::rows(after(last.normed, start * s.hidden), s.hidden);
        let operands = [rows, Operand::rows(head.pointer, head.leading).transpose()];
        let c = Target::rows(logits, s.vocab).wide();
        calls::product(self.e, "logits", [len, s.hidden, s.vocab], operands, c, 0.0);
        let targets = last.targets + (start * FULL) as u64;
        calls::row_values(self.e, [logits, targets, values], [len, s.vocab], 1.0 / self.temperature);
        (logits, values)
    }

    fn read(&mut self, values: u64, len: usize) -> RowValues {
        let mut log_prob: Vec<f32> = self.e.download(values, 2 * len);
        let entropy = log_prob.split_off(len);
        RowValues { log_prob, entropy }
    }

    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (places, chunk) = (self.batch.targets.len(), chunk_rows(self.sizes().vocab, false));
        (0..places).step_by(chunk).map(move |start| (start, chunk.min(places - start)))
    }

    /// Log-probabilities and entropies, without gradients.
    pub fn evaluate(&mut self) -> RowValues {
        let s = *self.sizes();
        let [mut hidden, mut next] = [(); 2].map(|()| self.hidden_rows(s.tokens()));
        self.embed(hidden);
        for w in &self.weights.layers {
            let mark = self.e.mark();
            let kept = Kept::take(self.e, &s, hidden, Keep { heads: false, gate_up: false });
            self.shared.forward(self.e, w, &kept, next);
            self.e.release(mark);
            std::mem::swap(&mut hidden, &mut next);
        }
        let last = self.last(hidden);
        let mut all = RowValues::default();
        for (start, len) in self.chunks() {
            let mark = self.e.mark();
            let (_, values) = self.logits(&last, start, len);
            let values = self.read(values, len);
            all.log_prob.extend(values.log_prob);
            all.entropy.extend(values.entropy);
            self.e.release(mark);
        }
        all
    }

    /// Adds the gradients of `scale · objective` to the sums. `keep` says what each layer keeps.
    pub fn accumulate(
        &mut self,
        scale: f64,
        keep: impl Fn(usize) -> Keep,
        objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    ) {
        let s = *self.sizes();
        let by = self.hidden_rows(s.tokens());
        let mut hidden = self.hidden_rows(s.tokens());
        self.embed(hidden);
        let mut kept = Vec::with_capacity(self.weights.layers.len());
        for (index, w) in self.weights.layers.iter().enumerate() {
            let mark = self.e.mark();
            let layer = Kept::take(self.e, &s, hidden, keep(index));
            let output = self.hidden_rows(s.tokens());
            self.shared.forward(self.e, w, &layer, output);
            kept.push((layer, mark));
            hidden = output;
        }
        let mark = self.e.mark();
        self.head(hidden, by, scale, objective);
        self.e.release(mark);
        for (w, (layer, mark)) in self.weights.layers.iter().zip(kept).rev() {
            self.shared.backward(self.e, w, &layer, by);
            self.e.release(mark);
        }
        if let Some(sums) = self.weights.by_embedding {
            self.embedding_backward(by, sums);
        }
    }

    /// The gradient of the last layer's output `hidden`, to `by`.
    fn head(
        &mut self,
        hidden: u64,
        by: u64,
        scale: f64,
        mut objective: impl FnMut(usize, &RowValues) -> TokenLoss,
    ) {
        let s = *self.sizes();
        let places = self.batch.places.len();
        let last = self.last(hidden);
        let by_normed = self.hidden_rows(places);
        let head = self.weights.head;
        for (start, len) in self.chunks() {
            let mark = self.e.mark();
            let (logits, values) = self.logits(&last, start, len);
            let loss = objective(start, &self.read(values, len));
            let by_values = by_values(&loss, len, scale / f64::from(self.temperature));
            let by_values = self.e.upload(&by_values);
            let by_logits = self.e.take(len * s.vocab, HALF);
            let targets = last.targets + (start * FULL) as u64;
            let buffers = [logits, targets, values, by_values, by_logits];
            calls::row_gradients(self.e, buffers, [len, s.vocab], 1.0 / self.temperature);
            let by_rows = Operand::rows(by_logits, s.vocab);
            let at = start * s.hidden;
            let operands = [by_rows, Operand::rows(head.pointer, head.leading)];
            let c = Target::rows(after(by_normed, at), s.hidden);
            calls::product(self.e, "logits, back", [len, s.vocab, s.hidden], operands, c, 0.0);
            if let Some(sum) = self.weights.by_head {
                let operands = [by_rows.transpose(), Operand::rows(after(last.normed, at), s.hidden)];
                let c = Target::rows(sum, s.hidden).wide();
                calls::product(self.e, "to the head", [s.vocab, len, s.hidden], operands, c, 1.0);
            }
            self.e.release(mark);
        }
        let norm = self.weights.norm;
        let shape = [places, s.hidden];
        if let Some(sum) = norm.by_weight {
            calls::norm_weight(self.e, last.hidden, by_normed, sum, shape, s.eps);
        }
        let by_last = self.hidden_rows(places);
        calls::clear(self.e, by_last, places * s.hidden * HALF);
        calls::norm_backward(self.e, [last.hidden, norm.weight, by_normed, by_last], shape, s.eps);
        // zero where the head is not evaluated: a gather through the inverse index needs no atomics
        let mut inverse = vec![NOWHERE; s.tokens()];
        for (row, &place) in self.batch.places.iter().enumerate() {
            inverse[place as usize] = row as u32;
        }
        let inverse = self.e.upload(&inverse);
        calls::gather(self.e, by_last, inverse, by, [s.tokens(), s.hidden], s.hidden);
    }

    /// Adds the gradients of the embedded tokens, `by`, to the rows of their ids.
    fn embedding_backward(&mut self, by: u64, sums: u64) {
        let s = *self.sizes();
        let mut order: Vec<u32> = (0..self.batch.ids.len() as u32).collect();
        // stable: rows of one id are added in the order of their tokens
        order.sort_by_key(|&token| self.batch.ids[token as usize]);
        let (mut ids, mut starts) = (Vec::new(), Vec::new());
        for (at, &token) in order.iter().enumerate() {
            let id = self.batch.ids[token as usize];
            if ids.last() != Some(&id) {
                ids.push(id);
                starts.push(at as u32);
            }
        }
        starts.push(order.len() as u32);
        let shape = [ids.len(), s.hidden];
        let lists = [&ids, &starts, &order].map(|list| self.e.upload(list));
        calls::scatter_sums(self.e, by, lists, sums, shape);
    }
}

/// Derivatives by log-probabilities and entropies, one after the other, times `scale`.
fn by_values(loss: &TokenLoss, rows: usize, scale: f64) -> Vec<f32> {
    let scaled = |values: &[f32]| -> Vec<f32> {
        let zeros = std::iter::repeat_n(0.0, rows - values.len().min(rows));
        values.iter().map(|&v| (f64::from(v) * scale) as f32).chain(zeros).collect()
    };
    [scaled(&loss.by_log_prob), scaled(&loss.by_entropy)].concat()
}
