//! What is served from the store and what is computed again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use crate::support::{Place, Ran};

const CHAIN: &str = r#"
[stage.a]
kind = "write"
text = "alpha"
mark = "$DIR/a.ran"
[stage.b]
kind = "concat"
also = "@a"
prefix = "b:"
[stage.c]
kind = "concat"
also = "@b/out.txt"
prefix = "c:"
publish = "final"
"#;

#[test]
fn second_run_serves_everything_and_leaves_the_published_copy_alone() {
    let place = Place::new(CHAIN);
    assert_eq!(place.succeed(&[]).computed(), ["a", "b", "c"]);
    assert_eq!(place.read("results/toy/final/out.txt"), "c:b:alpha");
    let inode = |place: &Place| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(place.path("results/toy/final/out.txt")).unwrap().ino()
    };
    let before = inode(&place);
    let again = place.succeed(&[]);
    assert_eq!((again.computed().len(), again.cached()), (0, vec!["a", "b", "c"]));
    assert_eq!(inode(&place), before);
}

#[test]
fn comments_names_and_order_do_not_matter_but_values_do() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    place.manifest(&format!(
        "# a comment\n{}",
        CHAIN.replace("@b/out.txt", "@b2/out.txt").replace("stage.b]", "stage.b2]")
    ));
    assert!(place.succeed(&[]).computed().is_empty());
    let changed = place.succeed(&["--set", "stage.b2.prefix=B:"]);
    assert_eq!(changed.computed(), ["b2", "c"]);
    assert_eq!(changed.why("b2"), "param prefix: \"b:\" → \"B:\"");
    assert!(changed.why("c").contains("also"), "{}", changed.why("c"));
}

#[test]
fn a_rerun_with_the_same_output_stops_the_wave() {
    let place = Place::new(
        r#"
        [stage.a]
        kind = "write"
        text = "alpha"
        [stage.b]
        kind = "concat"
        also = "@a"
        keep = 2
        [stage.c]
        kind = "concat"
        also = "@b"
        "#,
    );
    place.succeed(&[]);
    let cut = place.succeed(&["--set", "stage.a.text=alert"]);
    assert_eq!((cut.computed(), cut.cached()), (vec!["a", "b"], vec!["c"]));
}

#[test]
fn a_part_of_an_artifact_is_an_input_of_its_own() {
    let place = Place::new(
        r#"
        [stage.a]
        kind = "write"
        text = "alpha"
        more = ["extra"]
        [stage.whole]
        kind = "concat"
        also = "@a"
        [stage.part]
        kind = "concat"
        also = "@a/out.txt"
        "#,
    );
    place.succeed(&[]);
    let ran = place.succeed(&["--set", "stage.a.more=[\"other\"]"]);
    assert_eq!((ran.computed(), ran.cached()), (vec!["a", "whole"], vec!["part"]));
}

/// Scenario 10.
#[test]
fn what_leaves_nothing_or_is_not_cached_runs_every_time() {
    let place = Place::new(
        r#"
        [stage.nothing]
        kind = "write"
        nothing = true
        mark = "$DIR/nothing.ran"
        [stage.always]
        kind = "write"
        text = "x"
        cache = false
        mark = "$DIR/always.ran"
        [stage.after]
        kind = "concat"
        also = "@always"
        "#,
    );
    for _ in 0..3 {
        place.succeed(&[]);
    }
    assert_eq!(place.marks("nothing.ran").len(), 3);
    assert_eq!(place.marks("always.ran").len(), 3);
    assert_eq!(place.succeed(&[]).cached(), ["after"], "the same output stops the wave");
}

/// Scenario 11: as if killed after the output was stored and before the record was.
#[test]
fn content_without_a_record_is_just_computed_again() {
    let place = Place::new(CHAIN);
    let first = place.succeed(&[]);
    for record in place.stored("records") {
        fs::remove_file(record).unwrap();
    }
    let again = place.succeed(&[]);
    assert_eq!(again.computed(), ["a", "b", "c"]);
    assert_eq!(first.outputs(), again.outputs());
}

/// Scenario 15.
#[test]
fn identical_stages_share_one_result_and_have_separate_copies() {
    let place = Place::new(
        r#"
        [stage.one]
        kind = "write"
        text = "same"
        mark = "$DIR/ran"
        publish = "one"
        [stage.two]
        kind = "write"
        text = "same"
        mark = "$DIR/ran"
        publish = "two"
        "#,
    );
    let ran = place.succeed(&["--jobs", "4"]);
    assert_eq!((ran.end().1.ran, ran.end().1.cached), (1, 1));
    assert_eq!(place.marks("ran").len(), 1);
    assert_eq!(place.read("results/toy/one/out.txt"), place.read("results/toy/two/out.txt"));
}

fn overwrite(path: &std::path::Path, text: &str) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, text).unwrap();
}

/// Scenario 17.
#[test]
fn a_damaged_result_is_computed_again_and_never_called_up_to_date() {
    let place = Place::new(CHAIN);
    let first = place.succeed(&[]);
    overwrite(&place.blob("c:b:alpha"), "c:b:ALPHA");
    let again = place.succeed(&[]);
    assert_eq!(again.computed(), ["c"]);
    assert_eq!(first.outputs(), again.outputs());
    assert_eq!(place.read("results/toy/final/out.txt"), "c:b:alpha");
}

/// Scenarios 17 and 18: an input that is damaged or gone is computed again, with what it needs.
#[test]
fn a_damaged_or_missing_input_is_computed_again_when_it_is_needed() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    overwrite(&place.blob("b:alpha"), "b:ALPHA");
    fs::remove_file(place.blob("alpha")).unwrap();
    assert!(place.succeed(&[]).computed().is_empty(), "nothing that is asked for needs them");
    let ran = place.succeed(&["--set", "stage.c.prefix=C:"]);
    assert_eq!(ran.computed(), ["a", "b", "c"]);
    assert_eq!(place.read("results/toy/final/out.txt"), "C:b:alpha");
}

/// Scenario 19 and 20.
#[test]
fn a_published_copy_is_restored_and_freed_of_strays_without_computing() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    fs::remove_file(place.path("results/toy/final/out.txt")).unwrap();
    place.write("results/toy/final/stray.txt", "left over");
    let again = place.succeed(&[]);
    assert!(again.computed().is_empty());
    assert_eq!(place.read("results/toy/final/out.txt"), "c:b:alpha");
    assert!(!place.path("results/toy/final/stray.txt").exists());
}

/// Scenario 21.
#[test]
fn an_input_edited_while_the_stage_runs_is_not_cached() {
    let place = Place::new(
        "[stage.slow]\nkind = \"concat\"\nalso = \"./in.txt\"\nmilliseconds = 1500\nmark = \"$DIR/ran\"",
    );
    place.write("in.txt", "before");
    let run = place.start(&[]);
    crate::support::wait_for("the stage", || (!place.marks("ran").is_empty()).then_some(()));
    place.write("in.txt", "afterw");
    let ran = Ran::of(run.wait_with_output().unwrap());
    assert_eq!(ran.code, 1);
    let (error, ..) = ran.failure("slow");
    assert!(error.message.contains("in.txt was edited while the stage ran"), "{error}");
    assert!(place.stored("records").is_empty());
    assert_eq!(place.succeed(&[]).computed(), ["slow"]);
}

/// Scenario 21, with an input from the cache: a stage may run as a user who can write anywhere.
#[test]
fn a_cached_input_changed_while_the_stage_runs_is_not_believed() {
    let place = Place::new(
        "[stage.good]\nkind = \"write\"\ntext = \"clean\"\n\
         [stage.dep]\nkind = \"concat\"\nalso = \"@good\"\nmilliseconds = 1500\nmark = \"$DIR/ran\"",
    );
    let run = place.start(&[]);
    crate::support::wait_for("the stage", || (!place.marks("ran").is_empty()).then_some(()));
    let blob = place.blob("clean");
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, "dirty").unwrap();
    let ran = Ran::of(run.wait_with_output().unwrap());
    assert_eq!(ran.code, 1);
    let (error, ..) = ran.failure("dep");
    assert!(error.message.contains("was changed while the stage ran"), "{error}");
    assert_eq!(place.succeed(&[]).computed(), ["good", "dep"]);
}

/// Scenario 22.
#[test]
fn downstream_is_served_although_upstream_content_is_gone() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    fs::remove_file(place.blob("alpha")).unwrap();
    fs::remove_file(place.blob("b:alpha")).unwrap();
    fs::remove_dir_all(place.path("cache/views")).unwrap();
    place.manifest(&format!("# edited\n{CHAIN}"));
    assert!(place.succeed(&[]).computed().is_empty());
}

/// Scenario 24.
#[test]
fn an_edit_within_one_clock_tick_or_with_a_skewed_clock_is_seen() {
    let place = Place::new("[stage.a]\nkind = \"concat\"\nalso = \"./in.txt\"\npublish = \"a\"");
    let file = |text: &str, time: SystemTime| {
        place.write("in.txt", text);
        fs::File::options().write(true).open(place.path("in.txt")).unwrap().set_modified(time).unwrap();
    };
    let future = SystemTime::now() + Duration::from_secs(86_400);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    for time in [future, past] {
        for text in ["one", "two", "six"] {
            file(text, time);
            place.succeed(&[]);
            assert_eq!(place.read("results/toy/a/out.txt"), text);
        }
    }
}

/// Scenario 26.
#[test]
fn a_read_only_cache_serves_hits_and_refuses_to_compute() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    // Root may write everywhere: become nobody, with a copy of the program that nobody can reach.
    let root = fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let program = place.path("toy");
    fs::copy(env!("CARGO_BIN_EXE_toy-pipeline"), &program).unwrap();
    let set_modes = |folder: u32, file: u32| {
        let set = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for item in walkdir::WalkDir::new(place.path("cache")).contents_first(true) {
            let item = item.unwrap();
            set(
                item.path(),
                if item.file_type().is_dir() {
                    folder
                } else if item.file_type().is_file() {
                    file
                } else {
                    continue;
                },
            );
        }
    };
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    set_modes(0o555, 0o444);
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(["run", "p.toml", "--json", "--results", "/nonexistent"]).args(args);
        command.current_dir(place.path(".")).env("XDG_CONFIG_HOME", place.path("config"));
        if root {
            use std::os::unix::process::CommandExt;
            command.uid(65534).gid(65534);
        }
        Ran::of(command.output().unwrap())
    };
    let before = place.snapshot();
    let hits = run(&["b"]);
    let miss = run(&["b", "--set", "stage.b.prefix=other"]);
    // `c` is published, where nobody may write.
    let published = run(&["c"]);
    let after = place.snapshot();
    set_modes(0o755, 0o644);
    assert_eq!((hits.code, hits.cached()), (0, vec!["a", "b"]), "{}", hits.stderr);
    assert_eq!(miss.code, 3, "as documented");
    assert!(miss.failure("b").0.message.contains("read-only"), "{:?}", miss.failure("b"));
    assert!(published.code == 3 && published.stderr.contains("/: you may not write there"), "{published:?}");
    assert!(before == after, "no probe files");
}

#[test]
fn force_computes_everything_or_one_stage_and_from_scratch() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    assert_eq!(place.succeed(&["--force"]).computed(), ["a", "b", "c"]);
    let one = place.succeed(&["--force=b"]);
    assert_eq!((one.computed(), one.cached()), (vec!["b"], vec!["a", "c"]));
    assert_eq!(one.why("b"), "forced");
}

#[test]
fn targets_bring_what_they_depend_on_and_nothing_else() {
    let place = Place::new(CHAIN);
    assert_eq!(place.succeed(&["b"]).computed(), ["a", "b"]);
    let wrong = place.run(&["bb[x]"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("there is no stage `bb[x]`"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("did you mean `b`?"), "{}", wrong.stderr);
    assert_eq!(place.run(&["--force=fina"]).code, 2);
}

/// Scenario 9: an edit that cannot matter is accepted, and nothing runs; one that can is not.
#[test]
fn a_cosmetic_edit_can_be_accepted() {
    let place = Place::new(CHAIN);
    let said = |args: &[&str]| {
        let output = place.output(&[&["accept", "p.toml"], args].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    assert_eq!(said(&["a"]).0, Some(2), "there is nothing yet");
    let first = place.succeed(&[]);
    let edited = ["--set", "stage.a.mark=elsewhere"];
    let (code, text) = said(&[&["a"], &edited[..]].concat());
    assert!(code == Some(0) && text.contains("stands for this one too (param mark:"), "{text}");
    let second = place.succeed(&edited);
    assert_eq!((second.computed().len(), second.cached()), (0, vec!["a", "b", "c"]));
    assert_eq!(first.outputs(), second.outputs());
    let explained = place.text(&[&["explain", "p.toml", "a"], &edited[..]].concat());
    assert!(explained.contains("and accepted for this one"), "{explained}");
    // What comes after a change waits for it; what has other inputs has to run.
    let both = ["--set", "stage.a.text=beta", "--set", "stage.b.prefix=B:"];
    let (code, text) = said(&[&["b"], &both[..]].concat());
    assert!(code == Some(2) && text.contains("accept these first (a)"), "{text}");
    place.succeed(&[&["a"], &both[..]].concat());
    let (code, text) = said(&[&["b"], &both[..]].concat());
    assert!(code == Some(2) && text.contains("so it has to run (input also:"), "{text}");
    assert_eq!(said(&["nope"]).0, Some(2));
    assert!(said(&["c"]).1.contains("is up to date"));
}

/// Scenario 9: what a kind's code version or a program's arguments change runs again.
#[test]
fn changed_code_runs_again() {
    let place = Place::new(CHAIN);
    place.succeed(&[]);
    let mut command = place.command(&["run", "p.toml", "--json"]);
    let ran = Ran::of(command.env("TOY_WRITE_VERSION", "2").output().unwrap());
    assert_eq!((ran.code, ran.computed(), ran.cached()), (0, vec!["a"], vec!["b", "c"]));
    assert_eq!(ran.why("a"), "code version of kind `write`: 1 → 2");
    assert_eq!(place.succeed(&[]).cached(), ["a", "b", "c"], "the old code's result is still there");
}

/// Scenario 8.
#[test]
fn a_param_or_input_that_is_gone_is_a_change() {
    let place = Place::new(
        "[stage.a]\nkind = \"write\"\ntext = \"x\"\n[stage.b]\nkind = \"concat\"\nalso = \"@a\"\nprefix = \"p\"\n",
    );
    place.succeed(&[]);
    place.manifest(
        "[stage.a]\nkind = \"write\"\ntext = \"x\"\n[stage.b]\nkind = \"concat\"\nprefix = \"p\"\n",
    );
    let ran = place.succeed(&[]);
    assert_eq!(ran.computed(), ["b"]);
    assert!(
        ran.why("b").starts_with("param also: input ") && ran.why("b").ends_with(" → null"),
        "{}",
        ran.why("b")
    );
    place.manifest("[stage.a]\nkind = \"write\"\ntext = \"x\"\n[stage.b]\nkind = \"concat\"\n");
    let ran = place.succeed(&[]);
    assert_eq!((ran.computed(), ran.why("b")), (vec!["b"], "param prefix: \"p\" → \"\""));
}

/// Scenario 6.
#[test]
fn one_manifest_has_one_identity_however_its_path_is_spelled() {
    let place = Place::new("[stage.a]\nkind = \"concat\"\nalso = \"././in.txt\"\n");
    place.write("in.txt", "text");
    let run = |path: &str| {
        let ran = Ran::of(place.output(&["run", path, "--json"]));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.events.iter().any(|event| matches!(event, engine::event::Event::Finished { .. }))
    };
    assert!(run("p.toml"));
    let whole = place.path("p.toml");
    for path in ["./p.toml", "././p.toml", ".//p.toml", whole.to_str().unwrap()] {
        assert!(!run(path), "{path}");
    }
    place.manifest("[stage.a]\nkind = \"concat\"\nalso = \"in.txt\"\n");
    assert!(!run("p.toml"), "nor does it matter how the manifest spells a path");
    let runs = place.text(&["runs", "--json"]);
    assert!(!runs.contains("/./"), "{runs}");
}

/// Scenario 16: what cannot be written to its end is no result, whoever was writing; and with room
/// again everything is as if nothing had happened.
#[test]
fn a_write_that_breaks_off_leaves_no_result() {
    use std::os::unix::process::CommandExt;
    let names: Vec<String> = (0..300).map(|n| format!("\"f{n}\"")).collect();
    // The first breaks off in the worker, the second when its long list of files is stored, the third
    // when the worker's log is full.
    let stages = [
        "[stage.x]\nkind = \"concat\"\nalso = \"./in.txt\"\npublish = \"x\"\n".to_owned(),
        format!("[stage.x]\nkind = \"write\"\nmore = [{}]\npublish = \"x\"\n", names.join(", ")),
        "[stage.x]\nkind = \"noisy\"\nlines = 20000\npublish = \"x\"\n".to_owned(),
    ];
    let place_for = |stage: &str| {
        let place = Place::new(stage);
        place.write("in.txt", &"y".repeat(40_000));
        place
    };
    let limit = 24_000;
    for stage in stages {
        let place = place_for(&stage);
        let mut command = place.command(&["run", "p.toml", "--json"]);
        // Files can grow to so many bytes, as if the disk were full; the signal becomes an error.
        let squeeze = move || {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: plain system calls between fork and exec.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            }
            Ok(())
        };
        // SAFETY: `squeeze` makes only async-signal-safe calls.
        let output = unsafe { command.pre_exec(squeeze) }.output().unwrap();
        let ran = Ran::of(output);
        assert_eq!(ran.code, 1, "{ran:?}");
        let (error, ..) = ran.failure("x");
        assert_eq!(error.tier, engine::kind::Tier::Environment, "{error}");
        assert!(error.message.contains("File too large"), "{error}");
        assert!(place.stored("records").is_empty());
        assert!(!place.path("results/toy/x/out.txt").exists());
        let again = place.succeed(&[]);
        let clean = place_for(&stage);
        assert_eq!(again.outputs(), clean.succeed(&[]).outputs());
        assert!(place.text(&["cache", "verify"]).contains(" 0 bad"));
    }
}
