//! `pipeline samples`: graded answers in the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use engine::cli::common::CacheArgs;
use engine::cli::{CliError, ExtraCommand};
use engine::facts::{Facts, StageFacts};
use engine::history;
use engine::kind::Stage;
use engine::run::select::is_named;
use engine::store::Store;
use engine::ui::{self, text::Paint};
use serde_json::json;

use super::report::{artifact, facts_of};
use crate::arms::base_of;
use crate::kinds::aggregate::Aggregate;
use crate::kinds::grade::Grade;
use crate::repetition;
use crate::samples::{Graded, read_lines};

/// Show graded answers: which are wrong, cut, without an answer, or turned against the base arm.
///
/// Prints question, output, extracted answer, gold answer and both verdicts of each.
#[derive(Debug, Parser)]
#[command(name = "samples")]
struct Args {
    /// A stage of kind `grade`: `grade[lora]`, or `grade` for all its instances.
    stage: String,
    /// Only answers of which all of these hold. Repeatable.
    #[arg(long, value_enum, value_name = "FILTER", value_delimiter = ',')]
    filter: Vec<Filter>,
    /// What flipped answers are compared with: a stage of kind `grade` [default: that of the base arm].
    #[arg(long, value_name = "STAGE")]
    against: Option<String>,
    /// Only questions whose id, text, output or gold answer holds this.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// How many to show; 0 for all.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    limit: usize,
    /// The run, or the beginning of its id [default: the latest that has the stage].
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Print whole outputs, however long, and prompts.
    #[arg(long)]
    full: bool,
    /// Print JSON lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: CacheArgs,
}

/// What must hold of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Filter {
    /// Counted as correct.
    Right,
    /// Not counted as correct.
    Wrong,
    /// Turned against the base arm, either way.
    Flipped,
    /// Right here, wrong in the base arm.
    Gained,
    /// Wrong here, right in the base arm.
    Lost,
    /// Generation hit its token budget.
    Truncated,
    /// The text repeats itself.
    Repetitive,
    /// The text ends in something said three times or more.
    Looping,
    /// Nothing was written.
    Empty,
    /// No answer was found.
    NoAnswer,
    /// The Qwen rules and the strict mode differ.
    Disagree,
}

impl Filter {
    /// Whether it holds, given the base arm's verdict on the same question.
    fn holds(self, graded: &Graded, base: Option<bool>) -> bool {
        match self {
            Self::Right => graded.correct,
            Self::Wrong => !graded.correct,
            Self::Flipped => base.is_some_and(|base| base != graded.correct),
            Self::Gained => base == Some(false) && graded.correct,
            Self::Lost => base == Some(true) && !graded.correct,
            Self::Truncated => graded.truncated(),
            Self::Repetitive => graded.repetition > repetition::THRESHOLD,
            Self::Looping => repetition::ends_in_loop(&graded.sample.text),
            Self::Empty => graded.sample.text.trim().is_empty(),
            Self::NoAnswer => graded.unanswered(),
            Self::Disagree => graded.qwen != graded.strict,
        }
    }

    fn compares(self) -> bool {
        matches!(self, Self::Flipped | Self::Gained | Self::Lost)
    }
}

/// The command.
pub fn command() -> ExtraCommand {
    ExtraCommand::new(run)
}

fn run(args: Args) -> Result<ExitCode, CliError> {
    let store = Store::open_read_only(&args.cache.cache);
    let facts = find(&store, &args)?;
    let stages = matching(&facts, &args.stage);
    let (mut shown, mut found, mut total) = (0, 0, 0);
    for stage in &stages {
        let base = match args.filter.iter().any(|filter| filter.compares()) {
            true => Some(verdicts(&store, base(&facts, stage, args.against.as_deref())?)?),
            false => None,
        };
        for graded in read(&store, stage)? {
            total += 1;
            let key = (graded.benchmark.clone(), graded.sample.id.clone());
            let before = base.as_ref().and_then(|base| base.get(&key).copied());
            let holds = args.filter.iter().all(|filter| filter.holds(&graded, before));
            if !holds || !args.search.as_ref().is_none_or(|search| mentions(&graded, search)) {
                continue;
            }
            found += 1;
            if args.limit > 0 && shown >= args.limit {
                continue;
            }
            shown += 1;
            if args.json {
                ui::out(json!({"stage": stage.name, "base_correct": before, "graded": graded}));
            } else {
                let name = if stages.len() > 1 { Some(stage.name.as_str()) } else { None };
                show(&graded, name, before, args.full);
            }
        }
    }
    let more = if found > shown { format!("; {shown} shown, --limit 0 shows all") } else { String::new() };
    ui::note(format!("{found} of {total} answers{more}"));
    Ok(ExitCode::SUCCESS)
}

/// The facts of the run asked for, or of the latest that has the stage.
fn find(store: &Store, args: &Args) -> Result<Facts, CliError> {
    let runs = store.runs_dir();
    let ids = match &args.run {
        Some(run) => vec![history::find(&runs, run)?],
        None => history::ids(&runs),
    };
    let mut known = BTreeSet::new();
    for id in &ids {
        // Runs from versions that logged no graph are passed over, unless asked for.
        let facts = match facts_of(store, id) {
            Ok(facts) => facts,
            Err(error) if args.run.is_some() => return Err(error),
            Err(_) => continue,
        };
        if !matching(&facts, &args.stage).is_empty() {
            return Ok(facts);
        }
        known.extend(graded_stages(&facts).map(|stage| stage.name.clone()));
    }
    let known: Vec<String> = known.into_iter().take(20).collect();
    let there = match known.is_empty() {
        true => "no run here has graded any".to_owned(),
        false => format!("there are {}", known.join(", ")),
    };
    Err(CliError::usage(format!("`{}` names no finished stage of kind `grade`; {there}", args.stage)))
}

fn graded_stages(facts: &Facts) -> impl Iterator<Item = &StageFacts> {
    facts.stages.iter().filter(|stage| stage.kind == Grade::KIND && stage.made.is_some())
}

fn family(name: &str) -> &str {
    name.split('[').next().unwrap_or(name)
}

/// The label in an instance's brackets.
fn label(name: &str) -> &str {
    name.split_once('[').map_or("", |(_, label)| label.trim_end_matches(']'))
}

fn matching<'a>(facts: &'a Facts, wanted: &str) -> Vec<&'a StageFacts> {
    graded_stages(facts).filter(|stage| is_named(&stage.name, wanted)).collect()
}

/// The stage that an instance's answers are compared with.
fn base<'a>(facts: &'a Facts, stage: &StageFacts, against: Option<&str>) -> Result<&'a StageFacts, CliError> {
    if let Some(against) = against {
        return graded_stages(facts).find(|other| other.name == against).ok_or_else(|| {
            CliError::usage(format!("`--against {against}` names no finished stage of kind `grade`"))
        });
    }
    let siblings: Vec<&StageFacts> =
        graded_stages(facts).filter(|other| family(&other.name) == family(&stage.name)).collect();
    let arm = facts.stages.iter().find_map(|stage| {
        let params = &stage.made.as_ref().filter(|_| stage.kind == Aggregate::KIND)?.params;
        let first = || params.get("arms")?.get(0)?.get("name")?.as_str();
        params.get("base").and_then(|base| base.as_str()).or_else(first)
    });
    let labels = siblings.iter().map(|other| label(&other.name));
    let name = arm.and_then(|arm| base_of(label(&stage.name), labels, arm));
    siblings.iter().find(|other| Some(label(&other.name)) == name).copied().ok_or_else(|| {
        CliError::usage("which stage is the base arm's is not known here; name it with --against STAGE")
    })
}

fn read(store: &Store, stage: &StageFacts) -> Result<Vec<Graded>, CliError> {
    read_lines(&artifact(store, stage)?, "graded.jsonl").map_err(|error| CliError::environment(error.message))
}

/// The first verdict on each question.
fn verdicts(store: &Store, stage: &StageFacts) -> Result<BTreeMap<(String, String), bool>, CliError> {
    let mut verdicts = BTreeMap::new();
    for graded in read(store, stage)? {
        verdicts.entry((graded.benchmark, graded.sample.id)).or_insert(graded.correct);
    }
    Ok(verdicts)
}

fn mentions(graded: &Graded, search: &str) -> bool {
    let search = search.to_lowercase();
    let sample = &graded.sample;
    [&sample.id, &sample.problem, &sample.text, &sample.gold, &graded.extracted]
        .iter()
        .any(|text| text.to_lowercase().contains(&search))
}

/// Lines of an output that are printed unless `--full` asks for all.
const LINES: usize = 12;

fn show(graded: &Graded, stage: Option<&str>, base: Option<bool>, full: bool) {
    use std::io::IsTerminal;
    let paint = Paint::new(std::io::stdout().is_terminal());
    let verdict = |right: bool| if right { paint.good("right") } else { paint.bad("wrong") };
    let sample = &graded.sample;
    let mut heading = vec![format!("{} {}", graded.benchmark, sample.id), verdict(graded.correct)];
    heading.extend(stage.map(|stage| stage.to_owned()));
    heading.extend(base.map(|base| format!("base {}", verdict(base))));
    for (holds, word) in [
        (graded.truncated(), "truncated"),
        (graded.repetition > repetition::THRESHOLD, "repetitive"),
        (graded.qwen != graded.strict, "graders disagree"),
    ] {
        heading.extend(holds.then(|| word.to_owned()));
    }
    ui::out(format!("── {}", heading.join(" · ")));
    if full {
        ui::out(paint.dim(format!("prompt: {}", sample.prompt)));
    } else {
        ui::out(sample.problem.trim());
    }
    ui::out("");
    ui::out(output(graded, full, paint));
    ui::out("");
    let answer = if graded.unanswered() { "none".to_owned() } else { graded.extracted.clone() };
    let reason = |name: &str, right: bool, why: &str| format!("{name} {} ({why})", verdict(right));
    ui::out(format!(
        "answer {answer} ({}) · gold {} · {} · {} · {} tokens\n",
        graded.method.replace('_', " "),
        sample.gold.lines().last().unwrap_or_default(),
        reason("Qwen", graded.qwen, &graded.reasons.0),
        reason("strict", graded.strict, &graded.reasons.1),
        sample.tokens
    ));
}

/// The output with the answer marked; without `full`, long ones keep their end, where answers are.
fn output(graded: &Graded, full: bool, paint: Paint) -> String {
    let text = &graded.sample.text;
    let marked = match graded
        .span
        .and_then(|(start, end)| Some((text.get(..start)?, text.get(start..end)?, text.get(end..)?)))
    {
        Some((before, answer, after)) => format!("{before}{}{after}", paint.warn(answer)),
        None => text.clone(),
    };
    let lines: Vec<&str> = marked.lines().collect();
    if full || lines.len() <= LINES {
        return marked;
    }
    let left_out = lines.len() - LINES;
    format!(
        "… {} before (--full shows them)\n{}",
        ui::text::counted(left_out, "line"),
        lines[left_out..].join("\n")
    )
}
