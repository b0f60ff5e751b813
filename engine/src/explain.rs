//! Why a stage runs again: the difference between the key parts of its last record and its key
//! parts now, down to the param, the input file or the code version.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::digest::{Digest, Entry};
use crate::key::KeyParts;
use crate::kind::INPUT_MARK;

/// One component of the key that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "component", rename_all = "snake_case")]
pub enum Change {
    /// The encoding of keys changed with a new version of the tool.
    Schema {
        /// Before.
        old: u32,
        /// Now.
        new: u32,
    },
    /// Another stage kind.
    Kind {
        /// Before.
        old: String,
        /// Now.
        new: String,
    },
    /// The kind's code gives other results than before.
    CodeVersion {
        /// The kind.
        kind: String,
        /// Before.
        old: u32,
        /// Now.
        new: u32,
    },
    /// A param was changed, added (`old` is none) or removed (`new` is none).
    Param {
        /// Dotted path.
        path: String,
        /// Before.
        old: Option<Value>,
        /// Now.
        new: Option<Value>,
    },
    /// An input's content changed.
    Input {
        /// Dotted path of the param that refers to it.
        path: String,
        /// Before.
        old: String,
        /// Now.
        new: String,
        /// Which files inside it, where both listings are known.
        files: Vec<String>,
    },
    /// A declared property of the machine.
    Environment {
        /// Its name.
        name: String,
        /// Before.
        old: Option<String>,
        /// Now.
        new: Option<String>,
    },
    /// The pinned digest of an external source.
    Pin {
        /// The source.
        source: String,
        /// Before.
        old: Option<String>,
        /// Now.
        new: Option<String>,
    },
}

/// Every difference between two keys' parts; empty exactly if the keys are equal. `tree` gives the
/// files behind a folder digest, where the store knows them.
pub fn changes(old: &KeyParts, new: &KeyParts, tree: impl Fn(&Digest) -> Option<Vec<Entry>>) -> Vec<Change> {
    let mut found = Vec::new();
    if old.schema != new.schema {
        found.push(Change::Schema { old: old.schema, new: new.schema });
    }
    if old.kind != new.kind {
        found.push(Change::Kind { old: old.kind.clone(), new: new.kind.clone() });
    } else if old.version != new.version {
        found.push(Change::CodeVersion { kind: new.kind.clone(), old: old.version, new: new.version });
    }
    params(&mut found, "", Some(&old.params), Some(&new.params), &tree);
    for (name, old, new) in differing(&old.environment, &new.environment) {
        found.push(Change::Environment { name, old, new });
    }
    for (source, old, new) in differing(&old.pins, &new.pins) {
        found.push(Change::Pin { source, old, new });
    }
    found
}

fn differing(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> Vec<(String, Option<String>, Option<String>)> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), old.get(name).cloned(), new.get(name).cloned()))
        .filter(|(_, old, new)| old != new)
        .collect()
}

fn params(
    found: &mut Vec<Change>,
    path: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    tree: &impl Fn(&Digest) -> Option<Vec<Entry>>,
) {
    if old == new {
        return;
    }
    let path_string = || path.to_owned();
    if let (Some(before), Some(now)) = (old.and_then(reference), new.and_then(reference)) {
        let files = changed_files(before, now, tree);
        found.push(Change::Input { path: path_string(), old: before.to_owned(), new: now.to_owned(), files });
        return;
    }
    match (old, new) {
        (Some(Value::Object(before)), Some(Value::Object(now))) => {
            let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for name in names {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                params(found, &inner, before.get(name), now.get(name), tree);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(now))) if before.len() == now.len() => {
            for (at, (before, now)) in before.iter().zip(now).enumerate() {
                params(found, &format!("{path}[{at}]"), Some(before), Some(now), tree);
            }
        }
        _ => found.push(Change::Param { path: path_string(), old: old.cloned(), new: new.cloned() }),
    }
}

fn reference(value: &Value) -> Option<&str> {
    let map = value.as_object()?;
    if map.len() == 1 { map.get(INPUT_MARK)?.as_str() } else { None }
}

fn changed_files(old: &str, new: &str, tree: &impl Fn(&Digest) -> Option<Vec<Entry>>) -> Vec<String> {
    let listing = |hex: &str| -> Option<BTreeMap<String, Entry>> {
        let entries = tree(&hex.parse().ok()?)?;
        Some(entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect())
    };
    let (Some(before), Some(now)) = (listing(old), listing(new)) else { return Vec::new() };
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect()
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema { old, new } => write!(f, "key format: {old} → {new}"),
            Self::Kind { old, new } => write!(f, "kind: {old} → {new}"),
            Self::CodeVersion { kind, old, new } => write!(f, "code version of kind `{kind}`: {old} → {new}"),
            Self::Param { path, old, new } => write!(f, "param {path}: {} → {}", shown(old), shown(new)),
            Self::Input { path, old, new, files } => {
                write!(f, "input {path}: {} → {}", short(old), short(new))?;
                match files.as_slice() {
                    [] => Ok(()),
                    [first, rest @ ..] if rest.len() < 4 => {
                        write!(f, " (changed: {first}")?;
                        rest.iter().try_for_each(|file| write!(f, ", {file}"))?;
                        f.write_str(")")
                    }
                    many => write!(f, " ({} files changed, first {})", many.len(), many[0]),
                }
            }
            Self::Environment { name, old, new } => write!(f, "{name}: {} → {}", given(old), given(new)),
            Self::Pin { source, old, new } => {
                write!(f, "pinned content of {source}: {} → {}", short(given(old)), short(given(new)))
            }
        }
    }
}

fn shown(value: &Option<Value>) -> String {
    match value {
        None => "(not there)".to_owned(),
        Some(value) if reference(value).is_some() => {
            format!("input {}", short(reference(value).unwrap_or_default()))
        }
        Some(value) => value.to_string(),
    }
}

fn given(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or("(none)")
}

/// Digests are shortened, references not yet computed are left as written.
fn short(text: &str) -> &str {
    if text.parse::<Digest>().is_ok() { &text[..12] } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parts(params: Value) -> KeyParts {
        KeyParts {
            schema: 1,
            kind: "train".into(),
            version: 1,
            params,
            environment: BTreeMap::new(),
            pins: BTreeMap::new(),
        }
    }

    fn explained(old: Value, new: Value) -> Vec<String> {
        changes(&parts(old), &parts(new), |_| None).iter().map(Change::to_string).collect()
    }

    #[test]
    fn names_the_param_with_old_and_new() {
        let old = json!({"lr": 1e-3, "adapter": {"type": "lora", "rank": 4}, "stops": ["a", "b"]});
        let new = json!({"lr": 5e-4, "adapter": {"type": "lora", "alpha": 8}, "stops": ["a", "c"]});
        insta::assert_snapshot!(explained(old, new).join("\n"), @r#"
        param adapter.alpha: (not there) → 8
        param adapter.rank: 4 → (not there)
        param lr: 0.001 → 0.0005
        param stops[1]: "b" → "c"
        "#);
    }

    #[test]
    fn names_the_file_inside_an_input() {
        let entry = |path: &str, content: &[u8]| Entry {
            path: path.to_owned(),
            digest: Digest::of(content),
            size: 1,
            executable: false,
        };
        let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
        let tree = |digest: &Digest| {
            Some(vec![entry("same", b"s"), entry("train.jsonl", if *digest == old { b"1" } else { b"2" })])
        };
        let data = |digest: Digest| parts(json!({"data": {INPUT_MARK: digest.to_string()}}));
        let found = changes(&data(old), &data(new), tree);
        let text = found[0].to_string();
        assert!(text.ends_with("(changed: train.jsonl)"), "{text}");
        assert!(text.starts_with(&format!("input data: {} → {}", old.short(), new.short())), "{text}");
    }

    #[test]
    fn code_version_environment_and_pins_are_named() {
        let old = parts(json!({}));
        let mut new = parts(json!({}));
        new.version = 2;
        new.environment.insert("device".into(), "cuda".into());
        new.pins.insert("hf:x".into(), "abc".into());
        let text: Vec<_> = changes(&old, &new, |_| None).iter().map(Change::to_string).collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        code version of kind `train`: 1 → 2
        device: (none) → cuda
        pinned content of hf:x: (none) → abc
        ");
        assert!(changes(&old, &old, |_| None).is_empty());
    }
}
