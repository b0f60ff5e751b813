//! A scratch folder with a manifest, and the toy program run in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use engine::event::{Counts, Event, Line, RunStatus};
use engine::kind::StageError;

/// How long a test waits for something that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Place {
    dir: tempfile::TempDir,
}

/// What a finished run said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub events: Vec<Event>,
    pub stderr: String,
}

impl Place {
    /// A folder with `p.toml`; `name = "toy"` is put in front.
    pub fn new(manifest: &str) -> Self {
        let place = Self { dir: tempfile::tempdir().expect("a temporary folder") };
        place.manifest(manifest);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn manifest(&self, text: &str) {
        self.write("p.toml", &format!("name = \"toy\"\n{}", self.fill(text)));
    }

    /// `$DIR` stands for the folder.
    fn fill(&self, text: &str) -> String {
        text.replace("$DIR", &self.dir.path().display().to_string())
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder is writable");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Lines of a side file; none if it does not exist.
    pub fn marks(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The toy program in this folder, untouched by the caller's settings.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toy-pipeline"));
        let inherited = ["PIPELINE_CACHE", "PIPELINE_RESULTS", "PIPELINE_JOBS", "PIPELINE_DEVICE"];
        inherited.iter().chain(&["PIPELINE_OFFLINE", "PIPELINE_MIRROR", "TOY_GPUS"]).for_each(|name| {
            command.env_remove(name);
        });
        command.args(args).current_dir(self.dir.path()).env("XDG_CONFIG_HOME", self.path("config"));
        command.env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the toy program starts")
    }

    /// Standard output of a command that must succeed.
    pub fn text(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// `run p.toml --json` with more arguments.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.output(&[&["run", "p.toml", "--json", "--retry-delay", "0.01"], args].concat()))
    }

    /// As [`Place::run`], expecting success.
    pub fn succeed(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{}\n{:#?}", ran.stderr, ran.events);
        ran
    }

    /// A run in the background.
    pub fn start(&self, args: &[&str]) -> Child {
        let args = [&["run", "p.toml", "--json"], args].concat();
        let mut command = self.command(&args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the toy program starts")
    }

    /// Files of the store below a folder of it.
    pub fn stored(&self, folder: &str) -> Vec<PathBuf> {
        files_below(&self.path("cache").join(folder))
    }

    /// The blob with this content.
    pub fn blob(&self, content: &str) -> PathBuf {
        let hex = engine::digest::Digest::of(content.as_bytes()).to_string();
        self.path("cache/blobs").join(&hex[..2]).join(&hex[2..])
    }

    /// Waits until the only run's event log contains a text.
    pub fn wait_for_logged(&self, text: &str) {
        wait_for(text, || {
            let log = self.stored("runs").into_iter().find(|path| path.ends_with("events.jsonl"))?;
            fs::read_to_string(log).ok()?.contains(text).then_some(())
        });
    }

    /// Every file below the folder, with its content and modification time.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
        let read = |path: PathBuf| {
            let time = fs::symlink_metadata(&path).and_then(|meta| meta.modified()).expect("stat");
            (path.clone(), (fs::read(path).unwrap_or_default(), time))
        };
        files_below(self.dir.path()).into_iter().map(read).collect()
    }
}

pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_below(&item.path()));
        } else {
            found.push(item.path());
        }
    }
    found
}

/// Waits until `ready` gives something.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: plain system call on a process that the test started.
    unsafe { libc::kill(pid as i32, signal) };
}

/// True while a process runs; a zombie does not.
pub fn runs(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X']),
        Err(_) => false,
    }
}

impl Ran {
    pub fn of(output: Output) -> Self {
        let stdout = String::from_utf8(output.stdout).expect("UTF-8");
        let parse = |line: &str| {
            let line: Line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            line.event
        };
        Self {
            code: output.status.code().unwrap_or(-1),
            events: stdout.lines().map(parse).collect(),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    pub fn end(&self) -> (RunStatus, Counts) {
        match self.events.last() {
            Some(Event::RunFinished { status, counts, .. }) => (*status, *counts),
            other => panic!("the last event is {other:?}; {}", self.stderr),
        }
    }

    /// Names of stages that were computed, in order of completion.
    pub fn computed(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Finished { stage, .. } => Some(stage.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Names of stages served from the store, sorted.
    pub fn cached(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .events
            .iter()
            .flat_map(|event| match event {
                Event::Cached { stages } => stages.as_slice(),
                _ => &[],
            })
            .map(|cached| cached.stage.as_str())
            .collect();
        names.sort_unstable();
        names
    }

    /// Output digest by stage.
    pub fn outputs(&self) -> BTreeMap<String, String> {
        let mut outputs = BTreeMap::new();
        for event in &self.events {
            match event {
                Event::Finished { stage, output, .. } => drop(outputs.insert(stage.clone(), output.clone())),
                Event::Cached { stages } => {
                    outputs.extend(stages.iter().map(|cached| (cached.stage.clone(), cached.output.clone())))
                }
                _ => {}
            }
        }
        outputs
    }

    /// The failure of a stage, with its log's path and last lines.
    pub fn failure(&self, name: &str) -> (&StageError, Option<&Path>, &[String]) {
        self.events
            .iter()
            .find_map(|event| match event {
                Event::Failed { stage, error, log, tail, .. } if stage == name => {
                    Some((error, log.as_deref(), tail.as_slice()))
                }
                _ => None,
            })
            .unwrap_or_else(|| panic!("{name} did not fail: {:#?}", self.events))
    }

    /// Why a stage was started.
    pub fn why(&self, name: &str) -> &str {
        self.events
            .iter()
            .find_map(|event| match event {
                Event::Started { stage, why, .. } if stage == name => Some(why.as_str()),
                _ => None,
            })
            .unwrap_or_else(|| panic!("{name} was not started"))
    }
}
