//! Known traps of answer grading, each with the verdict that the Qwen harness gives.

use grader::{Method, Reason, extract_answer, extract_gsm8k, grade_answer, grade_output};

fn qwen(pred: &str, gold: &str) -> bool {
    grade_answer(pred, gold, "math500").qwen
}

#[test]
fn nested_braces_in_a_box() {
    let text = r"so \boxed{\frac{1}{2}} it is";
    let found = extract_answer(text, "math500");
    assert_eq!((found.answer.as_str(), found.method), (r"\frac{1}{2}", Method::Boxed));
    let (start, end) = found.span.unwrap();
    assert_eq!(&text[start..end], r"\frac{1}{2}");
}

#[test]
fn the_last_box_counts_closed_or_not() {
    assert_eq!(extract_answer(r"\boxed{1}, no: \boxed{2}", "math500").answer, "2");
    assert_eq!(extract_answer(r"\boxed{3", "math500").answer, "3");
}

#[test]
fn an_empty_last_box_is_no_answer() {
    for text in [r"\boxed{5} then \boxed{", r"\boxed{5} then \boxed{}"] {
        let found = extract_answer(text, "math500");
        assert_eq!((found.answer.as_str(), found.method, found.span), ("", Method::None, None));
        let verdict = grade_output(text, "5", "math500");
        assert!(!verdict.qwen && !verdict.strict);
        assert_eq!(verdict.qwen_reason, Reason::None);
    }
}

#[test]
fn thousands_separators() {
    assert!(qwen("1,234", "1234"));
    assert!(qwen("1234", "1,234"));
    assert_eq!(extract_answer("it comes to 1,234,567 dollars", "gsm8k").answer, "1234567");
}

#[test]
fn fractions_without_braces() {
    assert!(qwen(r"\frac12", "1/2"));
    assert_eq!(grader::qwen::strip::strip_string(r"\frac{72}1", false), r"\frac{72}1");
}

#[test]
fn a_space_before_an_interval_splits_the_two_modes() {
    let verdict = grade_answer(r"x\in(-2,3]", r"x \in (-2,3]", "math500");
    assert!(!verdict.qwen);
}

#[test]
fn interval_ends_do_not_count_for_qwen() {
    assert!(qwen("(1,2]", "[1,2)"));
}

#[test]
fn a_direction_normalises_to_nothing() {
    // `east` and `west` are unit words, so the gold is empty and so is every answer.
    let gold = r"\text{east}";
    for pred in ["west", ""] {
        let verdict = grade_answer(pred, gold, "math500");
        assert!(verdict.qwen, "{pred}");
        assert!(!verdict.strict, "{pred}");
    }
}

#[test]
fn power_towers_answer_at_once() {
    for tower in ["5^(5^(5^5))", "5^{5^{5^{5}}}", "9^{9^{9^{9}}}", "10^{10^{10}}", "((((9^9)^9)^9)^9)^9!"] {
        let verdict = grade_answer(tower, "1", "math500");
        assert!(!verdict.strict, "{tower}");
    }
    assert!(!qwen("5^{5^{5^{5}}}", "1"));
    assert!(!qwen("9^{9^{9}}", "9^{9^{8}}"));
}

#[test]
fn leading_zeros() {
    assert!(qwen("016", "16"));
}

#[test]
fn gsm8k_gold() {
    let gold = "She sells 25 * 85 = <<25*85=2125>>2125 eggs.\n#### 2,125";
    assert_eq!(extract_gsm8k(gold).unwrap().answer, "2125");
    let verdict = grade_output("So it is 2125.", gold, "gsm8k");
    assert_eq!((verdict.qwen, verdict.gold.as_str()), (true, "2,125"));
    assert_eq!(verdict.method, Method::LastNumber);
}

#[test]
fn every_rule_names_itself() {
    let cases = [
        (r"\boxed{7}", "math", Method::Boxed),
        (r"boxed $7$", "math", Method::None),
        ("The answer is 7.", "math", Method::TheAnswerIs),
        ("My final answer is 7", "math", Method::FinalAnswerIs),
        ("The final answer is $7$. I hope it is correct.", "math", Method::Minerva),
        ("答案是 7\n\n下一题", "math", Method::Chinese),
        ("6 and 7", "math", Method::LastNumber),
        ("nothing", "math", Method::None),
        ("The answer is (B).", "aqua", Method::Choice),
    ];
    for (text, data_name, method) in cases {
        assert_eq!(extract_answer(text, data_name).method, method, "{text}");
    }
}

#[test]
fn spans_lie_in_the_original_text() {
    let text = "ки so \u{43a}\u{438} the answer is   -1,234.50 ";
    let found = extract_answer(text, "math");
    let (start, end) = found.span.unwrap();
    assert_eq!(&text[start..end], "-1,234.50");
    assert_eq!(found.raw, "-1,234.50");
}

#[test]
fn texts_that_can_be_read_in_many_ways_are_given_up() {
    // Found by fuzzing: each bar may open or close, each bracket may be an argument or a factor.
    let bars = r"\bigl(6x, \frac{2}{4||||||||||||||||||||||||||frac{2igr)";
    let calls = "f(".repeat(300);
    let braces = r"\frac{3441}{3 \frac{2}{4}\bigr)(6x,\fra}1124";
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    for text in [bars, &calls, braces, &deep, &"|x".repeat(200), &"{[(".repeat(100)] {
        assert!(!qwen(text, "7"), "{text}");
        assert!(qwen(text, text), "{text}");
    }
}

#[test]
fn a_box_that_fails_inside_a_bar_leaves_the_parser_sound() {
    // Found by the property tests: the count of open bars went below zero.
    let verdict = grade_answer(r"|\boxed{*1", "1", "math500");
    assert!(!verdict.strict);
}
