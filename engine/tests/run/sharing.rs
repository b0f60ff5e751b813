//! Several runs, one cache.

use std::time::Duration;

use engine::event::Event;
use engine::store::Store;
use engine::store::gc::GcPolicy;

use crate::support::{Place, Ran, runs, signal, wait_for};

fn slow(milliseconds: u64) -> Place {
    Place::new(&format!(
        "[stage.slow]\nkind = \"sleep\"\nmilliseconds = {milliseconds}\nmark = \"$DIR/slow\"\n"
    ))
}

/// Scenario 13.
#[test]
fn the_second_run_waits_says_on_whom_and_takes_the_result() {
    let place = slow(3000);
    let first = place.start(&[]);
    let pid = first.id();
    wait_for("the first run's stage", || (!place.marks("slow").is_empty()).then_some(()));
    // Whoever only looks is told too.
    let explained = place.text(&["explain", "p.toml", "slow"]);
    assert!(explained.starts_with("slow: runs now: run "), "{explained}");
    assert!(explained.contains(&format!("(process {pid} on ")), "{explained}");
    let planned = place.text(&["plan", "p.toml"]);
    assert!(planned.contains(" running ") && planned.contains(", 1 running"), "{planned}");
    let second = place.succeed(&[]);
    let first = Ran::of(first.wait_with_output().unwrap());
    let holder = second.events.iter().find_map(|event| match event {
        Event::Waiting { stage, holder } if stage == "slow" => Some(holder.clone()),
        _ => None,
    });
    let Some(Event::RunStarted { run, .. }) = first.events.first() else { panic!("{first:?}") };
    let holder = holder.expect("a waiting event");
    assert!(holder.contains(run) && holder.contains(&format!("process {pid}")), "{holder}");
    assert_eq!((first.code, second.cached()), (0, vec!["slow"]));
    assert_eq!(place.marks("slow"), ["begin", "end"]);
}

#[test]
fn a_waiting_run_takes_over_when_the_other_fails_or_dies() {
    let place = slow(2500);
    let first = place.start(&[]);
    wait_for("the first run's stage", || (!place.marks("slow").is_empty()).then_some(()));
    let second = place.start(&[]);
    std::thread::sleep(Duration::from_millis(200));
    signal(first.id(), libc::SIGKILL);
    let second = Ran::of(second.wait_with_output().unwrap());
    drop(first.wait_with_output());
    assert_eq!((second.code, second.computed()), (0, vec!["slow"]), "{second:#?}");
    assert_eq!(place.marks("slow"), ["begin", "begin", "end"]);
}

#[test]
fn a_waiting_run_can_be_interrupted() {
    let place = slow(20_000);
    let first = place.start(&[]);
    wait_for("the first run's stage", || (!place.marks("slow").is_empty()).then_some(()));
    let second = place.start(&[]);
    std::thread::sleep(Duration::from_millis(300));
    signal(second.id(), libc::SIGINT);
    let second = Ran::of(second.wait_with_output().unwrap());
    assert_eq!(second.code, 130);
    signal(first.id(), libc::SIGINT);
    assert_eq!(Ran::of(first.wait_with_output().unwrap()).code, 130);
}

/// Scenario 12.
#[test]
fn a_lock_left_by_a_killed_engine_holds_nobody_up() {
    let place = slow(1500);
    let mut first = place.start(&[]);
    place.wait_for_logged("\"event\":\"started\"");
    signal(first.id(), libc::SIGKILL);
    first.wait().unwrap();
    let second = place.succeed(&[]);
    assert!(!second.events.iter().any(|event| matches!(event, Event::Waiting { .. })), "{second:#?}");
    assert_eq!(second.computed(), ["slow"]);
    assert_eq!(second.why("slow"), "its last attempt was killed");
}

/// Scenario 14.
#[test]
fn runs_side_by_side_share_the_work_and_compute_each_key_once() {
    let mut text = String::new();
    for index in 0..12 {
        text += &format!(
            "[stage.s{index}]\nkind = \"sleep\"\nmilliseconds = 60\nsalt = {index}\nmark = \"$DIR/m{index}\"\n"
        );
    }
    let place = Place::new(&text);
    let started: Vec<_> = (0..3).map(|_| place.start(&["--jobs", "2"])).collect();
    let ended: Vec<Ran> =
        started.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap())).collect();
    for ran in &ended {
        assert_eq!(ran.code, 0, "{ran:#?}");
        assert_eq!(ran.outputs(), ended[0].outputs());
    }
    assert_eq!(ended.iter().map(|ran| ran.end().1.ran).sum::<usize>(), 12);
    for index in 0..12 {
        assert_eq!(place.marks(&format!("m{index}")), ["begin", "end"]);
    }
}

/// Scenario 29.
#[test]
fn collecting_during_a_run_leaves_alone_what_the_run_uses() {
    let place = Place::new(
        r#"
        [stage.a]
        kind = "write"
        text = "alpha"
        [stage.slow]
        kind = "concat"
        also = "@a"
        milliseconds = 800
        mark = "$DIR/slow"
        [stage.c]
        kind = "concat"
        from = { a = "@a", slow = "@slow" }
        "#,
    );
    let run = place.start(&[]);
    wait_for("the slow stage", || (!place.marks("slow").is_empty()).then_some(()));
    let store = Store::open(&place.path("cache")).unwrap();
    let policy =
        GcPolicy { max_size: Some(0), max_age: Some(Duration::ZERO), grace: Duration::ZERO, dry_run: false };
    store.gc(&policy).unwrap();
    let ran = Ran::of(run.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.computed()), (0, vec!["a", "slow", "c"]), "{ran:#?}");
}

/// Limits of nothing are limits.
#[test]
fn the_collector_takes_zero_for_an_answer() {
    let place = slow(0);
    place.succeed(&[]);
    for args in [
        &["cache", "gc", "--max-size", "0", "--grace", "0s"][..],
        &["cache", "gc", "--max-size", "0GB", "--grace", "0"],
        &["cache", "gc", "--older-than", "0s"],
    ] {
        let said = place.text(&[args, &["--dry-run"]].concat());
        assert!(said.starts_with("would remove "), "{said}");
    }
    assert!(place.text(&["cache", "gc", "--max-size", "0", "--grace", "0"]).starts_with("removed 1 result,"));
    for wrong in [["--max-size", "8"], ["--max-size", "x"], ["--grace", "5"], ["--older-than", "-1s"]] {
        let output = place.output(&[&["cache", "gc"], &wrong[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// What only the grace period keeps is said, with what to write; without a limit nothing is to be said.
#[test]
fn the_collector_says_that_young_results_stay() {
    let place = slow(0);
    place.succeed(&[]);
    let said = place.text(&["cache", "gc", "--max-size", "0"]);
    assert!(said.starts_with("removed 0 results"), "{said}");
    assert!(said.contains("1 result stayed") && said.contains("--grace 0s"), "{said}");
    let old = place.text(&["cache", "gc", "--older-than", "0s"]);
    assert!(old.contains("--grace 0s"), "{old}");
    for quiet in [&["cache", "gc"][..], &["cache", "gc", "--max-size", "1GB"]] {
        assert!(!place.text(quiet).contains("stayed"));
    }
    assert!(!place.text(&["cache", "gc", "--max-size", "0", "--grace", "0s"]).contains("stayed"));
}

/// Looking after a cache makes none where there is none.
#[test]
fn a_folder_that_is_no_cache_stays_as_it_is() {
    let place = slow(0);
    let folder = place.path("empty");
    std::fs::create_dir(&folder).unwrap();
    for command in [&["gc"][..], &["verify"], &["ls"], &["pin", "a"]] {
        let output = place.output(&[&["cache", "--cache", folder.to_str().unwrap()], command].concat());
        assert_eq!(output.status.code(), Some(3), "{command:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("no cache at"), "{command:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{command:?}");
    }
}

#[test]
fn verify_and_ls_tell_of_damaged_records() {
    let place = slow(0);
    place.succeed(&[]);
    std::fs::write(&place.stored("records")[0], "{").unwrap();
    assert!(place.text(&["cache", "ls"]).contains("1 record cannot be read; `pipeline cache verify`"));
    let output = place.output(&["cache", "verify"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && said.contains(".json: EOF"), "{said}");
    assert!(place.text(&["cache", "verify"]).contains("0 bad"));
    assert_eq!(place.succeed(&[]).computed(), ["slow"]);
}

#[test]
fn different_experiments_do_not_wait_for_each_other() {
    let place = slow(5_000);
    let first = place.start(&[]);
    wait_for("the stage", || (!place.marks("slow").is_empty()).then_some(()));
    let second = place.succeed(&["--set", "stage.slow.milliseconds=10"]);
    assert_eq!(second.computed(), ["slow"]);
    assert!(runs(first.id()));
    signal(first.id(), libc::SIGTERM);
    assert_eq!(Ran::of(first.wait_with_output().unwrap()).code, 130);
}

/// Runs beside collectors that spare nothing but what a live run uses: results of the run before are
/// found and taken at every moment, and no run fails by that.
#[test]
fn collectors_at_any_moment_fail_no_run() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut text = "[stage.s0]\nkind = \"write\"\ntext = \"alpha\"\n".to_owned();
    for n in 1..8 {
        text += &format!("[stage.s{n}]\nkind = \"concat\"\nalso = \"@s{}\"\nprefix = \"{n}\"\n", n - 1);
    }
    let place = Place::new(&(text + "publish = \"end\"\n"));
    place.succeed(&[]);
    let store = Store::open(&place.path("cache")).unwrap();
    let ended = AtomicBool::new(false);
    let collect = |max_age| {
        let policy = GcPolicy { max_size: Some(0), max_age, grace: Duration::ZERO, dry_run: false };
        while !ended.load(Ordering::Relaxed) {
            store.gc(&policy)?;
            // Locks are not handed out in order: who comes by all the time would keep the run out.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok::<_, engine::store::StoreError>(())
    };
    std::thread::scope(|scope| {
        let collectors = [None, Some(Duration::ZERO)].map(|age| scope.spawn(move || collect(age)));
        let ran: Vec<Ran> = (0..6).map(|_| place.run(&[])).collect();
        ended.store(true, Ordering::Relaxed);
        collectors.into_iter().for_each(|collector| collector.join().unwrap().unwrap());
        for ran in ran {
            assert_eq!(ran.code, 0, "{ran:#?}");
        }
    });
    assert_eq!(place.read("results/toy/end/out.txt"), "7654321alpha");
}
