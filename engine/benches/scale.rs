//! How runs scale with the number of stages: a first run (a worker process per stage), a run that
//! finds everything cached, and `plan`, over generated layered DAGs of trivial stages.
//!
//!     cargo bench -p engine --bench scale                  # 1,000 and 10,000 stages
//!     cargo bench -p engine --bench scale -- 1000 100000   # these sizes
//!     cargo bench -p engine --bench scale -- fan=20 10000  # twenty inputs a stage instead of two
//!
//! Beyond 10,000 stages there is no first run: the records are written by the bench itself.
//! Every stage reads two (`fan`) of the layer before. Times are wall-clock of the whole process, the best
//! of five for cached runs, with the processor time it took; memory is the peak resident size of a cached run.

#[allow(dead_code, reason = "the bench needs two of the toy kinds")]
#[path = "../tests/toy/kinds.rs"]
mod kinds;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::digest::{Digest, Entry, tree_digest};
use engine::key::KeyParts;
use engine::kind::Registry;
use engine::plan::Source;
use engine::store::Store;
use engine::store::record::{Record, RecordMeta};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toy-pipeline");
const WIDTH: usize = 100;
const LARGEST_FIRST_RUN: usize = 10_000;

fn main() {
    let sizes: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 10_000] } else { sizes };
    let fan = std::env::args().find_map(|arg| arg.strip_prefix("fan=")?.parse().ok()).unwrap_or(2);
    println!(
        "{:>9} {:>9} {:>11} {:>11} {:>11} {:>11} {:>9}",
        "stages", "edges", "first run", "cached", "(cpu)", "plan", "memory"
    );
    for size in sizes {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let edges = write_manifest(folder.path(), size, fan);
        let first = if size <= LARGEST_FIRST_RUN {
            format!("{:.2} s", time(folder.path(), &["run", "p.toml"]).wall.as_secs_f64())
        } else {
            seed(folder.path());
            "-".to_owned()
        };
        check_cached(folder.path(), size);
        let runs: Vec<_> = (0..5).map(|_| time(folder.path(), &["run", "p.toml"])).collect();
        let best = |runs: &[Took], of: fn(&Took) -> Duration| runs.iter().map(of).min().unwrap_or_default();
        let memory = runs.iter().map(|run| run.memory).max().unwrap_or_default();
        let plans: Vec<_> = (0..5).map(|_| time(folder.path(), &["plan", "p.toml"])).collect();
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{size:>9} {edges:>9} {first:>11} {:>8.1} ms {:>8.1} ms {:>8.1} ms {memory:>6} MB",
            milliseconds(best(&runs, |run| run.wall)),
            milliseconds(best(&runs, |run| run.cpu)),
            milliseconds(best(&plans, |run| run.wall)),
        );
    }
}

/// What a command took.
struct Took {
    wall: Duration,
    cpu: Duration,
    /// Peak resident size in MB.
    memory: i64,
}

/// Layers of `WIDTH` stages; returns the number of edges.
fn write_manifest(folder: &Path, size: usize, fan: usize) -> usize {
    let mut text = "name = \"scale\"\n".to_owned();
    let mut edges = 0;
    for index in 0..size {
        if index < WIDTH {
            let _ = write!(text, "[stage.s{index}]\nkind = \"write\"\ntext = \"{index}\"\n");
            continue;
        }
        let above = (index / WIDTH - 1) * WIDTH;
        let from: Vec<String> =
            (0..fan).map(|at| format!("i{at} = \"@s{}\"", above + (index + at) % WIDTH)).collect();
        let _ = write!(
            text,
            "[stage.s{index}]\nkind = \"concat\"\nprefix = \"{index} \"\nkeep = 20\nfrom = {{ {} }}\n",
            from.join(", ")
        );
        edges += fan;
    }
    std::fs::write(folder.join("p.toml"), text).expect("the folder is writable");
    edges
}

/// Puts a record for every stage into the store, as if all had run.
fn seed(folder: &Path) {
    let registry = Registry::new().with::<kinds::Write>().with::<kinds::Concat>();
    let plan = engine::manifest::load(&folder.join("p.toml"), &[], &registry).expect("a valid manifest");
    let store = Store::open(&folder.join("cache")).expect("a store");
    let mut outputs: Vec<Digest> = Vec::new();
    for stage in &plan.stages {
        let content = stage.name.as_bytes();
        let entry = Entry {
            path: "out.txt".to_owned(),
            digest: Digest::of(content),
            size: content.len() as u64,
            executable: false,
        };
        let digest_of = |source: &Source| match source {
            Source::Stage { index, .. } => outputs[*index],
            Source::Path(path) => panic!("{} is no stage", path.display()),
        };
        let inputs: BTreeMap<String, Digest> =
            stage.inputs.iter().map(|(reference, source)| (reference.clone(), digest_of(source))).collect();
        let parts = KeyParts::of(stage, &inputs, "cpu", &BTreeMap::new());
        let output = tree_digest([("out.txt", &entry)]);
        let hex = parts.key().to_string();
        write(&store.blob_path(&entry.digest), content);
        let record =
            Record { key: parts.key(), parts, output, entries: vec![entry], meta: RecordMeta::default() };
        let path = store.root().join("records").join(&hex[..2]).join(format!("{}.json", &hex[2..]));
        write(&path, &serde_json::to_vec(&record).expect("plain data"));
        outputs.push(output);
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("below the store")).expect("the folder is writable");
    fs::write(path, bytes).expect("the folder is writable");
}

/// A bench of cached runs is worth nothing if they are not.
fn check_cached(folder: &Path, size: usize) {
    let output = Command::new(PROGRAM).args(["run", "p.toml", "--json"]).current_dir(folder).output();
    let text = String::from_utf8(output.expect("the toy program starts").stdout).expect("UTF-8");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains(&format!("\"cached\":{size},\"ran\":0")), "{last}");
}

/// Times one command, which must succeed.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells what it used")]
fn time(folder: &Path, args: &[&str]) -> Took {
    let began = Instant::now();
    let mut command = Command::new(PROGRAM);
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the toy program starts");
    let mut status = 0;
    // SAFETY: the structure is plain data that wait4 fills in; the child is ours and not yet waited for.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::wait4(child.id() as i32, &mut status, 0, &mut usage);
        usage
    };
    let wall = began.elapsed();
    assert_eq!(status, 0, "{args:?} failed");
    let spent =
        |time: libc::timeval| Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
    Took { wall, cpu: spent(usage.ru_utime) + spent(usage.ru_stime), memory: usage.ru_maxrss / 1024 }
}
