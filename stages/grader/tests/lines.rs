//! JSON lines, summaries, audits.

use std::io::Cursor;

use grader::audit::{Audit, LooseRule, Retries, audit_row, loose_answer, needs_retry};
use grader::line::{grade_line, grade_lines};
use grader::{Summary, grade_output};
use serde_json::Value;

#[test]
fn a_line_comes_back_with_its_verdicts() {
    let line = r#"{"id": 7, "text": "so \\boxed{0.5}", "gold": "\\frac{1}{2}", "data_name": "math"}"#;
    let (row, _) = grade_line(line, "math500").unwrap();
    assert_eq!(row["id"], 7);
    assert_eq!(row["extracted"], "0.5");
    assert_eq!(row["method"], "boxed");
    assert_eq!(row["qwen"], true);
    assert_eq!(row["reason"]["qwen"], "symbolic");
    let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
    assert_eq!(keys[..4], ["id", "text", "gold", "data_name"]);
}

#[test]
fn numbers_may_stand_for_texts() {
    let (row, _) = grade_line(r#"{"pred": 27.0, "gold": 27}"#, "amc23").unwrap();
    assert_eq!((row["qwen"].as_bool(), row["method"].as_str()), (Some(true), Some("given")));
}

#[test]
fn an_integer_that_would_be_rounded_is_refused() {
    for number in ["12345678901234567890124", "1e20", "-1e300"] {
        for line in
            [format!(r#"{{"pred": {number}, "gold": 1}}"#), format!(r#"{{"pred": 1, "gold": {number}}}"#)]
        {
            assert!(grade_line(&line, "math").unwrap_err().contains("write it as text"), "{line}");
        }
    }
    let line = r#"{"pred": 18446744073709551615, "gold": "18446744073709551614"}"#;
    assert!(!grade_line(line, "math").unwrap().1.strict);
}

#[test]
fn a_byte_order_mark_costs_no_line() {
    let input = "\u{feff}{\"pred\": \"1\", \"gold\": \"1\"}\n";
    let (mut output, mut summary) = (Vec::new(), Summary::default());
    let bad = grade_lines(Cursor::new(input), &mut output, "math", &mut summary).unwrap();
    assert!(bad.is_empty() && !output.is_empty());
}

#[test]
fn bad_lines_are_named_and_the_rest_keeps_its_order() {
    let mut input = String::new();
    for i in 0..10_000 {
        match i {
            5 => input.push_str("{\n"),
            77 => input.push_str("{\"pred\": \"1\"}\n"),
            99 => input.push('\n'),
            _ => input.push_str(&format!("{{\"n\": {i}, \"pred\": \"{i}\", \"gold\": \"1000\"}}\n")),
        }
    }
    let mut output = Vec::new();
    let mut summary = Summary::default();
    let bad = grade_lines(Cursor::new(input), &mut output, "math", &mut summary).unwrap();
    let bad: Vec<(usize, String)> = bad.into_iter().map(|b| (b.line, b.problem)).collect();
    assert_eq!((bad[0].0, bad[1].0, bad.len()), (6, 78, 2));
    assert!(bad[1].1.contains("`gold` is missing"));
    let numbers: Vec<u64> = String::from_utf8(output)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["n"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers.len(), 9_997);
    assert!(numbers.is_sorted());
    // 10 and 1000 are the same percentage to Qwen's rules; 1000 is right to everyone.
    assert_eq!((summary.total, summary.qwen), (9_997, 2));
}

#[test]
fn the_summary_lists_disagreements() {
    let mut summary = Summary::default();
    summary.add(3, &grade_output(r"\boxed{(1,2]}", "[1,2)", "math500"));
    assert_eq!((summary.qwen_only, summary.disagreements[0].sample), (1, 3));
    let shown = summary.to_string();
    assert!(shown.contains("(1,2] | [1,2)"), "{shown}");
}

#[test]
fn looser_rules_find_what_qwen_misses() {
    let cases = [
        (r"\boxed{5} and \boxed{}", LooseRule::FilledBox, "5"),
        (r"\fbox{7}", LooseRule::FilledBox, "7"),
        ("#### 12\n", LooseRule::Hashes, "12"),
        ("ANSWER: x = 3.", LooseRule::AnswerPhrase, "x = 3"),
        ("It is **73** apples", LooseRule::Bold, "73"),
        (r"we get \(x^2\) at last", LooseRule::Formula, "x^2"),
        ("about 8", LooseRule::LastNumber, "8"),
    ];
    for (text, rule, answer) in cases {
        let (found, (start, end)) = loose_answer(text).unwrap();
        assert_eq!((found, &text[start..end]), (rule, answer), "{text}");
    }
    assert_eq!(loose_answer("nothing here"), None);
}

#[test]
fn an_audit_counts_what_happened() {
    let samples = [
        (r"\boxed{1} so \boxed{4}", "4", false),
        (r"\boxed{4} wait \boxed{}", "4", true),
        ("I give up", "4", true),
        ("**4**, since 2+3 is not 6", "4", false),
    ];
    let mut audit = Audit::default();
    for (text, gold, at_limit) in samples {
        let verdict = grade_output(text, gold, "math500");
        audit.add(&audit_row(text, gold, "math500", at_limit, &verdict));
    }
    assert_eq!((audit.total, audit.with_box, audit.several_boxes), (4, 2, 2));
    assert_eq!((audit.missing, audit.at_limit, audit.at_limit_without_box), (2, 2, 1));
    assert_eq!(audit.loose_would_gain["filled_box"], 1);
    assert_eq!(audit.loose_would_gain["bold"], 1);
}

#[test]
fn retries_are_counted_apart() {
    let right = grade_output(r"\boxed{4}", "4", "math");
    let wrong = grade_output("perhaps 5", "4", "math");
    assert!(needs_retry(&wrong) && !needs_retry(&right));
    let mut retries = Retries::default();
    retries.add(&right, None, |v| v.qwen);
    retries.add(&wrong, Some(&right), |v| v.qwen);
    retries.add(&wrong, Some(&wrong), |v| v.qwen);
    assert_eq!((retries.total, retries.first_correct, retries.retried), (3, 1, 2));
    assert_eq!((retries.rescued, retries.spoiled, retries.final_correct), (1, 0, 2));
}

#[test]
fn a_gold_without_an_answer_is_refused() {
    for gold in ["", "  ", "$$", "$ $", "\\\\( \\\\)", "\\\\boxed{}", "2 + 2 is\\n#### "] {
        let line = format!(r#"{{"pred": "1", "gold": "{gold}"}}"#);
        let problem = grade_line(&line, "gsm8k").unwrap_err();
        assert!(problem.contains("`gold` is empty"), "{line}: {problem}");
    }
    for gold in ["0", "$x$", "\\\\{\\\\}", "\\\\emptyset", "2 + 2 is\\n#### 4", "So \\\\boxed{4}.", "{}"] {
        grade_line(&format!(r#"{{"pred": "1", "gold": "{gold}"}}"#), "math").unwrap();
    }
}
