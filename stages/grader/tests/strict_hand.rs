//! Answers written by hand, each beside a gold and the verdict that a careful person would give
//! (`tests/data/strict_hand.txt`: prediction, gold, 1 or 0).

use grader::strict::equal;

#[test]
fn verdicts_are_those_of_a_careful_person() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for line in include_str!("data/strict_hand.txt").lines().filter(|l| !l.starts_with('#')) {
        let mut parts = line.split("|||").map(str::trim);
        let (Some(pred), Some(gold), Some(want)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("not three parts: {line}");
        };
        rows += 1;
        for (a, b) in [(pred, gold), (gold, pred)] {
            let verdict = equal(a, b);
            if verdict.equal != (want == "1") {
                wrong.push(format!("{a} | {b} | {verdict:?}"));
            }
        }
    }
    assert!(rows > 600, "{rows}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
