//! Rollouts: groups of samples of the present policy, each a function of its own seed.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use burn::tensor::StreamId;
use lm::generate::{
    Engine, EngineOptions, Event, FinishReason, GenerateError, Request, Sample, SamplingParams,
};
use lm::rng::Stream;
use lm::tokenizer::Tokenizer;

use crate::driver::{Control, Watch};
use crate::trainee::Current;

/// One sample of one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// Which prompt, as an index into the run's prompts.
    pub prompt: usize,
    /// Which sample of its group.
    pub index: usize,
    /// What was generated.
    pub sample: Sample,
}

impl Rollout {
    /// Whether generation ran into its length limit.
    pub fn truncated(&self) -> bool {
        self.sample.finish == FinishReason::Length
    }
}

/// The seed of sample `index` of `prompt` at the run's `place`-th drawn prompt (counted over all
/// steps, so that it implies the step). No two samples of a run share a seed, also when a prompt is
/// drawn twice in one step, and no seed depends on how the work is divided.
pub fn seed(run: u64, place: u64, prompt: usize, index: usize) -> u64 {
    let of_place = Stream::named(run, "rollout").bits(place);
    Stream::new(of_place, prompt as u64).bits(index as u64)
}

/// How often progress is told within an update, at most.
const BETWEEN_REPORTS: Duration = Duration::from_millis(200);

/// How rollouts are drawn.
pub struct Sampler<'a> {
    /// Seed of the run.
    pub run: u64,
    /// Samples per prompt.
    pub group: usize,
    /// How tokens are chosen.
    pub params: &'a SamplingParams,
    /// Sequences that run at once, at most.
    pub max_batch: usize,
    /// For texts and stop strings.
    pub tokenizer: Option<&'a Tokenizer>,
}

impl Sampler<'_> {
    /// `group` samples of each of `members`, group by group. `first` is the place of the first
    /// member. The prompts are divided among `currents`, the same policy on several devices; no sample
    /// depends on how.
    ///
    /// # Errors
    /// The generation engine's; [`GenerateError::Stopped`] when `watch` said so.
    pub fn draw(
        &self,
        currents: &[Current],
        prompts: &[Vec<u32>],
        members: &[usize],
        first: u64,
        watch: &mut dyn Watch,
    ) -> Result<Vec<Rollout>, GenerateError> {
        let requests: Vec<Request> = members
            .iter()
            .zip(first..)
            .map(|(&prompt, place)| Request {
                prompt: prompts[prompt].clone(),
                seeds: (0..self.group).map(|i| seed(self.run, place, prompt, i)).collect(),
                params: self.params.clone(),
            })
            .collect();
        let total = members.len() * self.group;
        let per_device = requests.len().div_ceil(currents.len()).max(1);
        let stop = AtomicBool::new(false);
        let (tell, told) = channel();
        // see `parallel::each`: threads of their own, but not streams
        let stream = StreamId::current();
        let drawn = std::thread::scope(|scope| {
            let devices = currents.iter().zip(requests.chunks(per_device)).enumerate();
            let threads: Vec<_> = devices
                .map(|(device, (current, requests))| {
                    let (tell, stop) = (tell.clone(), &stop);
                    let tell = move |done| {
                        // nobody listens once another device failed
                        let _ = tell.send((device, done));
                    };
                    scope.spawn(move || stream.executes(|| self.draw_on(current, requests, stop, tell)))
                })
                .collect();
            drop(tell);
            let mut finished = vec![0; currents.len()];
            while let Ok((device, done)) = told.recv() {
                finished[device] = done;
                if watch.sampled(finished.iter().sum(), total) == Control::Stop {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            let join = |thread: ScopedJoinHandle<_>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, GenerateError>>()
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(GenerateError::Stopped);
        }
        let with_prompt = drawn.into_iter().flatten().zip(members);
        Ok(with_prompt
            .flat_map(|(samples, &prompt)| {
                samples.into_iter().enumerate().map(move |(index, sample)| Rollout { prompt, index, sample })
            })
            .collect())
    }

    /// One device's share; `tell` hears how many samples are finished.
    fn draw_on(
        &self,
        current: &Current,
        requests: &[Request],
        stop: &AtomicBool,
        tell: impl Fn(usize),
    ) -> Result<Vec<Vec<Sample>>, GenerateError> {
        let options = EngineOptions { max_batch: self.max_batch, ..EngineOptions::default() };
        let mut engine = Engine::new(&current.model, current.adapter.as_ref(), self.tokenizer, options);
        let mut told: Option<Instant> = None;
        let generation = engine.generate(requests, |event| {
            if let Event::Step(statistics) = event
                && told.is_none_or(|last| last.elapsed() >= BETWEEN_REPORTS)
            {
                told = Some(Instant::now());
                tell(statistics.finished);
            }
            match stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(generation.samples)
    }
}

/// How repetitive `tokens` are: `2·ΣLCP / (n(n+1))` over the longest common prefixes of neighbours in
/// the suffix array. 0 when no two tokens are equal, towards 1 when all are.
pub fn repetition(tokens: &[u32]) -> f64 {
    let n = tokens.len();
    let mut suffixes: Vec<&[u32]> = (0..n).map(|i| &tokens[i..]).collect();
    suffixes.sort_unstable();
    let shared: usize =
        suffixes.windows(2).map(|pair| pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b).count()).sum();
    2.0 * shared as f64 / (n as f64 * (n as f64 + 1.0)).max(1.0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_samples_share_a_seed() {
        let mut seen = HashSet::new();
        for run in 0..3 {
            for place in 0..20 {
                for prompt in [0, place as usize] {
                    for index in 0..8 {
                        seen.insert((seed(run, place, prompt, index), run, place, prompt, index));
                    }
                }
            }
        }
        let seeds: HashSet<u64> = seen.iter().map(|s| s.0).collect();
        assert_eq!(seeds.len(), seen.len());
    }

    #[test]
    fn repetition_tells_loops_from_prose() {
        assert_eq!(repetition(&[]), 0.0);
        assert_eq!(repetition(&(0..50).collect::<Vec<_>>()), 0.0);
        // all equal: LCPs 1, 2, … n-1
        assert!((repetition(&[7; 9]) - 0.8).abs() < 1e-12);
        let looped: Vec<u32> = (0..100).map(|i| i % 4).collect();
        assert!(repetition(&looped) > 0.9);
        let stream = Stream::new(1, 1);
        let random: Vec<u32> = (0..100).map(|i| (stream.bits(i) % 50) as u32).collect();
        assert!(repetition(&random) < 0.05);
    }
}
