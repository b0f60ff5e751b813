//! `grade`: extracts and checks the answers of an evaluation.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};

use engine::kind::{Input, Stage, StageCtx, StageError};
use grader::Verdict;
use grader::audit::{Audit, AuditRow, Retries, audit_row};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::repetition;
use crate::samples::{Graded, Sample, read_lines};

/// Extracts the answer of every sample and judges it by two sets of rules.
///
/// `qwen` follows the Qwen2.5-Math harness to the letter, since published numbers used it;
/// `strict` is mathematical equality. Both verdicts are kept; `verdict` chooses the one that
/// counts. Writes `graded.jsonl`, one line a sample, and `summary.json` with the counts, how
/// answers were found and what a looser rule would have found, accuracy before and after a second
/// request for the final answer, and every sample on which the two rules disagree.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grade {
    /// Samples of an evaluation: `samples.jsonl`, or the artifact that holds it.
    pub samples: Input,
    /// Name of the benchmark in tables, such as `math500`.
    pub benchmark: String,
    /// The Qwen harness's name of the data set, which decides how gold answers are normalised
    /// (`math500`, `gsm8k`, `amc23` …). Left out: the benchmark's name.
    #[serde(default)]
    pub data_name: Option<String>,
    /// The verdict that counts as correct.
    #[serde(default)]
    pub verdict: VerdictRule,
    /// Which answer counts where the evaluation asked twice. Both are always counted in
    /// `summary.json`.
    #[serde(default)]
    pub answers: Answers,
}

/// Which answer counts where there are two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// The first.
    #[default]
    First,
    /// The one to the second request, where there was one.
    Last,
}

/// Whose verdict counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictRule {
    /// The Qwen2.5-Math rules.
    #[default]
    Qwen,
    /// Mathematical equality.
    Strict,
}

/// What `summary.json` holds.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the benchmark.
    pub benchmark: String,
    /// Samples graded.
    pub total: usize,
    /// Correct by the primary verdict.
    pub correct: usize,
    /// Correct by the Qwen rules.
    pub qwen: usize,
    /// Correct by the strict mode.
    pub strict: usize,
    /// Samples that hit their token budget.
    pub truncated: usize,
    /// Samples without an answer.
    pub unanswered: usize,
    /// Samples that repeat themselves.
    pub repetitive: usize,
    /// By rule, how many answers it found and how many were correct.
    pub extraction: BTreeMap<String, Found>,
    /// The extraction audit of the first answers.
    pub audit: Audit,
    /// First answers against second ones.
    pub retries: Retries,
    /// Samples on which the two verdicts differ.
    pub disagreements: Vec<Disagreement>,
}

/// Answers found by one rule.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Answers found.
    pub found: usize,
    /// Of these, correct by the primary verdict.
    pub correct: usize,
    /// Of these, from texts that hit their token budget.
    pub truncated: usize,
}

/// A sample on which the two verdicts differ.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The question.
    pub id: String,
    /// Which generation.
    pub sample: u32,
    /// The answer found.
    pub extracted: String,
    /// The correct answer.
    pub gold: String,
    /// Verdict of the Qwen rules.
    pub qwen: bool,
    /// Verdict of the strict mode.
    pub strict: bool,
    /// The rules that decided: Qwen's, then strict.
    pub reasons: (String, String),
}

/// What one sample adds to the results.
struct Row {
    graded: Graded,
    audit: AuditRow,
    retries: Retries,
}

impl Summary {
    fn add(&mut self, Row { graded, audit, retries }: &Row) {
        self.audit.add(audit);
        self.retries.merge(retries);
        self.total += 1;
        self.correct += usize::from(graded.correct);
        self.qwen += usize::from(graded.qwen);
        self.strict += usize::from(graded.strict);
        self.truncated += usize::from(graded.truncated());
        self.unanswered += usize::from(graded.unanswered());
        self.repetitive += usize::from(graded.repetition > repetition::THRESHOLD);
        let found = self.extraction.entry(graded.method.clone()).or_default();
        found.found += 1;
        found.correct += usize::from(graded.correct);
        found.truncated += usize::from(graded.truncated());
        if graded.qwen != graded.strict {
            self.disagreements.push(Disagreement {
                id: graded.sample.id.clone(),
                sample: graded.sample.sample,
                extracted: graded.extracted.clone(),
                gold: graded.sample.gold.clone(),
                qwen: graded.qwen,
                strict: graded.strict,
                reasons: graded.reasons.clone(),
            });
        }
    }
}

/// Samples graded between two looks at the stop flag.
const CHUNK: usize = 512;

impl Grade {
    fn counts(&self, verdict: &Verdict) -> bool {
        match self.verdict {
            VerdictRule::Qwen => verdict.qwen,
            VerdictRule::Strict => verdict.strict,
        }
    }

    fn grade(&self, mut sample: Sample) -> Row {
        let data_name = self.data_name.as_deref().unwrap_or(&self.benchmark);
        let first = grader::grade_output(&sample.text, &sample.gold, data_name);
        let at_limit = sample.finish == "length";
        let audit = audit_row(&sample.text, &sample.gold, data_name, at_limit, &first);
        let both = sample.retry.as_ref().map(|retry| format!("{}{}", sample.text, retry.text));
        let last =
            sample.retry.as_ref().map(|retry| grader::grade_output(&retry.text, &sample.gold, data_name));
        let mut retries = Retries::default();
        retries.add(&first, last.as_ref(), |verdict| self.counts(verdict));
        let mut verdict = first;
        let repetition = repetition::score(&sample.text);
        if let (Answers::Last, Some(mut last), Some(both)) = (self.answers, last, both) {
            // The answer stands in what follows the first text.
            last.span = last.span.map(|(start, end)| (start + sample.text.len(), end + sample.text.len()));
            (verdict, sample.text) = (last, both);
        }
        let correct = self.counts(&verdict);
        let graded = Graded {
            benchmark: self.benchmark.clone(),
            extracted: verdict.extracted,
            method: verdict.method.as_str().to_owned(),
            span: verdict.span,
            qwen: verdict.qwen,
            strict: verdict.strict,
            reasons: (verdict.qwen_reason.as_str().to_owned(), verdict.strict_reason.as_str().to_owned()),
            correct,
            repetition,
            sample,
        };
        Row { graded, audit, retries }
    }
}

impl Stage for Grade {
    const KIND: &'static str = "grade";
    const VERSION: u32 = 2;

    fn outputs(&self) -> Vec<String> {
        vec!["graded.jsonl".into(), "summary.json".into()]
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let samples: Vec<Sample> = read_lines(&ctx.input(&self.samples)?, "samples.jsonl")?;
        if samples.is_empty() {
            return Err(StageError::input(format!("{}: no samples to grade", self.samples))
                .with_help("check the evaluation's questions and `limit`"));
        }
        if let Some((row, sample)) =
            samples.iter().enumerate().find(|(_, sample)| !grader::states_answer(&sample.gold))
        {
            let problem =
                format!("{}: sample {} (question `{}`) has an empty gold", self.samples, row + 1, sample.id);
            return Err(StageError::input(problem)
                .with_help("give the question its correct answer, or leave it out and evaluate again"));
        }
        let total = samples.len() as u64;
        let mut summary = Summary { benchmark: self.benchmark.clone(), ..Summary::default() };
        let path = ctx.out().join("graded.jsonl");
        let failed = |e| StageError::io(&path, e);
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        for chunk in samples.chunks(CHUNK) {
            if ctx.stopping() {
                return Err(StageError::stopped());
            }
            let graded: Vec<Row> = chunk.par_iter().map(|s| self.grade(s.clone())).collect();
            for row in &graded {
                summary.add(row);
                let line = serde_json::to_string(&row.graded).map_err(|e| failed(e.into()))?;
                writeln!(file, "{line}").map_err(failed)?;
            }
            ctx.progress(summary.total as u64, total, "samples");
        }
        file.flush().map_err(failed)?;
        let path = ctx.out().join("summary.json");
        let text = serde_json::to_string_pretty(&summary).map_err(std::io::Error::from);
        text.and_then(|text| std::fs::write(&path, text + "\n")).map_err(|e| StageError::io(&path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::kind::Tier;
    use std::path::Path;

    fn run(lines: &str, verdict: VerdictRule) -> Result<(Vec<Graded>, Summary), StageError> {
        run_with(lines, verdict, Answers::First)
    }

    fn run_with(
        lines: &str,
        verdict: VerdictRule,
        answers: Answers,
    ) -> Result<(Vec<Graded>, Summary), StageError> {
        let dir = tempfile::tempdir().unwrap();
        let samples = dir.path().join("samples.jsonl");
        std::fs::write(&samples, lines).unwrap();
        let samples = Input::new("@eval");
        let stage = Grade { samples, benchmark: "math500".into(), data_name: None, verdict, answers };
        let inputs = BTreeMap::from([("@eval".to_owned(), dir.path().to_owned())]);
        let out = tempfile::tempdir().unwrap();
        stage.run(&StageCtx::detached(out.path(), out.path(), inputs))?;
        let read = |name: &str| std::fs::read_to_string(Path::new(out.path()).join(name)).unwrap();
        let graded = read("graded.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Ok((graded, serde_json::from_str(&read("summary.json")).unwrap()))
    }

    const LINES: &str = r#"{"id":"a","gold":"8","text":"3 + 5 = 8. The answer is \\boxed{8}.","finish":"stop"}
{"id":"b","gold":"8","text":"It goes on and on and on and on and on and on and on and on and","finish":"length"}
{"id":"c","gold":"[1,2)","text":"So \\boxed{(1,2]}.","finish":"stop"}
"#;

    #[test]
    fn both_verdicts_are_kept_and_one_counts() {
        let (graded, summary) = run(LINES, VerdictRule::Qwen).unwrap();
        let correct: Vec<bool> = graded.iter().map(|g| g.correct).collect();
        assert_eq!(correct, [true, false, true]);
        let (start, end) = graded[0].span.unwrap();
        assert_eq!(&graded[0].sample.text[start..end], "8");
        assert!(graded[1].unanswered() && graded[1].truncated());
        assert_eq!((summary.total, summary.correct, summary.strict), (3, 2, 1));
        assert_eq!((summary.truncated, summary.unanswered, summary.repetitive), (1, 1, 1));
        assert_eq!(summary.extraction["boxed"].found, 2);
        // The Qwen rules ignore which end of an interval is open.
        assert_eq!(summary.disagreements[0].id, "c");
        let (graded, summary) = run(LINES, VerdictRule::Strict).unwrap();
        assert!(!graded[2].correct);
        assert_eq!(summary.correct, 1);
    }

    const RETRIED: &str = r#"{"id":"a","gold":"8","text":"3 + 5 = 8, so 9","finish":"stop","retry":{"text":"\n\\boxed{8}","tokens":3}}
{"id":"b","gold":"8","text":"It is 8","finish":"length","retry":{"text":"\n\\boxed{7}","tokens":3}}
{"id":"c","gold":"8","text":"\\boxed{8}","finish":"stop"}
"#;

    #[test]
    fn first_and_second_answers_are_told_apart() {
        let (graded, summary) = run(RETRIED, VerdictRule::Qwen).unwrap();
        let correct = |graded: &[Graded]| graded.iter().map(|g| g.correct).collect::<Vec<_>>();
        assert_eq!(correct(&graded), [false, true, true]);
        let both =
            Retries { total: 3, first_correct: 2, retried: 2, rescued: 1, spoiled: 1, final_correct: 2 };
        assert_eq!(summary.retries, both);
        assert_eq!((summary.audit.with_box, summary.audit.at_limit_without_box), (1, 1));
        let (graded, summary) = run_with(RETRIED, VerdictRule::Qwen, Answers::Last).unwrap();
        assert_eq!(correct(&graded), [true, false, true]);
        assert_eq!((summary.correct, summary.retries), (2, both));
        let (start, end) = graded[0].span.unwrap();
        assert_eq!(&graded[0].sample.text[start..end], "8");
        assert!(graded[0].sample.text.ends_with("boxed{8}"));
    }

    #[test]
    fn nothing_to_grade_is_an_input_error() {
        assert!(run("\n", VerdictRule::Qwen).unwrap_err().message.contains("no samples"));
    }

    #[test]
    fn an_empty_gold_is_an_input_error() {
        let lines =
            "{\"id\":\"a\",\"gold\":\"1\",\"text\":\"1\"}\n{\"id\":\"b\",\"gold\":\"$$\",\"text\":\"1\"}\n";
        let error = run(lines, VerdictRule::Qwen).unwrap_err();
        assert_eq!(error.tier, Tier::Input);
        assert!(error.message.contains("sample 2 (question `b`) has an empty gold"), "{error}");
    }

    #[test]
    fn a_line_without_text_is_an_input_error() {
        let error = run("{\"id\":1,\"gold\":\"1\"}\n", VerdictRule::Qwen).unwrap_err();
        assert_eq!(error.tier, Tier::Input);
        assert!(error.message.contains("samples.jsonl:1"), "{error}");
    }
}
