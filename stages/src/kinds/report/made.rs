//! How the results were made: the graph with state, time and key of every stage, what each arm cost,
//! and what is needed to run it again. These facts belong to a run and not to the artifact, so they
//! are put into the published copies of both documents, and by `pipeline report`.

use std::collections::{BTreeMap, BTreeSet};

use engine::facts::{Facts, Made, RunFacts, StageFacts, StageState};
use engine::ui::text;
use minijinja::value::Serde;
use serde::Serialize;

use crate::arms::{self, Arm, Names};
use crate::chart::PAGE;
use crate::chart::dag::{self, Node};

/// Stands in the page where the section goes; no text of the page can hold it, since `<` is escaped.
const HOLE: &str = "<!--made-->";
/// Stands where its link goes.
const LINK_HOLE: &str = "<!--made-link-->";
/// From so many stages on, the graph shows one box for each stage of the manifest.
const COLLAPSE_FROM: usize = 70;

/// Puts the facts into the page and behind the Markdown.
pub fn complete(
    html: &str,
    markdown: &str,
    facts: &Facts,
    arms: &[Arm],
) -> Result<(String, String), minijinja::Error> {
    let values = minijinja::Value::from(Serde(View::of(facts, arms)));
    let section = super::render("made.html", include_str!("made.html"), &values)?;
    let text = super::render("made.md", include_str!("made.md"), &values)?;
    let html =
        html.replacen(HOLE, &section, 1).replacen(LINK_HOLE, "<a href=\"#made\">How it was made</a>", 1);
    Ok((html, format!("{}\n\n{text}", markdown.trim_end())))
}

/// What the templates show.
#[derive(Serialize)]
struct View {
    command: String,
    digest: String,
    run: Option<RunView>,
    versions: Vec<String>,
    machines: Vec<String>,
    seeds: Vec<(String, String)>,
    pins: Vec<(String, String)>,
    graph: String,
    stages: Vec<StageView>,
    costs: Vec<ArmCost>,
    /// Kinds with a column in the costs.
    cost_kinds: Vec<String>,
    /// Whether memory of a GPU was measured.
    on_gpu: bool,
}

#[derive(Serialize)]
struct RunView {
    id: String,
    started: String,
    status: String,
    took: String,
}

#[derive(Serialize)]
struct StageView {
    number: usize,
    name: String,
    kind: String,
    state: &'static str,
    sign: char,
    error: Option<String>,
    key: String,
    output: String,
    started: String,
    took: String,
    device: String,
    memory: String,
    gpu_memory: String,
    size: String,
    /// Everything else, for whoever runs it again.
    details: Vec<(String, String)>,
}

/// What an arm cost, over all its stages.
#[derive(Serialize)]
struct ArmCost {
    label: String,
    /// Time by kind, in the order of [`View::cost_kinds`].
    kinds: Vec<String>,
    wall: String,
    gpu: String,
    memory: String,
    gpu_memory: String,
}

impl View {
    fn of(facts: &Facts, arms: &[Arm]) -> Self {
        let made = || facts.stages.iter().filter_map(|stage| stage.made.as_ref());
        let sets: String = facts.sets.iter().map(|set| format!(" --set {}", quoted(set))).collect();
        let machine = |made: &Made| {
            let parts = ["gpu", "cpu", "memory", "os"];
            parts.iter().filter_map(|part| made.machine.get(*part).cloned()).collect::<Vec<_>>().join(", ")
        };
        let version = |made: &Made| format!("pipeline {}", made.tool_version);
        let (cost_kinds, costs) = costs(facts, arms);
        Self {
            command: format!("pipeline run {}{sets}", quoted(&facts.manifest)),
            digest: facts.manifest_digest.clone(),
            run: facts.run.as_ref().map(run_view),
            versions: made().map(version).collect::<BTreeSet<_>>().into_iter().collect(),
            machines: distinct(made().map(machine)),
            seeds: seeds(facts),
            pins: made().flat_map(|made| made.pins.clone()).collect::<BTreeMap<_, _>>().into_iter().collect(),
            graph: dag::draw(&nodes(&facts.stages), PAGE),
            stages: facts.stages.iter().enumerate().map(|(at, stage)| stage_view(at, stage)).collect(),
            costs,
            cost_kinds,
            on_gpu: made().any(|made| made.peak_gpu_memory > 0),
        }
    }
}

fn run_view(run: &RunFacts) -> RunView {
    RunView {
        id: run.id.clone(),
        started: time(&run.started),
        status: run.status.clone(),
        took: run.seconds.map(text::seconds).unwrap_or_default(),
    }
}

fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    texts.filter(|text| !text.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// A shell word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Every `seed` among the params, by the stage of the manifest.
fn seeds(facts: &Facts) -> Vec<(String, String)> {
    let mut seeds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for stage in &facts.stages {
        if let Some(seed) = stage.made.as_ref().and_then(|made| made.params.get("seed")) {
            seeds.entry(family(&stage.name).to_owned()).or_default().insert(seed.to_string());
        }
    }
    let joined = |seeds: BTreeSet<String>| seeds.into_iter().collect::<Vec<_>>().join(", ");
    seeds.into_iter().map(|(stage, seeds)| (stage, joined(seeds))).collect()
}

/// `train` of `train[lora]`.
fn family(name: &str) -> &str {
    name.split('[').next().unwrap_or(name)
}

/// To the second: `2026-11-30 14:29:32 UTC`.
fn time(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(11..19)) {
        (Some(day), Some(time)) => format!("{day} {time} UTC"),
        _ => rfc3339.to_owned(),
    }
}

/// Bytes, where they are known.
fn known(count: u64) -> String {
    if count == 0 { String::new() } else { bytes(count) }
}

fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let power = (count.max(1).ilog10() / 3).min(4);
    let value = count as f64 / 1000f64.powi(power as i32);
    let decimals = usize::from(power > 0 && value < 100.0);
    format!("{value:.decimals$} {}", units[power as usize])
}

fn state(state: StageState) -> (&'static str, &'static str, char) {
    match state {
        StageState::Done => ("done", "var(--good)", '✓'),
        StageState::Cached => ("from the cache", "var(--series-1)", '✓'),
        StageState::Ran => ("computed", "var(--good)", '✓'),
        StageState::Failed => ("failed", "var(--bad)", '✗'),
        StageState::Stopped => ("stopped", "var(--claimed)", '–'),
        StageState::Running => ("running", "var(--claimed)", '…'),
        StageState::NotRun => ("not run", "var(--muted)", '–'),
    }
}

fn stage_view(number: usize, stage: &StageFacts) -> StageView {
    let (word, _, sign) = state(stage.state);
    let made = stage.made.as_ref();
    let of = |tell: &dyn Fn(&Made) -> String| made.map(tell).unwrap_or_default();
    StageView {
        number,
        name: stage.name.clone(),
        kind: stage.kind.clone(),
        state: word,
        sign,
        error: stage.error.clone(),
        key: of(&|made| made.key.clone()),
        output: of(&|made| made.output.clone()),
        started: of(&|made| time(&made.started)),
        took: of(&|made| text::seconds(made.seconds)),
        device: of(&|made| match made.gpus {
            0 => made.device.clone(),
            1 => "1 GPU".to_owned(),
            gpus => format!("{gpus} GPUs"),
        }),
        memory: of(&|made| known(made.peak_memory)),
        gpu_memory: of(&|made| known(made.peak_gpu_memory)),
        size: of(&|made| bytes(made.size)),
        details: made.map(details).unwrap_or_default(),
    }
}

fn details(made: &Made) -> Vec<(String, String)> {
    let lines = |map: &BTreeMap<String, String>| {
        map.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("\n")
    };
    let parts = [
        ("params", format!("{:#}", made.params)),
        ("inputs", lines(&made.inputs)),
        ("environment", lines(&made.environment)),
        ("pins", lines(&made.pins)),
        ("machine", lines(&made.machine)),
        ("code version of the kind", made.code_version.to_string()),
        ("run", made.run.clone()),
    ];
    let told = parts.into_iter().filter(|(_, text)| !text.is_empty());
    told.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// The boxes of the graph: one a stage, or one a stage of the manifest where there are many.
fn nodes(stages: &[StageFacts]) -> Vec<Node> {
    if stages.len() >= COLLAPSE_FROM { families(stages) } else { single(stages) }
}

fn single(stages: &[StageFacts]) -> Vec<Node> {
    let node = |(number, stage): (usize, &StageFacts)| {
        let (word, colour, sign) = state(stage.state);
        let took = stage.made.as_ref().map(|made| text::seconds(made.seconds));
        let key = stage.made.as_ref().map_or(String::new(), |made| format!(" · key {}", made.key));
        Node {
            name: stage.name.clone(),
            detail: took.map_or(stage.kind.clone(), |took| format!("{} · {took}", stage.kind)),
            hint: format!("{} · {word}{key}", stage.name),
            link: format!("#stage-{number}"),
            mark: (colour, sign),
            needs: stage.needs.clone(),
        }
    };
    stages.iter().enumerate().map(node).collect()
}

fn families(stages: &[StageFacts]) -> Vec<Node> {
    let mut names: Vec<&str> = Vec::new();
    for stage in stages {
        if !names.contains(&family(&stage.name)) {
            names.push(family(&stage.name));
        }
    }
    let place = |name: &str| names.iter().position(|known| *known == family(name)).unwrap_or(0);
    let node = |(number, name): (usize, &&str)| {
        let members: Vec<&StageFacts> = stages.iter().filter(|stage| family(&stage.name) == *name).collect();
        let seconds: f64 = members.iter().filter_map(|stage| Some(stage.made.as_ref()?.seconds)).sum();
        let worst = [StageState::Failed, StageState::Stopped, StageState::Running, StageState::NotRun];
        let stands = worst.into_iter().find(|state| members.iter().any(|stage| stage.state == *state));
        let (word, colour, sign) = state(stands.unwrap_or(members[0].state));
        let needs: BTreeSet<usize> =
            members.iter().flat_map(|stage| &stage.needs).map(|need| place(&stages[*need].name)).collect();
        Node {
            name: if members.len() > 1 { format!("{name} ×{}", members.len()) } else { (*name).to_owned() },
            detail: format!("{} · {}", members[0].kind, text::seconds(seconds)),
            hint: format!("{name} · {word}"),
            link: String::new(),
            mark: (colour, sign),
            needs: needs.into_iter().filter(|need| *need < number).collect(),
        }
    };
    names.iter().enumerate().map(node).collect()
}

/// Time and memory by arm; what belongs to no arm is shared.
fn costs(facts: &Facts, arms: &[Arm]) -> (Vec<String>, Vec<ArmCost>) {
    let mut by_arm: BTreeMap<Option<&str>, Vec<(&str, &Made)>> = BTreeMap::new();
    let mut kinds: Vec<String> = Vec::new();
    for stage in &facts.stages {
        let Some(made) = &stage.made else { continue };
        by_arm.entry(stage.arm.as_deref()).or_default().push((&stage.kind, made));
        if stage.arm.is_some() && !kinds.contains(&stage.kind) {
            kinds.push(stage.kind.clone());
        }
    }
    let mut order: Vec<&str> = by_arm.keys().filter_map(|arm| *arm).collect();
    arms::sort(&mut order, arms);
    let names = Names::of(&order, arms);
    let cost = |arm: Option<&str>| {
        let stages = &by_arm[&arm];
        let sum =
            |of: &dyn Fn(&str, &Made) -> f64| stages.iter().map(|(kind, made)| of(kind, made)).sum::<f64>();
        let spent = |seconds: f64| if seconds > 0.0 { text::seconds(seconds) } else { "–".to_owned() };
        let by_kind = |kind: &String| match arm {
            Some(_) => spent(sum(&|of, made| if of == kind { made.seconds } else { 0.0 })),
            None => String::new(),
        };
        ArmCost {
            label: arm.map_or("shared by all".to_owned(), |arm| names.show(arm)),
            kinds: kinds.iter().map(by_kind).collect(),
            wall: spent(sum(&|_, made| made.seconds)),
            gpu: spent(sum(&|_, made| made.seconds * f64::from(made.gpus))),
            memory: known(stages.iter().map(|(_, made)| made.peak_memory).max().unwrap_or(0)),
            gpu_memory: known(stages.iter().map(|(_, made)| made.peak_gpu_memory).max().unwrap_or(0)),
        }
    };
    let mut costs: Vec<ArmCost> = order.into_iter().map(|arm| cost(Some(arm))).collect();
    if by_arm.contains_key(&None) && !costs.is_empty() {
        costs.push(cost(None));
    }
    (kinds, costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_readable() {
        assert_eq!(quoted("manifests/quickstart.toml"), "manifests/quickstart.toml");
        assert_eq!(quoted("arm.a.label='x y'"), r"'arm.a.label='\''x y'\'''");
        assert_eq!(time("2026-11-30T14:29:32.123Z"), "2026-11-30 14:29:32 UTC");
        assert_eq!([0, 999, 1_000, 123_456_789].map(bytes), ["0 B", "999 B", "1.0 kB", "123 MB"]);
    }
}
