//! Steps, graphs, and what runs ahead.
//!
//! While sequences only decode, the step after the present one is launched before the present one's
//! tokens are read: its rows take their tokens from the device. Sequences that turn out to have
//! ended wasted a row; others find their next token already computed.

use std::collections::HashMap;

use super::control::{Control, Row, Token};
use super::kernels::sample::{BROKEN, RESULT};
use super::net::{CHUNK, Cache, Net, Scratch, Shape, Sizes};
use super::sampler::{Draws, Sampler};
use super::stream::{Buffer, Graph, Inbox};
use super::weights::DeviceWeights;
use crate::adapter::Adapter;
use crate::generate::{Choice, Draw};
use crate::host::Segment;
use crate::model::{Model, Rope};

/// Positions are rounded up to a multiple of this: whole lines of transposed values, few shapes.
const POSITIONS: usize = 64;
/// Rows of a prompt batch, at most.
pub const PROMPT_ROWS: u32 = 4096;

/// A step that is under way.
struct Ahead {
    rows: Vec<Row>,
    /// Which inbox its results go to.
    inbox: usize,
}

/// What a step decodes with.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    filtered: bool,
    usable: u32,
}

/// Buffers for so many sequences.
struct Room {
    cache: Cache,
    scratch: Scratch,
    sampler: Sampler,
    decode: Control,
    prompt: Control,
    results: Buffer,
    prompt_results: Buffer,
    /// Of the present decoding step and of the one ahead of it, in turns; and of prompts.
    inboxes: [Inbox; 2],
    turn: usize,
    prompt_inbox: Inbox,
    /// Sequences that decode at once, at most.
    batch: u32,
    graphs: HashMap<Key, Graph>,
    /// Shapes that ran once without a graph.
    seen: Vec<Key>,
}

/// A model and its cache on a GPU.
pub(crate) struct CudaRunner {
    // Freed before the weights.
    room: Option<Room>,
    net: Net,
    rope: Rope,
    ahead: Option<Ahead>,
    /// Whether recording steps as graphs works here.
    record: bool,
}

impl CudaRunner {
    /// A runner without room for a sequence yet; `None` for a model that is not bf16 on a CUDA
    /// device, or of a shape that the kernels do not take.
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> Option<Self> {
        let sizes = Sizes::new(model.config())?;
        let weights = DeviceWeights::new(model, adapter)?;
        let net = Net::new(weights, sizes);
        Some(Self { net, rope: model.rope().clone(), room: None, ahead: None, record: true })
    }

    /// What computes: kernels of our own alone, or with products through cuBLASLt. The two differ in
    /// low bits.
    pub fn name(&self) -> &'static str {
        if self.net.plain() { "cuda with cublas" } else { "cuda" }
    }

    /// Makes room for `slots` sequences of up to `capacity` tokens. Says whether what was cached
    /// before is still there.
    pub fn reserve(&mut self, slots: usize, capacity: usize) -> bool {
        self.ahead = None;
        // What burn still does to the weights comes first.
        self.net.stream().settle();
        let capacity = capacity.next_multiple_of(POSITIONS) as u32;
        let slots = slots as u32;
        if let Some(room) = &self.room
            && slots <= room.cache.slots
            && capacity <= room.cache.capacity
        {
            return true;
        }
        // Freed before the larger ones are allocated.
        self.room = None;
        let net = &self.net;
        let (cos, sin) = self.rope.table(0..capacity);
        let cache = net.cache(slots, capacity, &cos, &sin);
        let batch = bucket(slots);
        let chunks = capacity.div_ceil(CHUNK).next_power_of_two();
        let scratch = net.scratch(PROMPT_ROWS, batch, chunks, batch);
        let stream = net.stream();
        let inbox = || stream.inbox((batch * RESULT) as usize);
        self.room = Some(Room {
            sampler: Sampler::new(stream, batch, net.sizes.vocab),
            decode: Control::new(stream, batch),
            prompt: Control::new(stream, PROMPT_ROWS),
            results: Sampler::results(stream, batch),
            prompt_results: Sampler::results(stream, batch),
            inboxes: [inbox(), inbox()],
            turn: 0,
            prompt_inbox: inbox(),
            cache,
            scratch,
            batch,
            graphs: HashMap::new(),
            seen: Vec::new(),
        });
        false
    }

    /// Copies the first `len` positions of one slot to another.
    pub fn copy_prefix(&mut self, from: usize, to: usize, len: usize) {
        if let Some(room) = &self.room {
            self.net.copy_prefix(&room.cache, from as u32, to as u32, len as u32);
        }
    }

    /// Bytes of one cached number.
    pub fn number_size(&self) -> usize {
        2
    }

    /// Bytes of keys and values unless told otherwise: an eighth of the device's memory.
    pub fn cache_bytes(&self) -> u64 {
        self.net.stream().memory().unwrap_or(32 << 30) / 8
    }

    /// Graphs recorded so far.
    pub fn graphs(&self) -> usize {
        self.room.as_ref().map_or(0, |room| room.graphs.len())
    }

    /// Computes the segments and chooses the next token of each that wants logits, in order. `None`
    /// where the logits are not finite.
    ///
    /// # Errors
    /// What failed on the device first.
    pub fn step(
        &mut self,
        segments: &[Segment],
        draws: &[Draw],
        usable: usize,
    ) -> Result<Vec<Option<Choice>>, String> {
        let mut choices = vec![None; draws.len()];
        if let Some(failure) = self.net.stream().failure() {
            self.room = None;
            return Err(failure);
        }
        let Some(mut room) = self.room.take() else { return Ok(choices) };
        let mut decoding = Vec::new();
        let mut prompts = Vec::new();
        let mut next = 0;
        for segment in segments {
            let draw = segment.wants_logits.then(|| {
                next += 1;
                next - 1
            });
            match (segment.decoding, draw) {
                (true, Some(draw)) => decoding.push((segment, draw)),
                _ => prompts.push((segment, draw)),
            }
        }
        let plain = draws.iter().all(|d| d.params.repetition_penalty == 1.0);
        let step = Step { draws, usable: usable as u32, plain };
        if decoding.is_empty() {
            // What runs ahead belongs to sequences that are gone; their slots may be given away.
            self.ahead = None;
        } else {
            self.decode(&mut room, &decoding, &step, prompts.is_empty(), &mut choices);
        }
        let mut rest = &prompts[..];
        while !rest.is_empty() {
            let (taken, left) = rest.split_at(fitting(rest, room.batch));
            self.prompt(&mut room, taken, &step, &mut choices);
            rest = left;
        }
        if let Some(failure) = self.net.stream().failure() {
            return Err(failure);
        }
        self.room = Some(room);
        Ok(choices)
    }

    /// The decoding sequences, each with the number of its draw. `alone` when nothing else runs.
    fn decode(
        &mut self,
        room: &mut Room,
        decoding: &[(&Segment, usize)],
        step: &Step,
        alone: bool,
        choices: &mut [Option<Choice>],
    ) {
        let wanted = |segment: &Segment| (segment.slot as u32, segment.start as u32);
        let at = |ahead: &Ahead, segment: &Segment| {
            ahead.rows.iter().position(|row| (row.slot, row.position) == wanted(segment))
        };
        let found = self.ahead.take().and_then(|ahead| {
            let places: Option<Vec<usize>> = decoding.iter().map(|(s, _)| at(&ahead, s)).collect();
            Some((places?, ahead))
        });
        let (places, now) = match found {
            Some((places, ahead)) if step.plain => (places, ahead),
            _ => {
                let rows = decoding.iter().map(|(segment, _)| Row {
                    slot: segment.slot as u32,
                    position: segment.start as u32,
                    token: Token::Id(segment.tokens[0]),
                });
                let rows: Vec<Row> = rows.collect();
                ((0..rows.len()).collect(), self.launch(room, rows, decoding, step, 0))
            }
        };
        let fits = decoding.iter().all(|(s, _)| (s.start as u32) + 1 < room.cache.capacity);
        if alone && step.plain && fits {
            let rows = decoding.iter().zip(&places).map(|((segment, _), &place)| Row {
                slot: segment.slot as u32,
                position: segment.start as u32 + 1,
                token: Token::From(place as u32),
            });
            let rows = rows.collect();
            self.ahead = Some(self.launch(room, rows, decoding, step, 1));
        }
        let count = now.rows.len() * RESULT as usize;
        let results = self.net.stream().receive(&room.inboxes[now.inbox], count);
        for ((_, draw), place) in decoding.iter().zip(places) {
            choices[*draw] = choice(&results, place);
        }
        if !step.plain {
            let wanted: Vec<usize> = decoding.iter().map(|(_, draw)| *draw).collect();
            self.choose_here(room, &wanted, step, choices);
        }
    }

    /// Launches a decoding step of `rows`, `later` tokens after the draws' own.
    fn launch(
        &mut self,
        room: &mut Room,
        rows: Vec<Row>,
        decoding: &[(&Segment, usize)],
        step: &Step,
        later: u64,
    ) -> Ahead {
        let padded = bucket(rows.len() as u32).min(room.batch);
        for (index, (&row, (_, draw))) in rows.iter().zip(decoding).enumerate() {
            room.decode.row(index, row);
            room.decode.draw(index, &step.draws[*draw], later);
        }
        for index in rows.len()..padded as usize {
            room.decode.idle(index, room.cache.slots);
        }
        room.decode.send(self.net.stream());
        let longest = rows.iter().map(|row| row.position + 1).max().unwrap_or(1);
        let chunks = longest.div_ceil(CHUNK).next_power_of_two();
        let key = Key {
            shape: Shape::Decode { rows: padded, chunks },
            filtered: decoding.iter().any(|(_, draw)| step.draws[*draw].filters()),
            usable: step.usable,
        };
        self.run(room, key);
        room.turn = 1 - room.turn;
        let count = rows.len() * RESULT as usize;
        self.net.stream().post(&room.inboxes[room.turn], room.results.pointer, count);
        Ahead { rows, inbox: room.turn }
    }

    /// Runs a decoding step, as a graph from its second time on.
    fn run(&mut self, room: &mut Room, key: Key) {
        if let Some(graph) = room.graphs.get(&key) {
            return self.net.stream().replay(graph);
        }
        // The first run loads what it needs, the second is also recorded.
        self.decode_step(room, key);
        if !room.seen.contains(&key) {
            room.seen.push(key);
        } else if self.record {
            let graph = self.net.stream().record(|| self.decode_step(room, key));
            self.record = graph.is_some();
            room.graphs.extend(graph.map(|graph| (key, graph)));
        }
    }

    fn decode_step(&self, room: &Room, key: Key) {
        let inputs = room.decode.inputs(&room.results);
        self.net.forward(&room.cache, &room.scratch, &inputs, key.shape);
        let draws = Draws {
            temperatures: room.decode.temperatures(),
            uniforms: room.decode.uniforms(),
            filters: room.decode.filters(),
            stride: room.decode.stride(),
            filtered: key.filtered,
            usable: key.usable,
        };
        let logits = room.scratch.logits.pointer;
        room.sampler.choose(self.net.stream(), logits, key.shape.picks(), &draws, &room.results);
    }

    /// Prompt segments, each with the number of its draw, if it wants logits.
    fn prompt(
        &mut self,
        room: &mut Room,
        segments: &[(&Segment, Option<usize>)],
        step: &Step,
        choices: &mut [Option<Choice>],
    ) {
        // Segments longer than the scratch go through it in parts.
        let mut control = Prompt::default();
        for &(segment, draw) in segments {
            for (part, tokens) in segment.tokens.chunks(PROMPT_ROWS as usize).enumerate() {
                if control.rows + tokens.len() > PROMPT_ROWS as usize {
                    self.prompt_step(room, std::mem::take(&mut control), step, choices);
                }
                let start = segment.start + part * PROMPT_ROWS as usize;
                let last = start + tokens.len() == segment.start + segment.tokens.len();
                control.push(segment.slot, start, tokens, draw.filter(|_| last));
            }
        }
        self.prompt_step(room, control, step, choices)
    }

    fn prompt_step(&self, room: &mut Room, prompt: Prompt, step: &Step, choices: &mut [Option<Choice>]) {
        let control = &mut room.prompt;
        let mut row = 0;
        for (index, (slot, start, tokens)) in prompt.segments.iter().enumerate() {
            control.segment(index, row, tokens.len() as u32);
            for (i, &id) in tokens.iter().enumerate() {
                let position = (start + i) as u32;
                control.row(row as usize, Row { slot: *slot as u32, position, token: Token::Id(id) });
                row += 1;
            }
        }
        for (index, &(row, draw)) in prompt.picks.iter().enumerate() {
            control.pick(index, row);
            control.draw(index, &step.draws[draw], 0);
        }
        control.send(self.net.stream());
        let longest = prompt.segments.iter().map(|(_, _, tokens)| tokens.len() as u32).max().unwrap_or(0);
        let picks = prompt.picks.len() as u32;
        let shape = Shape::Prompt { rows: row, segments: prompt.segments.len() as u32, longest, picks };
        self.net.forward(&room.cache, &room.scratch, &control.inputs(&room.prompt_results), shape);
        if picks == 0 {
            return;
        }
        let draws = Draws {
            temperatures: control.temperatures(),
            uniforms: control.uniforms(),
            filters: control.filters(),
            stride: control.stride(),
            filtered: prompt.picks.iter().any(|&(_, draw)| step.draws[draw].filters()),
            usable: step.usable,
        };
        let stream = self.net.stream();
        room.sampler.choose(stream, room.scratch.logits.pointer, picks, &draws, &room.prompt_results);
        let count = (picks * RESULT) as usize;
        stream.post(&room.prompt_inbox, room.prompt_results.pointer, count);
        let results = stream.receive(&room.prompt_inbox, count);
        let wanted: Vec<usize> = prompt.picks.iter().map(|&(_, draw)| draw).collect();
        for (index, &draw) in wanted.iter().enumerate() {
            choices[draw] = choice(&results, index);
        }
        if !step.plain {
            self.choose_here(room, &wanted, step, choices);
        }
    }

    /// Chooses on the host from the logits of the step just done, where a draw needs more than the
    /// device knows (the repetition penalty: which tokens were seen).
    fn choose_here(&self, room: &Room, wanted: &[usize], step: &Step, choices: &mut [Option<Choice>]) {
        let vocab = self.net.sizes.vocab as usize;
        let logits = self.net.stream().read(room.scratch.logits.pointer, wanted.len() * vocab);
        for (row, &draw) in logits.chunks_exact(vocab).zip(wanted) {
            choices[draw] = step.draws[draw].choose(&mut row.to_vec(), step.usable as usize);
        }
    }
}

/// How the tokens of a step are chosen.
struct Step<'a> {
    draws: &'a [Draw<'a>],
    usable: u32,
    /// Whether the device can choose them all.
    plain: bool,
}

/// Prompt segments of one launch: slot, first position, tokens; and the rows whose logits are wanted,
/// with their draws.
#[derive(Default)]
struct Prompt<'a> {
    segments: Vec<(usize, usize, &'a [u32])>,
    picks: Vec<(u32, usize)>,
    rows: usize,
}

impl<'a> Prompt<'a> {
    fn push(&mut self, slot: usize, start: usize, tokens: &'a [u32], draw: Option<usize>) {
        self.rows += tokens.len();
        self.segments.push((slot, start, tokens));
        self.picks.extend(draw.map(|draw| (self.rows as u32 - 1, draw)));
    }
}

/// How many segments fit one prompt step: their logits must find room.
fn fitting(segments: &[(&Segment, Option<usize>)], picks: u32) -> usize {
    let mut left = picks;
    let fit = segments.iter().take_while(|(_, draw)| {
        let room = draw.is_none() || left > 0;
        left -= u32::from(draw.is_some() && left > 0);
        room
    });
    fit.count()
}

/// Batch sizes that have graphs of their own.
fn bucket(rows: u32) -> u32 {
    if rows <= 64 { rows.next_power_of_two() } else { rows.next_multiple_of(64) }
}

fn choice(results: &[u32], row: usize) -> Option<Choice> {
    let at = row * RESULT as usize;
    let &[id, logprob, model_logprob] = results.get(at..at + 3)? else { return None };
    let choice =
        Choice { id, logprob: f32::from_bits(logprob), model_logprob: f32::from_bits(model_logprob) };
    (id != BROKEN).then_some(choice)
}
