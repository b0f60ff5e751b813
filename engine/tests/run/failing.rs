//! Failures: what is said, what is kept, what is tried again.

use std::fs;

use engine::event::{Event, RunStatus};
use engine::kind::Tier;

use crate::support::{Place, Ran, wait_for};

fn failing(how: &str) -> (Place, Ran) {
    let place = Place::new(&format!("[stage.x]\nkind = \"fail\"\nhow = \"{how}\"\n"));
    let ran = place.run(&[]);
    assert_eq!((ran.code, ran.end().0), (1, RunStatus::Failed), "{ran:#?}");
    assert!(place.stored("records").is_empty(), "a failure is never cached");
    (place, ran)
}

#[test]
fn an_error_arrives_with_tier_message_help_log_and_last_lines() {
    let (place, ran) = failing("input");
    let (error, log, tail) = ran.failure("x");
    assert_eq!(error.tier, Tier::Input);
    assert_eq!(error.message, "line 3 of toys.csv is no toy");
    assert_eq!(error.help.as_deref(), Some("correct line 3"));
    assert!(tail.contains(&"about to fail: input".to_owned()), "{tail:?}");
    let log = fs::read_to_string(log.expect("a log")).unwrap();
    assert!(log.starts_with("about to fail: input\n"), "{log}");
    assert_eq!(place.text(&["log", "x"]), log);
}

#[test]
fn a_panic_is_a_bug_with_its_message_and_place() {
    let (_place, ran) = failing("panic");
    let (error, ..) = ran.failure("x");
    assert_eq!(error.tier, Tier::Bug);
    assert!(error.message.contains("kinds.rs:") && error.message.contains("a toy broke"), "{error}");
}

#[test]
fn a_worker_that_dies_is_told_from_one_that_fails() {
    let (_place, ran) = failing("abort");
    assert!(ran.failure("x").0.message.contains("crashed with signal 6"), "{:?}", ran.failure("x"));
    let (_place, ran) = failing("exit");
    assert!(ran.failure("x").0.message.contains("exit status: 7"), "{:?}", ran.failure("x"));
}

#[test]
fn a_half_written_output_is_never_taken_for_a_result() {
    let (place, _) = failing("partial");
    assert!(place.stored("blobs").is_empty());
    place.manifest(
        "[stage.x]\nkind = \"fail\"\nhow = \"partial\"\nunless = \"$DIR/fixed\"\npublish = \"x\"\n",
    );
    place.write("fixed", "");
    place.succeed(&[]);
    assert_eq!(place.read("results/toy/x/out.txt"), "recovered");
}

#[test]
fn a_declared_output_that_is_missing_fails_the_stage() {
    let place = Place::new("[stage.x]\nkind = \"write\"\nlie = true\n");
    let ran = place.run(&[]);
    assert_eq!(ran.code, 1);
    assert!(ran.failure("x").0.message.contains("left no `missing.txt`"), "{:?}", ran.failure("x"));
    assert!(place.stored("records").is_empty());
}

#[test]
fn transient_failures_are_tried_again_as_often_as_allowed_with_a_clean_folder() {
    let flaky = |retries: usize| {
        format!(
            "[stage.x]\nkind = \"flaky\"\nfailures = 3\nretries = {retries}\nmark = \"$DIR/ran\"\npublish = \"x\"\n"
        )
    };
    let place = Place::new(&flaky(2));
    let ran = place.run(&[]);
    assert_eq!((ran.code, place.marks("ran").len()), (1, 3));
    assert_eq!(ran.failure("x").0.tier, Tier::Transient);
    let waits: Vec<f64> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Retrying { in_seconds, .. } => Some(*in_seconds),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [0.01, 0.02], "the wait doubles");

    let place = Place::new(&flaky(3));
    place.succeed(&[]);
    assert_eq!(place.marks("ran").len(), 4);
    assert!(!place.path("results/toy/x/left-over.txt").exists(), "nothing of a failed attempt");
    let log = place.text(&["log", "x"]);
    assert!(log.contains("--- attempt 4 ---"), "{log}");
}

/// A worker that the system has killed is tried again as often as `retries` says, from its state.
#[test]
fn a_killed_worker_is_tried_again_and_carries_on() {
    let place = |retries: u32| {
        Place::new(&format!(
            "[stage.x]\nkind = \"count\"\nto = 20\nmilliseconds = 20\nkilled_at = 5\nretries = {retries}\nmark = \"$DIR/steps\"\n"
        ))
    };
    let once = place(0);
    let ran = once.run(&[]);
    let (error, ..) = ran.failure("x");
    assert_eq!((ran.code, error.tier), (1, Tier::Transient));
    let help = error.help.as_deref().unwrap_or_default();
    assert!(help.contains("carries on") && help.contains("`retries`"), "{help}");
    let again = place(1);
    let ran = again.succeed(&[]);
    assert!(ran.events.iter().any(|event| matches!(event, Event::Retrying { attempt: 1, .. })));
    let steps: Vec<String> = (0..20).map(|step: u32| step.to_string()).collect();
    assert_eq!(again.marks("steps"), steps, "no step is repeated");
}

#[test]
fn only_transient_failures_are_tried_again() {
    for how in ["input", "environment", "bug", "panic", "abort"] {
        let place = Place::new(&format!("[stage.x]\nkind = \"fail\"\nhow = \"{how}\"\nretries = 5\n"));
        let ran = place.run(&[]);
        assert!(!ran.events.iter().any(|event| matches!(event, Event::Retrying { .. })), "{how}");
    }
}

#[test]
fn a_stage_over_its_timeout_is_killed_even_if_it_does_not_listen() {
    for stubborn in [false, true] {
        let place = Place::new(&format!(
            "[stage.x]\nkind = \"sleep\"\nmilliseconds = 60000\nstubborn = {stubborn}\ntimeout = \"1s\"\n"
        ));
        let ran = place.run(&["--grace", "0.2"]);
        assert_eq!(ran.code, 1);
        let (error, ..) = ran.failure("x");
        assert!(error.message.contains("timeout of 1 s"), "{error}");
        assert_eq!(error.tier, Tier::Limit);
        let help = error.help.as_deref().unwrap_or_default();
        assert!(help.contains("has saved no state"), "a sleeper keeps none: {help}");
    }
    let place = Place::new("[stage.x]\nkind = \"count\"\nto = 1000\nmilliseconds = 20\ntimeout = \"1s\"\n");
    let ran = place.run(&["--grace", "5"]);
    let help = ran.failure("x").0.help.clone().unwrap_or_default();
    assert!(help.contains("carries on from the stage's saved state"), "{help}");
}

/// The fault is the program's, not the machine's.
#[test]
fn an_output_that_holds_more_than_files_is_wrong_input() {
    let place = Place::new("[stage.x]\nkind = \"fail\"\nhow = \"link\"\n");
    let ran = place.run(&[]);
    let (error, ..) = ran.failure("x");
    assert_eq!((ran.code, error.tier), (1, Tier::Input));
    assert!(error.message.starts_with("link: neither a file") && error.help.is_some(), "{error}");
    assert!(place.stored("records").is_empty());
}

const TREE: &str = r#"
[stage.bad]
kind = "fail"
how = "input"
unless = "$DIR/fixed"
[stage.behind]
kind = "concat"
also = "@bad"
[stage.further]
kind = "concat"
prefix = "further "
also = "@behind"
[stage.good]
kind = "count"
to = 3
milliseconds = 100
publish = "good"
[stage.after]
kind = "concat"
also = "@good"
"#;

#[test]
fn after_a_failure_running_stages_finish_and_nothing_more_starts() {
    let place = Place::new(TREE);
    let ran = place.run(&["--jobs", "2"]);
    assert_eq!((ran.code, ran.computed()), (1, vec!["good"]));
    let counts = ran.end().1;
    assert_eq!((counts.ran, counts.failed, counts.skipped), (1, 1, 3));
}

/// Scenario 34 too: what was finished before a failure is kept.
#[test]
fn keep_going_does_all_that_the_failure_does_not_prevent() {
    let place = Place::new(TREE);
    let ran = place.run(&["--keep-going"]);
    assert_eq!((ran.code, ran.computed()), (1, vec!["good", "after"]));
    let skipped = ran.events.iter().find_map(|event| match event {
        Event::Skipped { stages, because } => Some((stages.clone(), because.clone())),
        _ => None,
    });
    assert_eq!(skipped, Some((vec!["behind".into(), "further".into()], "bad".into())));
    assert!(place.path("results/toy/good/out.txt").is_file());
    assert!(place.text(&["log", "bad"]).contains("about to fail"));
    place.write("fixed", "");
    let rest = place.succeed(&[]);
    assert_eq!(rest.computed(), ["bad", "behind", "further"]);
    assert_eq!(rest.cached(), ["after", "good"]);
}

/// Scenario 32.
#[test]
fn a_publication_that_fails_fails_the_run() {
    // The stage itself puts a file where its output's folder is to be.
    let place = Place::new(
        "[stage.x]\nkind = \"write\"\ntext = \"x\"\nmark = \"$DIR/results/toy/x\"\npublish = \"x\"\n",
    );
    fs::create_dir_all(place.path("results/toy")).unwrap();
    let ran = place.run(&[]);
    assert_eq!((ran.code, ran.end().0), (1, RunStatus::Failed));
    assert!(
        ran.events.iter().any(|event| matches!(event, Event::PublishFailed { stage, .. } if stage == "x"))
    );
    fs::remove_file(place.path("results/toy/x")).unwrap();
    assert!(place.succeed(&[]).computed().is_empty(), "the result itself was kept");
    assert_eq!(place.read("results/toy/x/out.txt"), "x");
}

/// What keeps outputs from being published is said before anything is computed.
#[test]
fn results_that_cannot_be_written_are_refused_beforehand() {
    let place = Place::new(
        "[stage.x]\nkind = \"write\"\ntext = \"x\"\nmark = \"$DIR/ran\"\npublish = \"x\"\n\
         [stage.y]\nkind = \"write\"\ntext = \"y\"\n",
    );
    place.write("file", "");
    fs::create_dir_all(place.path("taken/toy")).unwrap();
    place.write("taken/toy/x", "");
    std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
    for (results, wrong) in [
        ("file", "file: is not a folder"),
        ("file/below", "file: is not a folder"),
        ("taken", "taken/toy/x: is not a folder"),
        ("link", "link: is a link to nothing"),
    ] {
        let ran = place.run(&["--results", results]);
        assert_eq!(ran.code, 3, "{results}: {}", ran.stderr);
        assert!(ran.stderr.contains(wrong) && ran.stderr.contains("--results"), "{}", ran.stderr);
        assert!(!place.path("ran").exists() && ran.events.is_empty());
    }
    // What publishes nothing needs no place for it.
    assert_eq!(place.succeed(&["y", "--results", "file"]).computed(), ["y"]);
}

/// Scenario 33.
#[test]
fn in_a_sweep_every_failure_has_a_log_and_a_rerun_does_only_the_rest() {
    let place = Place::new("");
    let sweep = |fixed: bool| {
        let mut text = String::new();
        for point in 0..100 {
            let bad = point % 7 == 3;
            text += &match bad {
                true => format!(
                    "[stage.p{point}]\nkind = \"fail\"\nhow = \"point {point}\"\nunless = \"$DIR/fixed\"\n"
                ),
                false => format!("[stage.p{point}]\nkind = \"write\"\ntext = \"{point}\"\n"),
            };
        }
        place.manifest(&text);
        if fixed {
            place.write("fixed", "");
        }
    };
    sweep(false);
    let ran = place.run(&["--keep-going", "--jobs", "20"]);
    let counts = ran.end().1;
    assert_eq!((ran.code, counts.ran, counts.failed), (1, 86, 14));
    for point in (0..100).filter(|point| point % 7 == 3) {
        let (_, log, tail) = ran.failure(&format!("p{point}"));
        let line = format!("about to fail: point {point}");
        assert!(tail.contains(&line) && fs::read_to_string(log.unwrap()).unwrap().contains(&line));
    }
    sweep(true);
    let rest = place.succeed(&["--jobs", "20"]);
    assert_eq!((rest.end().1.ran, rest.end().1.cached), (14, 86));
}

#[test]
fn a_missing_part_of_an_artifact_is_named() {
    let place = Place::new(
        "[stage.a]\nkind = \"write\"\ntext = \"x\"\n[stage.b]\nkind = \"concat\"\nalso = \"@a/sub/none.txt\"\n",
    );
    let ran = place.run(&[]);
    assert_ne!(ran.code, 0);
    if ran.code == 1 {
        assert!(ran.failure("b").0.message.contains("stage a has put out no `sub/none.txt`"));
    }
}

#[test]
fn a_flood_of_events_and_output_neither_blocks_nor_floods_the_log() {
    let place = Place::new("[stage.x]\nkind = \"noisy\"\nlines = 200000\n");
    let ran = place.succeed(&[]);
    assert!(
        ran.events
            .iter()
            .any(|event| matches!(event, Event::Message { text, .. } if text == "that was loud"))
    );
    let log_size = fs::metadata(place.path("cache/runs")).map(|_| {
        let logs = place.stored("runs");
        let events = logs.iter().find(|path| path.ends_with("events.jsonl")).expect("an event log");
        fs::metadata(events).unwrap().len()
    });
    assert!(log_size.unwrap() < 200_000, "progress is thinned out");
    assert_eq!(place.text(&["log", "x"]).lines().count(), 200_000);
}

#[test]
fn a_stage_that_fails_late_keeps_its_state_for_the_next_run() {
    let place = Place::new(
        "[stage.x]\nkind = \"count\"\nto = 10\ntrip_at = 6\nmark = \"$DIR/steps\"\npublish = \"x\"\n",
    );
    let ran = place.run(&[]);
    assert_eq!(ran.failure("x").0.message, "tripped over a wire");
    place.succeed(&[]);
    let steps: Vec<String> = (0..10).map(|step: u32| step.to_string()).collect();
    assert_eq!(place.marks("steps"), steps, "no step is repeated");
    wait_for("the state to go", || place.stored("inflight").is_empty().then_some(()));
    let forced = place.run(&["--force"]);
    assert_eq!(forced.code, 1, "it trips again when computed from scratch");
    assert_eq!(place.marks("steps")[10..], steps[..6]);
}
