//! Stage kinds described for people.

use serde_json::Value as Json;

use crate::kind::{KindEntry, Registry};
use crate::manifest::Settings;

use super::params::{Param, Reader};

/// Columns that text is wrapped to.
const WIDTH: usize = 96;

/// All kinds, a line each, and the settings that stages of every kind have.
pub fn overview(registry: &Registry) -> String {
    let mut text = String::from("Stage kinds:\n");
    let longest = registry.iter().map(|kind| kind.name.len()).max().unwrap_or(0);
    for kind in registry.iter() {
        let schema = (kind.schema)().to_value();
        let doc = Reader::new(&schema).doc(&schema);
        let line = doc.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let name = format!("  {:longest$}  ", kind.name);
        wrapped(&mut text, &name, &" ".repeat(longest + 4), &line);
    }
    text.push_str("\nSettings of every stage, beside the params of its kind:\n");
    let schema = schemars::schema_for!(Settings).to_value();
    let reader = Reader::new(&schema);
    for param in reader.params(&schema) {
        describe(&mut text, &reader, &param, 2);
    }
    text.push_str("\n`pipeline kinds KIND` lists a kind's params.\n");
    text
}

/// One kind with its params: types, defaults, documentation.
pub fn describe_kind(kind: &KindEntry) -> String {
    let schema = (kind.schema)().to_value();
    let reader = Reader::new(&schema);
    let mut text = format!("kind = \"{}\" (version {})\n\n", kind.name, kind.version);
    paragraphs(&mut text, reader.doc(&schema), 0);
    let params = reader.params(&schema);
    text.push_str(if params.is_empty() { "\nIt has no params.\n" } else { "\nParams:\n" });
    for param in params {
        describe(&mut text, &reader, &param, 2);
    }
    text
}

/// The params of a kind as JSON Schema, as the kind itself has it.
pub fn kind_json(kind: &KindEntry) -> Json {
    serde_json::json!({
        "kind": kind.name,
        "version": kind.version,
        "params": (kind.schema)().to_value(),
    })
}

fn describe(text: &mut String, reader: &Reader<'_>, param: &Param<'_>, indent: usize) {
    let pad = " ".repeat(indent);
    let default = match param.default.as_deref() {
        None => "  (required)".to_owned(),
        Some("") => "  (optional)".to_owned(),
        Some(default) => format!("  = {default}"),
    };
    text.push_str(&format!("{pad}{}: {}{default}\n", param.name, param.kind));
    paragraphs(text, param.doc, indent + 4);
    for (tag, doc, table) in &param.tables {
        let indent = if tag.is_empty() {
            indent + 4
        } else {
            text.push_str(&format!("{pad}    {tag}\n"));
            paragraphs(text, doc, indent + 8);
            indent + 8
        };
        for param in reader.params(table) {
            describe(text, reader, &param, indent);
        }
    }
}

fn paragraphs(text: &mut String, doc: &str, indent: usize) {
    let pad = " ".repeat(indent);
    for paragraph in doc.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        wrapped(text, &pad, &pad, &paragraph.replace('\n', " "));
    }
}

fn wrapped(text: &mut String, first: &str, rest: &str, line: &str) {
    let options = textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent(rest);
    let options = options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    text.push_str(textwrap::fill(line, options).trim_end());
    text.push('\n');
}
