//! Signals: nothing outlives the engine, nothing finished is lost.

use std::fs;
use std::process::Child;
use std::time::Duration;

use engine::event::{Event, RunStatus};

use crate::support::{Place, Ran, runs, signal, wait_for};

/// A stage that starts a program tied to it, a shell with a child of its own, and a program in a
/// session of its own.
fn spawning(leave: bool) -> Place {
    Place::new(&format!("[stage.x]\nkind = \"spawn\"\npids = \"$DIR/pids\"\nleave = {leave}\n"))
}

/// Process ids of the worker, its three programs and the shell's child.
fn family(place: &Place) -> Vec<u32> {
    let mut pids = wait_for("the stage's programs", || {
        let pids: Vec<u32> = place.marks("pids").iter().filter_map(|pid| pid.parse().ok()).collect();
        (pids.len() == 4).then_some(pids)
    });
    let shell = pids[2];
    pids.push(wait_for("the shell's child", || {
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }));
    assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    pids
}

fn all_gone(pids: &[u32]) {
    wait_for("every process to end", || pids.iter().all(|pid| !runs(*pid)).then_some(()));
}

fn start(place: &Place) -> Child {
    place.start(&["--allow-commands", "--grace", "0.3"])
}

/// Scenario 27.
#[test]
fn nothing_outlives_an_engine_however_it_ends() {
    for (number, code) in
        [(libc::SIGKILL, -1), (libc::SIGTERM, 130), (libc::SIGINT, 130), (libc::SIGHUP, 130)]
    {
        let place = spawning(false);
        let engine = start(&place);
        let pids = family(&place);
        signal(engine.id(), number);
        let ran = engine.wait_with_output().unwrap();
        all_gone(&pids);
        assert_eq!(ran.status.code().unwrap_or(-1), code, "signal {number}");
    }
}

#[test]
fn nothing_outlives_a_killed_worker_and_the_engine_does() {
    let place = spawning(false);
    let engine = start(&place);
    let pids = family(&place);
    signal(pids[0], libc::SIGKILL);
    let ran = Ran::of(engine.wait_with_output().unwrap());
    all_gone(&pids);
    assert_eq!(ran.code, 1);
    assert!(ran.failure("x").0.message.contains("killed (SIGKILL)"), "{ran:#?}");
}

/// What a shell had started before it became the engine is none of the engine's business.
#[test]
fn a_bystander_is_left_alone() {
    let place = spawning(false);
    let toy = place.command(&[]).get_program().to_owned();
    let script = format!(
        "sleep 600 & echo $! > bystander; exec {} run p.toml --json --allow-commands",
        toy.to_str().unwrap()
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.path(".")).env("XDG_CONFIG_HOME", place.path("config"));
    let engine = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pids = family(&place);
    signal(pids[0], libc::SIGKILL);
    // The bystander holds standard output open, so its end cannot be waited for yet.
    all_gone(&pids);
    wait_for("the run to end", || (!runs(engine.id())).then_some(()));
    let bystander: u32 = place.marks("bystander")[0].parse().unwrap();
    assert!(runs(bystander));
    signal(bystander, libc::SIGKILL);
    assert_eq!(Ran::of(engine.wait_with_output().unwrap()).code, 1);
}

#[test]
fn programs_left_behind_by_a_finished_stage_are_ended() {
    let place = spawning(true);
    let ran = Ran::of(start(&place).wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{ran:#?}");
    let pids: Vec<u32> = place.marks("pids").iter().map(|pid| pid.parse().unwrap()).collect();
    all_gone(&pids);
}

const COUNT: &str = "[stage.x]\nkind = \"count\"\nto = 40\nmilliseconds = 30\nmark = \"$DIR/steps\"\n\
                     [stage.y]\nkind = \"concat\"\nalso = \"@x\"\npublish = \"y\"\n";

/// An uninterrupted run's output.
fn expected() -> String {
    let place = Place::new(COUNT);
    place.succeed(&["--set", "stage.x.milliseconds=0"]);
    place.read("results/toy/y/out.txt")
}

fn steps(place: &Place, at_least: usize) {
    wait_for("some steps", || (place.marks("steps").len() >= at_least).then_some(()));
}

#[test]
fn interrupted_once_a_stage_saves_its_state_and_the_next_run_carries_on() {
    let place = Place::new(COUNT);
    let engine = place.start(&[]);
    steps(&place, 5);
    signal(engine.id(), libc::SIGINT);
    let ran = Ran::of(engine.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.end().0), (130, RunStatus::Interrupted));
    let stopped =
        |event: &Event| matches!(event, Event::Stopped { stage, resumable: true, .. } if stage == "x");
    assert!(ran.events.iter().any(stopped));
    let rest = place.succeed(&[]);
    assert_eq!(rest.why("x"), "its last attempt was stopped");
    assert_eq!(place.marks("steps").len(), 40, "no step is repeated");
    assert_eq!(place.read("results/toy/y/out.txt"), expected());
}

#[test]
fn killed_workers_and_engines_lose_at_most_the_current_step() {
    let place = Place::new(COUNT);
    for kill_engine in [true, false, true] {
        let before = place.marks("steps").len();
        let engine = place.start(&[]);
        steps(&place, before + 4);
        if kill_engine {
            signal(engine.id(), libc::SIGKILL);
        } else {
            let children = fs::read_dir(format!("/proc/{}/task", engine.id())).unwrap();
            let children =
                children.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
            for child in children.collect::<String>().split_whitespace() {
                signal(child.parse().unwrap(), libc::SIGKILL);
            }
        }
        drop(engine.wait_with_output());
    }
    place.succeed(&[]);
    assert!(place.marks("steps").len() <= 40 + 3, "{:?}", place.marks("steps"));
    assert_eq!(place.read("results/toy/y/out.txt"), expected());
}

/// A stage that is stopped and keeps no state says so, instead of promising to carry on.
#[test]
fn a_stopped_stage_without_state_does_not_claim_any() {
    let place = Place::new("[stage.x]\nkind = \"sleep\"\nmilliseconds = 600000\nmark = \"$DIR/x\"\n");
    let engine = place.start(&[]);
    wait_for("the stage", || (!place.marks("x").is_empty()).then_some(()));
    signal(engine.id(), libc::SIGTERM);
    let ran = Ran::of(engine.wait_with_output().unwrap());
    assert_eq!(ran.code, 130);
    assert!(ran.events.iter().any(|event| matches!(event, Event::Stopped { resumable: false, .. })));
    assert!(!place.text(&["log", "x"]).contains("saved"), "{}", place.text(&["log", "x"]));
}

#[test]
fn a_stage_over_its_timeout_takes_its_programs_with_it() {
    let place = spawning(false);
    let text = place.read("p.toml");
    place.write("p.toml", &format!("{text}timeout = \"1s\"\n"));
    let engine = start(&place);
    let pids = family(&place);
    assert_eq!(engine.wait_with_output().unwrap().status.code(), Some(1));
    all_gone(&pids);
}

#[test]
fn a_second_interrupt_does_not_wait_for_a_stage_that_does_not_listen() {
    let place = Place::new(
        "[stage.x]\nkind = \"sleep\"\nmilliseconds = 600000\nstubborn = true\nmark = \"$DIR/x\"\n",
    );
    let engine = place.start(&["--grace", "600"]);
    wait_for("the stage", || (!place.marks("x").is_empty()).then_some(()));
    signal(engine.id(), libc::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(runs(engine.id()), "the first interrupt waits");
    signal(engine.id(), libc::SIGINT);
    let ran = Ran::of(engine.wait_with_output().unwrap());
    assert_eq!(ran.code, 130);
}

#[test]
fn a_killed_run_shows_as_killed_and_its_torn_log_is_readable() {
    let place = Place::new(COUNT);
    let engine = place.start(&["--set", "stage.x.milliseconds=300"]);
    place.wait_for_logged("\"event\":\"progress\"");
    assert!(place.text(&["runs"]).contains("running"));
    assert!(place.text(&["status"]).contains("/40 steps"), "{}", place.text(&["status"]));
    signal(engine.id(), libc::SIGKILL);
    drop(engine.wait_with_output());
    let logs = place.stored("runs");
    let log = logs.iter().find(|path| path.ends_with("events.jsonl")).unwrap();
    let mut text = fs::read_to_string(log).unwrap();
    text.push_str("{\"time\":\"2026-01-01T00:00:00Z\",\"event\":\"fini");
    fs::write(log, text).unwrap();
    assert!(place.text(&["runs"]).contains("killed"));
    assert!(place.text(&["status", "p.toml"]).contains("killed"));
    place.succeed(&[]);
}
