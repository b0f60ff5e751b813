//! What the collector takes and what it leaves.

use std::fs;
use std::time::Duration;

use super::Store;
use super::gc::GcPolicy;
use super::tests::{compute, me, parts};

fn everything() -> GcPolicy {
    GcPolicy { max_size: Some(0), max_age: None, grace: Duration::ZERO, dry_run: false }
}

#[test]
fn the_collector_removes_abandoned_attempts_but_none_that_is_young_or_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let state = |n: i64| {
        let claim = store.claim(&parts(n).key(), &me(), |_| ()).unwrap();
        fs::write(claim.state_dir().join("step"), "12345").unwrap();
        claim
    };
    drop(state(1));
    let under_way = state(2);
    fs::create_dir_all(dir.path().join("inflight/.done-x")).unwrap();
    let old = Some(Duration::ZERO);
    let policy = GcPolicy { max_age: old, max_size: None, grace: Duration::from_secs(3600), dry_run: false };
    assert_eq!(store.gc(&policy).unwrap().unfinished, 0, "all are young");
    std::thread::sleep(Duration::from_millis(20));
    let sized = GcPolicy { max_age: None, max_size: Some(0), grace: Duration::ZERO, dry_run: false };
    assert_eq!(store.gc(&sized).unwrap().unfinished, 1, "only what was being removed anyway");
    let report = store.gc(&GcPolicy { grace: Duration::ZERO, ..policy }).unwrap();
    assert_eq!(report.unfinished, 1);
    assert!(report.bytes >= 5);
    assert!(!store.inflight(&parts(1).key()).exists());
    assert!(under_way.state_dir().join("step").exists());
    drop(under_way);
}

#[test]
fn the_collector_spares_pins_live_runs_and_shared_blobs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let pinned = compute(&store, 1, &[("x", "shared"), ("y", "own")]);
    let live = compute(&store, 2, &[("x", "live")]);
    let loose = compute(&store, 3, &[("x", "shared"), ("z", "loose")]);
    store.pin(&pinned.key, true).unwrap();
    let session = store.session("e", "run").unwrap();
    session.uses([&live.key]);
    let dry = store.gc(&GcPolicy { dry_run: true, ..everything() }).unwrap();
    assert!(store.lookup(&loose.key).unwrap().is_some(), "a dry run removes nothing");
    let report = store.gc(&everything()).unwrap();
    assert_eq!((dry.records, report.records, report.blobs), (1, 1, 1));
    assert!(store.lookup(&loose.key).unwrap().is_none());
    store.view(&pinned).unwrap();
    store.view(&live).unwrap();
    session.finish();
    store.pin(&pinned.key, false).unwrap();
    assert_eq!(store.gc(&everything()).unwrap().records, 2);
    assert!(super::files_below(&dir.path().join("blobs")).is_empty());
}

#[test]
fn the_collector_leaves_what_is_within_the_grace_period() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    compute(&store, 1, &[("x", "A")]);
    let policy = GcPolicy { grace: Duration::from_secs(3600), ..everything() };
    assert_eq!(store.gc(&policy).unwrap().records, 0);
    let old = GcPolicy { max_size: None, max_age: Some(Duration::from_secs(3600)), ..everything() };
    assert_eq!(store.gc(&old).unwrap().records, 0);
}

#[test]
fn the_collector_prunes_old_runs_but_the_last_of_each_experiment() {
    use crate::event::{Counts, Event, Line, LogWriter, RunStatus};
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let began = |experiment: &str, id: &str| {
        let folder = store.runs_dir().join(id);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.log"), "printed").unwrap();
        let mut log = LogWriter::create(&folder).unwrap();
        let started = Event::RunStarted {
            run: id.into(),
            experiment: experiment.into(),
            manifest: "p.toml".into(),
            stages: 1,
            device: "cpu".into(),
            jobs: 1,
            sets: vec![],
            host: "here".into(),
            tool_version: "0".into(),
        };
        log.write(&Line::now(started)).unwrap();
        log
    };
    let ended = |experiment: &str, id: &str| {
        let (status, counts) = (RunStatus::Succeeded, Counts::default());
        began(experiment, id).write(&Line::now(Event::RunFinished { status, counts, seconds: 1.0 })).unwrap();
    };
    ended("one", "20260101-000000-000abc");
    ended("one", "20260102-000000-000abc");
    ended("two", "20260103-000000-000abc");
    drop(began("one", "20260104-000000-000abc"));
    let _alive = began("two", "20260102-000000-000def");
    drop(store.session("one", "killed").unwrap());
    let _live = store.session("one", "alive").unwrap();
    let names = |folder: &str| {
        let items = fs::read_dir(dir.path().join(folder)).unwrap();
        let mut names: Vec<String> =
            items.map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    std::thread::sleep(Duration::from_millis(20));
    let policy = |age: Option<Duration>, dry_run| GcPolicy {
        max_age: age,
        max_size: None,
        grace: Duration::ZERO,
        dry_run,
    };
    assert_eq!(store.gc(&policy(None, false)).unwrap().runs, 0, "history stays unless an age is given");
    assert_eq!(store.gc(&policy(Some(Duration::from_secs(3600)), false)).unwrap().runs, 0, "all are young");
    let all = store.gc(&policy(Some(Duration::ZERO), true)).unwrap();
    assert_eq!((all.runs, names("runs").len()), (2, 5), "a dry run removes nothing");
    assert!(all.bytes > 14);
    assert_eq!(store.gc(&policy(Some(Duration::ZERO), false)).unwrap().runs, 2);
    assert_eq!(
        names("runs"),
        ["20260102-000000-000def", "20260103-000000-000abc", "20260104-000000-000abc"],
        "the last of each experiment, and the one that is under way"
    );
    assert_eq!(names("sessions"), ["alive.live"]);
}

#[test]
fn the_collector_removes_what_killed_processes_left_half_made() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let record = compute(&store, 1, &[("x", "A")]);
    store.view(&record).unwrap();
    let left: Vec<_> = ["records/ab/.tmpX", "trees/ab/.tmpY", "views/ab/.tmpZ/d/link"]
        .iter()
        .map(|name| dir.path().join(name))
        .collect();
    for path in &left {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let young = GcPolicy { max_size: None, grace: Duration::from_secs(3600), ..everything() };
    store.gc(&young).unwrap();
    assert!(left.iter().all(|path| path.exists()), "somebody may be at it");
    std::thread::sleep(Duration::from_millis(1100));
    store.gc(&GcPolicy { max_size: None, ..everything() }).unwrap();
    assert!(left.iter().all(|path| !path.exists()));
    assert!(store.lookup(&record.key).unwrap().is_some());
    assert!(store.existing_view(&record).is_some());
}

/// Whatever the moment at which collectors that spare nothing come by, what a run has computed or
/// found stays for it, and neither fails.
#[test]
fn the_collector_takes_nothing_from_a_run_at_any_moment() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let ended = AtomicBool::new(false);
    let collect = || {
        let policies = [everything(), GcPolicy { max_age: Some(Duration::ZERO), ..everything() }];
        for policy in policies.iter().cycle().take_while(|_| !ended.load(Ordering::Relaxed)) {
            store.gc(policy).unwrap();
        }
    };
    let serve = |run: i64| {
        for round in 0..25 {
            let session = store.session("e", &format!("{run}-{round}")).unwrap();
            // The other run finds the odd ones, as long as they stay.
            let n = if round % 2 == 0 { 1000 * run + round } else { round };
            let key = parts(n).key();
            let found = {
                let _turn = store.shared_turn().unwrap();
                session.uses([&key]);
                store.lookup(&key).unwrap()
            };
            let content = n.to_string();
            let record = found.unwrap_or_else(|| compute(&store, n, &[("a", "shared"), ("d/b", &content)]));
            for _ in 0..3 {
                assert_eq!(store.lookup(&key).unwrap().as_ref(), Some(&record));
                let view = store.view(&record).unwrap();
                assert_eq!(fs::read_to_string(view.join("a")).unwrap(), "shared");
                assert_eq!(fs::read_to_string(view.join("d/b")).unwrap(), content);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(collect);
        scope.spawn(collect);
        let runs = [1, 2].map(|run| scope.spawn(move || serve(run)));
        let ends = runs.map(|run| run.join());
        ended.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
}
