use std::collections::BTreeMap;
use std::path::Path;

use engine::kind::{Input, Stage, StageCtx};

use super::*;
use crate::samples::{Graded, Sample};
use crate::samples_of_tests::{example_metrics, example_table};

const ARMS: [(&str, &str); 5] = [
    ("base", "Base"),
    ("steer", "Steering vectors"),
    ("lora", "LoRA"),
    ("random", "Random reward"),
    ("prefix", "Base + “To” prefix"),
];

fn graded(arm: usize, id: usize, questions: usize) -> Graded {
    let correct = (id * 7 + arm * 3) % 10 < 5 + arm;
    let problem =
        format!("Amy has {id} apples & buys 5 more. Is <b>{id}</b> + 5 < 100? How many has she now?");
    let truncated = id % 40 == 3;
    let answer = if correct { id + 5 } else { id + 6 };
    let text = match truncated {
        true => "And so on. ".repeat(60),
        false => {
            format!("Größe: to solve this, {id} + 5 = {answer}. </script> The answer is \\boxed{{{answer}}}.")
        }
    };
    let span = text.find("boxed{").map(|at| (at + 6, at + 6 + answer.to_string().len()));
    Graded {
        benchmark: if id * 5 < questions { "amc23" } else { "word problems" }.into(),
        sample: Sample {
            id: format!("test-{id}"),
            sample: 0,
            prompt: format!("<|user|>{problem}<|assistant|>"),
            problem,
            gold: (id + 5).to_string(),
            tokens: 30,
            finish: if truncated { "length" } else { "stop" }.into(),
            seconds: 0.1,
            level: Some((id % 3 + 1).to_string()),
            subject: None,
            retry: None,
            text,
        },
        extracted: if truncated { String::new() } else { answer.to_string() },
        method: if truncated { "none" } else { "boxed" }.into(),
        span,
        qwen: correct && !truncated,
        strict: correct && !truncated && !id.is_multiple_of(17),
        reasons: ("numeric".into(), "exact".into()),
        correct: correct && !truncated,
        repetition: if truncated { 0.9 } else { 0.0 },
    }
}

/// Runs the stage over five arms that answered this many questions.
fn report(out: &Path, questions: usize) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("table.json"), serde_json::to_string(&example_table()).unwrap()).unwrap();
    let mut inputs = BTreeMap::from([("@table".to_owned(), dir.path().to_owned())]);
    let mut samples = Inputs::default();
    for (arm, (name, _)) in ARMS.iter().enumerate() {
        let path = dir.path().join(format!("{name}-graded.jsonl"));
        let lines: Vec<String> =
            (0..questions).map(|id| serde_json::to_string(&graded(arm, id, questions)).unwrap()).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        inputs.insert(format!("@grade[{name}]"), path);
        samples.0.insert((*name).into(), Input::new(format!("@grade[{name}]")));
    }
    let mut metrics = Inputs::default();
    for (label, lines) in example_metrics() {
        let path = dir.path().join(format!("{label}-metrics.jsonl"));
        std::fs::write(&path, lines).unwrap();
        inputs.insert(format!("@train[{label}]"), path);
        metrics.0.insert(label.clone(), Input::new(format!("@train[{label}]")));
    }
    let stage = Report {
        title: "Five arms on a <tiny> model".into(),
        summary: "Do steering vectors alone reach what LoRA reaches?".into(),
        table: Input::new("@table"),
        samples,
        metrics,
        curves: Vec::new(),
        arms: ARMS.map(|(name, label)| Arm { name: name.into(), label: label.into() }).to_vec(),
        deviations: Value::Null,
    };
    stage.run(&StageCtx::detached(out, out, inputs)).unwrap();
}

/// The page's data, as its script parses it.
fn data_of(html: &str) -> Value {
    let (_, after) = html.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (json, _) = after.split_once("</script>").unwrap();
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_page_holds_everything_and_asks_for_nothing() {
    // `REPORT_OUT` keeps the page for a look, `REPORT_QUESTIONS` makes it larger.
    let kept = std::env::var_os("REPORT_OUT");
    let temporary = tempfile::tempdir().unwrap();
    let out = kept.as_ref().map_or(temporary.path(), Path::new);
    let questions = std::env::var("REPORT_QUESTIONS").map_or(100, |n| n.parse().unwrap());
    report(out, questions);
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("<h1>Five arms on a &lt;tiny&gt; model</h1>"));
    for needle in ["more than chance explains", "8 × 8 rollouts", "show=gained", "Accuracy by level", "<svg"]
    {
        assert!(html.contains(needle), "{needle}");
    }
    // Nothing is loaded: no address in an attribute that loads, no import, no url().
    for loading in ["src=", "@import", "url(", "<link rel=\"stylesheet\"", "fetch("] {
        assert!(!html.contains(loading), "{loading}");
    }
    let data = data_of(&html);
    let all = data["questions"].as_array().unwrap();
    assert_eq!(all.len(), questions);
    assert_eq!(data["prompts"], serde_json::json!(["<|user|>\u{0}<|assistant|>"]));
    assert_eq!(data["runs"][0]["base"], Value::Null);
    assert_eq!(data["runs"][2], serde_json::json!({"arm": "lora", "label": "LoRA", "base": 0}));
    for question in all {
        assert_eq!(question["answers"].as_array().unwrap().len(), 5);
    }
    // Spans count UTF-16 units, as scripts do: the text has letters of two bytes before it.
    let answer = &all[1]["answers"][0][0];
    let units: Vec<u16> = answer["text"].as_str().unwrap().encode_utf16().collect();
    let [start, end] = [0, 1].map(|i| answer["span"][i].as_u64().unwrap() as usize);
    assert_eq!(String::from_utf16(&units[start..end]).unwrap(), answer["extracted"].as_str().unwrap());
}

#[test]
fn the_markdown_is_whole() {
    let out = tempfile::tempdir().unwrap();
    report(out.path(), 10);
    let text = std::fs::read_to_string(out.path().join("report.md")).unwrap();
    insta::assert_snapshot!(text);
}
