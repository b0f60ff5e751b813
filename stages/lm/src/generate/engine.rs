//! The generation loop.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::runner::Runner;
use super::sampling::Draw;
use super::sequence::Sequence;
use super::slots::{Slots, common_prefix};
use super::{ContextPolicy, GenerateError, Request, Sample};
use crate::adapter::Adapter;
use crate::config::ModelConfig;
use crate::host::Segment;
use crate::model::Model;
use crate::tokenizer::Tokenizer;

/// Bounds of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// Sequences that run at once, at most.
    pub max_batch: usize,
    /// Bytes of keys and values, at most; `None` for what suits the device: an eighth of a GPU's memory
    /// in bf16, 4 GiB on the CPU and in f32.
    pub cache_bytes: Option<u64>,
    /// Prompt tokens that one step computes beside the decoding sequences, at most; `None` for what
    /// suits the device: 4,096 on a GPU in bf16, 512 on the CPU and in f32.
    pub prefill_tokens: Option<usize>,
    /// Context length in tokens; the model's own when `None`.
    pub context: Option<usize>,
    /// What to do with requests that exceed the context.
    pub context_policy: ContextPolicy,
    /// Compute with burn's tensor operations, instead of the faster paths written for the CPU and for
    /// CUDA: for comparing the two.
    pub tensors: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_batch: 32,
            cache_bytes: None,
            prefill_tokens: None,
            context: None,
            context_policy: ContextPolicy::Refuse,
            tensors: false,
        }
    }
}

/// What a call has done so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    /// Steps of the model.
    pub steps: usize,
    /// Prompt tokens computed.
    pub prompt_tokens: usize,
    /// Prompt tokens taken over from another sequence.
    pub reused_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Requests whose `max_tokens` was cut to fit the context.
    pub clipped_requests: usize,
    /// Samples finished.
    pub finished: usize,
    /// Samples running now.
    pub running: usize,
    /// Samples waiting for a place.
    pub waiting: usize,
    /// Time since the call began.
    pub elapsed: Duration,
}

/// What the engine reports while it works.
#[derive(Debug)]
pub enum Event<'a> {
    /// A step is done.
    Step(&'a Statistics),
    /// A sample is done.
    Finished {
        /// Index of its request.
        request: usize,
        /// Index of its seed within the request.
        index: usize,
        /// The sample.
        sample: &'a Sample,
    },
}

/// Everything a call made.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Samples per request, in the order of its seeds.
    pub samples: Vec<Vec<Sample>>,
    /// What it took.
    pub statistics: Statistics,
}

/// A model ready to generate.
pub struct Engine<'t> {
    config: ModelConfig,
    runner: Runner,
    /// What the cache holds between calls.
    slots: Slots,
    tokenizer: Option<&'t Tokenizer>,
    options: EngineOptions,
}

impl<'t> Engine<'t> {
    /// An engine for `model` with `adapter` on it. Weights are shared, not copied, where the model
    /// lives on the CPU in f32. The tokenizer gives texts, stop strings and the bound above which ids
    /// are padding of the vocabulary.
    pub fn new(
        model: &Model,
        adapter: Option<&Adapter>,
        tokenizer: Option<&'t Tokenizer>,
        options: EngineOptions,
    ) -> Self {
        Self {
            config: model.config().clone(),
            runner: Runner::new(model, adapter, &options),
            slots: Slots::default(),
            tokenizer,
            options,
        }
    }

    /// Steps recorded as CUDA graphs so far, one per batch size and length.
    pub fn graphs(&self) -> usize {
        self.runner.graphs()
    }

    /// What computes: `host`, `cuda` (kernels of our own) or `tensors`.
    pub fn path(&self) -> &'static str {
        self.runner.name()
    }

    /// Ids that may be sampled: those that both model and tokenizer have.
    fn usable_vocab(&self) -> usize {
        let vocab = self.config.vocab_size;
        self.tokenizer.map_or(vocab, |t| t.vocab_size().min(vocab))
    }

    /// Generates every sample of every request. `on_event` sees each step and each finished sample,
    /// and may break off.
    ///
    /// # Errors
    /// Requests that cannot be served, before anything is generated; logits that are not finite;
    /// [`GenerateError::Stopped`] when `on_event` broke off.
    pub fn generate(
        &mut self,
        requests: &[Request],
        mut on_event: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Generation, GenerateError> {
        let mut statistics = Statistics::default();
        let limits = self.limits(requests, &mut statistics)?;
        let mut waiting = VecDeque::new();
        for (index, request) in requests.iter().enumerate() {
            let sequence = |sample| Sequence::new(request, (index, sample), limits[index]);
            waiting.extend((0..request.seeds.len()).map(sequence));
        }
        let mut samples: Vec<Vec<Option<Sample>>> =
            requests.iter().map(|r| vec![None; r.seeds.len()]).collect();
        if waiting.is_empty() {
            return Ok(Generation { samples: vec![Vec::new(); requests.len()], statistics });
        }
        let slots = self.reserve(requests, &limits, waiting.len())?;
        let begin = Instant::now();
        let mut batch = Batch { slots, running: Vec::new(), waiting };
        while !(batch.running.is_empty() && batch.waiting.is_empty()) {
            batch.admit(&mut self.runner, &mut statistics);
            let prefill = self.options.prefill_tokens.unwrap_or_else(|| self.runner.prefill_tokens());
            let segments = batch.schedule(prefill);
            let finished = self.advance(&mut batch, &segments, &mut statistics)?;
            statistics.elapsed = begin.elapsed();
            for (request, index, sample) in finished {
                let flow = on_event(Event::Finished { request, index, sample: &sample });
                samples[request][index] = Some(sample);
                if flow.is_break() {
                    return Err(GenerateError::Stopped);
                }
            }
            if on_event(Event::Step(&statistics)).is_break() {
                return Err(GenerateError::Stopped);
            }
        }
        self.slots = batch.slots;
        let samples = samples.into_iter().map(|s| s.into_iter().flatten().collect()).collect();
        Ok(Generation { samples, statistics })
    }

    /// Checks the requests; the tokens each may generate.
    fn limits(&self, requests: &[Request], statistics: &mut Statistics) -> Result<Vec<usize>, GenerateError> {
        let context = self.options.context.unwrap_or(self.config.max_position_embeddings);
        let vocab = self.config.vocab_size;
        let mut limits = Vec::with_capacity(requests.len());
        for (index, Request { prompt, params, .. }) in requests.iter().enumerate() {
            params.check()?;
            if prompt.is_empty() {
                return Err(GenerateError::EmptyPrompt { request: index });
            }
            if let Some(&token) = prompt.iter().find(|&&t| t as usize >= vocab) {
                return Err(GenerateError::UnknownToken { request: index, token, vocab });
            }
            if self.tokenizer.is_none() && !params.stop_strings.is_empty() {
                return Err(GenerateError::NoTokenizer);
            }
            let room = context.saturating_sub(prompt.len());
            let clip = self.options.context_policy == ContextPolicy::Clip && room > 0;
            if params.max_tokens > room && !clip {
                return Err(GenerateError::Context {
                    request: index,
                    prompt: prompt.len(),
                    max_tokens: params.max_tokens,
                    context,
                });
            }
            statistics.clipped_requests += usize::from(params.max_tokens > room);
            limits.push(params.max_tokens.min(room));
        }
        Ok(limits)
    }

    /// Makes room for as many sequences as the budget holds. What earlier calls left in the cache
    /// stays usable, unless the cache had to grow or the call failed.
    fn reserve(
        &mut self,
        requests: &[Request],
        limits: &[usize],
        samples: usize,
    ) -> Result<Slots, GenerateError> {
        let lengths = requests.iter().zip(limits).map(|(r, limit)| r.prompt.len() + limit);
        let tokens = lengths.max().unwrap_or(1);
        let config = &self.config;
        let per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim;
        let per_token = per_token * self.runner.number_size();
        let needed = (tokens * per_token) as u64;
        let budget = self.options.cache_bytes.unwrap_or_else(|| self.runner.cache_bytes());
        let fit = (budget / needed) as usize;
        let slots = fit.min(self.options.max_batch.max(1)).min(samples);
        if slots == 0 {
            return Err(GenerateError::CacheBudget { budget, needed, tokens });
        }
        let kept = std::mem::take(&mut self.slots);
        let intact = self.runner.reserve(slots, tokens);
        Ok(if intact && kept.len() >= slots { kept } else { Slots::new(slots) })
    }

    /// Computes a step, takes its tokens, ends sequences. Returns what ended.
    fn advance(
        &mut self,
        batch: &mut Batch,
        segments: &[Segment],
        statistics: &mut Statistics,
    ) -> Result<Vec<(usize, usize, Sample)>, GenerateError> {
        // Sequences that want a token, in the order of the segments.
        let mut ready = Vec::new();
        for segment in segments.iter().filter(|s| s.wants_logits) {
            ready.extend(batch.running.iter().position(|s| s.slot == segment.slot));
        }
        let usable = self.usable_vocab();
        let choices = {
            let draws: Vec<Draw> = ready.iter().map(|&index| batch.running[index].draw()).collect();
            self.runner.step(segments, &draws, usable)?
        };
        statistics.steps += 1;
        for segment in segments {
            // Elsewhere than on the host, a token computed while decoding differs in low bits from the
            // same in a prompt: who took it over would depend on what ran before.
            if !segment.decoding || self.runner.is_exact() {
                batch.slots.extend(segment.slot, &segment.tokens);
            }
            let owner = batch.running.iter_mut().find(|s| s.slot == segment.slot);
            if let Some(sequence) = owner {
                statistics.prompt_tokens += segment.tokens.len() * usize::from(!sequence.is_decoding());
                sequence.computed += segment.tokens.len();
            }
        }
        statistics.generated_tokens += ready.len();
        let mut ended = Vec::new();
        for (&index, choice) in ready.iter().zip(choices) {
            let sequence = &mut batch.running[index];
            let choice = choice.ok_or(GenerateError::NotFinite {
                request: sequence.request,
                tokens: sequence.tokens.len(),
            })?;
            if let Some(reason) = sequence.push(choice, self.tokenizer)? {
                ended.push((index, reason));
            }
        }
        ended.sort_unstable_by_key(|&(index, _)| std::cmp::Reverse(index));
        let mut finished = Vec::new();
        for (index, reason) in ended {
            let sequence = batch.running.remove(index);
            batch.slots.release(sequence.slot);
            let place = (sequence.request, sequence.sample);
            finished.push((place.0, place.1, sequence.finish(reason, self.tokenizer)?));
        }
        statistics.finished += finished.len();
        statistics.running = batch.running.len();
        statistics.waiting = batch.waiting.len();
        Ok(finished)
    }
}

/// The sequences of one call.
struct Batch<'a> {
    slots: Slots,
    running: Vec<Sequence<'a>>,
    waiting: VecDeque<Sequence<'a>>,
}

/// Waiting sequences that are looked at for each free slot.
const LOOK_AHEAD: usize = 256;

impl Batch<'_> {
    /// Gives free slots to waiting sequences, in order. One whose prompt a running sequence is about
    /// to compute in good part is left waiting until it can take that over.
    fn admit(&mut self, runner: &mut Runner, statistics: &mut Statistics) {
        let mut next = 0;
        while next < self.waiting.len().min(LOOK_AHEAD) && self.slots.any_free() {
            let prompt = &self.waiting[next].tokens;
            let (_, held) = self.slots.longest_prefix(prompt);
            let coming = self.running.iter().filter(|s| !s.is_decoding());
            let coming = coming.map(|s| common_prefix(&s.tokens, &prompt[..prompt.len() - 1]));
            let gain = coming.max().unwrap_or(0).saturating_sub(held);
            if gain > 0 && gain * 4 >= prompt.len() - held {
                next += 1;
                continue;
            }
            let Some(place) = self.slots.take(prompt) else { return };
            let Some(mut sequence) = self.waiting.remove(next) else { return };
            if place.source != place.slot {
                runner.copy_prefix(place.source, place.slot, place.reused);
            }
            sequence.slot = place.slot;
            sequence.computed = place.reused;
            statistics.reused_tokens += place.reused;
            self.running.push(sequence);
        }
    }

    /// The next step: every decoding sequence, and prompts in order up to `prefill` tokens.
    fn schedule(&self, mut prefill: usize) -> Vec<Segment> {
        let mut segments = Vec::new();
        for sequence in &self.running {
            let pending = sequence.pending();
            let take = match sequence.is_decoding() {
                true => pending.len(),
                false => pending.len().min(prefill),
            };
            if take == 0 {
                continue;
            }
            if !sequence.is_decoding() {
                prefill -= take;
            }
            segments.push(Segment {
                slot: sequence.slot,
                start: sequence.computed,
                tokens: pending[..take].to_vec(),
                wants_logits: take == pending.len(),
                decoding: sequence.is_decoding(),
            });
        }
        segments
    }
}
