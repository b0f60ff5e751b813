//! The JSON Schema of manifests, for editors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value as Json, json};

use crate::kind::{KindEntry, Registry};
use crate::manifest::Settings;

/// The top level of a manifest, as the schema shows it. [`crate::manifest`] reads it by hand, so
/// that each key keeps its place; a test compares the names.
#[derive(JsonSchema)]
#[schemars(title = "Pipeline manifest", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct Manifest {
    /// Name of the experiment, and of its folder under `results/`: lower-case letters, digits, `-`.
    #[schemars(regex(pattern = "^[a-z0-9][a-z0-9-]*$"))]
    name: String,
    /// Title of the report. Default: the name.
    title: Option<String>,
    /// Seed of the experiment, known as `${seed}`.
    seed: Option<u64>,
    /// A manifest, relative to this file, that this one is laid over, or several, of which later
    /// ones are laid over earlier ones: tables merge, everything else is replaced. Only a manifest
    /// that extends another may lack what the other has.
    extends: Option<OneOrSeveral>,
    /// Stages to leave out of everything that this manifest is laid over, with what arms say about
    /// them there; it may then define them anew.
    without: Option<OneOrSeveral>,
    /// Variables: `"${name}"` takes the value, `"${name.key}"` one below it, `"${name[axis]}"` the one
    /// that another variable names, `"x-${name}"` its text.
    vars: Option<BTreeMap<String, Json>>,
    /// What is compared, in this order.
    arm: Option<BTreeMap<String, Arm>>,
    /// Further axes that stages fan out over: name = [values].
    matrix: Option<BTreeMap<String, Json>>,
    /// Params that all stages of a kind share.
    defaults: Option<BTreeMap<String, Json>>,
    /// The stages. References between their params, such as `"@data/train.jsonl"`, order them.
    stage: Option<BTreeMap<String, Json>>,
    /// The numbers under test, known as `${claims}`.
    claims: Option<BTreeMap<String, Json>>,
    /// What this recipe does differently, known as `${deviations}`.
    deviations: Option<BTreeMap<String, Json>>,
}

/// A text, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

/// One thing that is compared.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Arm {
    /// Its name in reports. Default: the arm's name.
    label: Option<String>,
    /// Params of its own: one table per stage, laid over the stage's.
    #[schemars(flatten)]
    stages: BTreeMap<String, BTreeMap<String, Json>>,
}

/// The JSON Schema (draft 2020-12) of manifests with these kinds. Stage tables are told apart by
/// their `kind`. Since `[defaults]`, arms and base manifests complete a stage, no param is required
/// here; `pipeline check` knows.
pub fn manifest_schema(registry: &Registry) -> Json {
    let mut schema = schemars::schema_for!(Manifest).to_value();
    let mut defs = Map::new();
    let mut branches = Vec::new();
    let mut defaults = Map::new();
    for kind in registry.iter() {
        let name = kind.name;
        let params = kind_params(kind, &mut defs);
        defs.insert(format!("stage.{name}"), stage_table(kind, &params, true));
        defs.insert(format!("defaults.{name}"), stage_table(kind, &params, false));
        defaults.insert(name.to_owned(), json!({"$ref": format!("#/$defs/defaults.{name}")}));
        branches.push(json!({
            "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
            "then": {"$ref": format!("#/$defs/stage.{name}")},
        }));
    }
    let kinds: Vec<&str> = registry.iter().map(|kind| kind.name).collect();
    defs.insert(
        "stage".to_owned(),
        json!({
            "type": "object",
            "properties": {"kind": {"type": "string", "enum": kinds, "description": "What code runs."}},
            "required": ["kind"],
            "allOf": branches,
        }),
    );
    defs.insert("variable".to_owned(), variable());
    if let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) {
        let table = |key: &str, properties: &mut Map<String, Json>, keywords: Json| {
            if let (Some(Json::Object(slot)), Json::Object(keywords)) = (properties.get_mut(key), keywords) {
                slot.insert("type".to_owned(), json!("object"));
                slot.remove("additionalProperties");
                slot.extend(keywords);
            }
        };
        table("stage", properties, json!({"additionalProperties": {"$ref": "#/$defs/stage"}}));
        table("defaults", properties, json!({"properties": defaults, "additionalProperties": false}));
    }
    if let Some(schema) = schema.as_object_mut() {
        // A manifest that extends another takes its name from there.
        schema.insert("required".to_owned(), json!([]));
        let own = schema.entry("$defs").or_insert_with(|| json!({}));
        if let Some(own) = own.as_object_mut() {
            own.extend(defs);
        }
    }
    schema
}

/// A `[stage.NAME]` table of a kind, or a `[defaults.KIND]` table.
fn stage_table(kind: &KindEntry, params: &Map<String, Json>, stage: bool) -> Json {
    let settings = schemars::schema_for!(Settings).to_value();
    let mut properties = Map::new();
    if stage {
        properties.insert("kind".to_owned(), json!({"const": kind.name}));
    }
    properties.extend(params.clone());
    for (name, setting) in settings["properties"].as_object().into_iter().flatten() {
        // A kind may have its own `arms`.
        let own = name == "arms" && params.contains_key(name);
        if !own && (stage || !["foreach", "arms"].contains(&name.as_str())) {
            let mut setting = setting.clone();
            inline(&mut setting, &settings["$defs"]);
            properties.insert(name.clone(), flexible(setting));
        }
    }
    let root = (kind.schema)().to_value();
    json!({
        "type": "object",
        "description": root.get("description").cloned().unwrap_or_default(),
        "properties": properties,
        "additionalProperties": false,
    })
}

/// The params of a kind, where each value may also be a variable; its definitions go to `defs`
/// under names of their own.
fn kind_params(kind: &KindEntry, defs: &mut Map<String, Json>) -> Map<String, Json> {
    let mut root = (kind.schema)().to_value();
    rename(&mut root, kind.name);
    if let Some(Json::Object(own)) = root.get_mut("$defs").map(Json::take) {
        for (name, mut schema) in own {
            loosen(&mut schema);
            defs.insert(format!("{}.{name}", kind.name), schema);
        }
    }
    let properties = root.get_mut("properties").map(Json::take);
    match properties {
        Some(Json::Object(properties)) => {
            properties.into_iter().map(|(name, schema)| (name, flexible(schema))).collect()
        }
        _ => Map::new(),
    }
}

fn rename(schema: &mut Json, kind: &str) {
    match schema {
        Json::Object(map) => {
            if let Some(Json::String(target)) = map.get_mut("$ref")
                && let Some(name) = target.strip_prefix("#/$defs/")
            {
                *target = format!("#/$defs/{kind}.{name}");
            }
            map.values_mut().for_each(|value| rename(value, kind));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| rename(item, kind)),
        _ => {}
    }
}

/// Replaces a reference into `defs` by what it refers to.
fn inline(schema: &mut Json, defs: &Json) {
    let Json::Object(map) = schema else { return };
    if let Some(name) = map.remove("$ref").as_ref().and_then(Json::as_str)
        && let Some(Json::Object(target)) = name.strip_prefix("#/$defs/").and_then(|name| defs.get(name))
    {
        for (key, value) in target {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn variable() -> Json {
    json!({
        "type": "string",
        "pattern": r"\$\{[^}]+\}",
        "description": "A variable, such as \"${seed}\".",
    })
}

/// The schema, or a variable in place of the value.
fn flexible(mut schema: Json) -> Json {
    loosen(&mut schema);
    let Json::Object(map) = &mut schema else {
        return schema;
    };
    let plain_text = map.get("type").and_then(Json::as_str) == Some("string") && !map.contains_key("enum");
    let anything = ["type", "$ref", "anyOf", "oneOf", "enum"].iter().all(|key| !map.contains_key(*key));
    if plain_text || anything || map.contains_key("const") {
        return schema;
    }
    let mut outer = Map::new();
    for key in ["description", "default", "examples"] {
        if let Some(value) = map.shift_remove(key) {
            outer.insert(key.to_owned(), value);
        }
    }
    outer.insert("anyOf".to_owned(), json!([schema, {"$ref": "#/$defs/variable"}]));
    Json::Object(outer)
}

/// Makes everything inside a schema flexible, and nothing required.
fn loosen(schema: &mut Json) {
    let Json::Object(map) = schema else { return };
    map.remove("required");
    map.remove("$schema");
    if let Some(choices) = map.shift_remove("oneOf") {
        map.insert("anyOf".to_owned(), choices);
    }
    if let Some(properties) = map.get_mut("properties").and_then(Json::as_object_mut) {
        properties.values_mut().for_each(|schema| *schema = flexible(schema.take()));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key).filter(|inner| inner.is_object()) {
            *inner = flexible(inner.take());
        }
    }
    for key in ["anyOf", "allOf", "prefixItems"] {
        if let Some(list) = map.get_mut(key).and_then(Json::as_array_mut) {
            list.iter_mut().for_each(loosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_level_has_the_keys_that_are_read() {
        let schema = schemars::schema_for!(Manifest).to_value();
        let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, crate::manifest::TOP_KEYS);
    }

    #[test]
    fn the_settings_have_the_keys_that_are_read() {
        let schema = schemars::schema_for!(Settings).to_value();
        let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, crate::manifest::SETTINGS);
    }
}
