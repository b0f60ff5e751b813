//! The top level of a manifest: what it says about the experiment, its arms and its axes.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::axis::AxisValues;
use super::names;
use super::node::{Entry, Node, Table, Value};
use super::problem::{Problem, Problems};
use super::suggest::remedy;
use super::vars::{Globals, Scope};

/// Keys of the top level.
pub(crate) const TOP_KEYS: [&str; 12] = [
    "name",
    "title",
    "seed",
    "extends",
    "without",
    "vars",
    "arm",
    "matrix",
    "defaults",
    "stage",
    "claims",
    "deviations",
];

/// Variables that exist without being written.
const BUILTIN: [&str; 7] = ["name", "title", "seed", "claims", "deviations", "arms", "arm"];

/// What is compared.
pub(crate) struct Arm<'a> {
    pub name: &'a str,
    pub label: String,
    /// Params of its own, by stage.
    pub overrides: Vec<(&'a str, &'a Entry)>,
}

/// The checked top level.
pub(crate) struct Document<'a> {
    pub name: String,
    pub title: String,
    pub arms: Vec<Arm<'a>>,
    pub defaults: Vec<(&'a str, &'a Entry)>,
    pub stages: Vec<(&'a str, &'a Entry)>,
    pub globals: Globals,
    pub claims: Json,
    pub deviations: Json,
    /// The axis `arm`, if there are arms.
    pub arm_axis: Option<Arc<AxisValues>>,
    /// The axes of `[matrix]`, in its order.
    pub matrix: Vec<Arc<AxisValues>>,
}

impl<'a> Document<'a> {
    /// Reads the top level; what is wrong is reported and left out.
    pub fn read(root: &'a Table, problems: &mut Problems) -> Self {
        for (key, entry) in root {
            if !TOP_KEYS.contains(&key.as_str()) {
                problems.push(
                    Problem::new(
                        "unknown-key",
                        format!("unknown key `{key}` at the top of a manifest"),
                        remedy(key, "known keys", TOP_KEYS),
                    )
                    .at(entry.key, "unknown"),
                );
            }
        }
        let name = match root.get("name") {
            Some(entry) => text("name", &entry.node, problems).unwrap_or_default(),
            None => {
                let problem = Problem::new(
                    "missing-key",
                    "the experiment has no name",
                    "add `name = \"my-experiment\"` at the top of the manifest",
                );
                problems.push(match root.values().next() {
                    Some(first) => problem.at(first.key, "before this"),
                    None => problem,
                });
                String::new()
            }
        };
        if let Some(entry) = root.get("name").filter(|entry| entry.node.text().is_some()) {
            names::check_experiment(&name, entry.node.span, problems);
        }
        let title = root
            .get("title")
            .and_then(|entry| text("title", &entry.node, problems))
            .unwrap_or_else(|| name.clone());
        let seed = root.get("seed").map(|entry| match entry.node.value {
            Value::Int(seed) => Some(json!(seed)),
            Value::Big(seed) => Some(json!(seed)),
            _ => {
                problems.push(wrong_type("seed", &entry.node, "a whole number", "seed = 17"));
                None
            }
        });
        let arms = read_arms(root, problems);
        let vars = entries(root, "vars", problems);
        for (name, entry) in &vars {
            if BUILTIN.contains(name) {
                problems.push(
                    Problem::new(
                        "bad-name",
                        format!("`{name}` is a built-in variable"),
                        "give yours another name",
                    )
                    .at(entry.key, "built in"),
                );
            }
        }
        let free = |key: &'static str, problems: &mut Problems| {
            entries(root, key, problems);
            root.get(key).map(|entry| (key, &entry.node)).into_iter()
        };
        let claims = free("claims", problems);
        let deviations = free("deviations", problems);
        let arm_list = arms.iter().map(|arm| json!({"name": arm.name, "label": arm.label}));
        let mut builtin = vec![
            ("name", Some(json!(name))),
            ("title", Some(json!(title))),
            ("claims", Some(json!({}))),
            ("deviations", Some(json!({}))),
            ("arms", Some(arm_list.collect())),
        ];
        builtin.extend(seed.map(|seed| ("seed", seed)));
        let written = vars
            .iter()
            .filter(|(name, _)| !BUILTIN.contains(name))
            .map(|(name, entry)| (*name, &entry.node))
            .chain(claims)
            .chain(deviations);
        let globals = Globals::new(builtin, written, problems);
        let global = |name: &str| globals.get(name).cloned().unwrap_or_else(|| json!({}));
        Self {
            arm_axis: (!arms.is_empty()).then(|| {
                let names = arms.iter().map(|arm| json!(arm.name));
                Arc::new(AxisValues::new("arm", names.collect()))
            }),
            matrix: read_matrix(root, &globals, problems),
            defaults: entries(root, "defaults", problems),
            stages: entries(root, "stage", problems),
            claims: global("claims"),
            deviations: global("deviations"),
            name,
            title,
            arms,
            globals,
        }
    }
}

/// The entries of the table at `key`; reports anything else that stands there.
fn entries<'a>(root: &'a Table, key: &str, problems: &mut Problems) -> Vec<(&'a str, &'a Entry)> {
    match root.get(key) {
        None => Vec::new(),
        Some(entry) => match &entry.node.value {
            Value::Table(table) => table.iter().map(|(name, e)| (name.as_str(), e)).collect(),
            _ => {
                let example = match key {
                    "stage" => "[stage.NAME]",
                    "arm" => "[arm.NAME]",
                    "defaults" => "[defaults.KIND]",
                    "matrix" => "[matrix]",
                    "vars" => "[vars]",
                    _ => "[claims]",
                };
                problems.push(wrong_type(key, &entry.node, "a table", example));
                Vec::new()
            }
        },
    }
}

fn read_arms<'a>(root: &'a Table, problems: &mut Problems) -> Vec<Arm<'a>> {
    let tables = entries(root, "arm", problems);
    names::check_clashes("arms", tables.iter().map(|(name, entry)| (*name, entry.key)), problems);
    let mut arms = Vec::with_capacity(tables.len());
    for (name, entry) in tables {
        names::check("an arm", name, entry.key, problems);
        let mut arm = Arm { name, label: name.to_owned(), overrides: Vec::new() };
        let Some(table) = entry.node.table() else {
            problems.push(wrong_type(
                &format!("arm.{name}"),
                &entry.node,
                "a table",
                &format!("[arm.{name}]"),
            ));
            arms.push(arm);
            continue;
        };
        for (key, entry) in table {
            if key == "label" {
                if let Some(label) = text("label", &entry.node, problems) {
                    arm.label = label;
                }
            } else if entry.node.table().is_some() {
                arm.overrides.push((key, entry));
            } else {
                problems.push(
                    Problem::new(
                        "unknown-key",
                        format!("unknown key `{key}` in an arm"),
                        format!(
                            "an arm holds `label` and one table per stage whose params it changes: [arm.{name}.STAGE]"
                        ),
                    )
                    .at(entry.key, "neither `label` nor a stage's params"),
                );
            }
        }
        arms.push(arm);
    }
    arms
}

fn read_matrix(root: &Table, globals: &Globals, problems: &mut Problems) -> Vec<Arc<AxisValues>> {
    let scope = Scope { globals, locals: &[] };
    let axes = entries(root, "matrix", problems);
    names::check_clashes("axes", axes.iter().map(|(name, entry)| (*name, entry.key)), problems);
    let mut matrix = Vec::new();
    for (name, entry) in axes {
        names::check("an axis", name, entry.key, problems);
        if name != "seed" && (globals.get(name).is_some() || name == "arm") {
            problems.push(
                Problem::new(
                    "bad-name",
                    format!("`{name}` is already a variable, so it cannot be an axis"),
                    "give the axis another name",
                )
                .at(entry.key, "taken"),
            );
            continue;
        }
        let Some(value) = scope.resolve(&entry.node, problems) else {
            continue;
        };
        let values = match value {
            Json::Array(values) if !values.is_empty() => values,
            _ => {
                problems.push(
                    Problem::new(
                        "wrong-type",
                        format!("the axis `{name}` must be an array with at least one value"),
                        format!("write {name} = [1, 2, 3]"),
                    )
                    .at(entry.node.span, "not a list of values"),
                );
                continue;
            }
        };
        let axis = AxisValues::new(name, values);
        let place = |index: usize| match &entry.node.value {
            Value::Array(items) => items.get(index).map_or(entry.node.span, |item| item.span),
            _ => entry.node.span,
        };
        for (index, value) in axis.values.iter().enumerate() {
            if value.is_object() || value.is_array() || value.is_null() {
                problems.push(
                    Problem::new(
                        "wrong-type",
                        format!("a value of the axis `{name}` is not a plain value"),
                        "use strings, numbers or booleans; they become part of stage names",
                    )
                    .at(place(index), "not plain"),
                );
            } else {
                names::check("a value", &axis.texts[index], place(index), problems);
            }
        }
        let texts = axis.texts.iter().enumerate();
        let placed = texts.map(|(index, text)| (text.as_str(), place(index)));
        names::check_clashes("values", placed, problems);
        matrix.push(Arc::new(axis));
    }
    matrix
}

/// The text at `key`, or a report.
pub(crate) fn text(key: &str, node: &Node, problems: &mut Problems) -> Option<String> {
    match node.text() {
        Some(text) => Some(text.to_owned()),
        None => {
            problems.push(wrong_type(key, node, "a string", &format!("{key} = \"…\"")));
            None
        }
    }
}

/// A value of the wrong type.
pub(crate) fn wrong_type(key: &str, node: &Node, wanted: &str, example: &str) -> Problem {
    let found = node.describe();
    Problem::new("wrong-type", format!("`{key}` must be {wanted}, not {found}"), format!("write {example}"))
        .at(node.span, found)
}
