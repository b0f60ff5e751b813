//! Properties of the strict mode: reflexive, symmetric, blind to white space and redundant
//! braces, never a panic.

use grader::strict::equal;
use proptest::prelude::*;

/// A formula as tokens; any white space may stand between two of them.
fn formula() -> impl Strategy<Value = Vec<String>> {
    let leaf = prop_oneof![
        (0u32..400).prop_map(|n| vec![n.to_string()]),
        prop::sample::select(vec!["x", "y", "n", r"\pi", "e", r"\alpha", "2.5", "0.125"])
            .prop_map(|s| vec![s.to_owned()]),
    ];
    leaf.prop_recursive(4, 40, 3, |inner| {
        let one = |open: &[&str], close: &[&str]| {
            let (open, close): (Vec<String>, Vec<String>) =
                (open.iter().map(|s| s.to_string()).collect(), close.iter().map(|s| s.to_string()).collect());
            move |x: Vec<String>| [open.clone(), x, close.clone()].concat()
        };
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["+", "-", r"\cdot"]), inner.clone())
                .prop_map(|(a, op, b)| [vec!["(".into()], a, vec![op.into()], b, vec![")".into()]].concat()),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| [
                vec![r"\frac".into(), "{".into()],
                a,
                vec!["}".into(), "{".into()],
                b,
                vec!["}".into()]
            ]
            .concat()),
            inner.clone().prop_map(one(&[r"\sqrt", "{"], &["}"])),
            inner.clone().prop_map(one(&[r"\sin", "("], &[")"])),
            inner.clone().prop_map(one(&["(", "-"], &[")"])),
            (inner, 0u32..4).prop_map(|(a, n)| [
                vec!["(".into()],
                a,
                vec![")".into(), "^".into(), "{".into(), n.to_string(), "}".into()]
            ]
            .concat()),
        ]
    })
}

/// Lists, tuples, intervals and relations of formulas.
fn answer() -> impl Strategy<Value = Vec<String>> {
    let join = |open: &'static str, close: &'static str, sep: &'static str| {
        move |v: Vec<Vec<String>>| {
            let mut out: Vec<String> = vec![open.into()];
            for (k, x) in v.into_iter().enumerate() {
                if k > 0 {
                    out.push(sep.into());
                }
                out.extend(x);
            }
            out.push(close.into());
            out.retain(|t| !t.is_empty());
            out
        }
    };
    prop_oneof![
        4 => formula(),
        1 => prop::collection::vec(formula(), 2..4).prop_map(join("(", ")", ",")),
        1 => prop::collection::vec(formula(), 2..4).prop_map(join(r"\{", r"\}", ",")),
        1 => prop::collection::vec(formula(), 2..3).prop_map(join("[", ")", ",")),
        1 => prop::collection::vec(formula(), 2..3).prop_map(join("", "", "=")),
        1 => prop::collection::vec(formula(), 2..3).prop_map(join("", "", r"\le")),
    ]
}

fn tight(tokens: &[String]) -> String {
    let mut s = String::new();
    for t in tokens {
        // A command and a letter, or two numbers, need their space.
        let glue = s.ends_with(|c: char| c.is_ascii_alphanumeric())
            && t.starts_with(|c: char| c.is_ascii_alphanumeric());
        if glue {
            s.push(' ');
        }
        s.push_str(t);
    }
    s
}

/// Fragments of answers in any order.
fn soup() -> impl Strategy<Value = String> {
    let parts = vec![
        r"\frac",
        r"\sqrt",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "^",
        "_",
        "1",
        "23",
        "x",
        "e",
        "i",
        r"\pi",
        r"\{",
        r"\}",
        ",",
        "=",
        "<",
        r"\le",
        "+",
        "-",
        "*",
        "/",
        "!",
        "%",
        "|",
        r"\text{",
        "and",
        " ",
        r"\pm",
        r"\infty",
        r"\cup",
        "&",
        r"\\",
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
        r"\sin",
        r"\log",
        ":",
        "$",
        "'",
        ".",
        "0.",
        r"\overline",
        "cm",
        r"\left",
        r"\right",
        r"\circ",
        r"\in",
        r"\sum",
        "é",
        "²",
        "½",
        "\u{0}",
        "9999999999999999999999",
        "e9",
        r"\",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..40).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn white_space_and_braces_say_nothing(tokens in answer(), gaps in prop::collection::vec(0usize..3, 400)) {
        let plain = tight(&tokens);
        let mut spaced = String::new();
        let mut braced = String::new();
        for (k, t) in tokens.iter().enumerate() {
            spaced.push_str(t);
            spaced.push_str([" ", r"\,", "  "][gaps[k % gaps.len()]]);
            // A number that is no exponent may stand in braces.
            if t.starts_with(|c: char| c.is_ascii_digit()) && gaps[k % gaps.len()] == 0 {
                braced.push_str(&format!("{{{t}}}"));
            } else {
                braced.push(' ');
                braced.push_str(t);
            }
        }
        let v = equal(&plain, &spaced);
        prop_assert!(v.equal, "{} | {} | {:?}", plain, spaced, v);
        let v = equal(&braced, &plain);
        prop_assert!(v.equal, "{} | {} | {:?}", plain, braced, v);
    }

    /// Not only what is equal stays equal: what differs stays different.
    #[test]
    fn decoration_changes_no_verdict(
        a in formula(),
        b in formula(),
        change in 0usize..3,
        gaps in prop::collection::vec(0usize..4, 400),
    ) {
        // The same formula, the same with another number, or any other.
        let mut other = a.clone();
        match change {
            0 => {}
            1 => {
                if let Some(t) = other.iter_mut().rev().find(|t| t.parse::<u32>().is_ok()) {
                    t.push('1');
                }
            }
            _ => other = b,
        }
        let (plain, gold) = (tight(&a), tight(&other));
        let verdict = equal(&plain, &gold).equal;
        let mut spaced = String::new();
        for (k, t) in a.iter().enumerate() {
            spaced.push_str(t);
            spaced.push_str([" ", r"\,", "  ", r"\;"][gaps[k % gaps.len()]]);
        }
        for decorated in [
            spaced.clone(),
            format!("{{{plain}}}"),
            format!("{{{{{spaced}}}}}"),
            format!("${plain}$"),
            format!(r"\left({plain}\right)"),
        ] {
            let v = equal(&decorated, &gold).equal;
            prop_assert_eq!(v, verdict, "{} | {}", decorated, gold);
        }
    }

    #[test]
    fn symmetric_on_formulas(a in answer(), b in answer()) {
        let (a, b) = (tight(&a), tight(&b));
        prop_assert_eq!(equal(&a, &b).equal, equal(&b, &a).equal);
    }

    #[test]
    fn an_added_term_makes_another_value(a in formula()) {
        let a = tight(&a);
        let more = format!("{a}+7");
        // Values that do not exist (1/0) and what swallows the term stay out.
        prop_assume!(equal(&format!("{a}-({a})"), "0").equal);
        prop_assert!(!equal(&a, &more).equal, "{} | {}", a, more);
    }

    #[test]
    fn no_panic_and_symmetric_on_soup(a in soup(), b in soup()) {
        prop_assert_eq!(equal(&a, &b).equal, equal(&b, &a).equal);
        prop_assert!(equal(&a, &a).equal);
    }

    #[test]
    fn no_panic_on_any_text(a in ".{0,60}", b in ".{0,60}") {
        equal(&a, &b);
    }
}

/// The same over real answers: every pair of the reviewed sample.
#[test]
fn real_answers_keep_their_verdicts() {
    #[derive(serde::Deserialize)]
    struct Pair {
        pred: String,
        gold: String,
    }
    let mut wrong = Vec::new();
    for line in include_str!("data/strict_pairs.jsonl").lines() {
        let Pair { pred, gold } = serde_json::from_str(line).unwrap();
        let verdict = equal(&pred, &gold).equal;
        assert!(equal(&pred, &pred).equal, "{pred}");
        let mut forms = vec![format!("  {pred}\t"), format!("\n{pred}")];
        if !pred.contains('$') && !pred.contains("**") && !pred.trim().is_empty() {
            forms.push(format!("${pred}$"));
            forms.push(format!(r"\({pred}\)"));
        }
        for form in forms {
            if equal(&form, &gold).equal != verdict || equal(&gold, &form).equal != verdict {
                wrong.push(format!("{form} | {gold} | {verdict}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Statements of two sides, every one against every other: what fuzzing found as `3the = n` and `n=3`.
#[test]
fn symmetric_on_statements() {
    let sides =
        ["n", "3", "4", "3the", r"3\text{ cm}", "x+1", r"\frac{1}{2}", "0.5", "yes", r"\{3\}", "(0,1)"];
    let relations = ["=", "<", r"\ge", r"\approx", r"\in", r"\ne"];
    let mut statements: Vec<String> = sides.iter().map(|side| side.to_string()).collect();
    for (a, b) in sides.iter().flat_map(|a| sides.map(|b| (a, b))) {
        statements.extend(relations.map(|relation| format!("{a} {relation} {b}")));
    }
    for (k, a) in statements.iter().enumerate() {
        assert!(equal(a, a).equal, "{a} is not itself");
        for b in &statements[k + 1..] {
            assert_eq!(equal(a, b).equal, equal(b, a).equal, "`{a}` and `{b}`");
        }
    }
}
