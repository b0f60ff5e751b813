//! A decoder layer: forward pass, what it keeps of it, backward pass.

use lm::adapter::Projection;
use lm::nvidia::executor::Executor;

use super::attention::{self, ByHeads, Heads};
use super::calls::{self, HALF, after};
use super::linear::Over;
use super::sizes::{Places, Sizes};
use super::weights::{ATTENTION, LayerWeights, Rows};

/// What the passes of every layer share.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    pub s: &'a Sizes,
    pub places: &'a Places,
    pub over: Over,
}

/// What is kept of a layer's forward pass. What is missing is computed again.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// The layer's input `[tokens, hidden]`.
    pub input: u64,
    /// Between attention and MLP, `[tokens, hidden]`.
    pub middle: u64,
    pub heads: Option<Heads>,
    /// Gate and up `[tokens, inner]`.
    pub gate_up: Option<[u64; 2]>,
}

/// What a layer keeps beside its input and middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    pub heads: bool,
    pub gate_up: bool,
}

impl Kept {
    /// Room for what a layer keeps of `input`.
    pub fn take(e: &mut Executor, s: &Sizes, input: u64, keep: Keep) -> Self {
        Self {
            input,
            middle: e.take(s.tokens() * s.hidden, HALF),
            heads: keep.heads.then(|| Heads::take(e, s)),
            gate_up: keep.gate_up.then(|| take_gate_up(e, s)),
        }
    }
}

fn take_gate_up(e: &mut Executor, s: &Sizes) -> [u64; 2] {
    [(); 2].map(|()| e.take(s.tokens() * s.inner, HALF))
}

fn dense(pointer: u64, leading: usize) -> Rows {
    Rows { pointer, leading }
}

impl Shared<'_> {
    fn take_hidden(&self, e: &mut Executor) -> u64 {
        e.take(self.s.tokens() * self.s.hidden, HALF)
    }

    fn normed(&self, e: &mut Executor, x: u64, weight: u64) -> u64 {
        let to = self.take_hidden(e);
        calls::norm(e, x, weight, to, [self.s.tokens(), self.s.hidden], self.s.eps);
        to
    }

    /// Where the columns of queries, keys and values begin in rows of all three.
    fn columns(&self, of: u64) -> [Rows; 3] {
        let (q, k) = (self.s.queries(), self.s.keys());
        [0, q, q + k].map(|at| dense(after(of, at), self.s.width()))
    }

    fn heads(&self, e: &mut Executor, w: &LayerWeights, x: u64, to: Heads) {
        let mark = e.mark();
        let joined = e.take(self.s.tokens() * self.s.width(), HALF);
        for (projection, rows) in ATTENTION.into_iter().zip(self.columns(joined)) {
            self.over.forward(e, "qkv", w.linear(projection), x, rows, None);
        }
        attention::part(e, self.s, joined, w.qkv_bias, self.places, to);
        e.release(mark);
    }

    fn gate_up(&self, e: &mut Executor, w: &LayerWeights, x: u64, to: [u64; 2]) {
        for (projection, to) in [Projection::Gate, Projection::Up].into_iter().zip(to) {
            self.over.forward(e, "gate, up", w.linear(projection), x, dense(to, self.s.inner), None);
        }
    }

    fn gated(&self, e: &mut Executor, gate_up: [u64; 2]) -> u64 {
        let inner = e.take(self.s.tokens() * self.s.inner, HALF);
        calls::gate_up(e, gate_up, inner, self.s.tokens() * self.s.inner);
        inner
    }

    /// The layer's output `[tokens, hidden]`, from `kept.input`; fills the rest of `kept`.
    pub fn forward(&self, e: &mut Executor, w: &LayerWeights, kept: &Kept, output: u64) {
        let mark = e.mark();
        let x = self.normed(e, kept.input, w.input_norm.weight);
        let heads = kept.heads.unwrap_or_else(|| Heads::take(e, self.s));
        self.heads(e, w, x, heads);
        let attended = self.attended(e, heads);
        let linear = w.linear(Projection::Output);
        let to = dense(kept.middle, self.s.hidden);
        self.over.forward(e, "output", linear, attended, to, Some(kept.input));
        e.release(mark);

        let x = self.normed(e, kept.middle, w.post_norm.weight);
        let gate_up = kept.gate_up.unwrap_or_else(|| take_gate_up(e, self.s));
        self.gate_up(e, w, x, gate_up);
        let inner = self.gated(e, gate_up);
        let linear = w.linear(Projection::Down);
        self.over.forward(e, "down", linear, inner, dense(output, self.s.hidden), Some(kept.middle));
        e.release(mark);
    }

    fn attended(&self, e: &mut Executor, heads: Heads) -> u64 {
        let [by_head, attended] = [(); 2].map(|()| e.take(self.s.tokens() * self.s.queries(), HALF));
        attention::forward(e, self.s, heads, self.places, by_head);
        attention::swap(e, self.s, by_head, attended, true);
        attended
    }

    /// Turns the gradient of the layer's output, `by` `[tokens, hidden]`, into that of its input, and adds
    /// the gradients of what trains to their sums. What was kept is used up.
    pub fn backward(&self, e: &mut Executor, w: &LayerWeights, kept: &Kept, by: u64) {
        let mark = e.mark();
        self.mlp_backward(e, w, kept, by);
        e.release(mark);
        self.attention_backward(e, w, kept, by);
        e.release(mark);
    }

    fn mlp_backward(&self, e: &mut Executor, w: &LayerWeights, kept: &Kept, by: u64) {
        let (s, over) = (self.s, self.over);
        let [gate, up, down] = [Projection::Gate, Projection::Up, Projection::Down].map(|p| w.linear(p));
        let needs_x = gate.needs_input() || up.needs_input();
        let x = (needs_x || kept.gate_up.is_none()).then(|| self.normed(e, kept.middle, w.post_norm.weight));
        let gate_up = kept.gate_up.unwrap_or_else(|| {
            let to = take_gate_up(e, s);
            if let Some(x) = x {
                self.gate_up(e, w, x, to);
            }
            to
        });
        let by_x = self.take_hidden(e);
        let by_inner = e.take(s.tokens() * s.inner, HALF);
        let by_rows = dense(by, s.hidden);
        let by_middle = over.to_input(e, "down, back", down, by_rows, (by_inner, 0.0));
        let mark = e.mark();
        let inner = down.needs_input().then(|| self.gated(e, gate_up));
        over.to_weights(e, down, by_rows, inner, by_middle);
        e.release(mark);
        calls::gate_up_backward(e, gate_up, by_inner, s.tokens() * s.inner);
        for (linear, by, beta) in [(gate, gate_up[0], 0.0), (up, gate_up[1], 1.0)] {
            let rows = dense(by, s.inner);
            let by_middle = over.to_input(e, "gate, up, back", linear, rows, (by_x, beta));
            over.to_weights(e, linear, rows, x.filter(|_| linear.needs_input()), by_middle);
        }
        self.norm_backward(e, w.post_norm, kept.middle, by_x, by);
    }

    fn attention_backward(&self, e: &mut Executor, w: &LayerWeights, kept: &Kept, by: u64) {
        let (s, over) = (self.s, self.over);
        let needs_x = ATTENTION.iter().any(|&p| w.linear(p).needs_input());
        let x = (needs_x || kept.heads.is_none()).then(|| self.normed(e, kept.input, w.input_norm.weight));
        let heads = kept.heads.unwrap_or_else(|| {
            let to = Heads::take(e, s);
            if let Some(x) = x {
                self.heads(e, w, x, to);
            }
            to
        });
        let output = w.linear(Projection::Output);
        let [by_attended, by_output] = [(); 2].map(|()| e.take(s.tokens() * s.queries(), HALF));
        let by_rows = dense(by, s.hidden);
        let by_middle = over.to_input(e, "output, back", output, by_rows, (by_attended, 0.0));
        attention::swap(e, s, by_attended, by_output, false);
        let to = ByHeads::take(e, s);
        // the gradient that was swapped is not read again: its place takes the output
        let again = output.needs_input().then_some(by_attended);
        attention::backward(e, s, heads, self.places, (by_output, again), to);
        let attended = again.map(|by_head| {
            attention::swap(e, s, by_head, by_output, true);
            by_output
        });
        over.to_weights(e, output, by_rows, attended, by_middle);
        let joined = e.take(s.tokens() * s.width(), HALF);
        attention::join(e, s, to, self.places, joined);
        let by_x = self.take_hidden(e);
        for (i, (projection, rows)) in ATTENTION.into_iter().zip(self.columns(joined)).enumerate() {
            let linear = w.linear(projection);
            let beta = if i == 0 { 0.0 } else { 1.0 };
            let by_middle = over.to_input(e, "qkv, back", linear, rows, (by_x, beta));
            over.to_weights(e, linear, rows, x.filter(|_| linear.needs_input()), by_middle);
        }
        self.norm_backward(e, w.input_norm, kept.input, by_x, by);
    }

    /// Adds the gradient of a norm's input `x` to `sum`, and that of its weight to its own.
    fn norm_backward(&self, e: &mut Executor, norm: super::weights::Norm, x: u64, by: u64, sum: u64) {
        let shape = [self.s.tokens(), self.s.hidden];
        if let Some(by_weight) = norm.by_weight {
            calls::norm_weight(e, x, by, by_weight, shape, self.s.eps);
        }
        calls::norm_backward(e, [x, norm.weight, by, sum], shape, self.s.eps);
    }
}
