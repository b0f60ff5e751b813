//! Sample lines: what evaluations write, what grading adds, and how both are read.
//!
//! These JSON lines are the contract between `eval`, `grade`, `aggregate` and `report`. Unknown
//! fields are ignored, so that writers may add to them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use engine::kind::StageError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// One generation for one question, as `eval` writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The question's identity within its benchmark; pairs arms.
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    /// Which of several generations for this question, from 0.
    #[serde(default)]
    pub sample: u32,
    /// The question.
    #[serde(default)]
    pub problem: String,
    /// The correct answer, or a solution that holds it.
    #[serde(deserialize_with = "text_or_number")]
    pub gold: String,
    /// The whole prompt the model saw.
    #[serde(default)]
    pub prompt: String,
    /// What the model wrote.
    pub text: String,
    /// Number of tokens generated.
    #[serde(default)]
    pub tokens: u32,
    /// Why generation ended: `stop`, or `length` when the budget ran out.
    #[serde(default)]
    pub finish: String,
    /// Time spent on it, in seconds, where whoever generated it says so. `eval` does not: its samples
    /// share every moment, and the same samples must be the same bytes; its `timing.json` has the whole.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seconds: f64,
    /// Difficulty as the benchmark names it.
    #[serde(default, deserialize_with = "maybe_text_or_number")]
    pub level: Option<String>,
    /// Subject as the benchmark names it.
    #[serde(default)]
    pub subject: Option<String>,
    /// What the model answered when asked once more for the final answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retried>,
}

/// The answer to a second request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retried {
    /// What stands after the first answer: the request and what the model wrote then.
    pub text: String,
    /// Number of tokens generated for it.
    pub tokens: u32,
}

/// A graded sample, as `grade` writes it: the sample and its verdicts side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graded {
    /// Name of the benchmark.
    pub benchmark: String,
    /// The sample as it came.
    pub sample: Sample,
    /// The answer found in the text, normalised.
    pub extracted: String,
    /// The rule that found it; `none` when there is no answer.
    pub method: String,
    /// Byte span of the answer in the text.
    pub span: Option<(usize, usize)>,
    /// Verdict of the Qwen2.5-Math rules.
    pub qwen: bool,
    /// Verdict of the strict mode.
    pub strict: bool,
    /// The rules that decided: Qwen's, then strict.
    pub reasons: (String, String),
    /// The primary verdict.
    pub correct: bool,
    /// Repetition score of the text, see [`crate::repetition`].
    pub repetition: f64,
}

impl Graded {
    /// True when generation hit its token budget.
    pub fn truncated(&self) -> bool {
        self.sample.finish == "length"
    }

    /// True when no answer was found.
    pub fn unanswered(&self) -> bool {
        self.method == "none" || self.extracted.is_empty()
    }
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Reads JSON lines; an error names file and line. `path` may be a folder that holds `file_name`.
pub fn read_lines<T: DeserializeOwned>(path: &Path, file_name: &str) -> Result<Vec<T>, StageError> {
    let path = if path.is_dir() { path.join(file_name) } else { PathBuf::from(path) };
    let file = File::open(&path).map_err(|e| StageError::io(&path, e))?;
    let mut rows = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|e| StageError::io(&path, e))?;
        if line.trim().is_empty() {
            continue;
        }
        let row = serde_json::from_str(&line).map_err(|e| {
            StageError::input(format!("{}:{}: {e}", path.display(), number + 1))
                .with_help("each line must be one JSON object with the fields of its kind")
        })?;
        rows.push(row);
    }
    Ok(rows)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(serde_json::Number),
}

impl From<TextOrNumber> for String {
    fn from(value: TextOrNumber) -> String {
        match value {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(number) => number.to_string(),
        }
    }
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    TextOrNumber::deserialize(deserializer).map(String::from)
}

fn maybe_text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<TextOrNumber>::deserialize(deserializer)?.map(String::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_text_and_unknown_fields_are_ignored() {
        let line = r#"{"id":7,"gold":12,"text":"x","level":3,"token_ids":[1]}"#;
        let sample: Sample = serde_json::from_str(line).unwrap();
        assert_eq!((sample.id.as_str(), sample.gold.as_str()), ("7", "12"));
        assert_eq!(sample.level.as_deref(), Some("3"));
        assert_eq!(sample.finish, "");
    }

    #[test]
    fn a_bad_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("samples.jsonl"),
            "{\"id\":1,\"gold\":\"1\",\"text\":\"\"}\n\n{\"id\":2,\"gold\":\"1\"}\n",
        )
        .unwrap();
        let error = read_lines::<Sample>(dir.path(), "samples.jsonl").unwrap_err();
        assert!(error.message.contains("samples.jsonl:3: missing field `text`"), "{error}");
    }
}
