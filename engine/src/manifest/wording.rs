//! How types and values are called in messages.

use serde_json::Value as Json;

/// A JSON Schema type, with an article.
pub(crate) fn phrase(name: &str) -> &str {
    match name {
        "boolean" => "true or false",
        "string" => "a string",
        "array" => "an array",
        "object" => "a table",
        "number" => "a number",
        "integer" => "a whole number",
        other => other,
    }
}

/// What a value is.
pub(crate) fn describe(value: &Json) -> String {
    match value {
        Json::Null => "nothing".to_owned(),
        Json::Bool(flag) => format!("{flag}"),
        Json::Number(number) => number.to_string(),
        Json::String(text) if text.chars().count() <= 30 => format!("the string {value}"),
        Json::String(_) => "a string".to_owned(),
        Json::Array(_) => "an array".to_owned(),
        Json::Object(_) => "a table".to_owned(),
    }
}

/// What to write instead of `value` where the type `wanted` belongs; `name` is the param's path.
pub(crate) fn type_help(name: &str, wanted: &str, value: &Json) -> String {
    let key = name.rsplit('.').next().unwrap_or(name);
    if key.ends_with(']') && wanted == "string" {
        return format!("put it in quotes: \"{value}\"");
    }
    match (wanted, value) {
        ("number", Json::String(text)) if text.parse::<f64>().is_ok() => {
            format!("write it without quotes: {key} = {}", text.trim_start_matches('.'))
        }
        ("integer", Json::String(text)) if text.parse::<i64>().is_ok() => {
            format!("write it without quotes: {key} = {text}")
        }
        ("boolean", Json::String(text)) if text == "true" || text == "false" => {
            format!("write it without quotes: {key} = {text}")
        }
        ("integer", Json::Number(number)) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => {
                format!("write it without a fraction: {key} = {float:.0}")
            }
            _ => format!("write a whole number: {key} = 1"),
        },
        ("string", Json::Number(_) | Json::Bool(_)) => format!("put it in quotes: {key} = \"{value}\""),
        ("array", Json::Object(_)) => format!("write {key} = […]"),
        ("array", _) => format!("put it in brackets: {key} = [{value}]"),
        ("number", _) => format!("write a number: {key} = 0.5"),
        ("integer", _) => format!("write a whole number: {key} = 1"),
        ("boolean", _) => format!("write {key} = true or {key} = false"),
        ("object", _) => format!("write a table: {key} = {{ … }}"),
        ("string", _) => format!("write a string: {key} = \"…\""),
        _ => "see `pipeline kinds`".to_owned(),
    }
}
