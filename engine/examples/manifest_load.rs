//! How long it takes to load manifests of many stages, and how much memory.
//!
//!     cargo run --release -p engine --example manifest_load [-- STAGES…]
//!
//! Each shape runs in a process of its own, so that the peak of resident memory is its own.

use std::fmt::Write;
use std::time::Instant;

use engine::kind::{Input, Inputs, Registry, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage with a few params.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    /// What it works on.
    #[serde(default)]
    data: Option<Input>,
    /// A number.
    #[serde(default)]
    lr: f64,
    /// A text.
    #[serde(default)]
    text: String,
    /// A seed.
    #[serde(default)]
    seed: u64,
}

/// Takes all.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Gather {
    /// Everything.
    all: Inputs,
}

impl Stage for Step {
    const KIND: &'static str = "step";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        vec!["out.txt".to_owned()]
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

impl Stage for Gather {
    const KIND: &'static str = "gather";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

/// Arms × seeds, in two stages of a chain, gathered at the end.
fn matrix(stages: usize) -> String {
    let seeds = (stages / 20).max(1);
    let mut text = String::from("name = \"matrix\"\n");
    for arm in 0..10 {
        let _ = writeln!(text, "[arm.arm{arm}]\n[arm.arm{arm}.first]\nlr = {arm}e-4");
    }
    let seeds: Vec<String> = (0..seeds).map(|seed| seed.to_string()).collect();
    let _ = writeln!(text, "[matrix]\nseed = [{}]", seeds.join(", "));
    text.push_str(
        "[stage.first]\nkind = \"step\"\nforeach = [\"arm\", \"seed\"]\nseed = \"${seed}\"\ntext = \"arm ${arm}\"\n\
         [stage.second]\nkind = \"step\"\nforeach = [\"arm\", \"seed\"]\ndata = \"@first/out.txt\"\n\
         [stage.last]\nkind = \"gather\"\nall = \"@second[*]\"\n",
    );
    text
}

/// One table per stage: chains of 100.
fn literal(stages: usize) -> String {
    let mut text = String::from("name = \"literal\"\n");
    for stage in 0..stages {
        let _ = write!(text, "\n[stage.s{stage}]\nkind = \"step\"\nlr = 1e-3\ntext = \"stage {stage}\"\n");
        if stage % 100 != 0 {
            let _ = writeln!(text, "data = \"@s{}/out.txt\"", stage - 1);
        }
    }
    text
}

/// An arm per stage, each with a param of its own.
fn arms(stages: usize) -> String {
    let mut text = String::from("name = \"arms\"\n[stage.s]\nkind = \"step\"\nforeach = [\"arm\"]\n");
    for arm in 0..stages {
        let _ = writeln!(text, "[arm.a{arm}]\n[arm.a{arm}.s]\nseed = {arm}");
    }
    text
}

fn measure(shape: &str, stages: usize) {
    let text = match shape {
        "matrix" => matrix(stages),
        "literal" => literal(stages),
        _ => arms(stages),
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m.toml");
    std::fs::write(&path, text).expect("a manifest");
    let registry = Registry::new().with::<Step>().with::<Gather>();
    let before = memory("VmRSS");
    let cpu_before = cpu_seconds();
    let started = Instant::now();
    let plan = engine::manifest::load(&path, &[], &registry)
        .unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)));
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{shape:>8} {:>8} stages {seconds:>8.3} s ({:>5.2} s of CPU)  peak +{:>5.0} MB",
        plan.stages.len(),
        cpu_seconds() - cpu_before,
        memory("VmHWM") - before,
    );
}

/// A field of /proc/self/status in MB; 0 where there is none.
fn memory(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    number.unwrap_or(0.0) / 1000.0
}

/// CPU time of this process in seconds, user and system; 0 where /proc is missing.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the program's name in parentheses, utime and stime are the 12th and 13th field, in
    // hundredths of a second on Linux.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [shape, stages] = args.as_slice()
        && let Ok(stages) = stages.parse()
        && ["matrix", "literal", "arms"].contains(&shape.as_str())
    {
        measure(shape, stages);
        return;
    }
    let sizes: Vec<usize> = args.iter().filter_map(|size| size.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 10_000, 100_000] } else { sizes };
    let program = std::env::current_exe().expect("the path of this program");
    for shape in ["matrix", "literal", "arms"] {
        for size in &sizes {
            let status = std::process::Command::new(&program).args([shape, &size.to_string()]).status();
            assert!(status.expect("a process").success());
        }
    }
}
