//! The toy kinds. Each leaves `out.txt` unless it says otherwise. Side effects that tests look for
//! (how often a stage ran) go to a file beside the artifact, never into it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use engine::facts::Facts;
use engine::kind::{Input, Inputs, Pin as Pinned, Stage, StageCtx, StageError, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

fn put(ctx: &StageCtx, name: &str, text: impl AsRef<[u8]>) -> Result<(), StageError> {
    let path = ctx.out().join(name);
    fs::write(&path, text).map_err(|error| StageError::io(&path, error))
}

fn read(path: &Path) -> Result<String, StageError> {
    fs::read_to_string(path).map_err(|error| StageError::io(path, error))
}

/// Appends a line to a file outside the artifact.
fn mark(path: &Option<PathBuf>, text: &str) -> Result<(), StageError> {
    let Some(path) = path else { return Ok(()) };
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()))
        .map_err(|error| StageError::io(path, error))
}

fn out_txt() -> Vec<String> {
    vec!["out.txt".to_owned()]
}

/// Writes a text.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Write {
    /// What to write.
    pub text: String,
    /// Files to leave besides `out.txt`: they hold their name, or for `.json` the text.
    pub more: Vec<String>,
    /// Leave nothing at all.
    pub nothing: bool,
    /// Declare `missing.txt` without leaving it.
    pub lie: bool,
    /// Gets a line per execution.
    pub mark: Option<PathBuf>,
}

impl Stage for Write {
    const KIND: &'static str = "write";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        match (self.nothing, self.lie) {
            (true, _) => Vec::new(),
            (_, true) => vec!["missing.txt".to_owned()],
            _ => out_txt(),
        }
    }
    fn estimate(&self, _: &BTreeMap<String, PathBuf>, _: &str) -> Option<String> {
        (self.text.len() > 20).then(|| format!("{} bytes", self.text.len()))
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        mark(&self.mark, "ran")?;
        if self.nothing {
            return Ok(());
        }
        for name in &self.more {
            put(ctx, name, if name.ends_with(".json") { &self.text } else { name })?;
        }
        put(ctx, "out.txt", &self.text)
    }
}

/// [`Write`] with other code that gives the same.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct NewWrite(Write);

impl Stage for NewWrite {
    const KIND: &'static str = "write";
    const VERSION: u32 = 2;
    fn outputs(&self) -> Vec<String> {
        Stage::outputs(&self.0)
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        Stage::run(&self.0, ctx)
    }
}

/// Concatenates the `out.txt` of its inputs.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Concat {
    /// What to read; a folder's `out.txt`, or a file.
    pub from: Inputs,
    /// One more.
    pub also: Option<Input>,
    /// Put in front.
    pub prefix: String,
    /// Writes only the first so many characters.
    pub keep: Option<usize>,
    /// Takes so long.
    pub milliseconds: u64,
    /// Gets a line per execution.
    pub mark: Option<PathBuf>,
}

impl Stage for Concat {
    const KIND: &'static str = "concat";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        mark(&self.mark, "ran")?;
        let mut text = self.prefix.clone();
        for input in self.from.0.values().chain(&self.also) {
            let path = ctx.input(input)?;
            text += &read(&if path.is_dir() { path.join("out.txt") } else { path })?;
        }
        if let Some(keep) = self.keep {
            text.truncate(keep);
        }
        std::thread::sleep(Duration::from_millis(self.milliseconds));
        put(ctx, "out.txt", text)
    }
}

/// Sleeps; stops when asked unless `stubborn`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sleep {
    /// How long.
    pub milliseconds: u64,
    /// Ignores being asked to stop.
    pub stubborn: bool,
    /// Gets `begin` and `end`.
    pub mark: Option<PathBuf>,
    /// Makes keys differ.
    pub salt: u64,
}

impl Stage for Sleep {
    const KIND: &'static str = "sleep";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        println!("falling asleep");
        mark(&self.mark, "begin")?;
        for step in 0..self.milliseconds.div_ceil(10) {
            if ctx.stopping() && !self.stubborn {
                return Err(StageError::stopped());
            }
            ctx.progress(step * 10, self.milliseconds, "ms");
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("awake");
        mark(&self.mark, "end")?;
        put(ctx, "out.txt", format!("slept {}", self.milliseconds))
    }
}

/// Counts to `to`, a step at a time, and carries on from its state after a kill.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Count {
    /// Number of steps.
    pub to: u64,
    /// Time of a step.
    pub milliseconds: u64,
    /// What is counted on from.
    pub from: Option<Input>,
    /// Fails for good before this step, the first time.
    pub trip_at: Option<u64>,
    /// Is killed before this step, the first time, as if memory had run out.
    pub killed_at: Option<u64>,
    /// Gets the number of each executed step.
    pub mark: Option<PathBuf>,
}

impl Stage for Count {
    const KIND: &'static str = "count";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let state = ctx.state().join("sums");
        let mut sums: Vec<u64> = match fs::read_to_string(&state) {
            Ok(text) => text.lines().map_while(|line| line.parse().ok()).collect(),
            Err(_) => Vec::new(),
        };
        let base: u64 = match &self.from {
            Some(input) => read(&ctx.input(input)?.join("out.txt"))?.len() as u64,
            None => 0,
        };
        let mut values = BTreeMap::new();
        while (sums.len() as u64) < self.to {
            let step = sums.len() as u64;
            if ctx.stopping() {
                return Err(StageError::stopped());
            }
            let tripped = ctx.state().join("tripped");
            if self.trip_at == Some(step) && !tripped.exists() {
                fs::write(&tripped, "").map_err(|error| StageError::io(&tripped, error))?;
                return Err(StageError::environment("tripped over a wire").with_help("get up"));
            }
            let killed = ctx.state().join("killed");
            if self.killed_at == Some(step) && !killed.exists() {
                fs::write(&killed, "").map_err(|error| StageError::io(&killed, error))?;
                // SAFETY: plain system call on this process.
                unsafe { libc::kill(std::process::id() as i32, libc::SIGKILL) };
                std::thread::sleep(Duration::from_secs(60));
            }
            mark(&self.mark, &step.to_string())?;
            std::thread::sleep(Duration::from_millis(self.milliseconds));
            sums.push(sums.last().unwrap_or(&base) * 31 % 1_000_003 + step);
            let text: String = sums.iter().map(|sum| format!("{sum}\n")).collect();
            let fresh = ctx.state().join("sums.new");
            fs::write(&fresh, text)
                .and_then(|()| fs::rename(&fresh, &state))
                .map_err(|error| StageError::io(&state, error))?;
            ctx.progress(step + 1, self.to, "steps");
            values.insert("sum".to_owned(), *sums.last().unwrap_or(&0) as f64);
            values.insert("nan".to_owned(), f64::NAN);
            ctx.metrics(step, values.clone());
        }
        put(ctx, "out.txt", format!("{sums:?}"))
    }
}

/// Fails.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fail {
    /// `input`, `environment`, `bug`, `panic`, `abort`, `exit`, `partial` or `link`.
    pub how: String,
    /// Succeeds once this file exists.
    pub unless: Option<PathBuf>,
    /// Waits for a stage.
    pub behind: Option<Input>,
}

impl Stage for Fail {
    const KIND: &'static str = "fail";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        println!("about to fail: {}", self.how);
        if self.unless.as_ref().is_some_and(|path| path.exists()) {
            return put(ctx, "out.txt", "recovered");
        }
        match self.how.as_str() {
            "panic" => panic!("a toy broke"),
            "abort" => std::process::abort(),
            "exit" => std::process::exit(7),
            "partial" => {
                put(ctx, "out.txt", "half")?;
                Err(StageError::input("broke off in the middle"))
            }
            "link" => {
                let link = ctx.out().join("link");
                std::os::unix::fs::symlink("out.txt", &link).map_err(|error| StageError::io(&link, error))
            }
            "environment" => Err(StageError::environment("no toys left").with_help("buy some")),
            "bug" => Err(StageError::new(Tier::Bug, "impossible toy")),
            _ => Err(StageError::input("line 3 of toys.csv is no toy").with_help("correct line 3")),
        }
    }
}

/// Fails transiently so many times, then succeeds.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Flaky {
    /// Failures before success.
    pub failures: usize,
    /// Gets a line per execution.
    pub mark: Option<PathBuf>,
}

impl Stage for Flaky {
    const KIND: &'static str = "flaky";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        mark(&self.mark, "ran")?;
        let count = ctx.state().join("count");
        let so_far = fs::read(&count).unwrap_or_default().len();
        fs::write(&count, vec![b'x'; so_far + 1]).map_err(|error| StageError::io(&count, error))?;
        if so_far < self.failures {
            put(ctx, "left-over.txt", "of a failed attempt")?;
            return Err(StageError::transient(format!("the line is busy ({so_far})")));
        }
        put(ctx, "out.txt", "through")
    }
}

/// Starts programs that would outlive it: one tied to the worker, one that is not, and one that has
/// left the worker's process group.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Spawn {
    /// Gets the process ids: the worker's, then those of the three programs.
    pub pids: PathBuf,
    /// Ends at once and leaves its children behind.
    pub leave: bool,
}

impl Stage for Spawn {
    const KIND: &'static str = "spawn";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn needs_trust(&self) -> bool {
        true
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let failed = |error| StageError::io(Path::new("sleep"), error);
        let mut tied = Command::new("sleep");
        engine::run::exec::tie_to_worker(tied.arg("600"));
        let tied = tied.spawn().map_err(failed)?;
        // A shell that itself starts a program: a grandchild.
        let free = Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().map_err(failed)?;
        // A program in a session of its own, whose parent is gone: no signal to a group reaches it.
        let escaped = self.pids.with_extension("escaped");
        let script =
            format!("setsid sh -c 'echo $$ > {0}.new && mv {0}.new {0} && sleep 600' & ", escaped.display());
        Command::new("sh").args(["-c", &script]).status().map_err(failed)?;
        while !escaped.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let escaped = read(&escaped)?;
        let pids = format!("{}\n{}\n{}\n{escaped}", std::process::id(), tied.id(), free.id());
        let fresh = self.pids.with_extension("new");
        fs::write(&fresh, pids)
            .and_then(|()| fs::rename(&fresh, &self.pids))
            .map_err(|error| StageError::io(&self.pids, error))?;
        if !self.leave {
            std::thread::sleep(Duration::from_secs(600));
        }
        put(ctx, "out.txt", "spawned")
    }
}

/// Resolves an external source and pins it.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pin {
    /// The source.
    pub source: String,
    /// Gets a line per execution.
    pub mark: Option<PathBuf>,
}

impl Stage for Pin {
    const KIND: &'static str = "pin";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn sources(&self) -> Vec<String> {
        vec![self.source.clone()]
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        mark(&self.mark, "ran")?;
        if ctx.access().offline {
            return Err(StageError::environment(format!("{} is not in the cache", self.source)));
        }
        if ctx.pin(&self.source).is_none() {
            ctx.set_pin(&self.source, Pinned { digest: "ab".repeat(32), revision: Some("r1".into()) });
        }
        put(ctx, "out.txt", "fetched")
    }
}

/// Says on which device it ran, beside the artifact.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// GPUs it needs.
    pub gpus: u32,
    /// Cannot run on any GPU.
    pub too_large: bool,
    /// Makes keys differ.
    pub salt: u64,
    /// Gets the device and the visible GPUs.
    pub mark: Option<PathBuf>,
}

impl Stage for Device {
    const KIND: &'static str = "device";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("device".to_owned(), device_class.to_owned())])
    }
    fn default_gpus(&self) -> u32 {
        self.gpus
    }
    fn obstacle(&self, _: &BTreeMap<String, PathBuf>, device: &str) -> Option<StageError> {
        let error = StageError::environment(format!("does not fit {device}")).with_help("make it smaller");
        self.too_large.then_some(error)
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        mark(&self.mark, &format!("begin {} {visible}", ctx.device()))?;
        std::thread::sleep(Duration::from_millis(150));
        mark(&self.mark, &format!("end {} {visible}", ctx.device()))?;
        put(ctx, "out.txt", "ran")
    }
}

/// Sends more events and prints more lines than anyone wants.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Noisy {
    /// How many.
    pub lines: u64,
}

impl Stage for Noisy {
    const KIND: &'static str = "noisy";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        for line in 0..self.lines {
            println!("line {line}");
            ctx.progress(line, self.lines, "lines");
        }
        ctx.message("that was loud");
        put(ctx, "out.txt", "quiet now")
    }
}

/// Joins its inputs; what is published tells of the run, too.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tell {
    /// What to join.
    pub from: Inputs,
}

impl Stage for Tell {
    const KIND: &'static str = "tell";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        out_txt()
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let texts: Result<Vec<_>, _> =
            self.from.0.values().map(|input| read(&ctx.input(input)?.join("out.txt"))).collect();
        [3, 7, 5].into_iter().for_each(|gigabytes| ctx.used_gpu_memory(gigabytes * 1_000_000_000));
        put(ctx, "out.txt", texts?.concat())
    }
    fn completes(&self) -> bool {
        true
    }
    fn complete(&self, folder: &Path, facts: &Facts) -> Result<(), StageError> {
        let path = folder.join("facts.json");
        fs::write(&path, format!("{:#}", serde_json::to_value(facts).expect("plain data")))
            .map_err(|error| StageError::io(&path, error))
    }
}
