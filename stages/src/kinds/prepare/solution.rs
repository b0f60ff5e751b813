//! Solutions brought into form and checked.

use grader::Method;

use super::rows::Row;

/// A solution without GSM8K's calculator notes (`<<48/2=24>>`) and its last line (`#### 24`).
pub fn without_notes(solution: &str) -> String {
    let mut out = String::with_capacity(solution.len());
    let mut rest = solution;
    while let Some((before, after)) = rest.split_once("<<") {
        let Some((_, after)) = after.split_once(">>") else { break };
        out.push_str(before);
        rest = after;
    }
    out.push_str(rest);
    match out.rsplit_once("####") {
        Some((before, answer)) if !answer.trim().contains('\n') => before.trim_end().to_owned(),
        _ => out,
    }
}

/// Adds a last line with the boxed answer to a solution without a box; true if it was missing.
pub fn add_box(row: &mut Row) -> bool {
    if ["\\boxed", "\\fbox"].iter().any(|mark| row.solution.contains(mark)) {
        return false;
    }
    row.solution = format!("{}\n\\boxed{{{}}}", row.solution.trim_end(), row.answer.trim());
    true
}

/// Whether every one of these benchmarks' extractors finds a boxed answer, and its rules hold it
/// equal to the row's.
pub fn is_readable(row: &Row, extractors: &[String]) -> bool {
    extractors.iter().all(|name| {
        let verdict = grader::grade_output(&row.solution, &row.answer, name);
        verdict.method == Method::Boxed && verdict.qwen
    })
}
