//! Agreement with the recorded verdicts of the real Python graders. Where this crate is known to
//! differ, the row is listed with the reason, so that any other change shows.

use std::path::Path;

use grader::qwen::equal::math_equal;
use grader::qwen::gold::parse_ground_truth;
use grader::qwen::strip::strip_string;
use serde_json::Value;

fn rows(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn field<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// Rows (by id) where the Qwen rules of this crate differ from Python's, as stated in the crate's
/// README.
const KNOWN: [&str; 0] = [];

#[test]
fn qwen_verdicts_on_pairs() {
    let mut differ = Vec::new();
    let rows = rows("pairs.jsonl");
    for row in &rows {
        let columns = [
            ("qwen_raw", field(row, "pred"), field(row, "gold")),
            ("qwen_pipeline", field(row, "pred_stripped"), field(row, "gold_stripped")),
        ];
        for (column, pred, gold) in columns {
            let Some(want) = row[column].as_bool() else {
                continue;
            };
            if math_equal(pred, gold).equal != want {
                differ.push(format!("{} {column}: {pred} | {gold} is {want}", field(row, "id")));
            }
        }
    }
    let unknown: Vec<_> = differ.iter().filter(|d| !KNOWN.iter().any(|k| d.starts_with(k))).collect();
    assert!(rows.len() > 2000);
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn normalisation_of_pairs() {
    for row in rows("pairs.jsonl") {
        let (pred, data_name) = (field(&row, "pred"), field(&row, "data_name"));
        let gold = field(&row, "gold_stripped");
        let once = grader::extract::normalised(pred, data_name);
        let got = grader::qwen_prediction(&once, pred, gold, data_name);
        assert_eq!(got, field(&row, "pred_stripped"), "{row}");
        // A gold with a box is taken for a worked solution; these rows take it for an answer.
        if !field(&row, "gold").contains("boxed") {
            assert_eq!(parse_ground_truth(field(&row, "gold"), data_name), gold, "{row}");
        }
    }
}

#[test]
fn extraction_and_verdict_of_outputs() {
    let rows = rows("extract.jsonl");
    assert!(rows.len() > 900);
    for row in rows {
        let (text, gold) = (field(&row, "text"), field(&row, "gold_raw"));
        let data_name = field(&row, "data_name");
        let found = grader::extract_answer(text, data_name);
        assert_eq!(found.answer, field(&row, "extracted"), "{text}");
        let parsed = parse_ground_truth(gold, data_name);
        assert_eq!(parsed, field(&row, "gold_parsed"), "{gold}");
        let pred = grader::qwen_prediction(&found.answer, text, &parsed, data_name);
        assert_eq!(pred, field(&row, "pred"), "{text}");
        if let Some(want) = row["verdict"].as_bool() {
            let verdict = grader::grade_output(text, gold, data_name);
            assert_eq!(verdict.qwen, want, "{pred} | {parsed}");
        }
    }
}

#[test]
fn single_steps() {
    for row in rows("vectors.jsonl") {
        match field(&row, "kind") {
            "strip" => assert_eq!(strip_string(field(&row, "in"), false), field(&row, "out"), "{row}"),
            "extract" => {
                let found = grader::extract_answer(field(&row, "in"), field(&row, "data"));
                assert_eq!(found.answer, field(&row, "out"), "{row}");
            }
            "equal" => {
                let (pred, gold) = (field(&row, "strip_pred"), field(&row, "strip_gold"));
                assert_eq!(strip_string(field(&row, "pred"), false), pred, "{row}");
                assert_eq!(strip_string(field(&row, "gold"), false), gold, "{row}");
                if let Some(want) = row["qwen"].as_bool() {
                    assert_eq!(math_equal(pred, gold).equal, want, "{row}");
                }
            }
            other => panic!("unknown kind {other}"),
        }
    }
}
