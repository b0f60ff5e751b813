//! JSON lines in, graded JSON lines out: what `pipeline grade FILE.jsonl` does.

use std::io::{self, BufRead, Write};

use rayon::prelude::*;
use serde_json::{Map, Value};

use crate::summary::Summary;
use crate::{Verdict, grade_answer, grade_output, states_answer};

/// A line that could not be graded.
#[derive(Clone, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadLine {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

/// Lines graded at a time: enough for all cores, small in memory.
const BATCH: usize = 4096;

/// Grades a JSON line with `pred` (an answer) or `text` (a full output), `gold`, and an optional
/// `data_name`; `default_data_name` stands in where the line has none. Returns the line's object
/// with `extracted`, `method`, `qwen`, `strict` and `reason` added, and the verdict.
pub fn grade_line(line: &str, default_data_name: &str) -> Result<(Value, Verdict), String> {
    let mut row: Map<String, Value> = match serde_json::from_str(line) {
        Ok(Value::Object(row)) => row,
        Ok(_) => return Err("not a JSON object; write {\"pred\": …, \"gold\": …}".into()),
        Err(e) => return Err(format!("not JSON: {e}")),
    };
    let gold = text_of(&row, "gold")?.ok_or("`gold` is missing; add the correct answer")?;
    if !states_answer(&gold) {
        return Err("`gold` is empty; write the correct answer".into());
    }
    let data_name = text_of(&row, "data_name")?.unwrap_or_else(|| default_data_name.to_string());
    let verdict = match (text_of(&row, "pred")?, text_of(&row, "text")?) {
        (Some(_), Some(_)) => return Err("has both `pred` and `text`; keep one".into()),
        (Some(pred), None) => grade_answer(&pred, &gold, &data_name),
        (None, Some(text)) => grade_output(&text, &gold, &data_name),
        (None, None) => return Err("has neither `pred` (an answer) nor `text` (an output)".into()),
    };
    row.insert("extracted".into(), verdict.extracted.clone().into());
    row.insert("method".into(), verdict.method.as_str().into());
    row.insert("qwen".into(), verdict.qwen.into());
    row.insert("strict".into(), verdict.strict.into());
    let mut reason = Map::new();
    reason.insert("qwen".into(), verdict.qwen_reason.as_str().into());
    reason.insert("strict".into(), verdict.strict_reason.as_str().into());
    row.insert("reason".into(), Value::Object(reason));
    Ok((Value::Object(row), verdict))
}

/// From here on not every integer is a float of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A field as text: strings as they are, numbers and booleans as JSON writes them. An integer beyond
/// 64 bits, which would be rounded, is refused.
fn text_of(row: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(Value::Number(n)) if n.is_f64() && n.as_f64().is_some_and(|v| v.abs() >= EXACT) => {
            Err(format!("`{key}` is too large to be kept as a number; write it as text, in quotes"))
        }
        Some(v @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(v.to_string())),
        Some(_) => Err(format!("`{key}` is neither text nor a number")),
    }
}

/// Grades all lines of `input` in parallel and writes them to `output` in their order. Empty lines
/// and a byte-order mark are skipped. Bad lines are not written; they come back with their numbers.
pub fn grade_lines(
    input: impl BufRead,
    mut output: impl Write,
    default_data_name: &str,
    summary: &mut Summary,
) -> io::Result<Vec<BadLine>> {
    let mut bad = Vec::new();
    let mut batch: Vec<(usize, Vec<u8>)> = Vec::with_capacity(BATCH);
    let mut lines = input.split(b'\n').enumerate();
    loop {
        batch.clear();
        for (i, line) in lines.by_ref().take(BATCH) {
            let mut line = line?;
            if i == 0 && line.starts_with("\u{feff}".as_bytes()) {
                line.drain(..'\u{feff}'.len_utf8());
            }
            batch.push((i + 1, line));
        }
        if batch.is_empty() {
            output.flush()?;
            return Ok(bad);
        }
        let graded: Vec<_> = batch
            .par_iter()
            .filter(|(_, l)| !l.iter().all(u8::is_ascii_whitespace))
            .map(|(i, line)| {
                let graded = std::str::from_utf8(line)
                    .map_err(|e| format!("not UTF-8: {e}"))
                    .and_then(|l| grade_line(l, default_data_name));
                (*i, graded)
            })
            .collect();
        for (line, graded) in graded {
            match graded {
                Ok((row, verdict)) => {
                    summary.add(line, &verdict);
                    writeln!(output, "{row}")?;
                }
                Err(problem) => bad.push(BadLine { line, problem }),
            }
        }
    }
}
