//! Variables: `"${name}"` takes a value, `"${name.key}"` one below it, `"${name[other]}"` the one that
//! `other` names, `"x-${name}"` takes its text, `"$${"` is a plain `${`.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::axis;
use super::node::{Node, Table, Value};
use super::problem::{Problem, Problems};
use super::source::Span;
use super::suggest::remedy;

/// How deeply variables may refer to each other.
const MAX_DEPTH: usize = 64;

/// A variable known to the whole manifest.
enum Global<'a> {
    Written(&'a Node),
    Active,
    /// `None`: it is wrong, which has been said.
    Known(Option<Json>),
}

/// Variables known to the whole manifest, by name.
pub(crate) struct Globals {
    values: HashMap<String, Option<Json>>,
    /// The written ones, as they stand in the file.
    written: HashMap<String, Node>,
}

/// Variables that a stage sees: its own (its arm, its point of the matrix), then the global ones.
pub(crate) struct Scope<'a> {
    /// The global ones.
    pub globals: &'a Globals,
    /// The stage's own.
    pub locals: &'a [(&'a str, &'a Json)],
}

impl Globals {
    /// Evaluates the built-in variables and `[vars]`, which may refer to each other. A built-in one
    /// without a value is there, but wrong, which has been reported.
    pub fn new<'a>(
        builtin: Vec<(&'a str, Option<Json>)>,
        written: impl IntoIterator<Item = (&'a str, &'a Node)>,
        problems: &mut Problems,
    ) -> Self {
        let mut state: HashMap<&str, Global<'a>> =
            builtin.into_iter().map(|(name, value)| (name, Global::Known(value))).collect();
        let written: Vec<_> = written.into_iter().collect();
        for (name, node) in &written {
            state.insert(name, Global::Written(node));
        }
        let kept = written.iter().map(|(name, node)| ((*name).to_owned(), (*node).clone())).collect();
        for (name, _) in written {
            evaluate(name, &mut state, &mut Vec::new(), problems);
        }
        let values = state
            .into_iter()
            .map(|(name, value)| match value {
                Global::Known(value) => (name.to_owned(), value),
                _ => (name.to_owned(), None),
            })
            .collect();
        Self { values, written: kept }
    }

    /// Where a variable's value is written, if it is.
    pub fn span(&self, name: &str) -> Option<Span> {
        self.written.get(name).map(|node| node.span)
    }

    /// Writes out the variables that a table is about to be laid over: `prompt = "${prompt}"` with
    /// `{ shots = 2 }` on top means the variable's table with that change, not that table alone.
    pub fn write_out(&self, base: &mut Table, over: &Table) {
        for (name, entry) in base {
            let Some(over) = over.get(name).and_then(|entry| entry.node.table()) else { continue };
            if let Some(table) = self.table(&entry.node) {
                entry.node = table.clone();
            }
            if let Value::Table(base) = &mut entry.node.value {
                self.write_out(base, over);
            }
        }
    }

    /// The table that a text such as `${name}` or `${name.key}` stands for, as it is written.
    fn table<'a>(&'a self, node: &'a Node) -> Option<&'a Node> {
        let mut node = node;
        for _ in 0..MAX_DEPTH {
            let path = node.text()?.strip_prefix("${")?.strip_suffix('}')?;
            let mut keys = path.split('.').map(str::trim);
            node = self.written.get(keys.next()?)?;
            for key in keys {
                node = &node.table()?.get(key)?.node;
            }
            if node.table().is_some() {
                return Some(node);
            }
        }
        None
    }

    /// The value of a variable, unless it is unknown or wrong.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.values.get(name)?.as_ref()
    }
}

/// Evaluates a global variable; `path` holds the ones being evaluated.
fn evaluate<'a>(
    name: &'a str,
    state: &mut HashMap<&'a str, Global<'a>>,
    path: &mut Vec<(&'a str, Span)>,
    problems: &mut Problems,
) {
    let Some(Global::Written(node)) = state.get(name) else {
        return;
    };
    let node = *node;
    state.insert(name, Global::Active);
    path.push((name, node.span));
    let mut lookup = |wanted: &str, span: Span, problems: &mut Problems| {
        let Some((&wanted_name, _)) = state.get_key_value(wanted) else {
            problems.push(unknown(wanted, span, state.keys().copied(), &[]));
            return None;
        };
        if let Some(at) = path.iter().position(|(name, _)| *name == wanted_name) {
            let mut names: Vec<&str> = path[at..].iter().map(|(name, _)| *name).collect();
            names.push(wanted_name);
            problems.push(
                Problem::new(
                    "variable-cycle",
                    format!("variables refer to each other: {}", names.join(" → ")),
                    "write one of them out",
                )
                .at(span, "leads back"),
            );
            return None;
        }
        if path.len() >= MAX_DEPTH {
            problems.push(
                Problem::new(
                    "variable-depth",
                    format!("variables refer to each other more than {MAX_DEPTH} deep"),
                    "write some of them out",
                )
                .at(span, "too deep"),
            );
            return None;
        }
        evaluate(wanted_name, state, path, problems);
        match state.get(wanted_name) {
            Some(Global::Known(value)) => value.clone(),
            _ => None,
        }
    };
    let value = substitute(node, &mut lookup, problems);
    path.pop();
    state.insert(name, Global::Known(value));
}

impl Scope<'_> {
    /// A value with its variables filled in. `None` when one is wrong, which has been reported.
    pub fn resolve(&self, node: &Node, problems: &mut Problems) -> Option<Json> {
        substitute(node, &mut |name, span, problems| self.lookup(name, span, problems), problems)
    }

    /// As [`Scope::resolve`], for a table without the keys that `skip` names.
    pub fn resolve_table(
        &self,
        table: &Table,
        skip: impl Fn(&str) -> bool,
        problems: &mut Problems,
    ) -> Option<Map<String, Json>> {
        let mut map = Map::with_capacity(table.len());
        let mut whole = true;
        for (name, entry) in table {
            if skip(name) {
                continue;
            }
            match self.resolve(&entry.node, problems) {
                Some(value) => {
                    map.insert(name.clone(), value);
                }
                None => whole = false,
            }
        }
        whole.then_some(map)
    }

    fn lookup(&self, name: &str, span: Span, problems: &mut Problems) -> Option<Json> {
        if let Some((_, value)) = self.locals.iter().find(|(local, _)| *local == name) {
            return Some((*value).clone());
        }
        match self.globals.values.get(name) {
            Some(value) => value.clone(),
            None => {
                let globals = self.globals.values.keys().map(String::as_str);
                problems.push(unknown(name, span, globals, self.locals));
                None
            }
        }
    }
}

fn unknown<'a>(
    name: &str,
    span: Span,
    globals: impl Iterator<Item = &'a str>,
    locals: &'a [(&'a str, &'a Json)],
) -> Problem {
    let help = match name {
        "seed" => "add `seed = 17` at the top of the manifest".to_owned(),
        "arm" => "`arm` is known in stages that say foreach = [\"arm\"]".to_owned(),
        _ => {
            let mut known: Vec<&str> = globals.chain(locals.iter().map(|(name, _)| *name)).collect();
            known.sort_unstable();
            remedy(name, "variables", known)
        }
    };
    Problem::new("unknown-variable", format!("there is no variable `{name}`"), help)
        .at(span, "unknown variable")
}

type Lookup<'l> = dyn FnMut(&str, Span, &mut Problems) -> Option<Json> + 'l;

fn substitute(node: &Node, lookup: &mut Lookup<'_>, problems: &mut Problems) -> Option<Json> {
    Some(match &node.value {
        Value::Text(text) if text.contains("${") => {
            return substitute_text(text, node.span, lookup, problems);
        }
        Value::Text(text) => Json::String(text.clone()),
        Value::Int(int) => Json::from(*int),
        Value::Big(big) => Json::from(*big),
        Value::Float(float) => Json::from(*float),
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Array(items) => {
            // Every item is looked at, so that every mistake is found.
            let values: Vec<_> = items.iter().map(|item| substitute(item, lookup, problems)).collect();
            Json::Array(values.into_iter().collect::<Option<_>>()?)
        }
        Value::Table(table) => {
            let values: Vec<_> = table
                .iter()
                .map(|(name, entry)| {
                    let value = substitute(&entry.node, lookup, problems);
                    value.map(|value| (name.clone(), value))
                })
                .collect();
            Json::Object(values.into_iter().collect::<Option<_>>()?)
        }
    })
}

fn substitute_text(text: &str, span: Span, lookup: &mut Lookup<'_>, problems: &mut Problems) -> Option<Json> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let Some(length) = rest[at..].find('}') else {
            problems.push(
                Problem::new("bad-variable", "`${` without `}`", "close it, or write `$${` for a plain `${`")
                    .at(span, "not closed"),
            );
            return None;
        };
        let path = rest[at + 2..at + length].trim();
        let value = descend(path, span, lookup, problems)?;
        if at == 0 && length + 1 == text.len() {
            return Some(value);
        }
        out.push_str(&rest[..at]);
        match value {
            Json::String(text) => out.push_str(&text),
            Json::Number(_) | Json::Bool(_) => out.push_str(&axis::text(&value)),
            _ => {
                problems.push(
                    Problem::new(
                        "bad-variable",
                        format!("`{path}` is not text, so it cannot stand inside text"),
                        format!("use it alone: \"${{{path}}}\""),
                    )
                    .at(span, "mixed with text"),
                );
                return None;
            }
        }
        rest = &rest[at + length + 1..];
    }
    out.push_str(rest);
    Some(Json::String(out))
}

/// `claims.base.math500`: the variable `claims`, then keys below it. `models[base].prompt`: the key
/// below `models` that is the value of the variable `base`.
fn descend(path: &str, span: Span, lookup: &mut Lookup<'_>, problems: &mut Problems) -> Option<Json> {
    let mut keys = path.split('.').flat_map(|part| part.split_inclusive('['));
    let mut value = lookup(keys.next().unwrap_or_default().trim_end_matches('['), span, problems)?;
    for part in keys {
        let chosen = match part.strip_suffix(']') {
            Some(variable) => match lookup(variable.trim(), span, problems)? {
                Json::String(text) => Some(text),
                other @ (Json::Number(_) | Json::Bool(_)) => Some(axis::text(&other)),
                _ => {
                    problems.push(
                        Problem::new(
                            "bad-variable",
                            format!("`{path}`: `{variable}` is not text, so it cannot choose a key"),
                            "name a variable that holds a key, such as an axis of the matrix",
                        )
                        .at(span, "not text"),
                    );
                    return None;
                }
            },
            None => None,
        };
        let key = chosen.as_deref().unwrap_or(part.trim_end_matches('['));
        let Json::Object(mut map) = value else {
            problems.push(
                Problem::new(
                    "unknown-variable",
                    format!("`{path}`: nothing lies below the value before `{key}`"),
                    format!("end the variable before `{key}`"),
                )
                .at(span, "not a table"),
            );
            return None;
        };
        value = match map.swap_remove(key) {
            Some(next) => next,
            None => {
                problems.push(
                    Problem::new(
                        "unknown-variable",
                        format!("`{path}` has no `{key}`"),
                        remedy(key, "keys there", map.keys().map(String::as_str)),
                    )
                    .at(span, "unknown variable"),
                );
                return None;
            }
        };
    }
    Some(value)
}
