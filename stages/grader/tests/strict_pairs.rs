//! The strict mode on a sample of rewritten answers and near misses of every category
//! (`tests/strict_sample.py` draws it).

use grader::strict::equal;

#[derive(serde::Deserialize)]
struct Pair {
    category: String,
    pred: String,
    gold: String,
    intended: bool,
    expect: bool,
}

fn pairs() -> Vec<Pair> {
    include_str!("data/strict_pairs.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn verdicts_are_as_reviewed() {
    let mut wrong = Vec::new();
    for p in pairs() {
        for (a, b) in [(&p.pred, &p.gold), (&p.gold, &p.pred)] {
            let v = equal(a, b);
            if v.equal != p.expect {
                wrong.push(format!("{}: {a} | {b} | {v:?}", p.category));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The reviewed verdicts themselves: near misses that are accepted are equal in truth (their
/// maker's change happened to change nothing), and few rewritings are refused.
#[test]
fn the_sample_is_what_the_mode_promises() {
    let pairs = pairs();
    let accepted: Vec<_> =
        pairs.iter().filter(|p| p.expect && !p.intended).map(|p| (&p.pred, &p.gold)).collect();
    assert!(accepted.len() <= 10, "{accepted:?}");
    let refused = pairs.iter().filter(|p| !p.expect && p.intended).count();
    assert!(refused * 20 < pairs.len(), "{refused} of {}", pairs.len());
}
