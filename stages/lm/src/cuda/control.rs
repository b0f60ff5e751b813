//! What the host tells a step: one small buffer, written before each.

use super::kernels::rows::FROM_HOST;
use super::net::Inputs;
use super::stream::{Buffer, Stream};
use crate::generate::Draw;

/// Lists of the buffer, one number per row each.
#[derive(Debug, Clone, Copy)]
enum List {
    Ids,
    From,
    Slots,
    Positions,
    Starts,
    Lengths,
    Picks,
    Temperatures,
    Uniforms,
    TopK,
    TopP,
    MinP,
}

const LISTS: usize = 12;

/// A row to compute: a token of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub slot: u32,
    pub position: u32,
    /// The token, or the row of the step before that chose it.
    pub token: Token,
}

/// Where a row's token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Id(u32),
    From(u32),
}

/// The buffer, for up to so many rows.
pub struct Control {
    buffer: Buffer,
    /// Rows of a list, a multiple of 4.
    rows: usize,
    values: Vec<u32>,
}

impl Control {
    pub fn new(stream: &Stream, rows: u32) -> Self {
        let rows = (rows as usize).next_multiple_of(4);
        let buffer = stream.buffer((rows * LISTS * 4) as u64);
        Self { buffer, rows, values: vec![0; rows * LISTS] }
    }

    /// Rows from one list to the next.
    pub fn stride(&self) -> u32 {
        self.rows as u32
    }

    /// Where a list begins.
    fn list(&self, list: List) -> u64 {
        self.buffer.pointer + (list as usize * self.rows * 4) as u64
    }

    fn set(&mut self, list: List, row: usize, value: u32) {
        self.values[list as usize * self.rows + row] = value;
    }

    /// Where a step's inputs lie; `results` are those of the step before.
    pub fn inputs(&self, results: &Buffer) -> Inputs {
        Inputs {
            ids: self.list(List::Ids),
            from: self.list(List::From),
            results: results.pointer,
            slots: self.list(List::Slots),
            positions: self.list(List::Positions),
            starts: self.list(List::Starts),
            lengths: self.list(List::Lengths),
            picks: self.list(List::Picks),
        }
    }

    pub fn temperatures(&self) -> u64 {
        self.list(List::Temperatures)
    }

    pub fn uniforms(&self) -> u64 {
        self.list(List::Uniforms)
    }

    /// Top-k, top-p and min-p, one below the other.
    pub fn filters(&self) -> u64 {
        self.list(List::TopK)
    }

    pub fn row(&mut self, index: usize, row: Row) {
        let (id, from) = match row.token {
            Token::Id(id) => (id, FROM_HOST),
            Token::From(row) => (0, row),
        };
        self.set(List::Ids, index, id);
        self.set(List::From, index, from);
        self.set(List::Slots, index, row.slot);
        self.set(List::Positions, index, row.position);
    }

    /// Segment `index` of prompts.
    pub fn segment(&mut self, index: usize, start: u32, length: u32) {
        self.set(List::Starts, index, start);
        self.set(List::Lengths, index, length);
    }

    /// Row whose logits are number `index`.
    pub fn pick(&mut self, index: usize, row: u32) {
        self.set(List::Picks, index, row);
    }

    /// How the logits number `index` choose; `ahead` tokens after the draw's own.
    pub fn draw(&mut self, index: usize, draw: &Draw, ahead: u64) {
        let params = draw.params;
        self.set(List::Temperatures, index, params.temperature.to_bits());
        self.set(List::Uniforms, index, (draw.uniform(ahead) as f32).to_bits());
        self.set(List::TopK, index, (params.top_k as f32).to_bits());
        self.set(List::TopP, index, params.top_p.to_bits());
        self.set(List::MinP, index, params.min_p.to_bits());
    }

    /// Rows that fill up the batch: token 0 at position 0 of `slot`, greedy.
    pub fn idle(&mut self, index: usize, slot: u32) {
        self.row(index, Row { slot, position: 0, token: Token::Id(0) });
        for list in [List::Temperatures, List::TopK, List::MinP] {
            self.set(list, index, 0);
        }
        self.set(List::TopP, index, 1f32.to_bits());
    }

    /// Sends what was set to the device, in the order of launches.
    pub fn send(&self, stream: &Stream) {
        stream.write(self.buffer.pointer, &self.values);
    }
}
