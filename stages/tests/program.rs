//! The program as a newcomer meets it: in an empty folder, from the command line.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program in `folder`, untouched by the caller's settings.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipeline"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PIPELINE_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(folder).env("XDG_CONFIG_HOME", folder.join("config"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the program starts")
}

/// What a command printed; it must succeed.
fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = output(folder, args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

#[test]
fn the_starter_checks_and_runs_and_then_has_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["init", "first.toml"]);
    succeed(dir.path(), &["check", "first.toml"]);
    let ran = succeed(dir.path(), &["run", "first.toml"]);
    assert!(ran.contains("1 ran"), "{ran}");
    let results: Vec<_> = fs::read_dir(dir.path().join("results/first")).unwrap().collect();
    assert_eq!(results.len(), 1);
    assert!(succeed(dir.path(), &["run", "first.toml"]).contains("1 cached"));
}

#[test]
fn grade_reads_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), &["grade", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let line = b"{\"pred\":\"1/2\",\"gold\":\"0.5\"}\n";
    child.stdin.take().unwrap().write_all(line).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("\"strict\":true"), "{text}");
}

/// A variable that chooses how passes go is followed or refused.
#[test]
fn a_variable_that_says_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "train", "--shape", "tiny", "--rows", "1", "--seq", "4", "--repeat", "1"];
    let refused = command(dir.path(), &args).env("PIPELINE_PASS_GIGABYTES", "lots").output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{text}");
    assert!(text.contains("PIPELINE_PASS_GIGABYTES") && text.contains("`lots`"), "{text}");
    assert!(text.contains("write a positive number"), "{text}");
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

fn wait_for(what: &str, ready: impl Fn() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(60), "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program that a `command` has put into a session of its own ends with its stage, however that
/// ends.
#[test]
#[cfg(target_os = "linux")]
fn what_a_command_leaves_behind_is_ended() {
    for (script, signal, code) in
        [("", None, Some(0)), ("sleep 600", Some("-TERM"), Some(130)), ("sleep 600", Some("-KILL"), None)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (folder, pid) = (dir.path(), dir.path().join("pid"));
        let manifest = format!(
            "name = \"x\"\n[stage.c]\nkind = \"command\"\noutputs = [\"done\"]\nshell = '''\n\
             setsid sh -c 'echo $$ > {0}.new && mv {0}.new {0} && sleep 600' > /dev/null 2>&1 &\n\
             while [ ! -e {0} ]; do sleep 0.01; done\n{script}\necho > done\n'''\n",
            pid.display()
        );
        fs::write(folder.join("p.toml"), manifest).unwrap();
        let mut engine =
            command(folder, &["run", "p.toml", "--allow-commands", "--grace", "1"]).spawn().unwrap();
        wait_for("the program", || pid.exists());
        let left = fs::read_to_string(&pid).unwrap().trim().to_owned();
        if let Some(signal) = signal {
            assert!(runs(&left));
            let id = engine.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        }
        assert_eq!(engine.wait().unwrap().code(), code);
        wait_for("what was left behind to end", || !runs(&left));
    }
}
