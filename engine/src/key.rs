//! The key of a stage: BLAKE3 over a canonical encoding of everything that decides its output.
//!
//! | in the key | not in the key |
//! |---|---|
//! | kind and its code version | stage, arm and experiment names |
//! | typed params, defaults filled in | key order, spelling of numbers, comments |
//! | digests of inputs, in the place of the reference | where an input lies or what it is called |
//! | declared environment (device class, dtype) | host, time, user, tool version |
//! | pinned digests of external sources | mirrors, offline, jobs, timeouts, retries |

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::{Digest, NotADigest};
use crate::kind::{INPUT_MARK, Pin};
use crate::plan::PlannedStage;

/// Raised when the encoding below changes; every key changes with it.
const SCHEMA: u32 = 1;

/// A stage's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Digest);

impl Key {
    /// The first 12 hex digits, for people.
    pub fn short(&self) -> String {
        self.0.short()
    }
    /// The key as a digest.
    pub fn digest(&self) -> Digest {
        self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for Key {
    type Err = NotADigest;
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        text.parse().map(Self)
    }
}

/// Every component of a key, kept in the record so that `explain` is a diff of two of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyParts {
    /// Version of the encoding.
    pub schema: u32,
    /// Stage kind.
    pub kind: String,
    /// The kind's code version.
    pub version: u32,
    /// Typed params; each reference is `{"$input": DIGEST}`.
    pub params: Value,
    /// What of the machine decides the result.
    pub environment: BTreeMap<String, String>,
    /// Pinned digest by external source.
    pub pins: BTreeMap<String, String>,
}

impl KeyParts {
    /// The parts of a planned stage. `inputs` holds the digest behind every reference of the stage;
    /// a reference without one stays as written (as when planning ahead of results).
    pub fn of(
        stage: &PlannedStage,
        inputs: &BTreeMap<String, Digest>,
        device_class: &str,
        pins: &BTreeMap<String, Pin>,
    ) -> Self {
        let mut params = stage.params.clone();
        substitute(&mut params, inputs);
        let pins = stage
            .stage
            .sources()
            .into_iter()
            .filter_map(|source| pins.get(&source).map(|pin| (source, pin.digest.clone())))
            .collect();
        Self {
            schema: SCHEMA,
            kind: stage.kind.name.to_owned(),
            version: stage.kind.version,
            params,
            environment: stage.stage.environment(device_class),
            pins,
        }
    }

    /// The key.
    pub fn key(&self) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"pipeline key\n");
        hasher.update(&self.schema.to_le_bytes());
        text(&mut hasher, &self.kind);
        hasher.update(&self.version.to_le_bytes());
        value(&mut hasher, &self.params);
        strings(&mut hasher, &self.environment);
        strings(&mut hasher, &self.pins);
        Key(hasher.finalize().into())
    }
}

/// Replaces every `{"$input": reference}` by `{"$input": digest}`.
fn substitute(params: &mut Value, inputs: &BTreeMap<String, Digest>) {
    match params {
        Value::Object(map) => {
            if let (1, Some(Value::String(reference))) = (map.len(), map.get_mut(INPUT_MARK)) {
                if let Some(digest) = inputs.get(reference.as_str()) {
                    *reference = digest.to_string();
                }
                return;
            }
            map.values_mut().for_each(|inner| substitute(inner, inputs));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| substitute(inner, inputs)),
        _ => {}
    }
}

fn text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

fn strings(hasher: &mut blake3::Hasher, map: &BTreeMap<String, String>) {
    hasher.update(&(map.len() as u64).to_le_bytes());
    for (name, content) in map {
        text(hasher, name);
        text(hasher, content);
    }
}

/// A tag per type, a length before everything of variable length, object members sorted.
fn value(hasher: &mut blake3::Hasher, json: &Value) {
    match json {
        Value::Null => {
            hasher.update(b"n");
        }
        Value::Bool(flag) => {
            hasher.update(if *flag { b"t" } else { b"f" });
        }
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), _, _) => {
                hasher.update(b"i");
                hasher.update(&i128::from(whole).to_le_bytes());
            }
            (_, Some(whole), _) => {
                hasher.update(b"i");
                hasher.update(&i128::from(whole).to_le_bytes());
            }
            (_, _, real) => {
                // Adding zero turns -0.0 into 0.0: the two compare equal.
                hasher.update(b"r");
                hasher.update(&(real.unwrap_or(f64::NAN) + 0.0).to_bits().to_le_bytes());
            }
        },
        Value::String(content) => {
            hasher.update(b"s");
            text(hasher, content);
        }
        Value::Array(items) => {
            hasher.update(b"a");
            hasher.update(&(items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| value(hasher, item));
        }
        Value::Object(map) => {
            hasher.update(b"o");
            hasher.update(&(map.len() as u64).to_le_bytes());
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by(|a, b| a.0.cmp(b.0));
            for (name, member) in members {
                text(hasher, name);
                value(hasher, member);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parts(params: Value) -> KeyParts {
        KeyParts {
            schema: SCHEMA,
            kind: "toy".into(),
            version: 1,
            params,
            environment: BTreeMap::new(),
            pins: BTreeMap::new(),
        }
    }

    #[test]
    fn order_and_spelling_do_not_matter_but_values_and_places_do() {
        let key = |params| parts(params).key();
        let from = |text: &str| key(serde_json::from_str(text).unwrap());
        assert_eq!(from(r#"{"a":1,"lr":1e-5}"#), from(r#"{"lr":0.00001,"a":1}"#));
        assert_ne!(key(json!({"x": 1, "y": 2})), key(json!({"x": 2, "y": 1})));
        assert_ne!(key(json!(["ab", "c"])), key(json!(["a", "bc"])));
        assert_ne!(key(json!({"a": null})), key(json!({})));
        assert_ne!(key(json!(1)), key(json!("1")));
        assert_ne!(key(json!([])), key(json!({})));
        assert_eq!(key(json!(-0.0)), key(json!(0.0)));
    }

    #[test]
    fn every_component_counts() {
        let base = parts(json!({}));
        let mut changed = vec![base.clone(); 5];
        changed[0].version = 2;
        changed[1].kind = "toys".into();
        changed[2].environment.insert("device".into(), "cuda".into());
        changed[3].pins.insert("device".into(), "cuda".into());
        changed[4].schema = 2;
        let mut keys: Vec<_> = changed.iter().map(KeyParts::key).collect();
        keys.push(base.key());
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 6);
    }

    #[test]
    fn references_become_digests_so_names_do_not_matter() {
        let digest = Digest::of(b"artifact");
        let mut one = json!({"model": {"$input": "@train"}, "list": [{"$input": "@train/x"}]});
        let mut two = json!({"model": {"$input": "@other"}, "list": [{"$input": "@other/x"}]});
        let map = |a: &str, b: &str| BTreeMap::from([(a.to_owned(), digest), (b.to_owned(), digest)]);
        substitute(&mut one, &map("@train", "@train/x"));
        substitute(&mut two, &map("@other", "@other/x"));
        assert_eq!(parts(one).key(), parts(two).key());
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9f64..1e9).prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn equal_params_have_equal_keys_and_different_ones_differ(a in json_value(), b in json_value()) {
            prop_assert_eq!(a == b, parts(a).key() == parts(b).key());
        }

        #[test]
        fn a_key_survives_its_record(params in json_value()) {
            let before = parts(params);
            let text = serde_json::to_string(&before).unwrap();
            let after: KeyParts = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(before.key(), after.key());
        }
    }
}
