//! `command`: runs any program with declared inputs, outputs and environment.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use engine::kind::{Input, ParamProblem, Stage, StageCtx, StageError, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Runs a program, for what people already have in Python or a shell.
///
/// The program starts in the output folder with a nearly empty environment: `PATH`, `HOME`,
/// `LANG` and `TMPDIR` of the run, the variables named in `env_from` and set in `env`, and
/// `PIPELINE_OUT`, `PIPELINE_STATE`, `PIPELINE_DEVICE` and `PIPELINE_INPUT_NAME` for each input.
/// In `argv` the placeholders `{out}`, `{state}`, `{device}` and `{input.NAME}` stand for the same
/// values; `{{` is a brace. What it prints goes to the stage's log.
///
/// When the stage ends, in whatever way, every program that it has started is ended too, also those
/// that have put themselves into a session of their own.
///
/// Because a manifest may come from anyone, this kind runs only with the user's consent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments, passed on without a shell.
    #[serde(default)]
    pub argv: Vec<String>,
    /// A script for `sh -eu`, instead of `argv`; it finds inputs through the environment.
    #[serde(default)]
    pub shell: Option<String>,
    /// Files and folders that it reads, by name.
    #[serde(default)]
    pub inputs: BTreeMap<String, Input>,
    /// Files and folders that it must leave in the output folder.
    pub outputs: Vec<String>,
    /// Environment variables with fixed values.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Environment variables taken over from the run, when set there. Only the names are
    /// recorded, so a secret may be passed, and a changed value does not run the stage again.
    #[serde(default)]
    pub env_from: Vec<String>,
    /// A line to raise when the program itself has changed, so that the stage runs again.
    #[serde(default)]
    pub version: Option<String>,
}

/// Taken over from every run: programs do not start without them.
const ALWAYS: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Lines of standard output, and of standard error, shown when the program fails.
const LAST_LINES: usize = 10;
/// How often the stop flag is looked at.
const TICK: Duration = Duration::from_millis(100);

impl Command {
    /// Name → value of everything that placeholders and variables stand for.
    fn places(&self, ctx: &StageCtx) -> Result<BTreeMap<String, String>, StageError> {
        let text = |path: &Path| path.display().to_string();
        let mut places = BTreeMap::from([
            ("out".to_owned(), text(ctx.out())),
            ("state".to_owned(), text(ctx.state())),
            ("device".to_owned(), ctx.device().to_owned()),
        ]);
        for (name, input) in &self.inputs {
            places.insert(format!("input.{name}"), text(&ctx.input(input)?));
        }
        Ok(places)
    }

    fn process(&self, ctx: &StageCtx) -> Result<Process, StageError> {
        let places = self.places(ctx)?;
        let argv = match &self.shell {
            Some(script) => ["sh", "-eu", "-c", script].map(str::to_owned).to_vec(),
            None => self
                .argv
                .iter()
                .map(|argument| fill(argument, &places).map_err(StageError::input))
                .collect::<Result<Vec<_>, _>>()?,
        };
        let (program, arguments) = argv.split_first().ok_or_else(|| StageError::input("no program given"))?;
        let mut process = Process::new(program);
        process.args(arguments).current_dir(ctx.out()).env_clear();
        for name in ALWAYS.iter().copied().chain(self.env_from.iter().map(String::as_str)) {
            if let Some(value) = std::env::var_os(name) {
                process.env(name, value);
            }
        }
        process.envs(&self.env);
        for (place, value) in places {
            process.env(variable(&place), value);
        }
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        engine::run::exec::tie_to_worker(&mut process);
        Ok(process)
    }
}

/// `input.train-data` → `PIPELINE_INPUT_TRAIN_DATA`.
fn variable(place: &str) -> String {
    let name = place.replace(['.', '-'], "_").to_uppercase();
    format!("PIPELINE_{name}")
}

/// Fills `{name}` placeholders; `{{` and `}}` are braces.
fn fill(text: &str, places: &BTreeMap<String, String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        filled.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            filled.push_str(brace);
            rest = after;
            continue;
        }
        let name = after.split_once('}').filter(|_| brace == "{");
        let Some((value, after)) = name.and_then(|(name, rest)| Some((places.get(name)?, rest))) else {
            let known: Vec<String> = places.keys().map(|k| format!("{{{k}}}")).collect();
            return Err(format!(
                "`{text}` has an unknown placeholder; known are {}, and {{{{ for a brace",
                known.join(", ")
            ));
        };
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Copies a pipe to the log line by line and hands the lines on.
fn follow(
    pipe: impl Read + Send + 'static,
    mut log: impl Write + Send + 'static,
    source: Source,
    lines: mpsc::Sender<(Source, String)>,
) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            // A full log must not stop the program.
            let _ = log.write_all(&line).and_then(|()| log.flush());
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if lines.send((source, text)).is_err() {
                return;
            }
        }
    });
}

/// Which of its two streams a program wrote to.
#[derive(Clone, Copy)]
enum Source {
    Output,
    Error,
}

/// The last lines of both streams: what came when across the two is not known.
#[derive(Default)]
struct LastLines {
    output: Vec<String>,
    error: Vec<String>,
}

impl LastLines {
    fn keep(&mut self, (source, line): (Source, String)) {
        let lines = match source {
            Source::Output => &mut self.output,
            Source::Error => &mut self.error,
        };
        if lines.len() == LAST_LINES {
            lines.remove(0);
        }
        lines.push(line);
    }
}

/// A name that leads to no program is the manifest's mistake; whatever else keeps one from starting
/// is the machine's.
fn does_not_start(program: &str, error: &std::io::Error) -> StageError {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let message = format!("{program} does not start: {error}");
    match error.kind() {
        NotFound => {
            StageError::input(message).with_help("correct its name, or install it where PATH finds it")
        }
        PermissionDenied => StageError::input(message).with_help("it must be a file that you may execute"),
        _ => StageError::environment(message),
    }
}

/// Whose fault it is that a program did not end well: its own, unless somebody outside killed it. A
/// shell reports a killed program of its own as 128 + the signal.
fn failed(program: &str, status: ExitStatus, last: &str, is_shell: bool) -> StageError {
    use std::os::unix::process::ExitStatusExt;
    const KILL: i32 = 9;
    const FROM_OUTSIDE: [i32; 4] = [KILL, 15, 1, 2];
    let inner = status.code().filter(|code| is_shell && *code > 128).map(|code| code - 128);
    let signal = status.signal().or(inner).filter(|signal| FROM_OUTSIDE.contains(signal));
    let message = match signal {
        Some(signal) => format!("{program} was killed (signal {signal})\n{last}"),
        None => format!("{program} failed ({status})\n{last}"),
    };
    let help = "its whole output is in the stage's log";
    match signal {
        Some(KILL) => StageError::transient(message.trim_end())
            .with_help(format!("often the system's answer to too little memory (see `dmesg`); {help}")),
        Some(_) => StageError::transient(message.trim_end()).with_help(help),
        None => StageError::input(message.trim_end()).with_help(help),
    }
}

/// Waits for the child; the last lines it printed come back too. A stop request ends it.
fn wait(
    ctx: &StageCtx,
    child: &mut Child,
    lines: &mpsc::Receiver<(Source, String)>,
) -> Result<(ExitStatus, LastLines), StageError> {
    let mut last = LastLines::default();
    let failed = |e| StageError::environment(format!("waiting for the program: {e}"));
    let status = loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => last.keep(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break child.wait().map_err(failed)?,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait().map_err(failed)? {
                    break status;
                }
            }
        }
        if ctx.stopping() {
            // Programs that it has started end with the worker.
            let _ = child.kill();
            child.wait().map_err(failed)?;
            return Err(StageError::stopped());
        }
    };
    // What is still in the pipes; a grandchild that keeps them open must not hold us up.
    while let Ok(line) = lines.recv_timeout(TICK) {
        last.keep(line);
    }
    Ok((status, last))
}

impl Stage for Command {
    const KIND: &'static str = "command";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        self.outputs.clone()
    }

    fn needs_trust(&self) -> bool {
        true
    }

    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("device".to_owned(), device_class.to_owned())])
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut add = |param: &str, message: String, help: &str| {
            problems.push(ParamProblem { param: param.into(), message, help: help.into() });
        };
        match (&self.shell, self.argv.is_empty()) {
            (None, true) => add("argv", "no program".into(), "give `argv` or `shell`"),
            (Some(_), false) => add("shell", "both `argv` and `shell`".into(), "keep one"),
            _ => {}
        }
        let mut places: BTreeMap<String, String> =
            ["out", "state", "device"].map(|name| (name.to_owned(), String::new())).into();
        for name in self.inputs.keys() {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(plain) {
                add("inputs", format!("`{name}` is no name for an input"), "use letters, digits, - and _");
            }
            places.insert(format!("input.{name}"), String::new());
        }
        for argument in &self.argv {
            if let Err(message) = fill(argument, &places) {
                add("argv", message, "correct the placeholder");
            }
        }
        if self.outputs.is_empty() {
            add("outputs", "no outputs".into(), "name what the program leaves behind");
        }
        for name in self.env.keys().chain(&self.env_from) {
            if name.is_empty() || name.contains(['=', '\0']) || name.starts_with("PIPELINE_") {
                add("env", format!("`{name}` cannot be set"), "choose another variable name");
            }
        }
        problems
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let mut process = self.process(ctx)?;
        let program = process.get_program().to_string_lossy().into_owned();
        let mut child = process.spawn().map_err(|error| does_not_start(&program, &error))?;
        let (sender, lines) = mpsc::channel();
        if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
            follow(out, std::io::stdout(), Source::Output, sender.clone());
            follow(err, std::io::stderr(), Source::Error, sender);
        }
        let (status, last) = wait(ctx, &mut child, &lines)?;
        if !status.success() {
            let last = [last.output, last.error].concat().join("\n");
            return Err(failed(&program, status, &last, self.shell.is_some()));
        }
        let missing: Vec<&str> =
            self.outputs.iter().map(String::as_str).filter(|name| !ctx.out().join(name).exists()).collect();
        if !missing.is_empty() {
            return Err(StageError::new(
                Tier::Input,
                format!("{program} did not write {}", missing.join(", ")),
            )
            .with_help("it must leave every name in `outputs` in the folder {out}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn command(value: Value) -> Command {
        serde_json::from_value(value).unwrap()
    }

    /// Runs it with `data.txt` as the input `data`; returns the output folder.
    fn run(stage: &Command) -> Result<tempfile::TempDir, StageError> {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.txt");
        std::fs::write(&data, "some data").unwrap();
        let out = tempfile::tempdir().unwrap();
        let inputs = BTreeMap::from([("@data".to_owned(), data)]);
        stage.run(&StageCtx::detached(out.path(), dir.path(), inputs))?;
        Ok(out)
    }

    #[test]
    fn argv_gets_inputs_and_writes_outputs() {
        let stage = command(json!({
            "argv": ["cp", "{input.data}", "{out}/{{copy}}.txt"],
            "inputs": {"data": "@data"},
            "outputs": ["{copy}.txt"],
        }));
        assert_eq!(Stage::check(&stage), []);
        let out = run(&stage).unwrap();
        assert_eq!(std::fs::read_to_string(out.path().join("{copy}.txt")).unwrap(), "some data");
    }

    #[test]
    fn the_environment_is_what_is_declared() {
        let stage = command(json!({
            "shell": "env | cut -d= -f1 | sort > names; cat \"$PIPELINE_INPUT_MY_DATA\" > copy; echo $MARK > mark",
            "inputs": {"my-data": "@data"},
            "outputs": ["names", "copy", "mark"],
            "env": {"MARK": "set"},
            "env_from": ["CARGO_MANIFEST_DIR", "PIPELINE_TEST_UNSET"],
        }));
        let out = run(&stage).unwrap();
        let read = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
        assert_eq!((read("copy").as_str(), read("mark").as_str()), ("some data", "set\n"));
        let names = read("names");
        for name in names.lines() {
            let shells_own = ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
            let declared = ["MARK", "CARGO_MANIFEST_DIR"].contains(&name) || ALWAYS.contains(&name);
            assert!(shells_own || declared || name.starts_with("PIPELINE_"), "{name} leaked in");
        }
        assert!(names.contains("CARGO_MANIFEST_DIR"), "{names}");
    }

    #[test]
    fn a_failure_shows_the_last_lines() {
        let stage = command(json!({
            "shell": "for i in $(seq 40); do echo line $i; done; echo the reason >&2; exit 3",
            "outputs": ["x"],
        }));
        let error = run(&stage).unwrap_err();
        assert!(error.message.contains("exit status: 3"), "{error}");
        assert!(error.message.contains("line 40") && error.message.contains("the reason"));
        assert!(!error.message.contains("line 20\n"), "{error}");
    }

    #[test]
    fn missing_outputs_are_errors() {
        let error = run(&command(json!({"argv": ["true"], "outputs": ["x", "y"]}))).unwrap_err();
        assert!(error.message.contains("did not write x, y"), "{error}");
    }

    /// Whose fault a failure is decides what is advised and whether it is tried again.
    #[test]
    fn the_blame_is_put_where_it_belongs() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let plain = plain.path().to_str().unwrap();
        for (value, tier, said) in [
            (json!({"argv": ["no-such-program-here"]}), Tier::Input, "does not start"),
            (json!({"argv": ["/no/such/program"]}), Tier::Input, "does not start"),
            (json!({"argv": [plain]}), Tier::Input, "does not start"),
            (json!({"argv": ["sh", "-c", "exit 3"]}), Tier::Input, "exit status: 3"),
            (json!({"shell": "exit 137"}), Tier::Transient, "killed (signal 9)"),
            (json!({"shell": "kill -9 $$"}), Tier::Transient, "killed (signal 9)"),
            (json!({"shell": "sh -c 'kill -9 $$'"}), Tier::Transient, "killed (signal 9)"),
            (json!({"shell": "kill -15 $$"}), Tier::Transient, "killed (signal 15)"),
            (json!({"shell": "kill -11 $$"}), Tier::Input, "signal: 11"),
            (json!({"argv": ["sh", "-c", "exit 137"]}), Tier::Input, "exit status: 137"),
        ] {
            let mut value = value;
            value["outputs"] = json!(["x"]);
            let error = run(&command(value.clone())).unwrap_err();
            assert_eq!(error.tier, tier, "{value}: {error}");
            assert!(error.message.contains(said) && error.help.is_some(), "{value}: {error}");
        }
    }

    #[test]
    fn a_grandchild_that_keeps_the_pipe_open_does_not_hold_the_stage_up() {
        let stage = command(json!({"shell": "sleep 60 & echo $! > pid", "outputs": ["pid"]}));
        let out = run(&stage).unwrap();
        let pid = std::fs::read_to_string(out.path().join("pid")).unwrap();
        // Still running, so the stage did not wait for it.
        let ended = Process::new("kill").arg(pid.trim()).status().unwrap();
        assert!(ended.success());
    }

    #[test]
    fn check_finds_every_mistake() {
        let problems =
            |value| -> Vec<String> { Stage::check(&command(value)).into_iter().map(|p| p.param).collect() };
        assert_eq!(problems(json!({"outputs": []})), ["argv", "outputs"]);
        assert_eq!(
            problems(
                json!({"argv": ["a", "{input.gone}", "}"], "shell": "x", "outputs": ["y"], "inputs": {"a b": "@x"}, "env": {"A=B": ""}})
            ),
            ["shell", "inputs", "argv", "argv", "env"]
        );
        assert!(command(json!({"argv": ["x"], "outputs": ["y"]})).needs_trust());
    }
}
