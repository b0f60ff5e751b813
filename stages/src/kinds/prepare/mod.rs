//! `prepare`: a training set out of raw rows, with a count for every row that was dropped.
//!
//! - [`rows`]: raw rows in
//! - [`contamination`]: benchmark questions that training rows repeat
//! - [`solution`]: solutions brought into form and checked
//! - [`counts`]: the report of what was kept and dropped

mod contamination;
mod counts;
mod rows;
mod solution;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use engine::kind::{Input, Inputs, ParamProblem, Stage, StageCtx, StageError};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::demonstration::Demonstrator;
use crate::model::{OpenModel, PromptParams};
use crate::questions::read_questions;
use contamination::{Filter, Hit, Level, normalised};
use counts::{Counts, Reason};
use rows::{Fields, Row, read_rows};

/// Makes a training set out of raw rows: formats, filters, drops duplicates, shuffles, splits.
///
/// A row passes these gates in this order, and the first that stops it counts it: it has a problem
/// and an answer; it is not there already; it repeats no question of a benchmark (`benchmarks`:
/// exactly, then with other numbers, then by a run of words); its solution ends in a box and both
/// benchmarks' extractors read the answer from it (`boxed`); prompt and solution fit `max_tokens`.
/// What is left is shuffled, cut to `limit` and split.
///
/// Writes `train.jsonl` and `held_out.jsonl` (fields `problem`, `solution`, `answer`), `counts.json`
/// with the number of rows that each gate stopped, and `dropped.jsonl` with each of these rows, the
/// reason, and for contamination the benchmark's question. The same input gives the same bytes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// The raw rows: JSON lines, or `.json` files that hold one array; several are read in the
    /// order of their labels.
    pub data: Inputs,
    /// Names of the fields of a raw row.
    #[serde(default)]
    pub fields: Fields,
    /// Benchmarks whose questions must not be trained on: `"@questions[*]"`, or each with a label for
    /// the counts.
    #[serde(default)]
    pub benchmarks: Inputs,
    /// How alike a row and a question may not be.
    #[serde(default = "all_levels")]
    pub levels: Vec<Level>,
    /// A row that shares so many successive words with a benchmark's question is dropped. Questions
    /// with fewer words are compared by runs of 8, or not by words at all if they have fewer.
    #[serde(default = "default_ngram")]
    pub ngram: usize,
    /// Take GSM8K's calculator notes (`<<48/2=24>>`) and its last line (`#### 24`) off solutions.
    #[serde(default)]
    pub strip_gsm8k: bool,
    /// Add a last line with the boxed answer to a solution without a box, and drop rows whose answer
    /// cannot be read from the solution by every one of `extractors`.
    #[serde(default)]
    pub boxed: bool,
    /// The benchmarks whose extraction and rules of equality must find the answer in a solution.
    #[serde(default = "default_extractors")]
    pub extractors: Vec<String>,
    /// The model whose tokens `max_tokens` counts.
    #[serde(default)]
    pub model: Option<Input>,
    /// How training will put the problem to the model.
    #[serde(default)]
    pub prompt: PromptParams,
    /// Drop rows whose prompt and solution have more tokens than this.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// Put the rows in a random order before they are cut and split.
    #[serde(default = "yes")]
    pub shuffle: bool,
    /// Seed of that order.
    #[serde(default)]
    pub seed: u64,
    /// Rows to hold out. No other row with one of their problems is trained on.
    #[serde(default)]
    pub held_out: usize,
    /// Most rows to train on.
    #[serde(default)]
    pub limit: Option<usize>,
}

fn all_levels() -> Vec<Level> {
    Level::ALL.into()
}

fn default_ngram() -> usize {
    13
}

fn default_extractors() -> Vec<String> {
    vec!["gsm8k".into(), "math500".into()]
}

fn yes() -> bool {
    true
}

impl Stage for Prepare {
    const KIND: &'static str = "prepare";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        ["train.jsonl", "held_out.jsonl", "counts.json", "dropped.jsonl"].map(str::to_owned).into()
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut wrong = |param: &str, message: &str, help: &str| {
            problems.push(ParamProblem { param: param.into(), message: message.into(), help: help.into() });
        };
        if self.data.0.is_empty() {
            wrong("data", "no rows", "refer to a file of rows, such as \"@raw/train.jsonl\"");
        }
        if self.max_tokens.is_some() != self.model.is_some() {
            wrong(
                "max_tokens",
                "tokens are counted with a model's tokenizer",
                "set `model` and `max_tokens`",
            );
        }
        if self.max_tokens == Some(0) {
            wrong("max_tokens", "no row is so short", "write 1 or more, or leave it and `model` out");
        }
        if self.ngram < contamination::SHORT {
            wrong("ngram", "so short a run of words is no evidence", "write 8 or more; 13 is usual");
        }
        if self.boxed && self.extractors.is_empty() {
            wrong("extractors", "nothing reads the answers", "name at least one, such as [\"math500\"]");
        }
        if self.limit == Some(0) {
            wrong("limit", "no rows to train on", "write 1 or more, or leave it out");
        }
        problems
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let filter = self.filter(ctx)?;
        let opened = match &self.model {
            Some(model) => Some(OpenModel::open(&ctx.input(model)?)?),
            None => None,
        };
        let demonstrator = match &opened {
            Some(opened) => Some(Demonstrator::new(opened, &self.prompt)?),
            None => None,
        };
        let judge = Judge { params: self, filter, demonstrator };
        let mut gates = Gates {
            seen: HashSet::new(),
            counts: Counts::new(self.benchmarks.0.keys().map(|label| benchmark_of(label))),
            dropped: writer(&ctx.out().join("dropped.jsonl"))?,
        };
        let mut kept = Vec::new();
        for input in self.data.0.values() {
            let rows = read_rows(&ctx.input(input)?, &self.fields)?;
            let (mut done, total) = (0, rows.len() as u64);
            for chunk in rows.chunks(CHUNK) {
                if ctx.stopping() {
                    return Err(StageError::stopped());
                }
                let judged = chunk.par_iter().map(|row| judge.row(row)).collect::<Result<Vec<_>, _>>()?;
                for judged in judged {
                    kept.extend(gates.pass(judged)?);
                }
                done += chunk.len() as u64;
                ctx.progress(done, total, "rows");
            }
        }
        if self.shuffle {
            shuffle(&mut kept, self.seed);
        }
        let (train, held_out) = self.split(kept, &mut gates)?;
        if train.is_empty() {
            return Err(StageError::input(format!(
                "no row is left to train on of {} that were read",
                gates.counts.read
            ))
            .with_help(format!("what was dropped: {}", gates.counts.dropped_text())));
        }
        write_rows(&ctx.out().join("train.jsonl"), &train)?;
        write_rows(&ctx.out().join("held_out.jsonl"), &held_out)?;
        gates.counts.finish(train.len(), held_out.len());
        gates.dropped.flush().map_err(StageError::environment)?;
        let path = ctx.out().join("counts.json");
        let text = serde_json::to_string_pretty(&gates.counts).map_err(StageError::environment)?;
        std::fs::write(&path, text + "\n").map_err(|error| StageError::io(&path, error))
    }
}

impl Prepare {
    fn filter(&self, ctx: &StageCtx) -> Result<Filter, StageError> {
        let mut filter = Filter::new(&self.levels, self.ngram);
        for (label, input) in &self.benchmarks.0 {
            for question in read_questions(&ctx.input(input)?, None)? {
                filter.add(benchmark_of(label), &question.id, &question.problem);
            }
        }
        Ok(filter)
    }

    /// The first `limit` rows to train on, and the rows held out of all.
    fn split(&self, rows: Vec<Row>, gates: &mut Gates) -> Result<(Vec<Row>, Vec<Row>), StageError> {
        let mut rows = rows.into_iter();
        let held_out: Vec<Row> = rows.by_ref().take(self.held_out).collect();
        let kept_back: HashSet<String> = held_out.iter().map(|row| normalised(&row.problem)).collect();
        let mut train = Vec::new();
        for row in rows {
            if kept_back.contains(&normalised(&row.problem)) {
                gates.drop(&row, Reason::HeldOutProblem, Value::Null)?;
            } else if self.limit.is_some_and(|limit| train.len() >= limit) {
                // Not worth a line each: nothing is wrong with these.
                gates.counts.add(Reason::BeyondLimit);
            } else {
                train.push(row);
            }
        }
        Ok((train, held_out))
    }
}

/// `gsm8k` of the label `gsm8k` or `benchmark=gsm8k`.
fn benchmark_of(label: &str) -> &str {
    label.rsplit('=').next().unwrap_or(label)
}

/// Rows judged between two looks at the stop flag.
const CHUNK: usize = 1024;

/// What can be said of a row by itself, so that many are judged at once.
struct Judge<'a> {
    params: &'a Prepare,
    filter: Filter,
    demonstrator: Option<Demonstrator<'a>>,
}

/// A row and what was found.
struct Judged {
    /// What a duplicate has in common with it: a digest, for there may be millions.
    identity: blake3::Hash,
    /// In its final form, if it was kept.
    row: Row,
    /// Whether its solution got a box.
    boxed: bool,
    tokens: Option<usize>,
    dropped: Option<(Reason, Value)>,
    hit: Option<Hit>,
}

impl Judge<'_> {
    fn row(&self, row: &Row) -> Result<Judged, StageError> {
        let both = format!("{}\n{}", normalised(&row.problem), normalised(&row.solution));
        let identity = blake3::hash(both.as_bytes());
        let row = row.clone();
        let mut judged = Judged { identity, row, boxed: false, tokens: None, dropped: None, hit: None };
        judged.dropped = self.gates(&mut judged)?;
        Ok(judged)
    }

    /// Brings the row into its final form; why it is dropped, if it is.
    fn gates(&self, judged: &mut Judged) -> Result<Option<(Reason, Value)>, StageError> {
        let (row, params) = (&mut judged.row, self.params);
        if row.problem.trim().is_empty() || row.answer.trim().is_empty() {
            return Ok(Some((Reason::Incomplete, Value::Null)));
        }
        if let Some(hit) = self.filter.find(&row.problem) {
            let place = json!({"benchmark": hit.benchmark, "question": hit.question});
            let reason = Reason::Contaminated(hit.level);
            judged.hit = Some(hit);
            return Ok(Some((reason, place)));
        }
        row.answer = grader::final_answer(&row.answer);
        if params.strip_gsm8k {
            row.solution = solution::without_notes(&row.solution);
        }
        if params.boxed {
            judged.boxed = solution::add_box(row);
            if !solution::is_readable(row, &params.extractors) {
                return Ok(Some((Reason::Unreadable, Value::Null)));
            }
        }
        if let (Some(demonstrator), Some(most)) = (&self.demonstrator, params.max_tokens) {
            let tokens = demonstrator.make(&row.problem, &row.solution)?.tokens();
            if tokens > most {
                return Ok(Some((Reason::TooLong, json!({"tokens": tokens}))));
            }
            judged.tokens = Some(tokens);
        }
        Ok(None)
    }
}

/// What is known of all rows so far.
struct Gates {
    seen: HashSet<blake3::Hash>,
    counts: Counts,
    dropped: BufWriter<File>,
}

impl Gates {
    /// The row in its final form, unless a gate stops it.
    fn pass(&mut self, judged: Judged) -> Result<Option<Row>, StageError> {
        let Judged { identity, row, boxed, tokens, dropped, hit } = judged;
        self.counts.read += 1;
        let incomplete = matches!(dropped, Some((Reason::Incomplete, _)));
        if !incomplete && !self.seen.insert(identity) {
            self.drop(&row, Reason::Duplicate, Value::Null)?;
            return Ok(None);
        }
        self.counts.boxes_added += usize::from(boxed);
        if let Some(hit) = hit {
            self.counts.hit(&hit);
        }
        if let Some((reason, place)) = dropped {
            self.drop(&row, reason, place)?;
            return Ok(None);
        }
        if let Some(tokens) = tokens {
            self.counts.tokens(tokens);
        }
        Ok(Some(row))
    }

    fn drop(&mut self, row: &Row, reason: Reason, place: Value) -> Result<(), StageError> {
        self.counts.add(reason);
        let line =
            json!({"row": row.number, "reason": reason.name(), "place": place, "problem": row.problem});
        writeln!(self.dropped, "{line}").map_err(StageError::environment)
    }
}

/// Fisher and Yates's shuffle.
fn shuffle<T>(rows: &mut [T], seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for last in (1..rows.len()).rev() {
        // High bits of a 64×64-bit product: uniform to within 2⁻⁶⁴ · n.
        let at = (u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64;
        rows.swap(last, at as usize);
    }
}

fn writer(path: &Path) -> Result<BufWriter<File>, StageError> {
    File::create(path).map(BufWriter::new).map_err(|error| StageError::io(path, error))
}

fn write_rows(path: &Path, rows: &[Row]) -> Result<(), StageError> {
    let mut file = writer(path)?;
    for row in rows {
        let line = json!({"problem": row.problem, "solution": row.solution, "answer": row.answer});
        writeln!(file, "{line}").map_err(|error| StageError::io(path, error))?;
    }
    file.flush().map_err(|error| StageError::io(path, error))
}

#[cfg(test)]
mod tests;
