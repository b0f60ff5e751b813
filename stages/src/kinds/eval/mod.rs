//! `eval`: generates answers to the questions of a benchmark.
//!
//! - [`fit`]: what it needs of a GPU's memory
//! - [`journal`]: finished samples, kept as they come
//! - [`retry`]: asking once more for the final answer

mod fit;
mod journal;
mod retry;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use lm::adapter::Adapter;
use lm::generate::{
    ContextPolicy, Engine, EngineOptions, Event, FinishReason, GenerateError, Request, SamplingParams,
};
use lm::model::Model;
use lm::rng::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adapter::read_adapter;
use crate::gpu_use::GpuUse;
use crate::model::{OpenModel, Precision, Prepared, PromptParams, device, read_shots};
use crate::questions::{Question, read_benchmark};
use crate::samples::Sample;
use crate::sampling::Sampling;
use journal::Journal;
use retry::Retry;

/// Generates one or more answers to every question of a benchmark.
///
/// Writes `samples.jsonl`, one line a sample in the order of the questions, and `timing.json`.
/// An interrupted evaluation goes on after its last finished sample; a sample depends on its own
/// question, seed and sampling alone, so the result is the same.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    /// The model: a checkpoint folder, or a GGUF file or the folder that holds one.
    pub model: Input,
    /// An adapter on the model: the folder that `train` wrote.
    #[serde(default)]
    pub adapter: Option<Input>,
    /// The questions: JSON lines with `problem` or `question`, and `answer`; each with an `id` of its
    /// own, or none.
    pub questions: Input,
    /// Take the first so many questions only.
    #[serde(default)]
    pub limit: Option<usize>,
    /// How a question is put to the model.
    #[serde(default)]
    pub prompt: PromptParams,
    /// Worked examples before the question: JSON lines with `problem` and `solution`.
    #[serde(default)]
    pub examples: Option<Input>,
    /// How many of the examples are shown.
    #[serde(default)]
    pub shots: usize,
    /// How tokens are chosen; greedy by default.
    #[serde(default)]
    pub sampling: Sampling,
    /// Samples per question.
    #[serde(default = "one")]
    pub samples: u32,
    /// Ask once more for the final answer where a text holds none in a box. The second answer stands
    /// beside the first, and grading tells both apart.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Where prompt and `max_new_tokens` exceed the model's context, generate what fits (and count
    /// such questions in `timing.json`) instead of refusing.
    #[serde(default)]
    pub clip: bool,
    /// Seed of sampling; greedy decoding has no use for it.
    #[serde(default)]
    pub seed: u64,
    /// The number format of the weights.
    #[serde(default)]
    pub precision: Precision,
    /// Sequences generated at once, at most. Does not change what is generated on a CPU.
    #[serde(default = "default_batch")]
    pub batch: usize,
}

fn one() -> u32 {
    1
}

fn default_batch() -> usize {
    64
}

impl Stage for Eval {
    const KIND: &'static str = "eval";
    const VERSION: u32 = 4;

    fn outputs(&self) -> Vec<String> {
        vec!["samples.jsonl".into(), "timing.json".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = self.sampling.check("sampling");
        let mut wrong = |param: &str, message: &str, help: &str| {
            problems.push(ParamProblem { param: param.into(), message: message.into(), help: help.into() });
        };
        if self.limit == Some(0) {
            wrong("limit", "no questions", "write 1 or more, or leave it out");
        }
        if self.samples == 0 {
            wrong("samples", "0 samples per question", "write 1 or more");
        }
        if self.samples > 1 && self.sampling.temperature == 0.0 {
            wrong("samples", "greedy samples are all alike", "set sampling.temperature, or samples = 1");
        }
        if self.batch == 0 {
            wrong("batch", "0 sequences at once", "write 1 or more");
        }
        if let Some(retry) = &self.retry {
            if retry.text.is_empty() {
                wrong("retry.text", "asks for nothing", "write what the model is to complete");
            }
            if retry.max_new_tokens == 0 {
                wrong("retry.max_new_tokens", "leaves no room for an answer", "write 1 or more");
            }
        }
        if (self.shots > 0) != self.examples.is_some() {
            wrong("shots", "shots need examples and examples need shots", "set both, or neither");
        }
        problems
    }

    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        self.precision.environment(device_class)
    }

    fn default_gpus(&self) -> u32 {
        1
    }

    fn estimate(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<String> {
        self.memory_line(inputs, device)
    }

    fn obstacle(&self, inputs: &BTreeMap<String, PathBuf>, device: &str) -> Option<StageError> {
        self.memory_obstacle(inputs, device)
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let _watched = GpuUse::of(ctx);
        let questions = read_benchmark(&ctx.input(&self.questions)?, self.limit)?;
        let shots = match &self.examples {
            Some(examples) => read_shots(&ctx.input(examples)?, self.shots)?,
            None => Vec::new(),
        };
        let opened = OpenModel::open(&ctx.input(&self.model)?)?;
        let prompts = questions
            .iter()
            .map(|question| self.prompt.prepare(&opened, &question.problem, &shots))
            .collect::<Result<Vec<_>, _>>()?;
        let mut run = Run { eval: self, ctx, opened: &opened, loaded: None, clipped: 0, path: None };
        let mut journal = Journal::open(&ctx.state().join("samples.jsonl"))?;
        let first = self.first(&opened, &questions, &prompts, &journal);
        run.generate(first, questions.len() * self.samples as usize, &mut journal)?;
        let mut retries = Journal::open(&ctx.state().join("retries.jsonl"))?;
        if let Some(retry) = &self.retry {
            let (again, total) = retry.requests(self, &opened, &questions, &prompts, &journal, &retries)?;
            run.generate(again, total, &mut retries)?;
        }
        journal.write(&questions, &retries, &ctx.out().join("samples.jsonl"))?;
        let mut timing = journal.timing();
        timing["clipped_questions"] = run.clipped.into();
        timing["computed_by"] = run.path.into();
        if self.retry.is_some() {
            timing["retries"] = retries.timing();
        }
        let path = ctx.out().join("timing.json");
        fs::write(&path, format!("{timing:#}\n")).map_err(|error| StageError::io(&path, error))
    }
}

impl Eval {
    fn params(&self, opened: &OpenModel) -> SamplingParams {
        self.sampling.params(opened.stop_tokens(self.prompt.template), self.prompt.template)
    }

    /// What is still to be generated: for each question the samples that the journal lacks.
    fn first<'a>(
        &'a self,
        opened: &OpenModel,
        questions: &[Question],
        prompts: &[Prepared],
        journal: &Journal,
    ) -> Vec<Work<'a>> {
        let params = self.params(opened);
        let mut work = Vec::new();
        for (at, (question, prompt)) in questions.iter().zip(prompts).enumerate() {
            let wanted: Vec<u32> = (0..self.samples).filter(|n| !journal.has(&question.id, *n)).collect();
            if wanted.is_empty() {
                continue;
            }
            let seeds =
                wanted.iter().map(|n| Stream::new(self.seed, at as u64).bits(u64::from(*n))).collect();
            work.push(Work {
                request: Request { prompt: prompt.ids.clone(), seeds, params: params.clone() },
                samples: wanted.iter().map(|n| unanswered(question, prompt, *n)).collect(),
                before: &self.prompt.assistant_prefix,
            });
        }
        work
    }
}

/// A sample that has yet to be generated.
fn unanswered(question: &Question, prompt: &Prepared, number: u32) -> Sample {
    Sample {
        id: question.id.clone(),
        sample: number,
        problem: question.problem.clone(),
        gold: question.gold.clone(),
        prompt: prompt.text.clone(),
        text: String::new(),
        tokens: 0,
        finish: String::new(),
        seconds: 0.0,
        level: question.level.clone(),
        subject: question.subject.clone(),
        retry: None,
    }
}

/// One prompt's generations.
struct Work<'a> {
    request: Request,
    /// One a seed, yet without text.
    samples: Vec<Sample>,
    /// What a text begins with, before what is generated.
    before: &'a str,
}

/// One evaluation at work; the model is read when it is needed.
struct Run<'a> {
    eval: &'a Eval,
    ctx: &'a StageCtx,
    opened: &'a OpenModel,
    loaded: Option<(Model, Option<Adapter>)>,
    /// Prompts that left less room in the model's context than was asked for.
    clipped: usize,
    /// What computed: paths differ in low bits.
    path: Option<&'static str>,
}

impl Run<'_> {
    /// Generates into the journal; `total` counts what it will hold.
    fn generate(&mut self, work: Vec<Work>, total: usize, journal: &mut Journal) -> Result<(), StageError> {
        if work.is_empty() {
            return Ok(());
        }
        let Self { eval, ctx, opened, .. } = *self;
        let (model, adapter) = match &mut self.loaded {
            Some(loaded) => loaded,
            empty => empty.insert(eval.load(ctx, opened)?),
        };
        let (requests, places): (Vec<Request>, Vec<(Vec<Sample>, &str)>) =
            work.into_iter().map(|work| (work.request, (work.samples, work.before))).unzip();
        let report = |journal: &Journal| ctx.progress(journal.len() as u64, total as u64, "samples");
        report(journal);
        let context_policy = if eval.clip { ContextPolicy::Clip } else { ContextPolicy::Refuse };
        let options = EngineOptions { max_batch: eval.batch, context_policy, ..EngineOptions::default() };
        let mut engine = Engine::new(model, adapter.as_ref(), Some(&opened.tokenizer), options);
        self.path = Some(engine.path());
        let started = Instant::now();
        let mut failed = None;
        let outcome = engine.generate(&requests, |event| {
            if let Event::Finished { request, index, sample: made } = event {
                let (samples, before) = &places[request];
                let mut sample = samples[index].clone();
                sample.text = format!("{before}{}", made.text);
                sample.tokens = made.ids.len() as u32;
                sample.finish =
                    if made.finish == FinishReason::Length { "length" } else { "stop" }.to_owned();
                if let Err(error) = journal.add(sample, started.elapsed().as_secs_f64()) {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
                report(journal);
            }
            if ctx.stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match (outcome, failed) {
            (_, Some(error)) => Err(error),
            (Err(GenerateError::Stopped), None) => Err(StageError::stopped()),
            (Err(error @ GenerateError::Context { .. }), None) => Err(StageError::input(error)
                .with_help("lower `sampling.max_new_tokens`, or set `clip = true`: what fits is generated")),
            (Err(error), None) => Err(StageError::input(error)),
            (Ok(made), None) => {
                self.clipped += made.statistics.clipped_requests;
                Ok(())
            }
        }
    }
}

impl Eval {
    fn load(&self, ctx: &StageCtx, opened: &OpenModel) -> Result<(Model, Option<Adapter>), StageError> {
        let model = opened.load(ctx, self.precision)?;
        let adapter = match &self.adapter {
            Some(adapter) => Some(read_adapter(&ctx.input(adapter)?, model.config(), &device(ctx)?)?),
            None => None,
        };
        Ok((model, adapter))
    }
}
