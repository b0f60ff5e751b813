//! The samples as the page's script reads them: questions once, answers by run.

use std::collections::BTreeMap;

use engine::kind::{Inputs, StageCtx, StageError};
use serde::Serialize;

use crate::arms::{Arm, arm_of};
use crate::repetition;
use crate::samples::{Graded, Sample, read_lines};

/// Everything the sample browser shows.
#[derive(Serialize)]
pub struct Samples {
    /// Columns: one an arm, or one for each seed of an arm.
    runs: Vec<Run>,
    /// Prompts with the question replaced by [`HOLE`].
    prompts: Vec<String>,
    /// One entry a question, in the order of the first run.
    pub questions: Vec<Question>,
}

/// One column.
#[derive(Serialize)]
struct Run {
    arm: String,
    label: String,
    /// Place of the run that it is compared with; none for runs of the base arm.
    base: Option<usize>,
}

/// One question with all answers to it.
#[derive(Serialize)]
pub struct Question {
    benchmark: String,
    id: String,
    problem: String,
    gold: String,
    level: Option<String>,
    subject: Option<String>,
    /// The answers of each run, in the order of the runs.
    answers: Vec<Vec<Answer>>,
}

#[derive(Serialize)]
struct Answer {
    text: String,
    tokens: u32,
    seconds: f64,
    truncated: bool,
    repetitive: bool,
    extracted: String,
    method: String,
    /// Where the answer stands in the text, in UTF-16 units as scripts count.
    span: Option<(usize, usize)>,
    qwen: bool,
    strict: bool,
    reasons: (String, String),
    correct: bool,
    /// Place in the list of prompts.
    prompt: usize,
}

/// Stands for the question in a prompt; no text holds it.
const HOLE: &str = "\u{0}";

/// Reads all graded samples, in the order of the arms.
pub fn gather(ctx: &StageCtx, inputs: &Inputs, arms: &[Arm], base: &str) -> Result<Samples, StageError> {
    let place = |label: &str| arms.iter().position(|arm| arm.name == arm_of(label)).unwrap_or(arms.len());
    let mut labels: Vec<&String> = inputs.0.keys().collect();
    labels.sort_by_key(|label| place(label));
    let mut gathered = Gathered::default();
    // A matrix of benchmarks gives an arm several files; they share its column.
    let mut columns: Vec<String> = Vec::new();
    for (done, label) in labels.iter().enumerate() {
        let rows: Vec<Graded> = read_lines(&ctx.input(&inputs.0[*label])?, "graded.jsonl")?;
        let name = column_of(label);
        let column = columns.iter().position(|known| *known == name).unwrap_or_else(|| {
            columns.push(name);
            columns.len() - 1
        });
        rows.into_iter().for_each(|row| gathered.add(column, row));
        ctx.progress(done as u64 + 1, labels.len() as u64, "files");
    }
    for question in &mut gathered.questions {
        question.answers.resize_with(columns.len(), Vec::new);
    }
    let runs = columns.iter().map(|name| run(name, &columns, arms, base)).collect();
    Ok(Samples { runs, prompts: gathered.prompts, questions: gathered.questions })
}

/// The label without its benchmark: `lora,seed=1` of `math/lora,benchmark=math,seed=1`.
fn column_of(label: &str) -> String {
    let instance = label.rsplit('/').next().unwrap_or(label);
    let axes = instance.split(',').filter(|axis| !axis.starts_with("benchmark="));
    axes.collect::<Vec<_>>().join(",")
}

fn run(name: &str, columns: &[String], arms: &[Arm], base: &str) -> Run {
    let arm = arm_of(name);
    let axes = &name[arm.len()..];
    let label = arms.iter().find(|known| known.name == arm).map_or(arm, Arm::label);
    // The base run of the same seed, else any.
    let of_base = |same: bool| {
        columns.iter().position(|other| arm_of(other) == base && (!same || other[base.len()..] == *axes))
    };
    Run {
        arm: arm.to_owned(),
        label: format!("{label}{}", axes.replace(',', " · ")),
        base: if arm == base { None } else { of_base(true).or_else(|| of_base(false)) },
    }
}

#[derive(Default)]
struct Gathered {
    questions: Vec<Question>,
    by_id: BTreeMap<(String, String), usize>,
    prompts: Vec<String>,
    by_prompt: BTreeMap<String, usize>,
}

impl Gathered {
    fn add(&mut self, column: usize, graded: Graded) {
        let key = (graded.benchmark.clone(), graded.sample.id.clone());
        let place = *self.by_id.entry(key).or_insert_with(|| {
            self.questions.push(question(&graded));
            self.questions.len() - 1
        });
        let prompt = self.prompt(&graded.sample);
        let answers = &mut self.questions[place].answers;
        if answers.len() <= column {
            answers.resize_with(column + 1, Vec::new);
        }
        answers[column].push(answer(graded, prompt));
    }

    /// Prompts differ in their question only, so that few are kept.
    fn prompt(&mut self, sample: &Sample) -> usize {
        let pattern = match sample.problem.is_empty() {
            true => sample.prompt.clone(),
            false => sample.prompt.replace(&sample.problem, HOLE),
        };
        *self.by_prompt.entry(pattern).or_insert_with_key(|pattern| {
            self.prompts.push(pattern.clone());
            self.prompts.len() - 1
        })
    }
}

fn question(graded: &Graded) -> Question {
    Question {
        benchmark: graded.benchmark.clone(),
        id: graded.sample.id.clone(),
        problem: graded.sample.problem.clone(),
        gold: graded.sample.gold.clone(),
        level: graded.sample.level.clone(),
        subject: graded.sample.subject.clone(),
        answers: Vec::new(),
    }
}

fn answer(graded: Graded, prompt: usize) -> Answer {
    let units = |end: usize| Some(graded.sample.text.get(..end)?.encode_utf16().count());
    Answer {
        span: graded.span.and_then(|(start, end)| Some((units(start)?, units(end)?))),
        tokens: graded.sample.tokens,
        seconds: graded.sample.seconds,
        truncated: graded.truncated(),
        repetitive: graded.repetition > repetition::THRESHOLD,
        extracted: graded.extracted,
        method: graded.method,
        qwen: graded.qwen,
        strict: graded.strict,
        reasons: graded.reasons,
        correct: graded.correct,
        text: graded.sample.text,
        prompt,
    }
}

/// JSON that may stand in a script element: nothing in it can end the element.
pub fn script_json(samples: &Samples) -> String {
    let json = serde_json::to_string(samples).unwrap_or_else(|_| "null".to_owned());
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_merge_benchmarks_and_keep_seeds() {
        assert_eq!(column_of("lora"), "lora");
        assert_eq!(column_of("math/lora,benchmark=math,seed=2"), "lora,seed=2");
        let columns = ["base,seed=1", "base,seed=2", "lora,seed=2", "other,seed=9"].map(String::from);
        let base_of = |name: &str| run(name, &columns, &[], "base").base;
        assert_eq!(
            [base_of("base,seed=1"), base_of("lora,seed=2"), base_of("other,seed=9")],
            [None, Some(1), Some(0)]
        );
        assert_eq!(run("lora,seed=2", &columns, &[], "base").label, "lora · seed=2");
    }
}
