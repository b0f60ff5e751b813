//! `grade`: extracts and checks the answers of an evaluation.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};

use engine::kind::{Input, Stage, StageCtx, StageError};
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
/// answers were found, and every sample on which the two rules disagree.
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
    /// The extraction audit: by rule, how many answers it found and how many were correct.
    pub extraction: BTreeMap<String, Found>,
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

impl Summary {
    fn add(&mut self, graded: &Graded) {
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
    fn grade(&self, sample: Sample) -> Graded {
        let data_name = self.data_name.as_deref().unwrap_or(&self.benchmark);
        let verdict = grader::grade_output(&sample.text, &sample.gold, data_name);
        Graded {
            benchmark: self.benchmark.clone(),
            extracted: verdict.extracted,
            method: verdict.method.as_str().to_owned(),
            span: verdict.span,
            qwen: verdict.qwen,
            strict: verdict.strict,
            reasons: (verdict.qwen_reason.as_str().to_owned(), verdict.strict_reason.as_str().to_owned()),
            correct: match self.verdict {
                VerdictRule::Qwen => verdict.qwen,
                VerdictRule::Strict => verdict.strict,
            },
            repetition: repetition::score(&sample.text),
            sample,
        }
    }
}

impl Stage for Grade {
    const KIND: &'static str = "grade";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        vec!["graded.jsonl".into(), "summary.json".into()]
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let samples: Vec<Sample> = read_lines(&ctx.input(&self.samples)?, "samples.jsonl")?;
        let total = samples.len() as u64;
        let mut summary = Summary { benchmark: self.benchmark.clone(), ..Summary::default() };
        let path = ctx.out().join("graded.jsonl");
        let failed = |e| StageError::io(&path, e);
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        for chunk in samples.chunks(CHUNK) {
            if ctx.stopping() {
                return Err(StageError::stopped());
            }
            let graded: Vec<Graded> = chunk.par_iter().map(|s| self.grade(s.clone())).collect();
            for row in &graded {
                summary.add(row);
                let line = serde_json::to_string(row).map_err(|e| failed(e.into()))?;
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
        let dir = tempfile::tempdir().unwrap();
        let samples = dir.path().join("samples.jsonl");
        std::fs::write(&samples, lines).unwrap();
        let stage =
            Grade { samples: Input::new("@eval"), benchmark: "math500".into(), data_name: None, verdict };
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

    #[test]
    fn a_line_without_text_is_an_input_error() {
        let error = run("{\"id\":1,\"gold\":\"1\"}\n", VerdictRule::Qwen).unwrap_err();
        assert_eq!(error.tier, Tier::Input);
        assert!(error.message.contains("samples.jsonl:1"), "{error}");
    }
}
