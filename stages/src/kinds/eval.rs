//! `eval`: generates answers to the questions of a benchmark.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError};
use lm::generate::{Engine, EngineOptions, Event, FinishReason, GenerateError, Request, Sample as Generated};
use lm::rng::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::adapter::read_adapter;
use crate::model::{OpenModel, Precision, Prepared, PromptParams, device, read_shots};
use crate::questions::{Question, read_questions};
use crate::samples::Sample;
use crate::sampling::Sampling;

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
    /// The questions: JSON lines with `problem` or `question`, and `answer`.
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
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        vec!["samples.jsonl".into(), "timing.json".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = self.sampling.check("sampling");
        let mut wrong = |param: &str, message: &str, help: &str| {
            problems.push(ParamProblem { param: param.into(), message: message.into(), help: help.into() });
        };
        if self.samples == 0 {
            wrong("samples", "0 samples per question", "write 1 or more");
        }
        if self.samples > 1 && self.sampling.temperature == 0.0 {
            wrong("samples", "greedy samples are all alike", "set sampling.temperature, or samples = 1");
        }
        if self.batch == 0 {
            wrong("batch", "0 sequences at once", "write 1 or more");
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

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let questions = read_questions(&ctx.input(&self.questions)?, self.limit)?;
        let shots = match &self.examples {
            Some(examples) => read_shots(&ctx.input(examples)?, self.shots)?,
            None => Vec::new(),
        };
        let opened = OpenModel::open(&ctx.input(&self.model)?)?;
        let prompts = questions
            .iter()
            .map(|question| self.prompt.prepare(&opened, &question.problem, &shots))
            .collect::<Result<Vec<_>, _>>()?;
        let mut journal = Journal::open(&ctx.state().join("samples.jsonl"))?;
        if journal.done.len() < questions.len() * self.samples as usize {
            self.generate(ctx, &opened, &questions, &prompts, &mut journal)?;
        }
        journal.write(&questions, &ctx.out().join("samples.jsonl"))?;
        let timing = ctx.out().join("timing.json");
        let text = format!("{:#}\n", journal.timing());
        fs::write(&timing, text).map_err(|error| StageError::io(&timing, error))
    }
}

impl Eval {
    /// Generates every sample that the journal lacks.
    fn generate(
        &self,
        ctx: &StageCtx,
        opened: &OpenModel,
        questions: &[Question],
        prompts: &[Prepared],
        journal: &mut Journal,
    ) -> Result<(), StageError> {
        let model = opened.load(ctx, self.precision)?;
        let adapter = match &self.adapter {
            Some(adapter) => Some(read_adapter(&ctx.input(adapter)?, model.config(), &device(ctx)?)?),
            None => None,
        };
        let params = self.sampling.params(opened.stop_tokens(self.prompt.template), self.prompt.template);
        let mut places: Vec<(usize, Vec<u32>)> = Vec::new();
        let mut requests = Vec::new();
        for (at, prompt) in prompts.iter().enumerate() {
            let id = &questions[at].id;
            let wanted: Vec<u32> =
                (0..self.samples).filter(|n| !journal.done.contains(&(id.clone(), *n))).collect();
            if wanted.is_empty() {
                continue;
            }
            let seeds =
                wanted.iter().map(|n| Stream::new(self.seed, at as u64).bits(u64::from(*n))).collect();
            requests.push(Request { prompt: prompt.ids.clone(), seeds, params: params.clone() });
            places.push((at, wanted));
        }
        let total = (questions.len() * self.samples as usize) as u64;
        ctx.progress(journal.done.len() as u64, total, "samples");
        let options = EngineOptions { max_batch: self.batch, ..EngineOptions::default() };
        let mut engine = Engine::new(&model, adapter.as_ref(), Some(&opened.tokenizer), options);
        let started = Instant::now();
        let mut failed = None;
        let outcome = engine.generate(&requests, |event| {
            if let Event::Finished { request, index, sample } = event {
                let (at, wanted) = &places[request];
                let sample = self.sample(&questions[*at], &prompts[*at], wanted[index], sample);
                let seconds = started.elapsed().as_secs_f64();
                if let Err(error) = journal.add(sample, seconds) {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
                ctx.progress(journal.done.len() as u64, total, "samples");
            }
            if ctx.stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match (outcome, failed) {
            (_, Some(error)) => Err(error),
            (Err(GenerateError::Stopped), None) => Err(StageError::stopped()),
            (Err(error), None) => Err(StageError::input(error)),
            (Ok(_), None) => Ok(()),
        }
    }

    fn sample(&self, question: &Question, prompt: &Prepared, number: u32, made: &Generated) -> Sample {
        Sample {
            id: question.id.clone(),
            sample: number,
            problem: question.problem.clone(),
            gold: question.gold.clone(),
            prompt: prompt.text.clone(),
            text: format!("{}{}", self.prompt.assistant_prefix, made.text),
            tokens: made.ids.len() as u32,
            finish: if made.finish == FinishReason::Length { "length" } else { "stop" }.to_owned(),
            seconds: 0.0,
            level: question.level.clone(),
            subject: question.subject.clone(),
        }
    }
}

/// Finished samples, appended as they come so that a killed evaluation keeps them.
struct Journal {
    file: File,
    samples: Vec<(Sample, f64)>,
    done: BTreeSet<(String, u32)>,
    resumed: usize,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// Seconds since generation began in the process that made it.
    seconds: f64,
    sample: Sample,
}

impl Journal {
    fn open(path: &Path) -> Result<Self, StageError> {
        let text = fs::read_to_string(path).unwrap_or_default();
        // A line that a kill cut short is dropped, with everything after it.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let lines: Vec<Line> = whole.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let kept: usize = whole.lines().take(lines.len()).map(|line| line.len() + 1).sum();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| StageError::io(path, error))?;
        let mut journal = Self { file, samples: Vec::new(), done: BTreeSet::new(), resumed: lines.len() };
        journal.cut(kept as u64).map_err(|error| StageError::io(path, error))?;
        for line in lines {
            journal.done.insert((line.sample.id.clone(), line.sample.sample));
            journal.samples.push((line.sample, line.seconds));
        }
        Ok(journal)
    }

    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        use std::io::{Seek, SeekFrom};
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::End(0)).map(drop)
    }

    fn add(&mut self, sample: Sample, seconds: f64) -> Result<(), StageError> {
        let line = Line { seconds, sample };
        let mut text = serde_json::to_vec(&line).map_err(StageError::input)?;
        text.push(b'\n');
        self.file
            .write_all(&text)
            .map_err(|error| StageError::environment(format!("cannot keep a finished sample: {error}")))?;
        self.done.insert((line.sample.id.clone(), line.sample.sample));
        self.samples.push((line.sample, seconds));
        Ok(())
    }

    /// Writes the samples in the order of the questions.
    fn write(&self, questions: &[Question], path: &Path) -> Result<(), StageError> {
        let place: BTreeMap<&str, usize> =
            questions.iter().enumerate().map(|(at, question)| (question.id.as_str(), at)).collect();
        let mut samples: Vec<&Sample> = self.samples.iter().map(|(sample, _)| sample).collect();
        samples.sort_by_key(|sample| (place.get(sample.id.as_str()), sample.sample));
        let file = File::create(path).map_err(|error| StageError::io(path, error))?;
        let mut file = BufWriter::new(file);
        for sample in samples {
            serde_json::to_writer(&mut file, sample).map_err(StageError::environment)?;
            file.write_all(b"\n").map_err(|error| StageError::io(path, error))?;
        }
        file.flush().map_err(|error| StageError::io(path, error))
    }

    /// Tokens, seconds and rate of the process that finished the evaluation.
    fn timing(&self) -> serde_json::Value {
        let new = &self.samples[self.resumed.min(self.samples.len())..];
        let tokens: u64 = new.iter().map(|(sample, _)| u64::from(sample.tokens)).sum();
        let seconds = new.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let rate = if seconds > 0.0 { Some(tokens as f64 / seconds) } else { None };
        json!({
            "samples": new.len(),
            "resumed_samples": self.resumed,
            "tokens": tokens,
            "seconds": seconds,
            "tokens_per_second": rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(id: &str) -> Sample {
        let line = json!({"id": id, "gold": "1", "text": "t", "tokens": 3});
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn a_journal_cut_short_keeps_whole_lines_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        for id in ["a", "b", "c"] {
            journal.add(sample(id), 1.0).unwrap();
        }
        let text = fs::read(&path).unwrap();
        for cut in 0..text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            let kept = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(journal.done.len(), kept);
            for id in &["a", "b", "c"][kept..] {
                journal.add(sample(id), 1.0).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), text, "cut at {cut}");
        }
    }
}
