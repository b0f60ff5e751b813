//! The samples as the page's script reads them: questions once, answers by run.

use std::collections::BTreeMap;

use engine::kind::{Inputs, StageCtx, StageError};
use serde::Serialize;

use super::audit::{Audit, Counts};
use crate::arms::{self, Arm, Names, arm_of, base_of, row_of, run_of};
use crate::repetition;
use crate::samples::{Graded, Sample, read_lines};

/// Everything the sample browser shows.
#[derive(Serialize)]
pub struct Samples {
    /// Columns: one a row of the tables, or one for each seed.
    runs: Vec<Run>,
    /// Prompts with the question replaced by [`HOLE`].
    prompts: Vec<String>,
    /// One entry a question, in the order of the first run.
    pub questions: Vec<Question>,
}

/// One column.
#[derive(Serialize)]
struct Run {
    /// The row of the tables that it belongs to.
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
    looping: bool,
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

/// Everything that graded samples tell the report.
pub struct Told {
    /// What the sample browser shows.
    pub samples: Samples,
    /// How answers were found.
    pub audits: Vec<Audit>,
    /// Whether a text has mathematics to typeset.
    pub mathematics: bool,
}

/// Reads all graded samples, in the order of the arms.
pub fn gather(ctx: &StageCtx, inputs: &Inputs, arms: &[Arm], base: &str) -> Result<Told, StageError> {
    let mut labels: Vec<&String> = inputs.0.keys().collect();
    arms::sort(&mut labels, arms);
    let mut gathered = Gathered::default();
    // A matrix of benchmarks gives an arm several files; they share its column.
    let mut columns: Vec<String> = labels.iter().map(|label| run_of(label)).collect();
    arms::sort(&mut columns, arms);
    columns.dedup();
    for (done, label) in labels.iter().enumerate() {
        let rows: Vec<Graded> = read_lines(&ctx.input(&inputs.0[*label])?, "graded.jsonl")?;
        let name = run_of(label);
        let column = columns.iter().position(|known| *known == name).unwrap_or(0);
        for row in rows {
            gathered.audit.add(label, &row);
            gathered.add(column, row);
        }
        ctx.progress(done as u64 + 1, labels.len() as u64, "files");
    }
    for question in &mut gathered.questions {
        question.answers.resize_with(columns.len(), Vec::new);
    }
    let runs = columns.iter().map(|name| run(name, &columns, arms, base)).collect();
    Ok(Told {
        audits: gathered.audit.tables(arms),
        mathematics: gathered.mathematics,
        samples: Samples { runs, prompts: gathered.prompts, questions: gathered.questions },
    })
}

fn run(name: &str, columns: &[String], arms: &[Arm], base: &str) -> Run {
    let against = match arm_of(name) == base {
        true => None,
        false => base_of(name, columns.iter().map(String::as_str), base),
    };
    Run {
        arm: row_of(name),
        label: Names::of(columns, arms).show(name),
        base: against.and_then(|base| columns.iter().position(|column| column == base)),
    }
}

/// Whether a text holds mathematics in LaTeX.
fn has_mathematics(text: &str) -> bool {
    ["\\(", "\\[", "\\boxed", "\\frac", "\\begin", "$$"].iter().any(|mark| text.contains(mark))
        || text.matches('$').nth(1).is_some() && text.contains('\\')
}

#[derive(Default)]
struct Gathered {
    questions: Vec<Question>,
    by_id: BTreeMap<(String, String), usize>,
    prompts: Vec<String>,
    by_prompt: BTreeMap<String, usize>,
    audit: Counts,
    mathematics: bool,
}

impl Gathered {
    fn add(&mut self, column: usize, graded: Graded) {
        self.mathematics = self.mathematics
            || has_mathematics(&graded.sample.text)
            || has_mathematics(&graded.sample.problem);
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
        looping: repetition::ends_in_loop(&graded.sample.text),
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

/// The samples as JSON, for [`super::pack`].
pub fn json(samples: &Samples) -> String {
    serde_json::to_string(samples).unwrap_or_else(|_| "null".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_seeds_and_belong_to_rows() {
        let columns = ["base,seed=1", "base,seed=2", "lora,seed=2", "other,seed=9"].map(String::from);
        let base_of = |name: &str| run(name, &columns, &[], "base").base;
        assert_eq!(
            [base_of("base,seed=1"), base_of("lora,seed=2"), base_of("other,seed=9")],
            [None, Some(1), Some(0)]
        );
        let lora = run("lora,step=10,seed=2", &columns, &[], "base");
        assert_eq!((lora.arm.as_str(), lora.label.as_str()), ("lora,step=10", "lora · step 10 · seed 2"));
    }

    #[test]
    fn mathematics_is_told_from_prices() {
        for text in ["so \\boxed{4}", "\\(x\\)", "$\\sqrt 2$", "$$x$$"] {
            assert!(has_mathematics(text), "{text}");
        }
        for text in ["It costs $5, and $10 there.", "no", "a \\ b"] {
            assert!(!has_mathematics(text), "{text}");
        }
    }
}
