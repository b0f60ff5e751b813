//! Answer grading for mathematics: what was answered, and is it right?
//!
//! Every sample gets two verdicts. `qwen` follows the rules of the Qwen2.5-Math harness to the
//! letter, since published numbers used them; `strict` is mathematical equality.
//!
//! - [`extract`]: the answer in a full output, with rule and place
//! - [`qwen`]: the Qwen2.5-Math rules
//! - [`strict`]: mathematical equality
//! - [`reason`]: why two answers are equal or not
//! - [`line`](mod@line): JSON lines in and out
//! - [`summary`]: counts and disagreements
//! - [`audit`]: how answers were extracted, and what a looser rule would have found

pub mod audit;
pub mod extract;
pub mod line;
pub mod qwen;
pub mod reason;
pub mod strict;
pub mod summary;

use serde::{Deserialize, Serialize};

pub use extract::{Extraction, Method, extract_answer, extract_gsm8k};
pub use reason::Reason;
pub use summary::Summary;

use qwen::choice;
use qwen::equal::math_equal;
use qwen::gold::parse_ground_truth;
use qwen::strip::strip_string;

/// Both verdicts on one sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The extracted answer after Qwen's normalisation (what its harness records).
    pub extracted: String,
    /// The answer as it stands in the output; what the strict mode compares.
    pub raw: String,
    /// The gold answer, as the strict mode compares it.
    pub gold: String,
    /// The rule that found the answer.
    pub method: Method,
    /// Byte span of the answer in the output.
    pub span: Option<(usize, usize)>,
    /// Verdict of the Qwen2.5-Math rules.
    pub qwen: bool,
    /// Verdict of the strict mode.
    pub strict: bool,
    /// The rule that decided `qwen`.
    pub qwen_reason: Reason,
    /// The rule that decided `strict`.
    pub strict_reason: Reason,
}

/// Grades a model's full output.
///
/// `gold` is the data set's final answer, a worked solution with a box (MATH), or a GSM8K answer
/// with `####`. `data_name` is the Qwen harness's name of the data set (`math500`, `gsm8k`,
/// `amc23`, …) and decides how the gold answer is normalised.
pub fn grade_output(text: &str, gold: &str, data_name: &str) -> Verdict {
    let found = extract_answer(text, data_name);
    verdict(found, text, gold, data_name)
}

/// Grades a bare answer: what would stand inside `\boxed{}`.
pub fn grade_answer(pred: &str, gold: &str, data_name: &str) -> Verdict {
    let found = Extraction {
        raw: pred.to_string(),
        answer: extract::normalised(pred, data_name),
        method: if pred.trim().is_empty() { Method::None } else { Method::Given },
        span: None,
    };
    verdict(found, pred, gold, data_name)
}

fn verdict(found: Extraction, text: &str, gold: &str, data_name: &str) -> Verdict {
    let parsed = parse_ground_truth(gold, data_name);
    // Where stripping changed nothing, stripping again changes nothing.
    let twice = if found.answer == found.raw {
        found.answer.clone()
    } else {
        strip_string(&found.answer, extract::keeps_units(data_name))
    };
    let pred = with_choice_rule(twice, text, &parsed);
    let qwen = math_equal(&pred, &parsed);
    let gold = final_answer(gold);
    let strict = strict::equal(&found.raw, &gold);
    Verdict {
        extracted: found.answer,
        raw: found.raw,
        gold,
        method: found.method,
        span: found.span,
        qwen: qwen.equal,
        strict: strict.equal,
        qwen_reason: qwen.reason,
        strict_reason: strict.reason,
    }
}

/// The prediction that Qwen's harness compares: stripped once more, then cleaned where the gold
/// answer (as [`parse_ground_truth`] gives it) is a choice.
pub fn qwen_prediction(answer: &str, text: &str, gold: &str, data_name: &str) -> String {
    with_choice_rule(strip_string(answer, extract::keeps_units(data_name)), text, gold)
}

fn with_choice_rule(pred: String, text: &str, gold: &str) -> String {
    let letter = |s: &str| matches!(s, "A" | "B" | "C" | "D" | "E");
    if letter(gold) && !letter(&pred) {
        choice::choice_answer_clean(text)
    } else if gold.chars().all(|c| ('A'..='E').contains(&c)) && !letter(&pred) {
        choice::keep_choice_letters(&pred)
    } else {
        pred
    }
}

/// Whether a gold states an answer: blanks, dollar signs and the brackets of formulas are none. Qwen's
/// rules take every answer to an empty gold for right, so that a caller must refuse it.
pub fn states_answer(gold: &str) -> bool {
    let mut answer = final_answer(gold);
    for bracket in ["\\(", "\\)", "\\[", "\\]"] {
        answer = answer.replace(bracket, "");
    }
    // `####` with nothing behind it is where GSM8K's answer should stand.
    let answer = if gold.trim_end().ends_with("####") { "" } else { &answer };
    answer.chars().any(|c| !c.is_whitespace() && c != '$')
}

/// The final answer within a gold: the box of a worked solution, what follows `####`, or itself.
pub fn final_answer(gold: &str) -> String {
    if gold.contains('#')
        && let Some(found) = extract_gsm8k(gold)
    {
        return found.raw;
    }
    if gold.contains('b') && gold.contains("boxed{") {
        return extract_answer(gold, "math").raw;
    }
    gold.trim().to_string()
}
