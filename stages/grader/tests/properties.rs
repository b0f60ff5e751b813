//! Properties that hold for any text.

use grader::qwen::equal::math_equal;
use grader::qwen::strip::strip_string;
use grader::{extract_answer, grade_answer, grade_output};
use proptest::prelude::*;

/// Text made of the pieces that answers are made of.
fn latexish() -> impl Strategy<Value = String> {
    let pieces = [
        "1",
        "2",
        "0",
        "10",
        ".",
        ",",
        "x",
        "y",
        "n",
        "e",
        "i",
        "d",
        "+",
        "-",
        "*",
        "/",
        "^",
        "_",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "|",
        "!",
        "=",
        "<",
        ">",
        "&",
        "%",
        "$",
        "~",
        " ",
        "\"",
        "'",
        ":",
        ";",
        "\\",
        "\\\\",
        "\\frac",
        "\\sqrt",
        "\\pi",
        "\\sin",
        "\\log",
        "\\left",
        "\\right",
        "\\cdot",
        "\\le",
        "\\infty",
        "\\text{",
        "\\boxed{",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "\\binom",
        "\\overline",
        "\\int",
        "\\sum",
        "\\lim",
        "\\pm",
        "\\cup",
        "\\in",
        "\\%",
        "\\circ",
        "answer is",
        "boxed",
        "####",
        "two",
        "point",
        "east",
        " m ",
        "é",
        "²",
        "√",
        "−",
        "\n",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..40)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_answer_equals_itself(s in latexish()) {
        prop_assert!(math_equal(&s, &s).equal);
    }

    #[test]
    fn nothing_panics(pred in latexish(), gold in latexish(), any in any::<String>()) {
        grade_answer(&pred, &gold, "math500");
        grade_output(&pred, &any, "gsm8k");
        grade_output(&any, &gold, "mmlu_stem");
        grade_answer(&any, &pred, "minerva_math");
    }

    #[test]
    fn spans_are_what_was_found(s in latexish()) {
        let found = extract_answer(&s, "math");
        if let Some((start, end)) = found.span {
            let text = &s[start..end];
            prop_assert!(text == found.raw || text.replace(',', "") == found.raw);
        }
    }

    #[test]
    fn boxed_answers_come_back(s in "[a-z0-9+*^() ]{0,30}") {
        let text = format!("Hence \\boxed{{{s}}}.");
        let found = extract_answer(&text, "math");
        prop_assert_eq!(found.raw, s);
    }

    #[test]
    fn stripping_leaves_no_outer_space(s in any::<String>()) {
        let out = strip_string(&s, false);
        prop_assert!(!out.contains(' '));
    }

    #[test]
    fn numbers_compare_as_numbers(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
        let close = |x: f64, y: f64| x == y || (x - y).abs() <= 1e-4 * x.abs().max(y.abs());
        let (x, y) = (a as f64, b as f64);
        let want = [y / 100.0, y, y * 100.0].iter().any(|&y| close(x, y));
        prop_assert_eq!(math_equal(&a.to_string(), &b.to_string()).equal, want);
    }
}
