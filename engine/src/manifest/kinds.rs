//! The kinds a manifest uses, each with its schema made once.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::kind::{ErasedStage, KindEntry, Registry};

use super::family::misfit_of;
use super::inputs::{self, Found};
use super::node::Step;
use super::shape::{self, Misfit};
use super::suggest::remedy;

/// A kind with its schema.
struct Kind {
    entry: KindEntry,
    schema: Json,
    /// Names of its params, when these are all there can be.
    params: Option<Vec<String>>,
}

/// The kinds that a manifest uses, by number.
#[derive(Default)]
pub(crate) struct Kinds {
    list: Vec<Kind>,
    by_name: HashMap<String, usize>,
}

impl Kinds {
    /// The number of the kind of that name.
    pub fn get(&mut self, name: &str, registry: &Registry) -> Option<usize> {
        if let Some(number) = self.by_name.get(name) {
            return Some(*number);
        }
        let entry = *registry.get(name)?;
        let schema = (entry.schema)().to_value();
        let closed = !matches!(schema.get("additionalProperties"), Some(Json::Object(_) | Json::Bool(true)));
        let params = schema
            .get("properties")
            .and_then(Json::as_object)
            .filter(|_| closed && schema.get("oneOf").is_none() && schema.get("anyOf").is_none())
            .map(|properties| properties.keys().cloned().collect());
        self.list.push(Kind { entry, schema, params });
        self.by_name.insert(name.to_owned(), self.list.len() - 1);
        Some(self.list.len() - 1)
    }

    /// A kind's name.
    pub fn name(&self, number: usize) -> &'static str {
        self.list[number].entry.name
    }

    /// A kind.
    pub fn entry(&self, number: usize) -> KindEntry {
        self.list[number].entry
    }

    /// The mistake, if the kind has no param of that name.
    pub fn unknown_param(&self, number: usize, name: &str) -> Option<Misfit> {
        let kind = &self.list[number];
        let params = kind.params.as_ref()?;
        if params.iter().any(|param| param == name) {
            return None;
        }
        Some(Misfit {
            path: vec![Step::Key(name.to_owned())],
            code: "unknown-param",
            message: format!("unknown param `{name}` of kind `{}`", kind.entry.name),
            help: remedy(name, "known params", params.iter().map(String::as_str)),
        })
    }

    /// The references in params that cannot be typed.
    pub fn references(&self, number: usize, params: &Json) -> Vec<Found> {
        inputs::find(&self.list[number].schema, params)
    }

    /// Types params, or lists every mistake in them.
    pub fn parse(&self, number: usize, value: &Json) -> Result<Box<dyn ErasedStage>, Vec<Misfit>> {
        let kind = &self.list[number];
        let unknown: Vec<Misfit> = value
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .filter_map(|name| self.unknown_param(number, name))
            .collect();
        match (kind.entry.parse)(value) {
            Ok(stage) if unknown.is_empty() => Ok(stage),
            Ok(_) => Err(unknown),
            Err(problem) => {
                let mut found = shape::misfits(&kind.schema, value);
                found.retain(|m| m.code != "unknown-param" || m.path.len() > 1 || kind.params.is_none());
                found.extend(unknown);
                if found.is_empty() {
                    found.push(misfit_of(problem, "bad-param"));
                }
                Err(found)
            }
        }
    }
}
