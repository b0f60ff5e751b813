//! How answers were extracted over a whole evaluation: how many in a box, by a phrase, as a last
//! number, not at all; how many texts ran into the token limit; what a looser rule would have
//! found; and what a second request for the final answer brought.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::extract::{Method, last_number};
use crate::{Verdict, grade_answer};

/// How one answer was extracted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// The rule that found the answer.
    pub method: Method,
    /// The answer as it stands in the text.
    pub raw: String,
    /// The answer after Qwen's normalisation.
    pub normalised: String,
    /// Byte span of the raw answer in the text.
    pub span: Option<(usize, usize)>,
    /// Number of boxes in the text.
    pub boxes: usize,
    /// Whether generation stopped at the token limit.
    pub at_limit: bool,
    /// What a looser rule finds.
    pub loose: Option<Loose>,
    /// Verdict of the Qwen rules on the extracted answer.
    pub qwen: bool,
    /// Verdict of the strict mode on the extracted answer.
    pub strict: bool,
}

/// An answer found by a looser rule than Qwen's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loose {
    /// The rule.
    pub rule: LooseRule,
    /// The answer as it stands in the text.
    pub answer: String,
    /// Byte span of the answer in the text.
    pub span: (usize, usize),
    /// Verdict of the Qwen rules on it.
    pub qwen: bool,
    /// Verdict of the strict mode on it.
    pub strict: bool,
}

/// Rules that evaluations other than Qwen's use, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LooseRule {
    /// The last closed box that is not empty.
    FilledBox,
    /// What follows the last `####`.
    Hashes,
    /// What follows the last "answer is" or "answer:", in any case, on its line.
    AnswerPhrase,
    /// The last bold text (`**…**`).
    Bold,
    /// The last formula between dollar signs or `\( \)`, `\[ \]`.
    Formula,
    /// The last number.
    LastNumber,
}

/// Audits one text; `verdict` is what [`crate::grade_output`] said about it.
pub fn audit_row(text: &str, gold: &str, data_name: &str, at_limit: bool, verdict: &Verdict) -> AuditRow {
    let loose = loose_answer(text).map(|(rule, (start, end))| {
        let answer = text[start..end].to_string();
        let judged = grade_answer(&answer, gold, data_name);
        Loose { rule, answer, span: (start, end), qwen: judged.qwen, strict: judged.strict }
    });
    AuditRow {
        method: verdict.method,
        raw: verdict.raw.clone(),
        normalised: verdict.extracted.clone(),
        span: verdict.span,
        boxes: text.matches("\\boxed").count() + text.matches("\\fbox").count(),
        at_limit,
        loose,
        qwen: verdict.qwen,
        strict: verdict.strict,
    }
}

/// What the first fitting rule of [`LooseRule`] finds, as a byte span.
pub fn loose_answer(text: &str) -> Option<(LooseRule, (usize, usize))> {
    type Find = fn(&str) -> Option<(usize, usize)>;
    let rules: [(LooseRule, Find); 6] = [
        (LooseRule::FilledBox, filled_box),
        (LooseRule::Hashes, |t| rest_of_line(t, t.rfind("####")? + 4)),
        (LooseRule::AnswerPhrase, answer_phrase),
        (LooseRule::Bold, |t| between(t, "**", "**")),
        (LooseRule::Formula, formula),
        (LooseRule::LastNumber, last_number),
    ];
    rules.into_iter().find_map(|(rule, find)| find(text).map(|span| (rule, span)))
}

fn filled_box(text: &str) -> Option<(usize, usize)> {
    let mut end = text.len();
    while let Some(at) = text[..end].rfind("box") {
        end = at;
        let rest = &text[at..];
        let Some(open) = rest.strip_prefix("boxed{").or_else(|| rest.strip_prefix("box{")) else {
            continue;
        };
        let start = text.len() - open.len();
        let mut depth = 1;
        for (i, b) in open.bytes().enumerate() {
            depth += i32::from(b == b'{') - i32::from(b == b'}');
            if depth == 0 {
                if !open[..i].trim().is_empty() {
                    return Some((start, start + i));
                }
                break;
            }
        }
    }
    None
}

/// The trimmed rest of a line, without a full stop at its end.
fn rest_of_line(text: &str, start: usize) -> Option<(usize, usize)> {
    let line = text[start..].lines().next()?;
    let inner = line.trim().trim_end_matches('.').trim_end();
    let lead = line.len() - line.trim_start().len();
    (!inner.is_empty()).then_some((start + lead, start + lead + inner.len()))
}

fn answer_phrase(text: &str) -> Option<(usize, usize)> {
    // ASCII only, so that byte places stay those of the text.
    let lower = text.to_ascii_lowercase();
    let after = |phrase: &str| lower.rfind(phrase).map(|at| at + phrase.len());
    let at = ["answer is:", "answer is", "answer:"].into_iter().filter_map(after).max()?;
    rest_of_line(text, at)
}

/// The last text between two marks on one line.
fn between(text: &str, open: &str, close: &str) -> Option<(usize, usize)> {
    let end = text.rfind(close)?;
    let start = text[..end].rfind(open)? + open.len();
    let inner = &text[start..end];
    let trimmed = inner.trim();
    let lead = inner.len() - inner.trim_start().len();
    (!trimmed.is_empty()).then_some((start + lead, start + lead + trimmed.len()))
}

fn formula(text: &str) -> Option<(usize, usize)> {
    [("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")]
        .into_iter()
        .filter_map(|(open, close)| between(text, open, close))
        .max_by_key(|span| span.1)
}

/// Counts over audited texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Texts.
    pub total: usize,
    /// Texts by extraction method.
    pub methods: BTreeMap<String, usize>,
    /// Texts with at least one box.
    pub with_box: usize,
    /// Texts with several boxes, of which the last counts.
    pub several_boxes: usize,
    /// Texts without an answer.
    pub missing: usize,
    /// Texts that ran into the token limit.
    pub at_limit: usize,
    /// Of these, the ones without a box.
    pub at_limit_without_box: usize,
    /// Texts that are wrong by the Qwen rules and right with a looser rule's answer, by that rule.
    pub loose_would_gain: BTreeMap<String, usize>,
    /// Texts that are right by the Qwen rules and wrong with the looser rule's answer.
    pub loose_would_lose: usize,
}

impl Audit {
    /// Counts one row.
    pub fn add(&mut self, row: &AuditRow) {
        self.total += 1;
        *self.methods.entry(row.method.as_str().to_string()).or_default() += 1;
        self.with_box += usize::from(row.boxes > 0);
        self.several_boxes += usize::from(row.boxes > 1);
        self.missing += usize::from(row.method == Method::None);
        self.at_limit += usize::from(row.at_limit);
        self.at_limit_without_box += usize::from(row.at_limit && row.boxes == 0);
        match &row.loose {
            Some(loose) if !row.qwen && loose.qwen => {
                *self.loose_would_gain.entry(loose.rule.as_str().to_string()).or_default() += 1;
            }
            Some(loose) if row.qwen && !loose.qwen => self.loose_would_lose += 1,
            _ => {}
        }
    }
}

impl LooseRule {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            LooseRule::FilledBox => "filled_box",
            LooseRule::Hashes => "hashes",
            LooseRule::AnswerPhrase => "answer_phrase",
            LooseRule::Bold => "bold",
            LooseRule::Formula => "formula",
            LooseRule::LastNumber => "last_number",
        }
    }
}

/// Accuracy before and after a second request for the final answer, counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// Samples.
    pub total: usize,
    /// Correct at the first pass.
    pub first_correct: usize,
    /// Samples that were asked again.
    pub retried: usize,
    /// Wrong at first, correct after the retry.
    pub rescued: usize,
    /// Correct at first, wrong after the retry.
    pub spoiled: usize,
    /// Correct when the retry's answer counts where there is one.
    pub final_correct: usize,
}

impl Retries {
    /// Adds another count.
    pub fn merge(&mut self, other: &Retries) {
        self.total += other.total;
        self.first_correct += other.first_correct;
        self.retried += other.retried;
        self.rescued += other.rescued;
        self.spoiled += other.spoiled;
        self.final_correct += other.final_correct;
    }

    /// Counts one sample; `correct` picks the verdict that counts.
    pub fn add(&mut self, first: &Verdict, retry: Option<&Verdict>, correct: impl Fn(&Verdict) -> bool) {
        let before = correct(first);
        let after = retry.map_or(before, &correct);
        self.total += 1;
        self.first_correct += usize::from(before);
        self.retried += usize::from(retry.is_some());
        self.rescued += usize::from(!before && after);
        self.spoiled += usize::from(before && !after);
        self.final_correct += usize::from(after);
    }
}

/// Whether study (c)'s protocol asks a sample again: it holds no box that can be read.
pub fn needs_retry(verdict: &Verdict) -> bool {
    verdict.method != Method::Boxed || verdict.raw.trim().is_empty()
}
