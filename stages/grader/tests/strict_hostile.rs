//! Inputs made to exhaust the strict mode: each answers, whatever the verdict, and the verdict is
//! the right one where a person could tell.

use grader::Reason;
use grader::strict::equal;

fn nest(open: &str, inner: &str, close: &str, n: usize) -> String {
    format!("{}{inner}{}", open.repeat(n), close.repeat(n))
}

#[test]
fn towers_answer_at_once() {
    for (a, b, same) in [
        ("5^(5^(5^5))", "5^(5^(5^5))+1", false),
        ("9^{9^{9^{9}}}", "9^{9^{9^{9}}}", true),
        ("9^{9^{9^{9}}}", r"9^{9^{9^{3^2}}}", true),
        ("2^{2^{2^{2^{2^{2}}}}}", "2^{2^{2^{2^{2^{3}}}}}", false),
        ("(10^{10})^{10^{10}}", "10^{10^{11}}", true),
        ("100000!", "100001!", false),
        ("1e999999", "1e999998", false),
        ("1e999999", "10^{999999}", true),
        (r"\binom{1000000}{500000}", r"\binom{1000000}{499999}", false),
        (r"\sin(10^{1000})", r"\cos(10^{1000})", false),
        (r"e^{e^{e^{e^{e}}}}", r"e^{e^{e^{e^{e}}}}+1", false),
    ] {
        assert_eq!(equal(a, b).equal, same, "{a} | {b}");
        assert_eq!(equal(b, a).equal, same, "{b} | {a}");
    }
}

#[test]
fn depth_and_length_are_limited() {
    let inputs = [
        nest(r"\sqrt{", "2", "}", 5000),
        nest("(", "2", ")", 5000),
        nest("{", "2", "}", 5000),
        nest(r"\frac{1}{", "2", "}", 3000),
        nest("|", "2", "|", 3000),
        nest(r"\left\{", "2", r"\right\}", 2000),
        nest("2^{", "2", "}", 3000),
        nest(r"\sin ", "x", "", 3000),
        nest("-", "2", "", 9000),
        nest("", "2", "!", 9000),
        nest("", "2", "%", 9000),
        nest("", "x", "'", 9000),
        nest("", "x", "^2", 3000),
        nest("", "1", "/2", 4000),
        nest("", "1", "+1", 4000),
        nest("", "1", ",1", 4000),
        nest("", "x", "x", 9000),
        nest("", r"[1,2]", r"\cup[1,2]", 900),
        nest("", r"\{1\}", r"\setminus\{1\}", 900),
        nest(r"\begin{pmatrix}", "1", r"\end{pmatrix}", 200),
        nest("", "a", r" \oplus a", 900),
        "9".repeat(9999),
        "[".repeat(9999),
        r"\pm 1".repeat(1000),
        r"\text{".repeat(1000),
        r"\\".repeat(4000),
        "\u{0}".repeat(5000),
        "é".repeat(4000),
        // found by fuzzing: long products, and formulas by formulas
        r"\binom{4025}{2015}{20151\binom13}7777777777000000e+8 21^1.0\log_0e+9 10^9 - 9 - 1".into(),
        r"\left\{1, x, x^{2}, e^{2 x}, x e^{2 8}, \cos(2) x, x \cos(2) x, \sin(2)cos 2 x\right\}".into(),
        "m y tails a ".repeat(400),
    ];
    for a in &inputs {
        assert!(equal(a, a).equal);
        for b in ["2", "x", r"\sqrt{2}", "1,2"] {
            let _ = equal(a, b);
        }
        let longer = format!("{a}+1");
        let verdict = equal(a, &longer);
        assert_eq!(verdict.equal, equal(&longer, a).equal);
    }
}

#[test]
fn long_lists_in_another_order() {
    let list = |it: &mut dyn Iterator<Item = u32>| {
        it.map(|n| format!(r"\sqrt{{{n}}}")).collect::<Vec<_>>().join(", ")
    };
    let (up, down) = (list(&mut (2..150)), list(&mut (2..150).rev()));
    assert!(equal(&up, &down).equal);
    assert!(!equal(&up, &list(&mut (2..149).rev())).equal);
}

#[test]
fn running_out_of_work_is_said() {
    let sum: Vec<String> = (1..120).map(|k| format!(r"\sin(\ln({k}+\sqrt{{x+{k}}}))")).collect();
    let a = sum.join("+");
    let verdict = equal(&format!("{a}+10^{{-30}}"), &a);
    assert!(!verdict.equal);
    assert!(matches!(verdict.reason, Reason::Budget | Reason::Symbolic));
}
