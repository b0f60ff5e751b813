use std::collections::{BTreeMap, HashSet};

use engine::kind::{Stage, StageCtx, Tier};

use super::Synth;
use super::families::FAMILIES;
use super::generate::Problem;

fn make(params: &Synth) -> (Vec<Problem>, Vec<Problem>) {
    let out = tempfile::tempdir().unwrap();
    let ctx = StageCtx::detached(out.path(), out.path(), BTreeMap::new());
    params.run(&ctx).unwrap();
    let read = |name: &str| {
        let text = std::fs::read_to_string(out.path().join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    (read("train.jsonl"), read("test.jsonl"))
}

fn all_levels() -> Synth {
    Synth { train: 1500, test: 300, levels: vec![1, 2, 3, 4, 5], direct: 0.5, ..Synth::default() }
}

/// Digits of a text in order: what remains of a problem when names and objects change.
fn numbers(text: &str) -> Vec<i64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap())
        .collect()
}

#[test]
fn same_seed_same_problems_other_seed_others() {
    let params = all_levels();
    let first = make(&params);
    assert_eq!(first, make(&params));
    assert_ne!(first, make(&Synth { seed: 1, ..params }));
}

#[test]
fn train_and_test_share_no_text_and_no_numbers_of_a_family() {
    let (train, test) = make(&all_levels());
    assert_eq!((train.len(), test.len()), (1500, 300));
    // A family is known by the operators of its worked solution; wordings may swap names only.
    let skeleton = |p: &Problem| (p.level, p.subject.clone(), numbers(&p.problem), p.answer.clone());
    let seen: HashSet<_> = train.iter().map(skeleton).collect();
    let texts: HashSet<_> = train.iter().map(|p| &p.problem).collect();
    assert_eq!(texts.len(), train.len());
    for problem in &test {
        assert!(!texts.contains(&problem.problem));
        assert!(!seen.contains(&skeleton(problem)), "{problem:?}");
    }
}

#[test]
fn every_step_is_true_and_the_box_holds_the_answer() {
    let (train, test) = make(&all_levels());
    let mut steps = 0;
    for problem in train.iter().chain(&test) {
        assert!(!problem.problem.contains('{'), "{}", problem.problem);
        let conclusion = if problem.solution.starts_with("To ") { "The answer is" } else { "I guess" };
        let (working, boxed) = problem.solution.split_once(&format!("{conclusion} \\boxed{{")).unwrap();
        assert_eq!(boxed, format!("{}}}.", problem.answer));
        assert!(problem.answer.parse::<i64>().unwrap() > 0);
        for equation in working.split('.').filter(|part| part.contains('=')) {
            let words: Vec<&str> = equation.split_whitespace().rev().take(5).collect();
            let [result, _, b, op, a] = words[..] else { panic!("{equation}") };
            let [a, b, result]: [i64; 3] = [a, b, result].map(|n| n.parse().unwrap());
            let expected = match op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "/" => a / b,
                _ => panic!("{equation}"),
            };
            assert_eq!(result, expected, "{equation}");
            assert!(op != "/" || a % b == 0);
            steps += 1;
        }
    }
    assert!(steps > 2000, "only {steps} steps seen");
}

#[test]
fn shares_are_exact_and_held_out_solutions_are_worked() {
    let params =
        Synth { levels: vec![1, 3], weights: vec![3.0, 1.0], train: 1000, direct: 0.4, ..Synth::default() };
    let (train, test) = make(&params);
    assert_eq!(train.iter().filter(|p| p.level == 1).count(), 750);
    assert_eq!(test.iter().filter(|p| p.level == 3).count(), 50);
    assert!(test.iter().all(|p| p.solution.starts_with("To solve this, ")));
    let direct = train.iter().filter(|p| p.solution.starts_with("I guess")).count();
    // Binomial(1000, 0.4) has a standard deviation of 15.5; the seed is fixed.
    assert!((330..=470).contains(&direct), "{direct}");
}

#[test]
fn every_family_can_be_drawn() {
    let (train, _) = make(&Synth { direct: 0.0, ..all_levels() });
    for level in 1..=5 {
        let mut shapes: Vec<String> = FAMILIES
            .iter()
            .filter(|family| family.level == level)
            .map(|family| family.steps.iter().map(|step| step.1).collect())
            .collect();
        shapes.sort();
        shapes.dedup();
        let mut drawn: Vec<String> = train
            .iter()
            .filter(|p| p.level == level)
            .map(|p| p.solution.chars().filter(|c| "+-*/".contains(*c)).collect())
            .collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(shapes, drawn, "level {level}");
    }
}

#[test]
fn check_finds_every_mistake() {
    let params =
        Synth { levels: vec![1, 6, 1], weights: vec![f64::NAN], largest: 2, direct: 1.5, ..Synth::default() };
    let found: Vec<String> = Stage::check(&params).into_iter().map(|p| p.param).collect();
    assert_eq!(found, ["levels", "levels", "weights", "weights", "largest", "direct"]);
    assert!(Stage::check(&Synth::default()).is_empty());
}

#[test]
fn running_out_of_problems_is_an_input_error() {
    let out = tempfile::tempdir().unwrap();
    let ctx = StageCtx::detached(out.path(), out.path(), BTreeMap::new());
    let params = Synth { levels: vec![1], largest: 5, train: 200_000, ..Synth::default() };
    let error = params.run(&ctx).unwrap_err();
    assert_eq!(error.tier, Tier::Input);
    assert!(error.message.contains("level-1"), "{error}");
}
