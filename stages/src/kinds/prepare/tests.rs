use std::collections::BTreeMap;
use std::path::Path;

use engine::kind::Tier;
use proptest::prelude::*;

use super::*;

const GSM8K: &str = "Natalia sold clips to 48 of her friends in April, and then she sold half as many \
    clips in May. How many clips did Natalia sell altogether in April and May?";

fn stage(params: Value) -> Prepare {
    let mut all = json!({"data": {"raw": "@raw"}});
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn run(stage: &Prepare, raw: &str, benchmark: &str) -> Result<BTreeMap<&'static str, String>, StageError> {
    let dir = tempfile::tempdir().unwrap();
    let mut inputs = BTreeMap::new();
    for (name, text) in [("raw", raw), ("bench", benchmark)] {
        let path = dir.path().join(format!("{name}.jsonl"));
        std::fs::write(&path, text).unwrap();
        inputs.insert(format!("@{name}"), path);
    }
    let out = tempfile::tempdir().unwrap();
    stage.run(&StageCtx::detached(out.path(), out.path(), inputs))?;
    let read = |name: &str| std::fs::read_to_string(Path::new(out.path()).join(name)).unwrap();
    Ok(["train.jsonl", "held_out.jsonl", "counts.json", "dropped.jsonl"]
        .map(|name| (name, read(name)))
        .into())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row(problem: &str, solution: &str, answer: &str) -> String {
    json!({"problem": problem, "generated_solution": solution, "expected_answer": answer}).to_string()
}

#[test]
fn each_gate_stops_what_it_is_for_and_counts_it() {
    let other_numbers = GSM8K.replace("48", "1,052.5");
    let longer = format!("Once upon a time. {} Explain.", GSM8K.replace("48 of her", "forty of her"));
    let rows = [
        row("What is 2 + 2?", "It is 4.", "4"),
        row("What is  2 + 2?", "It is 4. ", "4"),
        row("What is 3 + 2?", "It is \\boxed{5}.", "5"),
        row("No answer?", "Hm.", ""),
        row(&GSM8K.to_uppercase(), "72", "72"),
        row(&other_numbers, "72", "72"),
        row(&longer, "72", "72"),
        row("What is 3 + 3?", "It is \\boxed{7}.", "6"),
    ];
    let stage = stage(json!({"benchmarks": {"gsm8k": "@bench"}, "boxed": true, "shuffle": false}));
    assert_eq!(Stage::check(&stage), []);
    let made = run(&stage, &rows.join("\n"), &json!({"question": GSM8K, "answer": "#### 72"}).to_string());
    let made = made.unwrap();
    let train = lines(&made["train.jsonl"]);
    assert_eq!(train[0]["solution"], "It is 4.\n\\boxed{4}");
    assert_eq!(train[1]["solution"], "It is \\boxed{5}.");
    assert_eq!(train.len(), 2);
    let counts: Value = serde_json::from_str(&made["counts.json"]).unwrap();
    assert_eq!(
        (&counts["read"], &counts["train"], &counts["boxes_added"]),
        (&json!(8), &json!(2), &json!(1))
    );
    let expected = json!({"incomplete": 1, "duplicate": 1, "contaminated_exact": 1, "contaminated_template": 1,
        "contaminated_words": 1, "unreadable": 1, "too_long": 0, "held_out_problem": 0, "beyond_limit": 0});
    for (reason, count) in expected.as_object().unwrap() {
        assert_eq!(&counts["dropped"][reason], count, "{reason}");
    }
    assert_eq!(counts["benchmarks"]["gsm8k"], json!({"exact": 1, "template": 1, "words": 1, "questions": 1}));
    let dropped = lines(&made["dropped.jsonl"]);
    assert_eq!((&dropped[0]["row"], &dropped[0]["reason"]), (&json!(2), &json!("duplicate")));
    assert_eq!(dropped[2]["place"], json!({"benchmark": "gsm8k", "question": "0"}));
}

#[test]
fn only_the_levels_that_are_asked_for_count() {
    let stage = stage(json!({"benchmarks": {"b": "@bench"}, "levels": ["exact"]}));
    let rows = [row("2 and 2?", "4", "4"), row("3 and 2?", "5", "5")].join("\n");
    let made = run(&stage, &rows, &json!({"question": "2 and  2?", "answer": "4"}).to_string()).unwrap();
    assert_eq!(lines(&made["train.jsonl"])[0]["answer"], "5");
}

#[test]
fn gsm8k_rows_lose_their_notes_and_gain_a_box() {
    let answer = "He sold 48/2 = <<48/2=24>>24 clips in May.\nAltogether 48+24 = <<48+24=72>>72.\n#### 72";
    let raw = json!({"question": "q?", "answer": answer}).to_string();
    let stage = stage(json!({"boxed": true, "strip_gsm8k": true}));
    let train = lines(&run(&stage, &raw, "").unwrap()["train.jsonl"]);
    let solution = "He sold 48/2 = 24 clips in May.\nAltogether 48+24 = 72.\n\\boxed{72}";
    assert_eq!(train[0], json!({"problem": "q?", "solution": solution, "answer": "72"}));
}

#[test]
fn held_out_problems_are_not_trained_on() {
    let raw: Vec<String> =
        (0..40).map(|n| row(&format!("Problem {}?", n / 4), &format!("{n}"), "1")).collect();
    let stage = stage(json!({"held_out": 3, "limit": 5, "seed": 4}));
    let made = run(&stage, &raw.join("\n"), "").unwrap();
    let (train, held_out) = (lines(&made["train.jsonl"]), lines(&made["held_out.jsonl"]));
    assert_eq!((train.len(), held_out.len()), (5, 3));
    assert!(train.iter().all(|row| held_out.iter().all(|held| held["problem"] != row["problem"])));
    assert_eq!(made, run(&stage, &raw.join("\n"), "").unwrap(), "the same input gives the same bytes");
}

#[test]
fn what_cannot_be_prepared_is_said() {
    let error = run(&stage(json!({"fields": {"answer": "gold"}})), &row("p", "s", "1"), "").unwrap_err();
    assert!(error.message.contains("no field `gold`"), "{error}");
    assert_eq!(error.help.unwrap(), "their fields are problem, generated_solution, expected_answer");
    let error = run(&stage(json!({})), &row("p", "s", ""), "").unwrap_err();
    assert_eq!((error.tier, error.help.unwrap().as_str()), (Tier::Input, "what was dropped: 1 incomplete"));
    assert!(run(&stage(json!({})), "", "").unwrap_err().message.contains("no rows"));
    let params: Vec<String> = Stage::check(&stage(json!({"max_tokens": 5, "ngram": 3, "limit": 0})))
        .into_iter()
        .map(|p| p.param)
        .collect();
    assert_eq!(params, ["max_tokens", "ngram", "limit"]);
}

proptest! {
    #[test]
    fn a_question_is_found_however_it_is_spaced_and_cased(words in proptest::collection::vec("[a-z]{1,9}", 1..40)) {
        let mut filter = Filter::new(&Level::ALL, 13);
        filter.add("b", "7", &words.join(" "));
        let hit = filter.find(&words.join(" \t\n").to_uppercase()).unwrap();
        prop_assert_eq!((hit.level, hit.question.as_str()), (Level::Exact, "7"));
    }

    #[test]
    fn a_long_quotation_is_found_and_a_short_one_is_not(
        words in proptest::collection::vec("[a-z]{4,9}", 20..60), start in 0usize..7, length in 8usize..14,
    ) {
        let distinct: std::collections::HashSet<&String> = words.iter().collect();
        prop_assume!(distinct.len() == words.len());
        let mut filter = Filter::new(&Level::ALL, 13);
        filter.add("b", "7", &words.join(" "));
        let quotation = format!("1 2 3, {}. 4 5 6", words[start..start + length].join(" "));
        let level = filter.find(&quotation).map(|hit| hit.level);
        prop_assert_eq!(level, (length >= 13).then_some(Level::Words));
    }

    #[test]
    fn only_numbers_differ_within_a_template(a in 0u32..1_000_000, b in 0.0f64..1e6, text in "[a-z ]{3,30}") {
        let mut filter = Filter::new(&Level::ALL, 13);
        filter.add("b", "7", &format!("{text} 12 x 3.5 y?"));
        let hit = filter.find(&format!("{text} {a} x {b:.2} y?")).unwrap();
        prop_assert!(hit.level <= Level::Template);
    }

    #[test]
    fn every_row_is_kept_or_counted(
        rows in proptest::collection::vec(("[a-c]{0,2}", "[xy]{0,2}", "[12]{0,1}"), 1..40),
        held_out in 0usize..4, limit in 1usize..9,
    ) {
        let raw: Vec<String> = rows.iter().map(|(p, s, a)| row(p, s, a)).collect();
        let made = run(&stage(json!({"held_out": held_out, "limit": limit})), &raw.join("\n"), "");
        if let Ok(made) = made {
            let counts: Value = serde_json::from_str(&made["counts.json"]).unwrap();
            let dropped: u64 = counts["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
            let kept = lines(&made["train.jsonl"]).len() + lines(&made["held_out.jsonl"]).len();
            prop_assert_eq!(dropped + kept as u64, rows.len() as u64);
        }
    }
}
