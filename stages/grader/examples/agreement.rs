//! Prints how far the grader agrees with recorded verdicts of the Python graders.
//!
//!     cargo run --release -p grader --example agreement -- pairs.jsonl extract.jsonl [--list KIND]
//!
//! Files are told apart by their fields. `--list` prints the rows of a column that differ.

use std::collections::BTreeMap;
use std::time::Instant;

use grader::qwen::equal::math_equal;
use grader::qwen::gold::parse_ground_truth;
use grader::qwen::strip::strip_string;
use serde_json::Value;

/// Agreement of one column.
#[derive(Default)]
struct Column {
    same: usize,
    total: usize,
    by_source: BTreeMap<String, (usize, usize)>,
}

#[derive(Default)]
struct Report {
    columns: BTreeMap<&'static str, Column>,
    list: Option<String>,
}

impl Report {
    fn add(&mut self, column: &'static str, source: &str, same: bool, show: impl Fn() -> String) {
        let c = self.columns.entry(column).or_default();
        c.total += 1;
        c.same += usize::from(same);
        let s = c.by_source.entry(source.to_string()).or_default();
        s.0 += usize::from(!same);
        s.1 += 1;
        if !same && self.list.as_deref() == Some(column) {
            println!("{source}\t{}", show());
        }
    }
}

fn field<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn pair(row: &Value, report: &mut Report) {
    let (pred, gold) = (field(row, "pred"), field(row, "gold"));
    let source = field(row, "source").split_once(':').map_or("", |s| s.1);
    let data_name = field(row, "data_name");
    if let Some(want) = row["qwen_raw"].as_bool() {
        let got = math_equal(pred, gold).equal;
        report.add("qwen_raw", source, got == want, || format!("{want}\t{pred}\t{gold}"));
    }
    let (p, g) = (field(row, "pred_stripped"), field(row, "gold_stripped"));
    if let Some(want) = row["qwen_pipeline"].as_bool() {
        let got = math_equal(p, g).equal;
        report.add("qwen_pipeline", source, got == want, || format!("{want}\t{p}\t{g}"));
    }
    let verdict = grader::grade_answer(pred, gold, data_name);
    if let Some(want) = row["qwen_pipeline"].as_bool() {
        report.add("qwen_whole", source, verdict.qwen == want, || {
            format!("{want}\t{pred}\t{gold}\t{data_name}")
        });
    }
    if let Some(want) = row["intended"].as_bool() {
        report.add("strict_intended", source, verdict.strict == want, || {
            format!("{want}\t{pred}\t{gold}\t{}", verdict.strict_reason.as_str())
        });
    }
}

fn extract(row: &Value, report: &mut Report) {
    let (text, gold, data_name) = (field(row, "text"), field(row, "gold_raw"), field(row, "data_name"));
    let kind = field(row, "kind");
    let found = grader::extract_answer(text, data_name);
    let want = field(row, "extracted");
    report.add("extracted", kind, found.answer == want, || format!("{want}\t{}", found.answer));
    let parsed = parse_ground_truth(gold, data_name);
    let got = grader::qwen_prediction(&found.answer, text, &parsed, data_name);
    let want = field(row, "pred");
    report.add("pred", kind, got == want, || format!("{want}\t{got}\t{gold}"));
    let got = parsed;
    let want = field(row, "gold_parsed");
    report.add("gold_parsed", kind, got == want, || format!("{want}\t{got}\t{gold}"));
    if let Some(want) = row["verdict"].as_bool() {
        let got = grader::grade_output(text, gold, data_name).qwen;
        report.add("verdict", kind, got == want, || {
            format!("{want}\t{}\t{}", field(row, "pred"), field(row, "gold_parsed"))
        });
    }
}

fn vector(row: &Value, report: &mut Report) {
    match field(row, "kind") {
        "strip" => {
            let (got, want) = (strip_string(field(row, "in"), false), field(row, "out"));
            report.add("v_strip", "strip", got == want, || format!("{}\t{want}\t{got}", field(row, "in")));
        }
        _ => report.add("v_other", field(row, "kind"), false, || row.to_string()),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut report = Report::default();
    let mut files = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "--list" { report.list = args.next() } else { files.push(arg) }
    }
    for file in files {
        let rows: Vec<Value> =
            std::fs::read_to_string(&file)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let start = Instant::now();
        for row in &rows {
            if row.get("text").is_some() && row.get("gold_raw").is_some() {
                extract(row, &mut report);
            } else if row.get("in").is_some() {
                vector(row, &mut report);
            } else {
                pair(row, &mut report);
            }
        }
        eprintln!("{file}: {} rows in {:.3} s", rows.len(), start.elapsed().as_secs_f64());
    }
    for (name, c) in &report.columns {
        let share = 100.0 * c.same as f64 / c.total as f64;
        println!("== {name}: {}/{} = {share:.3} %", c.same, c.total);
        let mut worst: Vec<_> = c.by_source.iter().filter(|(_, s)| s.0 > 0).collect();
        worst.sort_by_key(|(_, s)| std::cmp::Reverse(s.0));
        for (source, (bad, total)) in worst.iter().take(25) {
            println!("   {bad:>5} of {total:<5} {source}");
        }
    }
    Ok(())
}
