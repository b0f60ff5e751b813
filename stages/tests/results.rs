//! The results that are kept are those of this program: the generations in each report get the grades
//! that stand there, to the last character, and the tables count them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use serde_json::Value;

/// The reports that the repository keeps, among the results that `.gitignore` lets through.
fn kept() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap();
    let names = ignored.lines().filter_map(|line| line.strip_prefix("!/results/")?.strip_suffix('/'));
    let folders = names.map(|name| root.join("results").join(name));
    folders.filter(|folder| folder.join("report/report.html").exists()).collect()
}

/// What the page's sample browser shows.
fn samples(result: &Path) -> Value {
    let page = fs::read_to_string(result.join("report/report.html")).unwrap();
    let (_, after) = page.split_once("<script type=\"application/gzip\" id=\"data\">").unwrap();
    let (packed, _) = after.split_once("</script>").unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(&bytes[..])).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// What a second request for the answer brought stands behind the first answer, and is graded alone.
const RETRIED: &str = "-retried";

/// The part of an answer's text that its grade is about.
fn graded_part<'a>(
    question: &Value,
    run: usize,
    number: usize,
    firsts: &Value,
    answer: &'a Value,
) -> &'a str {
    let whole = text(answer, "text");
    let Some(benchmark) = text(question, "benchmark").strip_suffix(RETRIED) else { return whole };
    let first = firsts
        .as_array()
        .unwrap()
        .iter()
        .find(|other| other["id"] == question["id"] && text(other, "benchmark") == benchmark);
    let first = text(&first.unwrap()["answers"][run][number], "text");
    match whole.strip_prefix(first).unwrap() {
        "" => whole,
        second => second,
    }
}

#[test]
fn the_same_generations_get_the_same_grades() {
    let results = kept();
    assert!(results.len() >= 6, "{results:?}");
    for result in results {
        let name = result.file_name().unwrap().to_string_lossy().into_owned();
        let samples = samples(&result);
        let mut answers = 0;
        for question in samples["questions"].as_array().unwrap() {
            let benchmark = text(question, "benchmark").trim_end_matches(RETRIED);
            for (run, of_run) in question["answers"].as_array().unwrap().iter().enumerate() {
                for (number, answer) in of_run.as_array().unwrap().iter().enumerate() {
                    let part = graded_part(question, run, number, &samples["questions"], answer);
                    let verdict = grader::grade_output(part, text(question, "gold"), benchmark);
                    let place = format!("{name}: {} of run {run}", question["id"]);
                    assert_eq!(verdict.extracted, text(answer, "extracted"), "{place}");
                    assert_eq!(verdict.method.as_str(), text(answer, "method"), "{place}");
                    let verdicts = [Value::from(verdict.qwen), Value::from(verdict.strict)];
                    assert_eq!(verdicts, [answer["qwen"].clone(), answer["strict"].clone()], "{place}");
                    answers += 1;
                }
            }
        }
        assert!(answers >= 200, "{name}: {answers}");
    }
}

#[test]
fn the_tables_count_the_grades() {
    for result in kept() {
        let samples = samples(&result);
        // Samples and right ones, by benchmark and row of the table.
        let mut counts: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for question in samples["questions"].as_array().unwrap() {
            for (run, of_run) in question["answers"].as_array().unwrap().iter().enumerate() {
                let row = text(&samples["runs"][run], "arm");
                for answer in of_run.as_array().unwrap() {
                    let count = counts.entry((text(question, "benchmark"), row)).or_default();
                    count.0 += 1;
                    count.1 += u64::from(answer["correct"] == true);
                }
            }
        }
        let table: Value =
            serde_json::from_str(&fs::read_to_string(result.join("table/table.json")).unwrap()).unwrap();
        let mut rows = 0;
        for benchmark in table["benchmarks"].as_array().unwrap() {
            for row in benchmark["rows"].as_array().unwrap() {
                let counted = counts[&(text(benchmark, "name"), text(row, "arm"))];
                let told = (row["samples"].as_u64().unwrap(), row["correct"].as_u64().unwrap());
                assert_eq!(counted, told, "{}: {}", result.display(), row["arm"]);
                rows += 1;
            }
        }
        assert_eq!(rows, counts.len(), "{}", result.display());
    }
}
