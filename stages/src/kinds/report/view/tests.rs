use super::*;
use crate::samples_of_tests::example_table;

#[test]
fn findings_say_what_chance_explains_and_where_claims_lie() {
    let view = View::of(&example_table());
    let text = |arm: usize| view.benchmarks[0].findings[arm].text.as_str();
    let sign = |arm: usize| view.benchmarks[0].findings[arm].sign;
    assert_eq!(
        text(0),
        "52.0 % of 200 questions right (95 % interval 45.1 to 58.8). The claimed 50.0 % lies within the measured interval."
    );
    assert!(text(1).contains("+18.5 points against Base (interval +12.5 to +24.5), which is 37 of 200 questions: more than chance explains."), "{}", text(1));
    assert!(text(1).contains("The claimed 60.0 % lies below the measured interval."));
    assert!(text(1).contains("The claimed difference of +10.0 points lies below its interval."));
    assert!(text(3).contains("−1.5 points against Base") && text(3).contains("no more than chance explains"));
    let mut sided = example_table();
    for (row, side) in [(1, Direction::Up), (2, Direction::Down), (3, Direction::Up)] {
        sided.benchmarks[0].rows[row].claimed.direction = Some(side);
    }
    let sided = View::of(&sided);
    let told = |row: usize| sided.benchmarks[0].findings[row].text.as_str();
    assert!(told(1).ends_with("A gain against Base is claimed: there is one."), "{}", told(1));
    assert!(told(2).ends_with("A loss against Base is claimed: the opposite is the case."), "{}", told(2));
    let open = "A gain against Base is claimed: none is shown, and one of up to 4.5 points is not excluded.";
    assert!(told(3).ends_with(open), "{}", told(3));
    let mut doubtful = example_table();
    doubtful.claims["unverified"] = "quoted from memory".into();
    let doubtful = View::of(&doubtful);
    assert!(doubtful.benchmarks[0].findings[1].text.contains("The claimed 60.0 % (unverified) lies below"));
    assert!(!text(1).contains("unverified"));
    assert_eq!([sign(0), sign(1), sign(3)], ["base", "up", "same"]);
    assert_eq!(view.deviations.len(), 2);
    assert_eq!(view.claim_notes, [("source".to_owned(), "https://example.org/paper".to_owned())]);
}

#[test]
fn several_runs_must_agree() {
    let mut table = example_table();
    let versus = table.benchmarks[0].rows[1].versus_base.as_mut().unwrap();
    (versus.gained, versus.lost, versus.mcnemar_p) = (None, None, None);
    versus.per_run = vec![0.05, 0.32];
    versus.over_runs = Some(Interval { low: -0.015, high: 0.385 });
    let row = &mut table.benchmarks[0].rows[1];
    (row.runs, row.spread, row.claimed.direction) = (2, Some(0.19), Some(Direction::Up));
    let view = View::of(&table);
    let (finding, seeds) = (&view.benchmarks[0].findings[1], &view.benchmarks[0].seeds[0]);
    assert_eq!(finding.sign, "same");
    let told = "(interval +12.5 to +24.5; over the runs −1.5 to +38.5), which is 37 of 200 questions: \
                no more than chance explains.";
    assert!(finding.text.contains(told), "{}", finding.text);
    assert!(finding.text.ends_with("one of up to 38.5 points is not excluded."), "{}", finding.text);
    assert_eq!((seeds.deltas.join(" "), seeds.over_runs.as_str()), ("+5.0 +32.0".into(), "−1.5 to +38.5"));
    assert!(view.benchmarks[0].any_flips, "the other arms have one run");
}

#[test]
fn runs_that_agree_by_chance_are_no_certainty() {
    let mut table = example_table();
    let row = &mut table.benchmarks[0].rows[1];
    (row.runs, row.spread) = (2, Some(0.0));
    let versus = row.versus_base.as_mut().unwrap();
    (versus.gained, versus.lost, versus.mcnemar_p) = (None, None, None);
    versus.per_run = vec![0.185, 0.185];
    let view = View::of(&table);
    let (finding, seeds) = (&view.benchmarks[0].findings[1], &view.benchmarks[0].seeds[0]);
    let told = "the 2 runs do not differ, which says nothing about another training), which is 37 of 200 \
                questions: more than chance between the questions explains.";
    assert!(finding.text.contains(told), "{}", finding.text);
    assert_eq!((finding.sign, seeds.over_runs.as_str()), ("up", "none: the runs do not differ"));

    // Nearly the same is no better; an interval by question that holds zero decides.
    let versus = table.benchmarks[0].rows[1].versus_base.as_mut().unwrap();
    versus.over_runs = Some(Interval { low: 0.18, high: 0.19 });
    versus.interval = Interval { low: -0.02, high: 0.4 };
    let finding = &View::of(&table).benchmarks[0].findings[1];
    assert!(finding.text.contains("so that the wider one counts"), "{}", finding.text);
    assert!(finding.sign == "same" && finding.text.contains("no more than chance"), "{}", finding.text);
}

#[test]
fn a_difference_over_a_part_of_the_questions_says_so() {
    let mut table = example_table();
    let rows = &mut table.benchmarks[0].rows;
    rows[1].versus_base.as_mut().unwrap().paired = 150;
    rows[2].versus_base = None;
    let section = &View::of(&table).benchmarks[0];
    let told = |row: usize| section.findings[row].text.as_str();
    assert!(told(1).contains("against Base over the 150 questions that both were asked (interval"));
    assert_eq!(section.rows[1].delta_questions, "27.8 of 150 in common");
    assert!(told(2).contains(" No question in common with Base, so no difference."), "{}", told(2));
    let deltas = [0, 2].map(|row| section.rows[row].delta.as_str());
    assert_eq!(deltas, ["", "–"], "the base arm has no difference to miss");
    assert!(!told(0).contains("in common") && !told(3).contains("that both"));
}

#[test]
fn differences_stand_for_questions() {
    let mut versus = example_table().benchmarks[0].rows[1].versus_base.clone().unwrap();
    assert_eq!(questions(&versus), "37 of 200");
    (versus.delta, versus.paired) = (-6.5 / 60.0, 60);
    assert_eq!(questions(&versus), "6.5 of 60");
}

#[test]
fn points_have_signs() {
    assert_eq!([0.0, -0.0001, 0.125, -0.02].map(points), ["0.0", "0.0", "+12.5", "−2.0"]);
    assert_eq!(lines(&serde_json::json!({"a_b": ["x", 2]})), ["a b: x; 2"]);
}
