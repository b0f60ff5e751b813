//! Writes the table as JSON, CSV and Markdown.

use std::fmt::Write;
use std::path::Path;

use engine::kind::StageError;
use serde_json::Value;

use crate::arms::arm_of;
use crate::stats::Interval;
use crate::table::{Benchmark, Group, Row, Table};

/// Writes `table.json`, `table.csv` and `table.md` into `out`.
pub fn write(table: &Table, out: &Path) -> Result<(), StageError> {
    let save = |name: &str, text: String| {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(|e| StageError::io(&path, e))
    };
    let json = serde_json::to_string_pretty(table)
        .map_err(|e| StageError::new(engine::kind::Tier::Bug, format!("table.json: {e}")))?;
    save("table.json", json + "\n")?;
    save("table.csv", csv(table))?;
    save("table.md", markdown(table))
}

pub(super) const COLUMNS: &[&str] = &[
    "benchmark",
    "arm",
    "label",
    "runs",
    "questions",
    "samples",
    "correct",
    "accuracy",
    "low",
    "high",
    "interval_method",
    "spread",
    "delta",
    "delta_low",
    "delta_high",
    "gained",
    "lost",
    "mcnemar_p",
    "changed",
    "claimed_accuracy",
    "claimed_delta",
    "mean_tokens",
    "median_tokens",
    "truncated",
    "repetitive",
    "unanswered",
    "disagreements",
    "boxed",
    "empty",
    "looping",
    "copied",
    "distinct_2",
    "commonest",
    "commonest_share",
    "commonest_right",
    "seconds",
];

/// One line an arm and benchmark; shares from 0 to 1; empty where there is no value.
fn csv(table: &Table) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for benchmark in &table.benchmarks {
        for row in &benchmark.rows {
            let versus = row.versus_base.as_ref();
            let cells = [
                quoted(&benchmark.name),
                quoted(&row.arm),
                quoted(&row.label),
                row.runs.to_string(),
                row.questions.to_string(),
                row.samples.to_string(),
                row.correct.to_string(),
                row.accuracy.to_string(),
                row.interval.low.to_string(),
                row.interval.high.to_string(),
                row.interval_method.clone(),
                optional(row.spread),
                optional(versus.map(|v| v.delta)),
                optional(versus.map(|v| v.interval.low)),
                optional(versus.map(|v| v.interval.high)),
                optional(versus.and_then(|v| v.gained)),
                optional(versus.and_then(|v| v.lost)),
                optional(versus.and_then(|v| v.mcnemar_p)),
                optional(versus.and_then(|v| v.changed)),
                optional(row.claimed.accuracy),
                optional(row.claimed.delta),
                row.mean_tokens.to_string(),
                row.median_tokens.to_string(),
                row.truncated.to_string(),
                row.repetitive.to_string(),
                row.unanswered.to_string(),
                row.disagreements.to_string(),
                row.collapse.boxed.to_string(),
                row.collapse.empty.to_string(),
                row.collapse.looping.to_string(),
                row.collapse.copied.to_string(),
                optional(row.collapse.distinct_2),
                quoted(&row.collapse.commonest),
                row.collapse.commonest_share.to_string(),
                row.collapse.commonest_right.to_string(),
                row.seconds.to_string(),
            ];
            let _ = writeln!(text, "{}", cells.join(","));
        }
    }
    text
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// A field as RFC 4180 wants it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// For people: percentages and percentage points.
fn markdown(table: &Table) -> String {
    let mut text = String::new();
    for benchmark in &table.benchmarks {
        let _ = writeln!(text, "## {}\n", benchmark.name);
        main_table(&mut text, benchmark, &table.base);
        collapse_table(&mut text, benchmark);
        group_table(&mut text, "Level", benchmark, |row| &row.levels);
        group_table(&mut text, "Subject", benchmark, |row| &row.subjects);
    }
    list(&mut text, "Claims", &table.claims);
    let unmeasured = table.unmeasured();
    if !unmeasured.is_empty() {
        let claims = unmeasured.join("\n- ");
        let _ = writeln!(text, "### Claims about what is not measured here\n\n- {claims}\n");
        let _ = writeln!(text, "Measured: {}.\n", table.measured());
    }
    list(&mut text, "Deviations", &table.deviations);
    let _ = writeln!(
        text,
        "Accuracy in percent with Wilson's 95 % interval (bootstrap by question where a question has \
         several generations); Δ in percentage points over `{}` with the 95 % interval of the paired \
         bootstrap; p of the exact McNemar test; \
         changed: generations that are not the base arm's to the letter; copied: the text is that for \
         another question, both in percent; distinct-2: different pairs of successive words over all pairs.",
        table.base
    );
    let rows = || table.benchmarks.iter().flat_map(|benchmark| &benchmark.rows);
    let mut compared: Vec<(&Row, &Row)> = Vec::new();
    for benchmark in &table.benchmarks {
        let rows = &benchmark.rows;
        compared.extend(rows.iter().filter_map(|row| Some((row, benchmark.against(row, &table.base)?))));
    }
    if compared.iter().any(|(row, base)| row.in_part(base)) {
        text += "\nOver common questions: one of the two arms has more of them, so Δ is not the difference of the two \
                 accuracies shown.\n";
    }
    if compared.iter().any(|(row, _)| row.versus_base.is_none()) {
        let _ = writeln!(
            text,
            "\n–: no question (by id) in common with `{}`, so there is no difference.",
            table.base
        );
    }
    if rows().any(|row| row.versus_base.as_ref().is_some_and(|v| v.per_run.len() > 1)) {
        text += "\nOver runs: the 95 % interval of the mean difference over several runs (Student's t), which says \
                 what another training may bring. Where it is narrower than the interval by question, or the \
                 runs do not differ, the wider one counts: a few runs can agree by chance.\n";
    }
    text
}

fn main_table(text: &mut String, benchmark: &Benchmark, base: &str) {
    text.push_str(
        "| Arm | Questions | Accuracy | Claimed | Δ | Claimed Δ | p | Changed | Tokens | Truncated | Repetitive | No answer |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &benchmark.rows {
        let versus = row.versus_base.as_ref();
        let against = benchmark.against(row, base);
        let spread = match row.spread {
            Some(spread) => format!(" ± {} over {} runs", percent(spread), row.runs),
            None => String::new(),
        };
        let delta = match versus {
            Some(v) => {
                let runs = match v.over_runs {
                    Some(runs) => format!(", over runs {}", interval(runs, points)),
                    None if v.per_run.len() > 1 => ", over runs no difference".to_owned(),
                    None => String::new(),
                };
                let part = match against.filter(|base| row.in_part(base)) {
                    Some(_) => format!(", over {} common questions", v.paired),
                    None => String::new(),
                };
                let interval = interval(v.interval, points);
                format!("{} {interval}{runs}{part}", points(v.delta))
            }
            None if arm_of(&row.arm) == base => "base".to_owned(),
            None if against.is_some() => "–".to_owned(),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} {}{spread} | {} | {delta} | {} | {} | {} | {:.0} | {} | {} | {} |",
            cell(&row.label),
            row.questions,
            percent(row.accuracy),
            interval(row.interval, percent),
            row.claimed.accuracy.map(percent).unwrap_or_default(),
            row.claimed.delta.filter(|_| versus.is_some()).map(points).unwrap_or_default(),
            versus.and_then(|v| v.mcnemar_p).map(p_value).unwrap_or_default(),
            versus.and_then(|v| v.changed).map(percent).unwrap_or_default(),
            row.mean_tokens,
            percent(row.truncated),
            percent(row.repetitive),
            percent(row.unanswered),
        );
    }
    text.push('\n');
}

fn collapse_table(text: &mut String, benchmark: &Benchmark) {
    text.push_str(
        "| Arm | Boxed | Empty | Ends in a loop | Copied | Distinct-2 | Commonest answer |\n\
         |---|--:|--:|--:|--:|--:|---|\n",
    );
    for row in &benchmark.rows {
        let signs = &row.collapse;
        let commonest = match signs.commonest.as_str() {
            "" => String::new(),
            answer => format!(
                "{} in {}, right in {}",
                cell(answer),
                percent(signs.commonest_share),
                percent(signs.commonest_right)
            ),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {commonest} |",
            cell(&row.label),
            percent(signs.boxed),
            percent(signs.empty),
            percent(signs.looping),
            percent(signs.copied),
            signs.distinct_2.map(|share| format!("{share:.2}")).unwrap_or_default(),
        );
    }
    text.push('\n');
}

fn group_table(
    text: &mut String,
    title: &str,
    benchmark: &Benchmark,
    groups: fn(&Row) -> &std::collections::BTreeMap<String, Group>,
) {
    let names: std::collections::BTreeSet<&String> =
        benchmark.rows.iter().flat_map(|row| groups(row).keys()).collect();
    if names.is_empty() {
        return;
    }
    let _ = write!(text, "| {title} |");
    for row in &benchmark.rows {
        let _ = write!(text, " {} |", cell(&row.label));
    }
    let _ = writeln!(text, "\n|---|{}", "--:|".repeat(benchmark.rows.len()));
    for name in names {
        let _ = write!(text, "| {} |", cell(name));
        for row in &benchmark.rows {
            let _ = match groups(row).get(name) {
                Some(g) => {
                    write!(text, " {} of {} |", percent(g.correct as f64 / g.samples as f64), g.samples)
                }
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text.push('\n');
}

fn list(text: &mut String, title: &str, value: &Value) {
    let entries: Vec<String> = match value {
        Value::Object(table) => {
            table.iter().filter_map(|(key, value)| Some(format!("- {key}: {}", value.as_str()?))).collect()
        }
        Value::Array(items) => {
            items.iter().filter_map(|item| Some(format!("- {}", item.as_str()?))).collect()
        }
        Value::String(one) => vec![format!("- {one}")],
        _ => Vec::new(),
    };
    if !entries.is_empty() {
        let _ = writeln!(text, "### {title}\n\n{}\n", entries.join("\n"));
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn points(share: f64) -> String {
    format!("{:+.1}", 100.0 * share).replace('-', "−")
}

fn interval(interval: Interval, show: fn(f64) -> String) -> String {
    format!("[{}, {}]", show(interval.low), show(interval.high))
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// A pipe would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
