//! Chat templates against `transformers`' rendering (tests/scripts/chat_templates.py) and the
//! exact bytes of the named prompt templates.

use std::path::{Path, PathBuf};

use lm::template::{ChatTemplate, Message, Prompt, PromptTemplate, Shot};
use serde_json::{Map, Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates")
}

fn published(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.jinja"))).unwrap()
}

#[test]
fn renders_what_transformers_renders() {
    let file: Value =
        serde_json::from_str(&std::fs::read_to_string(folder().join("cases.json")).unwrap()).unwrap();
    let now: jiff::civil::DateTime = file["now"].as_str().unwrap().parse().unwrap();
    let now = now.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 89);
    let mut failures = Vec::new();
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let tokens = case["tokens"].as_object().unwrap().clone();
        let template = ChatTemplate::new(published(name), tokens, name).unwrap();
        let variables = case["variables"].as_object().unwrap();
        let generation = case["generation"].as_bool().unwrap();
        let found = template.render_with(&case["messages"], generation, variables, &now);
        match (&found, case["text"].as_str()) {
            (Ok(found), Some(wanted)) if found == wanted => {}
            (Err(_), None) => {}
            _ => failures
                .push(format!("{name}: {}\nfound {found:?}\nwanted {:?}", case["messages"], case["text"])),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn an_error_names_the_template_and_its_own_words() {
    let source = "{{ messages[0].content }}\n{{ raise_exception('roles must alternate') }}".to_string();
    let template = ChatTemplate::new(source, Map::new(), "model/tokenizer_config.json").unwrap();
    let error = template.render(&[Message::new("user", "hi")], true).unwrap_err().to_string();
    assert!(error.contains("model/tokenizer_config.json"), "{error}");
    assert!(error.contains("roles must alternate"), "{error}");
    assert!(error.contains("line 2"), "{error}");

    let error = ChatTemplate::new("{% for %}".into(), Map::new(), "x").unwrap_err().to_string();
    assert!(error.contains("chat template (line 1)"), "{error}");
    let endless = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
    let template = ChatTemplate::new(endless.into(), Map::new(), "x").unwrap();
    assert!(template.render(&[], true).unwrap_err().to_string().contains("fuel"));
}

#[test]
fn finds_the_template_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    assert!(ChatTemplate::from_folder(folder.path()).unwrap().is_none());
    let config = json!({
        "bos_token": {"content": "<s>", "lstrip": false},
        "eos_token": "</s>",
        "pad_token": null,
        "chat_template": [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"},
        ],
    });
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    let hello = [Message::new("user", "hello")];
    let template = ChatTemplate::from_folder(folder.path()).unwrap().unwrap();
    assert_eq!(template.render(&hello, true).unwrap(), "<s>hello</s>");
    // The file of its own wins, as in transformers.
    std::fs::write(folder.path().join("chat_template.jinja"), "own {{ eos_token }}\n").unwrap();
    let template = ChatTemplate::from_folder(folder.path()).unwrap().unwrap();
    assert_eq!(template.render(&hello, true).unwrap(), "own </s>");
    std::fs::write(folder.path().join("tokenizer_config.json"), "{").unwrap();
    let error = ChatTemplate::from_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer_config.json"), "{error}");
}

fn qwen() -> ChatTemplate {
    ChatTemplate::new(published("qwen2_5_math"), Map::new(), "qwen").unwrap()
}

fn shots() -> Vec<Shot> {
    let shot = |q: &str, a: &str| Shot { question: q.into(), answer: a.into() };
    vec![shot("q1", "a1"), shot("q2", "a2")]
}

fn text(template: PromptTemplate, shots: &[Shot]) -> String {
    Prompt { shots, ..Prompt::new(template, "Q?") }.text(Some(&qwen())).unwrap()
}

#[test]
fn named_templates_are_exact() {
    const COT: &str = "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>user\nQ?<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(text(PromptTemplate::Qwen25MathCot, &[]), COT);
    assert_eq!(text(PromptTemplate::QwenMath, &[]), COT);
    // A question alone through Qwen2.5-Math's own template is the same prompt.
    assert_eq!(text(PromptTemplate::Chat, &[]), COT);
    assert_eq!(
        Prompt::new(PromptTemplate::QwenMath, "Q?").text(None).unwrap(),
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. Please reason step by step, and put your final answer within \\boxed{}.\n\nUser: Q? Assistant:"
    );
    assert_eq!(
        text(PromptTemplate::QwenBoxed, &[]),
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nQ?\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(text(PromptTemplate::QuestionAnswer, &[]), "Question: Q?\nAnswer:");
    assert_eq!(
        text(PromptTemplate::ChatmlSft, &[]),
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nSolve the following math problem. Make sure to put the answer (and only answer) inside \\boxed{}.\n\nQ?<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(text(PromptTemplate::Plain, &[]), "Q?");
}

#[test]
fn examples_are_placed_as_published() {
    let shots = shots();
    // Qwen2.5-Math puts all examples into the one user turn.
    assert_eq!(
        text(PromptTemplate::Qwen25MathCot, &shots),
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>user\nq1\na1\n\nq2\na2\n\nQ?<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        text(PromptTemplate::QuestionAnswer, &shots),
        "Question: q1\nAnswer: a1\n\n\nQuestion: q2\nAnswer: a2\n\n\nQuestion: Q?\nAnswer:"
    );
    assert_eq!(PromptTemplate::QuestionAnswer.stop_strings(), ["\n\nQuestion:"]);
    let chat = text(PromptTemplate::Chat, &shots);
    assert!(chat.contains("<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"), "{chat}");
    assert!(
        chat.ends_with("a2<|im_end|>\n<|im_start|>user\nQ?<|im_end|>\n<|im_start|>assistant\n"),
        "{chat}"
    );
    let sft = text(PromptTemplate::ChatmlSft, &shots);
    assert!(
        sft.contains(
            "inside \\boxed{}.\n\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>user\n"
        ),
        "{sft}"
    );
    assert_eq!(text(PromptTemplate::Plain, &shots), "q1\na1\n\nq2\na2\n\nQ?");
    let boxed = text(PromptTemplate::QwenBoxed, &shots[..1]);
    assert!(
        boxed.contains("within \\boxed{}.<|im_end|>\n<|im_start|>assistant\na1\n\n<|im_start|>system\n"),
        "{boxed}"
    );
}

#[test]
fn prefill_and_system_message() {
    let chat = qwen();
    let prompt = Prompt { prefill: "To", ..Prompt::new(PromptTemplate::Qwen25MathCot, "Q?") };
    assert!(prompt.text(Some(&chat)).unwrap().ends_with("<|im_start|>assistant\nTo"));
    let system = Some("Be brief.");
    let prompt = Prompt { system, ..Prompt::new(PromptTemplate::Chat, "Q?") };
    assert!(prompt.text(Some(&chat)).unwrap().starts_with("<|im_start|>system\nBe brief.<|im_end|>\n"));
    let error = prompt.text(None).unwrap_err().to_string();
    assert!(error.contains("no chat template"), "{error}");
    let prompt = Prompt { system, ..Prompt::new(PromptTemplate::QwenBoxed, "Q?") };
    let error = prompt.text(None).unwrap_err().to_string();
    assert!(error.contains("`qwen-boxed`: fixes its system message"), "{error}");
}

/// Llama 3.2's template writes the day; a recipe's prompt is the same on every day.
#[test]
fn prompts_do_not_depend_on_the_day() {
    let template = ChatTemplate::new(published("llama3_2"), Map::new(), "llama3_2").unwrap();
    assert!(template.uses_date() && !qwen().uses_date());
    let prompt = Prompt::new(PromptTemplate::Chat, "Q?");
    assert!(prompt.text(Some(&template)).unwrap().contains("\nToday Date: 26 Jul 2024\n"));
    let variables = json!({"date_string": "1 Jan 2025"});
    let prompt = Prompt { variables: variables.as_object(), ..prompt };
    assert!(prompt.text(Some(&template)).unwrap().contains("\nToday Date: 1 Jan 2025\n"));
}

#[test]
fn names_are_those_of_recipes() {
    for template in PromptTemplate::ALL {
        assert_eq!(serde_json::to_value(template).unwrap(), json!(template.name()));
        assert_eq!(serde_json::from_value::<PromptTemplate>(json!(template.name())).unwrap(), template);
    }
    assert_eq!(
        serde_json::from_value::<PromptTemplate>(json!("cot")).unwrap(),
        PromptTemplate::QuestionAnswer
    );
}
