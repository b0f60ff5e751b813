//! Compares a value with a JSON Schema made by schemars and finds every mistake at its place.
//!
//! serde decides whether params are right, but it stops at the first mistake and words it for
//! programmers. This module is asked once serde has refused: it knows the part of JSON Schema that
//! schemars writes for params structs, and where it finds nothing serde's own message is shown.

use serde_json::{Map, Value as Json};

use super::node::Step;
use super::suggest::remedy;
use super::wording::{describe, phrase, type_help};

/// A mistake in a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Misfit {
    /// Where in the value; for a missing key, where it would be.
    pub path: Vec<Step>,
    /// Stable name of the class of mistake.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Every mistake of `value` against `schema`.
pub(crate) fn misfits(schema: &Json, value: &Json) -> Vec<Misfit> {
    let mut checker = Checker { root: schema, path: Vec::new(), found: Vec::new() };
    checker.check(schema, value);
    checker.found
}

/// The schema that `schema` refers to in `root`, or itself.
pub(crate) fn follow<'a>(root: &'a Json, mut schema: &'a Json) -> &'a Json {
    while let Some(name) = schema.get("$ref").and_then(Json::as_str) {
        match name.strip_prefix('#').and_then(|at| root.pointer(at)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// False when `value` carries the tag of another alternative than `schema`.
pub(crate) fn fits_tag(root: &Json, schema: &Json, value: &Json) -> bool {
    let properties = follow(root, schema).get("properties").and_then(Json::as_object);
    properties.into_iter().flatten().all(|(name, schema)| match (schema.get("const"), value.get(name)) {
        (Some(tag), Some(value)) => tag == value,
        _ => true,
    })
}

struct Checker<'a> {
    root: &'a Json,
    path: Vec<Step>,
    found: Vec<Misfit>,
}

impl<'a> Checker<'a> {
    fn report(&mut self, code: &'static str, message: String, help: String) {
        self.found.push(Misfit { path: self.path.clone(), code, message, help });
    }

    /// The name of the param being looked at.
    fn name(&self) -> String {
        super::node::show_path(&self.path)
    }

    fn check(&mut self, schema: &'a Json, value: &Json) {
        if schema.get("$ref").and_then(Json::as_str) == Some("#/$defs/Input") && !value.is_string() {
            self.not_a_reference(value);
            return;
        }
        let schema = follow(self.root, schema);
        let Some(keywords) = schema.as_object() else {
            return;
        };
        if let Some(wanted) = keywords.get("type")
            && !types(wanted).any(|name| has_type(value, name))
        {
            self.wrong_type(types(wanted).map(str::to_owned).collect(), value);
            let example = array(keywords, "examples").next();
            if let (Some(example), Some(last)) = (example, self.found.last_mut()) {
                let key = super::node::show_path(&self.path[self.path.len().saturating_sub(1)..]);
                last.help = format!("write {key} = {example}");
            }
            return;
        }
        if let Some(choices) = choices(keywords) {
            self.check_choice(&choices, value);
        }
        self.check_range(keywords, value);
        match value {
            Json::Object(map) => self.check_object(keywords, map),
            Json::Array(items) => self.check_array(keywords, items),
            _ => {}
        }
        for all in array(keywords, "allOf") {
            self.check(all, value);
        }
        for key in ["oneOf", "anyOf"] {
            if keywords.contains_key(key) {
                self.check_alternatives(array(keywords, key), value);
            }
        }
    }

    fn not_a_reference(&mut self, value: &Json) {
        let name = self.name();
        let key = name.rsplit('.').next().unwrap_or(&name);
        let help = match value {
            Json::Array(items) if items.len() == 1 => format!("write {key} = {}", items[0]),
            _ => format!("write {key} = \"@stage\", \"@stage/file\" or \"./file\""),
        };
        let message = format!("`{name}` must be one reference, not {}", describe(value));
        self.report("wrong-type", message, help);
    }

    fn wrong_type(&mut self, wanted: Vec<String>, value: &Json) {
        let name = self.name();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).filter(|name| *name != "null").collect();
        let phrases: Vec<&str> = wanted.iter().map(|name| phrase(name)).collect();
        self.report(
            "wrong-type",
            format!("`{name}` must be {}, not {}", phrases.join(" or "), describe(value)),
            type_help(&name, wanted.first().copied().unwrap_or_default(), value),
        );
    }

    fn check_choice(&mut self, choices: &[&Json], value: &Json) {
        if choices.contains(&value) {
            return;
        }
        let name = self.name();
        let shown: Vec<String> = choices.iter().map(|choice| choice.to_string()).collect();
        let help = match value.as_str() {
            Some(text) => remedy(text, "choices", choices.iter().filter_map(|c| c.as_str())),
            None => format!("choices: {}", shown.join(", ")),
        };
        self.report("unknown-choice", format!("`{name}` cannot be {value}"), help);
    }

    fn check_range(&mut self, keywords: &Map<String, Json>, value: &Json) {
        let Some(number) = value.as_f64() else { return };
        let limit = |key: &str| keywords.get(key).and_then(Json::as_f64);
        let bound = |key: &str| keywords.get(key).map(Json::to_string).unwrap_or_default();
        let complaint = if limit("minimum").is_some_and(|limit| number < limit) {
            format!("at least {}", bound("minimum"))
        } else if limit("maximum").is_some_and(|limit| number > limit) {
            format!("at most {}", bound("maximum"))
        } else if let Some(limit) = keywords.get("format").and_then(Json::as_str).and_then(top_of)
            && number > limit
        {
            format!("at most {limit}")
        } else if limit("exclusiveMinimum").is_some_and(|limit| number <= limit) {
            format!("more than {}", bound("exclusiveMinimum"))
        } else if limit("exclusiveMaximum").is_some_and(|limit| number >= limit) {
            format!("less than {}", bound("exclusiveMaximum"))
        } else {
            return;
        };
        let name = self.name();
        self.report(
            "out-of-range",
            format!("`{name}` is {value}, which is out of range"),
            format!("it must be {complaint}"),
        );
    }

    fn check_object(&mut self, keywords: &'a Map<String, Json>, map: &Map<String, Json>) {
        let properties = keywords.get("properties").and_then(Json::as_object);
        for (key, value) in map {
            self.path.push(Step::Key(key.clone()));
            match (
                properties.and_then(|properties| properties.get(key)),
                keywords.get("additionalProperties"),
            ) {
                (Some(schema), _) => self.check(schema, value),
                (None, Some(Json::Bool(false))) => {
                    let known = properties.into_iter().flat_map(Map::keys);
                    let help = remedy(key, "known params", known.map(String::as_str));
                    let name = self.name();
                    self.report("unknown-param", format!("unknown param `{name}`"), help);
                }
                (None, Some(schema)) => self.check(schema, value),
                (None, None) => {}
            }
            self.path.pop();
        }
        for key in array(keywords, "required").filter_map(Json::as_str) {
            if map.contains_key(key) {
                continue;
            }
            self.path.push(Step::Key(key.to_owned()));
            let name = self.name();
            let schema = properties.and_then(|properties| properties.get(key));
            let help = format!("add `{key} = {}`", schema.map_or("…", |s| self.example(s)));
            let doc = schema.and_then(|schema| self.doc(schema));
            self.report(
                "missing-param",
                format!("`{name}` is missing"),
                doc.map_or_else(|| help.clone(), |doc| format!("{help} ({doc})")),
            );
            self.path.pop();
        }
    }

    /// The first line of a param's documentation.
    fn doc(&self, schema: &'a Json) -> Option<&'a str> {
        let text = schema.get("description")?.as_str()?;
        Some(text.lines().next().unwrap_or_default().trim_end_matches('.'))
    }

    fn example(&self, schema: &'a Json) -> &'static str {
        match schema.get("$ref").and_then(Json::as_str) {
            Some("#/$defs/Input") => return "\"@stage\"",
            Some("#/$defs/Inputs") => return "\"@stage[*]\"",
            _ => {}
        }
        let schema = follow(self.root, schema);
        let mut names = schema.get("type").into_iter().flat_map(types);
        match names.find(|name| *name != "null") {
            Some("string") => "\"…\"",
            Some("array") => "[…]",
            Some("object") => "{ … }",
            Some("boolean") => "true",
            Some("integer") => "1",
            Some("number") => "0.5",
            _ => "…",
        }
    }

    fn check_array(&mut self, keywords: &'a Map<String, Json>, items: &[Json]) {
        let prefix: Vec<&Json> = array(keywords, "prefixItems").collect();
        for (index, item) in items.iter().enumerate() {
            let schema = prefix.get(index).copied().or_else(|| keywords.get("items"));
            if let Some(schema) = schema {
                self.path.push(Step::Index(index));
                self.check(schema, item);
                self.path.pop();
            }
        }
        let limit = |key: &str| keywords.get(key).and_then(Json::as_u64);
        let count = items.len() as u64;
        let help = if let Some(least) = limit("minItems").filter(|least| count < *least) {
            format!("it needs at least {least}")
        } else if let Some(most) = limit("maxItems").filter(|most| count > *most) {
            format!("it takes at most {most}")
        } else {
            return;
        };
        let name = self.name();
        self.report("out-of-range", format!("`{name}` has {count} items"), help);
    }

    fn check_alternatives(&mut self, alternatives: impl Iterator<Item = &'a Json>, value: &Json) {
        let alternatives: Vec<&'a Json> = alternatives
            .map(|alternative| follow(self.root, alternative))
            .filter(|schema| schema.get("type").and_then(Json::as_str) != Some("null"))
            .collect();
        if let [only] = alternatives[..] {
            self.check(only, value);
            return;
        }
        let all: Option<Vec<Vec<&Json>>> =
            alternatives.iter().map(|alternative| choices(alternative.as_object()?)).collect();
        if let Some(all) = all {
            self.check_choice(&all.concat(), value);
            return;
        }
        if let Json::Object(map) = value
            && let Some(tagged) = self.by_tag(&alternatives, map)
        {
            if let Some(alternative) = tagged {
                self.check(alternative, value);
            }
            return;
        }
        // The alternative that fits best speaks for all.
        let mut best: Option<Vec<Misfit>> = None;
        let mut wanted: Vec<String> = Vec::new();
        for alternative in alternatives {
            let mut trial = Checker { root: self.root, path: self.path.clone(), found: Vec::new() };
            trial.check(alternative, value);
            if trial.found.is_empty() {
                return;
            }
            let other_type = |m: &Misfit| m.code == "wrong-type" && m.path == self.path;
            if trial.found.iter().any(other_type) {
                wanted.extend(alternative.get("type").into_iter().flat_map(types).map(str::to_owned));
            } else if best.as_ref().is_none_or(|best| trial.found.len() < best.len()) {
                best = Some(trial.found);
            }
        }
        match best {
            Some(found) => self.found.extend(found),
            None => {
                wanted.dedup();
                self.wrong_type(wanted, value);
            }
        }
    }

    /// The alternative of an enum with a tag field that the value asks for. `Some(None)`: the tag
    /// is wrong or missing, which has been reported. `None`: these alternatives have no tag.
    fn by_tag(&mut self, alternatives: &[&'a Json], map: &Map<String, Json>) -> Option<Option<&'a Json>> {
        let first = alternatives.first()?.get("properties")?.as_object()?;
        let tag = first.iter().find_map(|(name, schema)| {
            schema.get("const")?;
            Some(name)
        })?;
        let constant = |schema: &'a Json| -> Option<&'a str> {
            schema.get("properties")?.get(tag)?.get("const")?.as_str()
        };
        let names: Vec<&str> = alternatives.iter().filter_map(|a| constant(a)).collect();
        if names.len() != alternatives.len() {
            return None;
        }
        let name = self.name();
        let Some(value) = map.get(tag) else {
            self.path.push(Step::Key(tag.clone()));
            let listed: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            self.report(
                "missing-param",
                format!("`{name}` does not say its `{tag}`"),
                format!("add {tag} = one of {}", listed.join(", ")),
            );
            self.path.pop();
            return Some(None);
        };
        let found = alternatives
            .iter()
            .find(|alternative| value.as_str().is_some() && constant(alternative) == value.as_str());
        if found.is_none() {
            self.path.push(Step::Key(tag.clone()));
            let text = value.as_str().unwrap_or_default();
            self.report(
                "unknown-choice",
                format!("`{name}.{tag}` cannot be {value}"),
                remedy(text, "choices", names),
            );
            self.path.pop();
        }
        Some(found.copied())
    }
}

/// The largest value of an integer format.
fn top_of(format: &str) -> Option<f64> {
    match format {
        "uint8" => Some(f64::from(u8::MAX)),
        "uint16" => Some(f64::from(u16::MAX)),
        "uint32" => Some(f64::from(u32::MAX)),
        "int32" => Some(f64::from(i32::MAX)),
        _ => None,
    }
}

fn array<'a>(keywords: &'a Map<String, Json>, key: &str) -> impl Iterator<Item = &'a Json> {
    keywords.get(key).and_then(Json::as_array).into_iter().flatten()
}

fn types(wanted: &Json) -> impl Iterator<Item = &str> {
    let one = wanted.as_str().into_iter();
    one.chain(wanted.as_array().into_iter().flatten().filter_map(Json::as_str))
}

/// The values that `enum` or `const` allow.
fn choices(keywords: &Map<String, Json>) -> Option<Vec<&Json>> {
    match (keywords.get("enum"), keywords.get("const")) {
        (Some(Json::Array(choices)), _) => Some(choices.iter().collect()),
        (_, Some(only)) => Some(vec![only]),
        _ => None,
    }
}

fn has_type(value: &Json, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => true,
    }
}
