//! What a JSON Schema says about params, in words.

use serde_json::{Map, Value as Json};

/// A param as people see it.
pub(crate) struct Param<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type in words: `whole number`, `list of strings`.
    pub kind: String,
    /// What it is when not written: a TOML value, `None` when it must be written, `Some("")` when
    /// it may be left out and then is absent.
    pub default: Option<String>,
    /// Its documentation.
    pub doc: &'a str,
    /// Tables it may hold: the tag (`type = "lora"`, or nothing), documentation and schema of each.
    pub tables: Vec<(String, &'a str, &'a Json)>,
}

/// A schema with the document its references point into.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    root: &'a Json,
}

impl<'a> Reader<'a> {
    /// A reader of the schema document `root`.
    pub fn new(root: &'a Json) -> Self {
        Self { root }
    }

    /// The params of a table, those that must be written first.
    pub fn params(&self, table: &'a Json) -> Vec<Param<'a>> {
        let required = |name: &str| {
            let names = table.get("required").and_then(Json::as_array);
            names.is_some_and(|names| names.iter().any(|required| required == name))
        };
        let properties = table.get("properties").and_then(Json::as_object);
        let mut params: Vec<Param<'a>> = properties
            .into_iter()
            .flatten()
            .filter(|(_, schema)| schema.get("const").is_none())
            .map(|(name, schema)| Param {
                name,
                kind: self.kind(schema),
                default: match schema.get("default") {
                    _ if required(name) => None,
                    Some(default) => Some(toml_value(default)),
                    None => Some(String::new()),
                },
                doc: self.doc(schema),
                tables: self.tables(schema),
            })
            .collect();
        params.sort_by_key(|param| param.default.is_some());
        params
    }

    /// A schema's documentation, or that of what it refers to.
    pub fn doc(&self, schema: &'a Json) -> &'a str {
        let own = schema.get("description").and_then(Json::as_str);
        own.or_else(|| self.follow(schema).get("description")?.as_str()).unwrap_or_default()
    }

    fn follow(&self, mut schema: &'a Json) -> &'a Json {
        while let Some(name) = schema.get("$ref").and_then(Json::as_str) {
            match name.strip_prefix('#').and_then(|at| self.root.pointer(at)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// The alternatives of a schema without `null`; itself when it has none.
    fn alternatives(&self, schema: &'a Json) -> Vec<&'a Json> {
        let schema = self.follow(schema);
        let listed = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array);
        match listed {
            None => vec![schema],
            Some(list) => list
                .iter()
                .filter(|one| one.get("type").and_then(Json::as_str) != Some("null"))
                .flat_map(|one| self.alternatives(one))
                .collect(),
        }
    }

    fn tables(&self, schema: &'a Json) -> Vec<(String, &'a str, &'a Json)> {
        let inner = match self.follow(schema).get("items") {
            Some(items) => items,
            None => schema,
        };
        self.alternatives(inner)
            .into_iter()
            .filter(|one| one.get("properties").is_some())
            .map(|one| {
                let tags = one.get("properties").and_then(Json::as_object).into_iter().flatten();
                let tags =
                    tags.filter_map(|(name, schema)| Some(format!("{name} = {}", schema.get("const")?)));
                (tags.collect::<Vec<_>>().join(", "), self.doc(one), one)
            })
            .collect()
    }

    fn kind(&self, schema: &'a Json) -> String {
        match reference_kind(schema) {
            Some(name) => return name.to_owned(),
            None if schema.get("anyOf").is_some() => {}
            None => {}
        }
        let alternatives = self.alternatives_named(schema);
        let mut names: Vec<String> = Vec::new();
        for name in alternatives {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "anything".to_owned() } else { names.join(" or ") }
    }

    fn alternatives_named(&self, schema: &'a Json) -> Vec<String> {
        if let Some(name) = reference_kind(schema) {
            return vec![name.to_owned()];
        }
        let schema = self.follow(schema);
        let listed = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array);
        if let Some(list) = listed {
            return list.iter().flat_map(|one| self.alternatives_named(one)).collect();
        }
        if let Some(Json::Array(choices)) = schema.get("enum") {
            return choices.iter().filter(|c| !c.is_null()).map(Json::to_string).collect();
        }
        if let Some(only) = schema.get("const") {
            return vec![only.to_string()];
        }
        let types = schema.get("type");
        let one = types.and_then(Json::as_str).into_iter();
        let many = types.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        one.chain(many).filter(|name| *name != "null").map(|name| self.plain(name, schema)).collect()
    }

    fn plain(&self, name: &str, schema: &'a Json) -> String {
        match name {
            "boolean" => "true or false".to_owned(),
            "integer" => "whole number".to_owned(),
            "object" => match schema.get("additionalProperties") {
                Some(Json::Object(_)) => {
                    let values = schema.get("additionalProperties").map(|values| self.kind(values));
                    format!("table of {}", plural(&values.unwrap_or_default()))
                }
                _ => "table".to_owned(),
            },
            "array" => match schema.get("items") {
                Some(items) => format!("list of {}", plural(&self.kind(items))),
                None => "list".to_owned(),
            },
            other => other.to_owned(),
        }
    }
}

fn reference_kind(schema: &Json) -> Option<&'static str> {
    match schema.get("$ref")?.as_str()? {
        "#/$defs/Input" => Some("reference"),
        "#/$defs/Inputs" => Some("references"),
        _ => None,
    }
}

fn plural(name: &str) -> String {
    match name {
        "anything" | "references" => name.to_owned(),
        "true or false" => "booleans".to_owned(),
        _ if name.contains(' ') && !name.starts_with("whole") || name.contains('"') => format!("({name})"),
        _ => format!("{name}s"),
    }
}

/// A JSON value as TOML would have it, on one line; nothing for `null`.
pub(crate) fn toml_value(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::Object(map) if map.len() == 1 && map.contains_key(crate::kind::INPUT_MARK) => {
            map[crate::kind::INPUT_MARK].to_string()
        }
        Json::Object(map) => inline_table(map),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_value).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

fn inline_table(map: &Map<String, Json>) -> String {
    let entries: Vec<String> = map
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| format!("{name} = {}", toml_value(value)))
        .collect();
    if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
}
