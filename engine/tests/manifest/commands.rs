//! The commands that only read manifests, as a user calls them.

use std::process::{Command, Output};

use crate::toys::Folder;

fn pipeline(folder: &Folder, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toy-pipeline"));
    ["PIPELINE_CACHE", "PIPELINE_RESULTS", "PIPELINE_JOBS", "PIPELINE_DEVICE"].iter().for_each(|name| {
        command.env_remove(name);
    });
    command.current_dir(folder.path("")).args(args).output().expect("the program runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn init_writes_a_manifest_that_checks_and_runs_and_never_overwrites() {
    let folder = Folder::new(&[]);
    let first = pipeline(&folder, &["init", "My study.toml"]);
    assert_eq!(first.status.code(), Some(0), "{}", err(&first));
    let text = std::fs::read_to_string(folder.path("My study.toml")).unwrap();
    assert!(text.contains("name = \"my-study\""));
    let checked = pipeline(&folder, &["check", "My study.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let ran = pipeline(&folder, &["run", "My study.toml"]);
    assert_eq!(ran.status.code(), Some(0), "{}", err(&ran));
    assert!(folder.path("results/my-study/concat/out.txt").is_file());
    std::fs::write(folder.path("My study.toml"), "mine").unwrap();
    let again = pipeline(&folder, &["init", "My study.toml"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(err(&again).contains("exists"));
    assert_eq!(std::fs::read_to_string(folder.path("My study.toml")).unwrap(), "mine");
    assert_eq!(pipeline(&folder, &["init", "no/such/folder.toml"]).status.code(), Some(3));
}

#[test]
fn check_tells_right_from_wrong_by_its_exit_code() {
    let folder = Folder::new(&[
        ("right.toml", "name = \"x\"\n[stage.a]\nkind = \"write\"\n"),
        ("wrong.toml", "name = \"x\"\n[stage.a]\nkind = \"wriet\"\n"),
    ]);
    let right = pipeline(&folder, &["check", "right.toml"]);
    assert_eq!((right.status.code(), out(&right).lines().count()), (Some(0), 1));
    let both = pipeline(&folder, &["check", "right.toml", "wrong.toml"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(err(&both).contains("did you mean `write`?"));
    assert!(!err(&both).contains('\u{1b}'), "no colours outside a terminal");
    let json = pipeline(&folder, &["check", "--json", "right.toml", "wrong.toml"]);
    assert_eq!(json.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(json[0]["stages"], serde_json::json!(["a"]));
    assert_eq!(json[1]["problems"][0]["places"][0]["line"], 3);
    let set = pipeline(&folder, &["check", "wrong.toml", "--set", "stage.a.kind=write"]);
    assert_eq!(set.status.code(), Some(0), "{}", err(&set));
}

#[test]
fn documentation_commands_answer() {
    let folder = Folder::new(&[("m.toml", "name = \"x\"\n[stage.a]\nkind = \"write\"\n")]);
    let schema = pipeline(&folder, &["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&out(&schema)).unwrap();
    assert_eq!(schema["title"], "Pipeline manifest");
    assert!(out(&pipeline(&folder, &["kinds"])).contains("write"));
    assert!(out(&pipeline(&folder, &["kinds", "write", "count"])).contains("kind = \"count\""));
    let json: serde_json::Value =
        serde_json::from_str(&out(&pipeline(&folder, &["kinds", "--json"]))).unwrap();
    assert!(json.as_array().is_some_and(|kinds| kinds.len() > 3));
    let unknown = pipeline(&folder, &["kinds", "wriet"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("did you mean `write`?"));
    assert!(out(&pipeline(&folder, &["graph", "m.toml"])).starts_with("flowchart"));
    assert!(out(&pipeline(&folder, &["graph", "m.toml", "--format", "dot"])).starts_with("digraph"));
}

#[test]
fn a_mistake_in_an_endless_line_is_told_without_the_line() {
    let text = format!("name = \"x\"\n[stage.a]\nkind = \"write\"\ntext = \"{}\"; bad\n", "y".repeat(70_000));
    let folder = Folder::new(&[("long.toml", &text)]);
    let checked = pipeline(&folder, &["check", "long.toml"]);
    assert_eq!(checked.status.code(), Some(2), "{}", err(&checked));
    assert!(err(&checked).len() < 2_000);
    assert!(err(&checked).contains("long.toml"));
}

/// Reading a device may never end; a pipe gives a manifest like a file does.
#[test]
fn manifests_without_end_are_refused_and_pipes_are_read() {
    let folder = Folder::new(&[]);
    let zero = pipeline(&folder, &["check", "/dev/zero"]);
    assert_eq!(zero.status.code(), Some(2));
    assert!(err(&zero).contains("too large for a manifest"), "{}", err(&zero));
    let mut command = Command::new(env!("CARGO_BIN_EXE_toy-pipeline"));
    command.args(["check", "/dev/stdin"]).current_dir(folder.path("")).stdin(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let text = b"name = \"x\"\n[stage.a]\nkind = \"write\"\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

/// A link to nothing is listed in its folder, but is no remedy for itself.
#[test]
fn a_manifest_that_is_a_link_to_nothing_is_not_suggested() {
    let folder = Folder::new(&[]);
    std::os::unix::fs::symlink("gone.toml", folder.path("dang.toml")).unwrap();
    let checked = pipeline(&folder, &["check", "dang.toml"]);
    assert_eq!(checked.status.code(), Some(2), "{}", err(&checked));
    assert!(err(&checked).contains("a link to nothing"), "{}", err(&checked));
    assert!(!err(&checked).contains("did you mean"), "{}", err(&checked));
}
