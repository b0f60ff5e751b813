//! Numbers turned into the words and cells of the report.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::arms::Direction;
use crate::stats::Interval;
use crate::table::{Benchmark, Comparison, Group, Row, Table};

/// What the templates show.
#[derive(Serialize)]
pub struct View {
    /// One section a benchmark.
    benchmarks: Vec<BenchmarkView>,
    /// Name and value of the claims' own entries, such as their source.
    claim_notes: Vec<(String, String)>,
    /// Claims about what was not measured, and what was.
    unmeasured: Vec<String>,
    measured: String,
    /// What the recipe does differently.
    deviations: Vec<String>,
}

#[derive(Serialize)]
struct BenchmarkView {
    name: String,
    questions: usize,
    findings: Vec<Finding>,
    rows: Vec<RowView>,
    breakdowns: Vec<Breakdown>,
    /// Accuracy of each of several runs, by row.
    seeds: Vec<Seeds>,
    any_claim: bool,
    any_delta: bool,
    /// Whether questions were asked once, so that each gained or lost one counts.
    any_flips: bool,
    any_time: bool,
}

/// One arm's result in a sentence or two.
#[derive(Serialize)]
struct Finding {
    label: String,
    /// `up`, `down`, `same` or `base`.
    sign: &'static str,
    text: String,
}

#[derive(Serialize)]
struct RowView {
    arm: String,
    label: String,
    questions: usize,
    runs: usize,
    accuracy: String,
    interval: String,
    spread: String,
    claimed: String,
    delta: String,
    delta_interval: String,
    /// Questions that the difference stands for.
    delta_questions: String,
    sign: &'static str,
    claimed_delta: String,
    gained: String,
    lost: String,
    p: String,
    changed: String,
    mean_tokens: String,
    median_tokens: String,
    truncated: String,
    repetitive: String,
    unanswered: String,
    disagreements: usize,
    minutes: String,
    boxed: String,
    empty: String,
    looping: String,
    copied: String,
    distinct: String,
    /// The answer given most often, and how often it is given and right in percent.
    commonest: Option<(String, String, String)>,
    /// The same answer whole, for the search.
    commonest_answer: String,
}

/// The runs of one row.
#[derive(Serialize)]
struct Seeds {
    label: String,
    /// Name of the run and its accuracy in percent.
    runs: Vec<(String, String)>,
    mean: String,
    spread: String,
    /// Differences of the runs to the base arm, in their order; empty for the base arm.
    deltas: Vec<String>,
    /// Interval of their mean.
    over_runs: String,
}

/// Accuracy by level or subject.
#[derive(Serialize)]
struct Breakdown {
    /// `Level` or `Subject`.
    title: &'static str,
    /// The filter's name in the sample browser.
    key: &'static str,
    arms: Vec<(String, String)>,
    lines: Vec<BreakdownLine>,
}

#[derive(Serialize)]
struct BreakdownLine {
    name: String,
    samples: usize,
    /// Accuracy in percent and its text, for each arm.
    cells: Vec<Option<(u32, String)>>,
}

impl View {
    /// The view of a table.
    pub fn of(table: &Table) -> Self {
        // A recipe says in `claims.unverified` that the paper's values could not be checked, and why.
        let unverified = table.claims.get("unverified").is_some();
        Self {
            benchmarks: table.benchmarks.iter().map(|b| benchmark(b, &table.base, unverified)).collect(),
            claim_notes: notes(&table.claims),
            unmeasured: table.unmeasured(),
            measured: table.measured(),
            deviations: lines(&table.deviations),
        }
    }
}

fn benchmark(benchmark: &Benchmark, base: &str, unverified: bool) -> BenchmarkView {
    let rows = &benchmark.rows;
    BenchmarkView {
        name: benchmark.name.clone(),
        questions: benchmark.questions,
        findings: rows.iter().map(|row| finding(row, benchmark.against(row, base), unverified)).collect(),
        rows: rows.iter().map(|row| row_view(row, benchmark.against(row, base))).collect(),
        breakdowns: [
            breakdown("Level", "level", rows, |row| &row.levels),
            breakdown("Subject", "subject", rows, |row| &row.subjects),
        ]
        .into_iter()
        .flatten()
        .collect(),
        seeds: rows.iter().filter_map(seeds).collect(),
        any_claim: rows.iter().any(|row| row.claimed.accuracy.is_some()),
        any_delta: rows.iter().any(|row| row.versus_base.is_some()),
        any_flips: rows.iter().filter_map(|row| row.versus_base.as_ref()).any(|v| v.gained.is_some()),
        any_time: rows.iter().any(|row| row.seconds > 0.0),
    }
}

/// The class of a difference.
fn sign(comparison: &Comparison) -> &'static str {
    match comparison.clear() {
        Some(true) => "up",
        Some(false) => "down",
        None => "same",
    }
}

fn finding(row: &Row, against: Option<&Row>, unverified: bool) -> Finding {
    let base_label = against.map_or("", |base| base.label.as_str());
    let mut text = format!(
        "{} % of {} questions right (95 % interval {} to {}).",
        percent(row.accuracy),
        row.questions,
        percent(row.interval.low),
        percent(row.interval.high)
    );
    if let Some(spread) = row.spread {
        text += &format!(" {} runs, standard deviation {} points.", row.runs, percent(spread));
    }
    let mut label_sign = "base";
    if let Some(versus) = &row.versus_base {
        label_sign = sign(versus);
        let judgement = match label_sign {
            "same" => "no more than chance explains",
            _ if versus.runs_agree_closely() => "more than chance between the questions explains",
            _ => "more than chance explains",
        };
        let runs = match versus.over_runs {
            Some(runs) if versus.runs_agree_closely() => format!(
                "; over the runs {}, closer together than the questions can tell, so that the wider one counts",
                range(runs)
            ),
            Some(runs) => format!("; over the runs {}", range(runs)),
            None if versus.runs_agree_closely() => format!(
                "; the {} runs do not differ, which says nothing about another training",
                versus.per_run.len()
            ),
            None => String::new(),
        };
        let part = match against.filter(|base| row.in_part(base)) {
            Some(_) => format!(" over the {} questions that both were asked", versus.paired),
            None => String::new(),
        };
        text += &format!(
            " {} points against {base_label}{part} (interval {}{}), which is {} questions: {judgement}.",
            points(versus.delta),
            range(versus.interval),
            runs,
            questions(versus)
        );
    } else if against.is_some() {
        label_sign = "same";
        text += &format!(" No question in common with {base_label}, so no difference.");
    }
    text += &claim(row, base_label, unverified);
    Finding { label: row.label.clone(), sign: label_sign, text }
}

/// How many questions a difference stands for: `37 of 200`; with several generations a question,
/// perhaps a part of one.
fn questions(comparison: &Comparison) -> String {
    let tenths = (10.0 * comparison.delta * comparison.paired as f64).abs().round();
    format!("{} of {}", tenths / 10.0, comparison.paired)
}

/// How the claims lie to the measured intervals.
fn claim(row: &Row, base_label: &str, unverified: bool) -> String {
    let doubt = if unverified { " (unverified)" } else { "" };
    let place = |value: f64, interval: Interval| {
        if value < interval.low {
            "below"
        } else if value > interval.high {
            "above"
        } else {
            "within"
        }
    };
    let mut text = String::new();
    if let Some(claimed) = row.claimed.accuracy {
        let place = place(claimed, row.interval);
        text += &format!(" The claimed {} %{doubt} lies {place} the measured interval.", percent(claimed));
    }
    if let (Some(claimed), Some(versus)) = (row.claimed.delta, &row.versus_base) {
        let place = place(claimed, versus.reach());
        text += &format!(
            " The claimed difference of {} points{doubt} lies {place} its interval.",
            points(claimed)
        );
    }
    if let (Some(claimed), Some(versus)) = (row.claimed.direction, &row.versus_base) {
        let (what, wanted, most) = match claimed {
            Direction::Up => ("gain", "up", versus.reach().high),
            Direction::Down => ("loss", "down", -versus.reach().low),
        };
        let found = match sign(versus) {
            found if found == wanted => "there is one".to_owned(),
            "same" if most <= 0.0 => "none is shown".to_owned(),
            "same" => format!("none is shown, and one of up to {} points is not excluded", percent(most)),
            _ => "the opposite is the case".to_owned(),
        };
        text += &format!(" A {what} against {base_label} is claimed{doubt}: {found}.");
    }
    text
}

fn seeds(row: &Row) -> Option<Seeds> {
    let versus = row.versus_base.as_ref();
    Some(Seeds {
        label: row.label.clone(),
        runs: row.per_run.iter().map(|run| (run.label.clone(), percent(run.accuracy))).collect(),
        mean: percent(row.accuracy),
        spread: percent(row.spread?),
        deltas: versus.map(|v| v.per_run.iter().copied().map(points).collect()).unwrap_or_default(),
        over_runs: match versus.map(|v| v.over_runs) {
            Some(Some(runs)) => range(runs),
            Some(None) => "none: the runs do not differ".to_owned(),
            None => String::new(),
        },
    })
}

fn row_view(row: &Row, against: Option<&Row>) -> RowView {
    let versus = row.versus_base.as_ref();
    let part = if against.is_some_and(|base| row.in_part(base)) { " in common" } else { "" };
    RowView {
        arm: row.arm.clone(),
        label: row.label.clone(),
        questions: row.questions,
        runs: row.runs,
        accuracy: percent(row.accuracy),
        interval: format!("{}–{}", percent(row.interval.low), percent(row.interval.high)),
        spread: row.spread.map(percent).unwrap_or_default(),
        claimed: row.claimed.accuracy.map(percent).unwrap_or_default(),
        delta: versus.map_or(if against.is_some() { "–" } else { "" }.to_owned(), |v| points(v.delta)),
        delta_interval: versus.map(|v| range(v.interval)).unwrap_or_default(),
        delta_questions: versus.map(|v| questions(v) + part).unwrap_or_default(),
        sign: versus.map_or("base", sign),
        claimed_delta: row.claimed.delta.filter(|_| versus.is_some()).map(points).unwrap_or_default(),
        gained: versus.and_then(|v| v.gained).map(|n| n.to_string()).unwrap_or_default(),
        lost: versus.and_then(|v| v.lost).map(|n| n.to_string()).unwrap_or_default(),
        p: versus.and_then(|v| v.mcnemar_p).map(p_value).unwrap_or_default(),
        changed: versus.and_then(|v| v.changed).map(percent).unwrap_or_default(),
        mean_tokens: format!("{:.0}", row.mean_tokens),
        median_tokens: format!("{:.0}", row.median_tokens),
        truncated: percent(row.truncated),
        repetitive: percent(row.repetitive),
        unanswered: percent(row.unanswered),
        disagreements: row.disagreements,
        minutes: format!("{:.1}", row.seconds / 60.0),
        boxed: percent(row.collapse.boxed),
        empty: percent(row.collapse.empty),
        looping: percent(row.collapse.looping),
        copied: percent(row.collapse.copied),
        distinct: row.collapse.distinct_2.map(|share| format!("{share:.2}")).unwrap_or_default(),
        commonest: (!row.collapse.commonest.is_empty()).then(|| {
            let signs = &row.collapse;
            (cut(&signs.commonest), percent(signs.commonest_share), percent(signs.commonest_right))
        }),
        commonest_answer: row.collapse.commonest.clone(),
    }
}

/// An answer, or the beginning of a long one.
fn cut(answer: &str) -> String {
    match answer.char_indices().nth(24) {
        Some((end, _)) => format!("{}…", &answer[..end]),
        None => answer.to_owned(),
    }
}

fn breakdown(
    title: &'static str,
    key: &'static str,
    rows: &[Row],
    groups: fn(&Row) -> &std::collections::BTreeMap<String, Group>,
) -> Option<Breakdown> {
    let names: BTreeSet<&String> = rows.iter().flat_map(|row| groups(row).keys()).collect();
    // One group is all questions, of which the table above tells.
    if names.len() < 2 {
        return None;
    }
    let cell = |group: &Group| {
        let share = group.correct as f64 / group.samples as f64;
        ((100.0 * share).round() as u32, percent(share))
    };
    let lines = names.into_iter().map(|name| BreakdownLine {
        name: name.clone(),
        samples: rows.iter().filter_map(|row| Some(groups(row).get(name)?.samples)).max().unwrap_or(0),
        cells: rows.iter().map(|row| groups(row).get(name).map(cell)).collect(),
    });
    Some(Breakdown {
        title,
        key,
        arms: rows.iter().map(|row| (row.arm.clone(), row.label.clone())).collect(),
        lines: lines.collect(),
    })
}

/// The claims' entries that are not numbers about an arm.
fn notes(claims: &Value) -> Vec<(String, String)> {
    let Value::Object(table) = claims else {
        return Vec::new();
    };
    let note = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Some((name.clone(), text.clone())),
        Value::Number(number) => Some((name.clone(), number.to_string())),
        _ => None,
    };
    table.iter().filter_map(note).collect()
}

/// Texts of a list or table, one line each.
fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(lines).collect(),
        Value::Object(table) => table
            .iter()
            .map(|(name, value)| format!("{}: {}", name.replace('_', " "), lines(value).join("; ")))
            .collect(),
        other => vec![other.to_string()],
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// Percentage points with a sign; a difference that rounds to nothing has none.
fn points(share: f64) -> String {
    let text = format!("{:+.1}", 100.0 * share);
    match text.as_str() {
        "+0.0" | "-0.0" => "0.0".to_owned(),
        _ => text.replace('-', "−"),
    }
}

/// The ends of an interval of differences.
fn range(interval: Interval) -> String {
    format!("{} to {}", points(interval.low), points(interval.high))
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

#[cfg(test)]
mod tests;
