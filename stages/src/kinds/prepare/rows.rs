//! Raw rows: JSON lines, or one JSON array.

use std::fs;
use std::path::Path;

use engine::kind::StageError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::samples::read_lines;

/// Names of the fields of a raw row. Left out: the usual ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// The problem: `problem` or `question`.
    pub problem: Option<String>,
    /// The worked solution: `solution`, else `generated_solution`, else the answer.
    pub solution: Option<String>,
    /// The answer, or a solution that holds it: `answer`, else `expected_answer`, else the solution.
    pub answer: Option<String>,
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its place in its file, from 1.
    pub number: usize,
    /// The problem; empty where the row has none.
    pub problem: String,
    /// The worked solution.
    pub solution: String,
    /// The answer; empty where the row has none.
    pub answer: String,
}

/// Reads the rows of a file, or of the `train.jsonl` in a folder.
///
/// # Errors
/// A file that is no JSON, and a first row that has no field of a name that was given.
pub fn read_rows(path: &Path, fields: &Fields) -> Result<Vec<Row>, StageError> {
    let raw: Vec<Map<String, Value>> = match path.extension().is_some_and(|end| end == "json") {
        true => {
            let text = fs::read(path).map_err(|error| StageError::io(path, error))?;
            serde_json::from_slice(&text).map_err(|error| {
                StageError::input(format!("{}: {error}", path.display()))
                    .with_help("a .json file must hold one array of objects; name JSON lines .jsonl")
            })?
        }
        false => read_lines(path, "train.jsonl")?,
    };
    let Some(first) = raw.first() else {
        return Err(StageError::input(format!("{}: no rows", path.display()))
            .with_help("check what wrote it, or what was fetched"));
    };
    let given = [&fields.problem, &fields.solution, &fields.answer];
    if let Some(name) = given.into_iter().flatten().find(|name| !first.contains_key(*name)) {
        let known: Vec<&str> = first.keys().map(String::as_str).collect();
        return Err(StageError::input(format!("{}: rows have no field `{name}`", path.display()))
            .with_help(format!("their fields are {}", known.join(", "))));
    }
    Ok(raw.iter().enumerate().map(|(at, row)| read_row(at + 1, row, fields)).collect())
}

fn read_row(number: usize, row: &Map<String, Value>, fields: &Fields) -> Row {
    let text = |given: &Option<String>, usual: &[&str]| {
        let usual = usual.iter().copied();
        let names: Vec<&str> = given.as_deref().map_or_else(|| usual.collect(), |name| vec![name]);
        names.into_iter().find_map(|name| match row.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    };
    let solution = text(&fields.solution, &["solution", "generated_solution"]);
    let answer = text(&fields.answer, &["answer", "expected_answer"]);
    Row {
        number,
        problem: text(&fields.problem, &["problem", "question"]).unwrap_or_default(),
        solution: solution.clone().or_else(|| answer.clone()).unwrap_or_default(),
        answer: answer.or(solution).unwrap_or_default(),
    }
}
