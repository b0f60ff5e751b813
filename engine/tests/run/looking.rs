//! Commands that look: `plan`, `status`, `runs`, `diff`, `log`, and the plain output of `run`.

use std::fs;
use std::process::Stdio;

use engine::event::Line;

use crate::support::{Place, Ran, wait_for};

const SMALL: &str = r#"
[arm.one]
[arm.two]
[stage.base]
kind = "write"
text = "a base text of some length"
[stage.each]
kind = "concat"
foreach = ["arm"]
also = "@base"
prefix = "${arm} "
[stage.join]
kind = "concat"
from = "@each[*]"
publish = "joined"
"#;

/// Times and run ids differ from run to run.
fn steady(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let run = first.split_whitespace().nth(1).unwrap_or_default().trim_end_matches(':');
    let is_time = |word: &str| word.contains('.') && word.trim_end_matches(':').parse::<f64>().is_ok();
    let word = |word: &str| if is_time(word) { "N".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n";
    text.replace(run, "RUN").lines().map(line).collect()
}

/// Scenario 23.
#[test]
fn plan_writes_nothing_and_predicts_what_run_then_does() {
    let place = Place::new(SMALL);
    let before = place.snapshot();
    insta::assert_snapshot!("plan_new", place.text(&["plan", "p.toml"]));
    assert!(place.snapshot() == before, "not even a cache folder");
    place.succeed(&[]);
    let before = place.snapshot();
    assert!(place.text(&["plan", "p.toml"]).contains("4 cached, 0 to run"));
    let set = ["--set", "stage.base.text=another text of some length"];
    insta::assert_snapshot!("plan_changed", place.text(&[&["plan", "p.toml"], &set[..]].concat()));
    let json = place.text(&["plan", "p.toml", "--json", "--force=each[two]"]);
    let forecasts: Vec<String> = json
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {}", value["stage"].as_str().unwrap(), value["forecast"].as_str().unwrap())
        })
        .collect();
    assert_eq!(forecasts, ["base cached", "each[one] cached", "each[two] run", "join if changed"]);
    assert!(place.snapshot() == before, "nothing is written");
    assert_eq!(place.succeed(&["--force=each[two]"]).computed(), ["each[two]"]);
}

#[test]
fn plan_tolerates_missing_content_and_says_what_it_means() {
    let place = Place::new(SMALL);
    place.succeed(&[]);
    fs::remove_file(place.blob("a base text of some length")).unwrap();
    assert!(place.text(&["plan", "p.toml"]).contains("4 cached"), "nobody needs the content");
    let plan = place.text(&["plan", "p.toml", "--set", "arm.one.each.prefix=other"]);
    assert!(plan.contains("1 cached, 2 to run, 1 to run if"), "{plan}");
    let ran = place.succeed(&["--set", "arm.one.each.prefix=other"]);
    assert_eq!(ran.computed(), ["base", "each[one]", "join"]);
}

#[test]
fn plain_output_of_runs_that_fail_recover_and_serve() {
    let place = Place::new(
        "[stage.a]\nkind = \"write\"\ntext = \"x\"\n\
         [stage.bad]\nkind = \"fail\"\nhow = \"environment\"\nbehind = \"@a\"\nunless = \"$DIR/fixed\"\n\
         [stage.late]\nkind = \"concat\"\nalso = \"@bad\"\npublish = \"late\"\n",
    );
    let run = |name: &str, code: i32| {
        let output = place.output(&["run", "p.toml", "--jobs", "1"]);
        assert_eq!(output.status.code(), Some(code));
        let printed = [output.stderr, b"--- stdout\n".to_vec(), output.stdout].concat();
        insta::assert_snapshot!(name, steady(&String::from_utf8(printed).unwrap()));
    };
    run("run_failing", 1);
    place.write("fixed", "");
    run("run_recovering", 0);
    run("run_cached", 0);
}

#[test]
fn status_shows_each_stage_as_it_stands() {
    let place = Place::new(&format!("{SMALL}\n[stage.bad]\nkind = \"fail\"\nhow = \"input\"\n"));
    let before = place.text(&["status", "p.toml"]);
    assert!(before.lines().skip(1).all(|line| line.contains("to run")), "{before}");
    place.run(&["base", "bad", "--keep-going"]);
    let text = place.text(&["status", "p.toml"]);
    let state = |stage: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{stage} "))).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((state("base"), state("bad")), ("done".into(), "failed".into()), "{text}");
    assert!(text.contains("line 3 of toys.csv is no toy (`pipeline log bad`)"), "{text}");
    assert_eq!(place.text(&["status"]), "nothing is running\n");
}

#[test]
fn diff_names_what_changed_and_whether_the_output_did() {
    let place = Place::new(SMALL);
    place.succeed(&[]);
    place.succeed(&["--set", "arm.two.each.prefix=TWO "]);
    let runs: Vec<String> = place
        .text(&["runs"])
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(runs.len(), 2);
    assert!(runs[0] > runs[1], "newest first");
    let diff = place.text(&["diff", &runs[1], "latest"]);
    assert!(diff.contains("each[two]\n  param prefix: \"two \" → \"TWO \""), "{diff}");
    assert!(diff.contains("join\n  input from.two:"), "{diff}");
    assert!(diff.contains("2 stages alike"), "{diff}");
    assert!(!diff.contains("each[one]"), "{diff}");
    assert_eq!(place.text(&["diff"]), diff, "the last two by default");
    assert_eq!(place.text(&["diff", "previous"]), diff);
    for (args, said) in [
        (["diff", "nope"], "there is no run nope"),
        (["diff", "latest"], "both are run"),
        (["diff", &runs[0]], "both are run"),
    ] {
        let wrong = place.output(&args);
        let stderr = String::from_utf8(wrong.stderr).unwrap();
        assert!(wrong.status.code() == Some(2) && stderr.contains(said), "{args:?}: {stderr}");
    }
    let first = place.output(&["diff", "previous", &runs[1]]);
    assert!(String::from_utf8(first.stderr).unwrap().contains("no run of `toy` before"));
    let json = place.text(&["runs", "--json", "-n", "1"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["status"], &value["counts"]["ran"]), (&"succeeded".into(), &2.into()));
}

/// Scenario 4.
#[test]
fn the_log_is_the_json_output_and_survives_numbers_that_are_none() {
    let place = Place::new("[stage.x]\nkind = \"count\"\nto = 3\n");
    let ran = place.succeed(&[]);
    let logs = place.stored("runs");
    let log = fs::read_to_string(logs.iter().find(|path| path.ends_with("events.jsonl")).unwrap()).unwrap();
    let lines: Vec<Line> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let metrics = |line: &&Line| matches!(&line.event, engine::event::Event::Metrics { values, .. } if values["nan"].is_nan());
    assert_eq!(lines.iter().filter(metrics).count(), 3);
    assert!(lines.len() <= ran.events.len());
    assert!(lines.is_sorted_by_key(|line| line.time));
    place.succeed(&["--set", "stage.x.to=4"]);
    let diff = place.text(&["diff"]);
    assert!(diff.contains("param to: 3 → 4"), "{diff}");
}

#[test]
fn a_log_can_be_followed_until_its_stage_ends() {
    let place = Place::new("[stage.x]\nkind = \"sleep\"\nmilliseconds = 1000\nmark = \"$DIR/x\"\n");
    assert_eq!(place.output(&["log", "x"]).status.code(), Some(2), "no run yet");
    let run = place.start(&[]);
    place.wait_for_logged("\"event\":\"started\"");
    let mut follower = place.command(&["log", "x", "--follow"]);
    let follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(Ran::of(run.wait_with_output().unwrap()).code, 0);
    let waiter = std::thread::spawn(move || follower.wait_with_output().unwrap());
    wait_for("the follower to end", || waiter.is_finished().then_some(()));
    let output = waiter.join().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "falling asleep\nawake\n");
}

#[test]
fn completions_and_help_are_there() {
    let place = Place::new("");
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.text(&["completions", shell]).contains("pipeline"), "{shell}");
    }
    let help = place.text(&["--help"]);
    assert!(help.contains("Exit codes: 0") && !help.contains("exec-stage"), "{help}");
    assert_eq!(place.output(&["run"]).status.code(), Some(2));
    assert_eq!(place.output(&["run", "none.toml"]).status.code(), Some(2));
}

#[test]
fn a_binary_adds_commands_that_look_like_the_engines() {
    let place = Place::new("");
    assert_eq!(place.text(&["echo", "hello"]), "hello\n");
    assert!(place.text(&["--help"]).contains("Say a word again"));
    assert!(place.text(&["echo", "--help"]).contains("pipeline echo"));
    assert!(place.text(&["completions", "bash"]).contains("echo"));
    // Its errors are the engine's: usage by clap, and by the command itself.
    for args in [&["echo"][..], &["echo", "--loud", "x"], &["echo", ""], &["ecko"]] {
        let output = place.output(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
}

/// Of a stage that did not end well it is said how, when, in which run, and where its log is.
#[test]
fn plan_and_explain_tell_how_the_last_attempt_ended() {
    let place = Place::new(
        "[stage.bad]\nkind = \"fail\"\nhow = \"input\"\n[stage.late]\nkind = \"concat\"\nalso = \"@bad\"\n",
    );
    place.run(&[]);
    let run = place.text(&["runs"]).lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let explained = place.text(&["explain", "p.toml", "bad"]);
    let plan = place.text(&["plan", "p.toml"]);
    for text in [&explained, &plan] {
        assert!(text.contains("its last attempt failed: line 3 of toys.csv is no toy"), "{text}");
        assert!(text.contains("failed at 20") && text.contains(&format!("in run {run}")), "{text}");
        let log = text.split("log: ").nth(1).unwrap().lines().next().unwrap();
        assert!(place.read(log).contains("about to fail"), "{log}");
    }
    // Another key is another matter.
    let other = place.text(&["explain", "p.toml", "bad", "--set", "stage.bad.how=bug"]);
    assert!(!other.contains("failed"), "{other}");
}

/// Whoever mistypes or leaves out an instance is told what there is.
#[test]
fn unknown_names_are_answered_with_known_ones() {
    let place = Place::new(SMALL);
    let said = |args: &[&str]| {
        let output = place.output(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["log", "each"]).contains("no run has computed anything yet"));
    assert!(said(&["diff"]).contains("there are no runs yet"));
    place.succeed(&[]);
    for (args, answer) in [
        (&["log", "each"][..], "name one of its instances: `each[one]`, `each[two]`"),
        (&["log", "each[three]"], "name one of its instances: `each[one]`, `each[two]`"),
        (&["log", "bsae"], "did you mean `base`?"),
        (&["log", "nope"], "stages with a log: `base`, `each[one]`, `each[two]`, `join`"),
        (&["run", "p.toml", "nope"], "stages: `base`, `each`, `join`"),
        (&["run", "p.toml", "joni"], "did you mean `join`?"),
        (&["run", "p.toml", "each[tow]"], "did you mean `each[two]`?"),
        (&["run", "p.toml", "--force=each[9]"], "its instances: `each[one]`, `each[two]`"),
        (&["plan", "p.toml", "nope"], "stages: `base`, `each`, `join`"),
        (&["explain", "p.toml", "nope"], "stages: `base`, `each`, `join`"),
        (&["run", "p.toml", "--jobs", "0"], "0 is not in 1.."),
    ] {
        let text = said(args);
        assert!(text.contains(answer), "{args:?}: {text}");
    }
    let empty = place.output(&["log", "base"]);
    assert!(empty.status.success() && empty.stdout.is_empty());
    assert!(String::from_utf8(empty.stderr).unwrap().contains("`base` has printed nothing"));
}

/// In another folder than usual the default cache is another one; that is said, not guessed at.
#[test]
fn a_cache_elsewhere_is_pointed_out() {
    let place = Place::new("[stage.a]\nkind = \"write\"\ntext = \"x\"\n");
    place.succeed(&[]);
    fs::create_dir(place.path("sub")).unwrap();
    let run = |args: &[&str]| {
        let output = place.command(args).current_dir(place.path("sub")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let cache = place.path("cache").canonicalize().unwrap();
    let hint = format!("note: there is no cache here yet, but one at {}", cache.display());
    let (code, said) = run(&["plan", "../p.toml"]);
    assert!(code == Some(0) && said.contains(&hint), "{said}");
    let (code, said) = run(&["cache", "ls"]);
    assert!(code == Some(3) && said.contains(&format!("--cache {}", cache.display())), "{said}");
    let (_, said) = run(&["run", "../p.toml", "--cache", "../cache"]);
    assert!(!said.contains("note:") && said.contains("Cached"), "{said}");
    let (code, said) = run(&["run", "../p.toml"]);
    assert!(code == Some(0) && said.contains(&hint) && said.contains("Finished"), "{said}");
    let (_, said) = run(&["run", "../p.toml"]);
    assert!(!said.contains("note:"), "now there is one here: {said}");
}

/// What cannot be a cache is said in words.
#[test]
fn a_cache_that_cannot_be_one_is_refused() {
    let place = Place::new("[stage.a]\nkind = \"write\"\ntext = \"x\"\n");
    place.write("file", "");
    std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
    for (cache, said) in
        [("file", "that is a file"), ("file/below", "Not a directory"), ("link", "that is a link to nothing")]
    {
        let ran = place.run(&["--cache", cache]);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stderr.contains("--cache"), "{}", ran.stderr);
    }
}

#[test]
fn diff_names_the_numbers_that_changed() {
    let place = Place::new(
        "[stage.table]\nkind = \"write\"\ntext = '{\"rows\": [{\"arm\": \"lora\", \"accuracy\": 0.5}], \"note\": \"x\"}'\nmore = [\"table.json\"]",
    );
    place.succeed(&[]);
    let first = engine::history::ids(&place.path("cache/runs")).remove(0);
    place.succeed(&[
        "--set",
        "stage.table.text={\"rows\": [{\"arm\": \"lora\", \"accuracy\": 0.75}], \"note\": \"y\"}",
    ]);
    let text = place.text(&["diff", &first, "latest"]);
    assert!(text.contains("table.json: rows[lora].accuracy: 0.5 → 0.75 (+0.25)"), "{text}");
}
