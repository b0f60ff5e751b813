//! What a trained model says about how to use it.

use serde_json::{Map, Value, json};

/// `generation` (the content of a `generation_config.json`, empty when there is none) for a model that
/// was taught to end its turn with token `end`: the list of tokens that end a generation holds `end`
/// first and keeps what it held.
///
/// A base model's list names its end of text only. A model trained on chats ends with another token,
/// and whoever generates with the old list runs on until the length limit.
pub fn ending_with(mut generation: Map<String, Value>, end: u32) -> Map<String, Value> {
    let mut ends = vec![json!(end)];
    let before = match generation.get("eos_token_id") {
        Some(Value::Array(list)) => list.clone(),
        Some(Value::Null) | None => Vec::new(),
        Some(single) => vec![single.clone()],
    };
    for id in before {
        if !ends.contains(&id) {
            ends.push(id);
        }
    }
    generation.insert("eos_token_id".to_owned(), Value::Array(ends));
    generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_that_was_taught_is_listed_first_and_nothing_is_lost() {
        let of = |before: Value| ending_with(before.as_object().cloned().unwrap(), 151_645);
        let want = json!([151_645, 151_643]);
        assert_eq!(of(json!({"eos_token_id": 151_643, "top_p": 0.8}))["eos_token_id"], want);
        assert_eq!(of(json!({"eos_token_id": [151_643, 151_645]}))["eos_token_id"], want);
        assert_eq!(of(json!({}))["eos_token_id"], json!([151_645]));
        assert_eq!(of(json!({"top_p": 0.8}))["top_p"], 0.8);
    }
}
