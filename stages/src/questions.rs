//! Benchmark questions: JSON lines in the shapes that MATH500, AMC23 and GSM8K come in.

use std::collections::HashMap;
use std::path::Path;

use engine::kind::StageError;
use serde_json::{Map, Value};

use crate::samples::read_lines;

/// One question with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// `unique_id` or `id` where the row has one, else the row's number from 0.
    pub id: String,
    /// `problem` or `question`.
    pub problem: String,
    /// What grading compares with: `answer`, and for MATH-style rows without one the `solution`.
    pub gold: String,
    /// A worked solution, where the row has one (GSM8K keeps it in `answer`).
    pub solution: Option<String>,
    /// `level`, as text.
    pub level: Option<String>,
    /// `subject` or `type`.
    pub subject: Option<String>,
}

/// Reads questions from JSON lines; `path` may be a folder that holds `test.jsonl`.
///
/// # Errors
/// A row without a question or an answer, or with an empty one, naming file and row.
pub fn read_questions(path: &Path, limit: Option<usize>) -> Result<Vec<Question>, StageError> {
    let rows: Vec<Map<String, Value>> = read_lines(path, "test.jsonl")?;
    let questions = rows
        .iter()
        .take(limit.unwrap_or(usize::MAX))
        .enumerate()
        .map(|(number, row)| question(number, row, path))
        .collect::<Result<Vec<_>, _>>()?;
    if questions.is_empty() {
        return Err(StageError::input(format!("{}: no questions", path.display()))
            .with_help("give a file with at least one row, and a `limit` of 1 or more"));
    }
    Ok(questions)
}

/// Reads the questions of a benchmark, whose answers are told apart by id; see [`read_questions`].
///
/// # Errors
/// Two rows of one id, naming both, and what [`read_questions`] refuses.
pub fn read_benchmark(path: &Path, limit: Option<usize>) -> Result<Vec<Question>, StageError> {
    let questions = read_questions(path, limit)?;
    let mut rows: HashMap<&str, usize> = HashMap::new();
    for (row, question) in questions.iter().enumerate() {
        if let Some(first) = rows.insert(&question.id, row) {
            let message = format!(
                "{}: rows {} and {} have the same id `{}`",
                path.display(),
                first + 1,
                row + 1,
                question.id
            );
            return Err(StageError::input(message).with_help(
                "give each row an `id` (or `unique_id`) of its own, or none to all: a row without one goes by its \
                 number, from 0",
            ));
        }
    }
    Ok(questions)
}

fn question(number: usize, row: &Map<String, Value>, path: &Path) -> Result<Question, StageError> {
    let text = |names: &[&str]| names.iter().find_map(|name| row.get(*name).and_then(as_text));
    let missing = |what: &str| {
        StageError::input(format!("{}: row {} has no {what}", path.display(), number + 1))
            .with_help("a row needs `problem` or `question`, and `answer` or `solution`")
    };
    let solution = text(&["solution"]);
    let gold = text(&["answer"]).or_else(|| solution.clone()).ok_or_else(|| missing("answer"))?;
    if !grader::states_answer(&gold) {
        let row = format!("{}: row {} has an empty answer", path.display(), number + 1);
        return Err(StageError::input(row).with_help("write the correct answer, or leave the row out"));
    }
    Ok(Question {
        id: text(&["unique_id", "id"]).unwrap_or_else(|| number.to_string()),
        problem: text(&["problem", "question"]).ok_or_else(|| missing("question"))?,
        gold,
        solution: solution.or_else(|| text(&["answer"])),
        level: text(&["level"]),
        subject: text(&["subject", "type"]),
    })
}

/// Text as it is, numbers as they are written (AMC23 has `27.0`).
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Vec<Question>, StageError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("test.jsonl"), lines).unwrap();
        read_questions(dir.path(), None)
    }

    #[test]
    fn the_three_benchmark_shapes_are_read() {
        let rows = read(
            r#"{"problem":"p","solution":"s","answer":"a","subject":"Algebra","level":2,"unique_id":"u/1"}
{"id":7,"question":"q","answer":27.0}
{"question":"q","answer":"work\n#### 5"}"#,
        )
        .unwrap();
        assert_eq!((rows[0].id.as_str(), rows[0].level.as_deref()), ("u/1", Some("2")));
        assert_eq!((rows[1].id.as_str(), rows[1].gold.as_str()), ("7", "27.0"));
        assert_eq!((rows[2].id.as_str(), rows[2].gold.as_str()), ("2", "work\n#### 5"));
        assert_eq!(rows[2].solution.as_deref(), Some("work\n#### 5"));
    }

    #[test]
    fn a_benchmark_has_each_id_once() {
        let row = |id: &str| format!("{{{id}\"problem\":\"p\",\"answer\":\"1\"}}\n");
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |ids: &[&str], limit| {
            std::fs::write(file.path(), ids.iter().map(|id| row(id)).collect::<String>()).unwrap();
            read_benchmark(file.path(), limit)
        };
        let refused = |ids: &[&str]| read(ids, None).unwrap_err().message;
        let message = refused(&["\"id\":\"a\",", "\"id\":\"b\",", "\"unique_id\":\"a\","]);
        assert!(message.ends_with("rows 1 and 3 have the same id `a`"), "{message}");
        // The second row has none, and goes by its number.
        let message = refused(&["\"id\":1,", ""]);
        assert!(message.ends_with("rows 1 and 2 have the same id `1`"), "{message}");
        let message = refused(&["\"id\":0,", "\"id\":1,", "\"id\":\"0\","]);
        assert!(message.ends_with("rows 1 and 3 have the same id `0`"), "{message}");
        assert_eq!(read(&["\"id\":1,", ""], Some(1)).unwrap().len(), 1, "only what is asked");
        assert_eq!(read(&["", "", ""], None).unwrap().len(), 3);
    }

    #[test]
    fn a_row_without_an_answer_is_named() {
        let error = read("{\"problem\":\"p\",\"answer\":\"1\"}\n{\"problem\":\"p\"}").unwrap_err();
        assert!(error.message.contains("row 2 has no answer"), "{error}");
        assert!(read("").is_err());
        for empty in ["", "$$", "  ", "\\\\boxed{}"] {
            let rows = format!(
                "{{\"problem\":\"p\",\"answer\":\"1\"}}\n{{\"problem\":\"p\",\"answer\":\"{empty}\"}}"
            );
            let error = read(&rows).unwrap_err();
            assert!(error.message.contains("row 2 has an empty answer"), "{error}");
        }
    }
}
