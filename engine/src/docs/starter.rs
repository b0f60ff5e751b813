//! A manifest to begin with, written from the registered kinds so that it never goes stale.

use std::fmt::Write;

use crate::kind::{KindEntry, Registry};

use super::params::{Param, Reader};

const HEAD: &str = r#"#:schema ./manifest.schema.json
# (`pipeline schema > manifest.schema.json` writes the schema for your editor.)
#
# Check it:  pipeline check FILE
# Plan it:   pipeline plan FILE
# Run it:    pipeline run FILE        (again after a change: only what depends on it runs)

name = "NAME"
title = "What this experiment asks"
seed = 17                       # known as "${seed}"

# Values used in several places, as "${questions}", or inside text: "first-${questions}".
# Change one for a run with --set questions=5
[vars]
questions = 20

# What is compared, in this order. An arm may change params of stages that fan out over arms.
# [arm.base]
# label = "Base"
# [arm.lora]
# label = "LoRA"
# [arm.lora.train]              # params of [stage.train] for this arm only
# lr = 2e-4

# Further axes: stages with foreach = ["arm", "seed"] have an instance for each combination.
# [matrix]
# seed = [1, 2, 3]

# The published numbers, and what this recipe does differently; both reach the report.
# [claims]
# [deviations]

# Stages. References order them: "@data" is the output of [stage.data], "@data/train.jsonl" a file
# in it; inside a stage that fans out, "@train" is the instance of the same arm; "@eval[lora]" is one
# instance, "@eval[*]" all of them; "./questions.jsonl" is a file beside this manifest.
#
# Settings of any stage: foreach = ["arm"], arms = ["lora"], timeout = "2h", retries = 2,
# resources = { gpus = 1, memory = "8GB" }, cache = false, publish = "table".
"#;

/// The text of a starter manifest: a first kind that runs as it is, with its output published, as a
/// live stage, all others as comments.
pub fn starter(name: &str, registry: &Registry) -> String {
    let mut text = HEAD.replace("NAME\"", &format!("{name}\""));
    let free = registry.iter().find(|kind| runs_as_it_is(kind));
    if let Some(kind) = free {
        block(&mut text, kind, "");
        let publish = format!("publish = \"{}\"", kind.name);
        let _ = writeln!(text, "{publish:<32}# Copied to results/{name}/{}/.", kind.name);
    }
    for kind in registry.iter().filter(|kind| free.is_none_or(|free| free.name != kind.name)) {
        block(&mut text, kind, "# ");
    }
    text
}

/// True if a stage of the kind needs no params, nobody's leave, and leaves something.
fn runs_as_it_is(kind: &KindEntry) -> bool {
    let stage = (kind.parse)(&serde_json::json!({}));
    stage.is_ok_and(|stage| !stage.needs_trust() && stage.check().is_empty() && !stage.outputs().is_empty())
}

fn block(text: &mut String, kind: &KindEntry, comment: &str) {
    let schema = (kind.schema)().to_value();
    let reader = Reader::new(&schema);
    text.push('\n');
    for line in reader.doc(&schema).lines().take_while(|line| !line.is_empty()) {
        let _ = writeln!(text, "# {line}");
    }
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{comment}[stage.{}]", kind.name);
    let _ = writeln!(text, "{comment}kind = \"{}\"", kind.name);
    for param in reader.params(&schema) {
        let _ = writeln!(text, "{}", line(&param, comment));
    }
}

fn line(param: &Param<'_>, comment: &str) -> String {
    let doc = param.doc.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let (comment, assignment, note) = match param.default.as_deref() {
        None => (comment, format!("{} = {}", param.name, example(param)), "(required) "),
        Some("") => ("# ", format!("{} = {}", param.name, example(param)), "(optional) "),
        Some(default) => ("# ", format!("{} = {default}", param.name), ""),
    };
    format!("{:<32}# {note}{doc}", format!("{comment}{assignment}"))
}

fn example(param: &Param<'_>) -> String {
    if let Some((tag, ..)) = param.tables.iter().find(|(tag, ..)| !tag.is_empty()) {
        return format!("{{ {tag} }}");
    }
    match param.kind.as_str() {
        "reference" => "\"@stage\"",
        "references" => "\"@stage[*]\"",
        "string" => "\"…\"",
        "whole number" => "1",
        "number" => "0.5",
        "true or false" => "true",
        kind if kind.starts_with("list") => "[]",
        kind if kind.starts_with('"') => kind.split(" or ").next().unwrap_or(kind),
        _ => "{}",
    }
    .to_owned()
}
