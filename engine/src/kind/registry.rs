//! The kinds that a binary knows.

use std::collections::BTreeMap;

use schemars::Schema;
use serde_json::Value;

use super::{ErasedStage, ParamProblem, Stage};

type CheckedStage = Box<dyn ErasedStage>;

/// One registered kind.
#[derive(Clone, Copy)]
pub struct KindEntry {
    /// Name in manifests.
    pub name: &'static str,
    /// Code version, part of every key of this kind.
    pub version: u32,
    /// JSON Schema of the params, with the doc comments.
    pub schema: fn() -> Schema,
    /// Parses params as a manifest has them; an error names the param it is about.
    pub parse: fn(&Value) -> Result<CheckedStage, ParamProblem>,
    /// Parses resolved JSON params, in the worker.
    pub parse_json: fn(Value) -> Result<CheckedStage, serde_json::Error>,
}

fn parse<S: Stage>(value: &Value) -> Result<CheckedStage, ParamProblem> {
    if let Ok(stage) = S::deserialize(value) {
        return Ok(Box::new(stage));
    }
    // Once more, slower, to learn where it went wrong.
    match serde_path_to_error::deserialize::<_, S>(value) {
        Ok(stage) => Ok(Box::new(stage)),
        Err(error) => {
            let path = error.path().to_string();
            Err(ParamProblem {
                param: if path == "." { String::new() } else { path },
                message: error.into_inner().to_string(),
                help: format!("see `pipeline kinds {}`", S::KIND),
            })
        }
    }
}

/// Every stage kind the binary knows, by name.
#[derive(Clone, Default)]
pub struct Registry {
    kinds: BTreeMap<&'static str, KindEntry>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind.
    pub fn with<S: Stage>(mut self) -> Self {
        let entry = KindEntry {
            name: S::KIND,
            version: S::VERSION,
            schema: || schemars::schema_for!(S),
            parse: parse::<S>,
            parse_json: |value| Ok(Box::new(serde_json::from_value::<S>(value)?)),
        };
        self.kinds.insert(S::KIND, entry);
        self
    }

    /// The kind of that name.
    pub fn get(&self, name: &str) -> Option<&KindEntry> {
        self.kinds.get(name)
    }

    /// All kinds in name order.
    pub fn iter(&self) -> impl Iterator<Item = &KindEntry> {
        self.kinds.values()
    }
}
