//! The store's promises, each broken on purpose: half-written, damaged, shared, read-only.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::claim::Holder;
use super::record::{Record, RecordMeta};
use super::{Store, StoreError};
use crate::key::KeyParts;

pub(super) fn parts(n: i64) -> KeyParts {
    KeyParts {
        schema: 1,
        kind: "toy".into(),
        version: 1,
        params: json!({ "n": n }),
        environment: BTreeMap::new(),
        pins: BTreeMap::new(),
    }
}

pub(super) fn me() -> Holder {
    Holder { pid: std::process::id(), host: "here".into(), run: "r1".into() }
}

pub(super) fn meta(stage: &str) -> RecordMeta {
    RecordMeta { experiment: "e".into(), stage: stage.into(), ..RecordMeta::default() }
}

pub(super) fn compute(store: &Store, n: i64, files: &[(&str, &str)]) -> Record {
    let claim = store.claim(&parts(n).key(), &me(), |_| ()).unwrap();
    let out = claim.staging().unwrap();
    for (name, content) in files {
        let path = out.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    claim.commit(parts(n), meta(&format!("s{n}"))).unwrap()
}

fn overwrite(path: &Path, content: &str) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_committed_key_is_found_and_shown_under_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert!(store.lookup(&parts(1).key()).unwrap().is_none());
    let record = compute(&store, 1, &[("a.txt", "A"), ("deep/b.txt", "B")]);
    assert_eq!(store.lookup(&record.key).unwrap().as_ref(), Some(&record));
    let view = store.view(&record).unwrap();
    assert_eq!(fs::read_to_string(view.join("deep/b.txt")).unwrap(), "B");
    assert_eq!(store.view(&record).unwrap(), view);
    assert!(!store.inflight(&record.key).exists(), "nothing is left in flight");
    assert_eq!(record.digest_of("a.txt"), Some(record.entries[0].digest));
    assert_eq!(record.digest_of("").unwrap(), record.output);
    assert!(record.digest_of("deep").is_some() && record.digest_of("dee").is_none());
}

#[test]
fn a_sub_folder_has_the_digest_it_would_have_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let whole = compute(&store, 1, &[("x/a", "1"), ("x/b/c", "2"), ("y", "3")]);
    let alone = compute(&store, 2, &[("a", "1"), ("b/c", "2")]);
    assert_eq!(whole.digest_of("x"), Some(alone.output));
}

#[test]
fn equal_content_is_stored_once_and_gives_equal_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (one, two) = (compute(&store, 1, &[("a", "same")]), compute(&store, 2, &[("a", "same")]));
    assert_eq!(one.output, two.output);
    assert_eq!(super::files_below(&dir.path().join("blobs")).len(), 1);
}

#[test]
fn damaged_truncated_and_missing_blobs_are_evicted_not_served() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("damaged", |path| overwrite(path, "a")),
        ("damaged", |path| overwrite(path, "")),
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("damaged", |path| {
            let time = fs::metadata(path).unwrap().modified().unwrap();
            overwrite(path, "a");
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }),
    ];
    for (expected, harm) in harms {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let record = compute(&store, 1, &[("x", "A")]);
        harm(&store.blob_path(&record.entries[0].digest));
        let error = store.view(&record).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { what, .. } if what == expected), "{error}");
        assert!(store.lookup(&record.key).unwrap().is_none(), "evicted: the next run computes it");
        let again = compute(&store, 1, &[("x", "A")]);
        assert_eq!(fs::read_to_string(store.view(&again).unwrap().join("x")).unwrap(), "A");
    }
}

#[test]
fn a_large_blob_edited_in_place_is_noticed_by_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let content = "x".repeat(2 << 20);
    let record = compute(&store, 1, &[("big", &content)]);
    store.view(&record).unwrap();
    overwrite(&store.blob_path(&record.entries[0].digest), &"y".repeat(2 << 20));
    assert!(matches!(store.view(&record), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_half_written_record_or_one_under_a_wrong_key_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let record = compute(&store, 1, &[("x", "A")]);
    let path = store.record_path(&record.key);
    let text = fs::read(&path).unwrap();
    for bad in
        [&text[..text.len() / 2], b"", &serde_json::to_vec(&compute(&store, 2, &[("x", "A")])).unwrap()]
    {
        fs::write(&path, bad).unwrap();
        assert!(store.lookup(&record.key).unwrap().is_none());
    }
}

#[test]
fn a_second_claim_waits_and_learns_on_whom() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let key = parts(1).key();
    let first = store.claim(&key, &me(), |_| ()).unwrap();
    assert_eq!(store.holder(&key), Some(me()));
    assert_eq!(store.try_claim(&key, &me()).unwrap().err(), Some(Some(me())));
    let (waiting, waited) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let second = Store::open(dir.path()).unwrap();
            let claim = second.claim(&key, &me(), |holder| waiting.send(holder).unwrap()).unwrap();
            assert!(second.lookup(&key).unwrap().is_some(), "the first has committed by now");
            claim.abandon().unwrap();
        });
        assert_eq!(waited.recv_timeout(Duration::from_secs(20)).unwrap(), Some(me()));
        fs::write(first.staging().unwrap().join("x"), "A").unwrap();
        first.commit(parts(1), meta("s")).unwrap();
    });
    assert_eq!(store.holder(&key), None);
}

#[test]
fn claims_survive_folders_that_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    store.claim(&parts(1).key(), &me(), |_| ()).unwrap().abandon().unwrap();
                }
            });
        }
    });
}

#[test]
fn resumable_state_outlives_a_dropped_claim_but_not_success() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let key = parts(1).key();
    let claim = store.claim(&key, &me(), |_| ()).unwrap();
    fs::write(claim.state_dir().join("step"), "7").unwrap();
    fs::write(claim.staging().unwrap().join("half"), "").unwrap();
    drop(claim);
    let claim = store.claim(&key, &me(), |_| ()).unwrap();
    assert_eq!(fs::read_to_string(claim.state_dir().join("step")).unwrap(), "7");
    assert_eq!(fs::read_dir(claim.staging().unwrap()).unwrap().count(), 0, "half an output is dropped");
    claim.commit(parts(1), meta("s")).unwrap();
    assert!(!store.inflight(&key).exists());
}

#[test]
fn a_link_in_the_output_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let claim = store.claim(&parts(1).key(), &me(), |_| ()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", claim.staging().unwrap().join("link")).unwrap();
    let error = claim.commit(parts(1), meta("s")).unwrap_err().to_string();
    assert!(error.contains("link"), "{error}");
    assert!(store.lookup(&parts(1).key()).unwrap().is_none());
}

#[test]
fn publishing_restores_what_was_deleted_and_removes_strays_last() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("cache")).unwrap();
    let record = compute(&store, 1, &[("a", "A"), ("d/b", "B")]);
    let dest = dir.path().join("results/table");
    assert!(store.publish(&record, &dest).unwrap());
    assert!(!store.publish(&record, &dest).unwrap(), "nothing to do the second time");
    fs::remove_file(dest.join("a")).unwrap();
    fs::create_dir(dest.join("a")).unwrap();
    fs::write(dest.join("stray"), "").unwrap();
    fs::remove_dir_all(dest.join("d")).unwrap();
    fs::write(dest.join("d"), "a file in the way").unwrap();
    assert!(store.publish(&record, &dest).unwrap());
    assert_eq!(fs::read_to_string(dest.join("a")).unwrap(), "A");
    assert_eq!(fs::read_to_string(dest.join("d/b")).unwrap(), "B");
    assert!(!dest.join("stray").exists());
    overwrite(&store.blob_path(&record.entries[0].digest), "?");
    fs::write(dest.join("kept"), "").unwrap();
    assert!(store.publish(&record, &dest).is_err());
    assert!(dest.join("kept").exists(), "nothing is removed before everything has arrived");
}

#[test]
fn an_unwritable_store_serves_hits_and_says_why_it_computes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let record = compute(&Store::open(dir.path()).unwrap(), 1, &[("x", "A")]);
    let store = Store::open_read_only(dir.path());
    let before = walkdir::WalkDir::new(dir.path()).into_iter().count();
    assert_eq!(store.lookup(&record.key).unwrap(), Some(record.clone()));
    store.session("e", "r").unwrap().uses([&record.key]);
    assert!(matches!(store.claim(&parts(2).key(), &me(), |_| ()), Err(StoreError::ReadOnly(_))));
    assert_eq!(walkdir::WalkDir::new(dir.path()).into_iter().count(), before, "no probe files");
}

#[test]
fn verification_finds_what_a_look_at_the_time_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let content = "x".repeat(2 << 20);
    let record = compute(&store, 1, &[("big", &content)]);
    compute(&store, 2, &[("fine", "f")]);
    let blob = store.blob_path(&record.entries[0].digest);
    let time = fs::metadata(&blob).unwrap().modified().unwrap();
    overwrite(&blob, &"y".repeat(2 << 20));
    fs::File::options().write(true).open(&blob).unwrap().set_modified(time).unwrap();
    let report = store.verify(|_| ()).unwrap();
    assert_eq!(report.evicted, [("s1".to_owned(), "damaged")]);
    assert_eq!(report.blobs, 2);
    assert!(store.lookup(&record.key).unwrap().is_none() && !blob.exists());
}

/// A record that cannot be used is a miss; looking after the store says which and why.
#[test]
fn damaged_records_are_listed_reported_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let records: Vec<Record> = (1..=5).map(|n| compute(&store, n, &[("x", "A")])).collect();
    let path = |n: usize| store.record_path(&records[n].key);
    let text = fs::read(path(0)).unwrap();
    fs::write(path(0), &text[..text.len() / 2]).unwrap();
    fs::write(path(1), "").unwrap();
    fs::write(path(2), fs::read(path(3)).unwrap()).unwrap();
    // What a killed writer leaves is no record.
    fs::write(path(3).with_file_name(".tmpAbC"), "{").unwrap();
    let (listed, bad) = store.list();
    assert_eq!((listed.len(), bad.len()), (2, 3));
    let report = store.verify(|_| ()).unwrap();
    assert_eq!((report.records.len(), report.evicted.len()), (3, 0), "{report:?}");
    for n in 0..3 {
        let line = report.records.iter().find(|line| line.contains(path(n).to_str().unwrap()));
        assert!(line.is_some_and(|line| line.contains("removed")), "{report:?}");
        assert!(!path(n).exists());
    }
    assert!(path(3).exists() && path(4).exists());
    assert_eq!(store.verify(|_| ()).unwrap().records, [""; 0], "once is enough");
    // Looking alone removes nothing.
    fs::write(path(4), "{").unwrap();
    let report = Store::open_read_only(dir.path()).verify(|_| ()).unwrap();
    assert!(report.records.len() == 1 && path(4).exists(), "{report:?}");
}

/// A cache is shared between users as far as the umask of whoever writes it says.
#[test]
fn everything_stored_can_be_read_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("cache")).unwrap();
    let record = compute(&store, 1, &[("a", "A"), ("d/b", "B")]);
    store.view(&record).unwrap();
    store.session("e", "run").unwrap().uses([&record.key]);
    store.pin(&record.key, true).unwrap();
    // What an ordinary file and folder get here.
    let (file, folder) = (dir.path().join("file"), dir.path().join("folder"));
    fs::write(&file, "").unwrap();
    fs::create_dir(&folder).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o444;
    let mut seen = 0;
    for item in walkdir::WalkDir::new(dir.path().join("cache")) {
        let item = item.unwrap();
        // A blob is read-only for everyone.
        let usual = if item.file_type().is_dir() { mode(&folder) } else { mode(&file) };
        assert_eq!(mode(item.path()) & usual, usual, "{}", item.path().display());
        seen += 1;
    }
    assert!(seen > 12);
}

#[test]
fn what_two_runs_publish_to_one_place_does_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("cache")).unwrap();
    let one: Vec<String> = (0..100).map(|n| format!("one{n}")).collect();
    let two: Vec<String> = (0..100).map(|n| format!("two{n}")).collect();
    let record = |n: i64, names: &[String], content: &str| {
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), content)).collect();
        files.push(("same", content));
        compute(&store, n, &files)
    };
    let records = [record(1, &one, "1"), record(2, &two, "2")];
    let dest = dir.path().join("results/table");
    for _ in 0..3 {
        // Both copies are ready before either takes its place.
        let ready = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for record in &records {
                scope.spawn(|| {
                    let wait = |_: &Path| {
                        ready.wait();
                        Ok(())
                    };
                    store.publish_completed(record, &dest, wait).unwrap()
                });
            }
        });
        let whole = records.iter().filter(|record| store.is_published(record, &dest)).count();
        assert_eq!(whole, 1);
    }
}
