//! Finds references by schema, in params that could not be typed, so that what is wrong with the
//! references is said together with what is wrong with the rest.

use serde_json::Value as Json;

use super::node::Step;
use super::shape;

/// A reference in untyped params.
pub(crate) struct Found {
    /// Where it stands.
    pub path: Vec<Step>,
    /// The reference as written.
    pub text: String,
    /// True where several may stand.
    pub several: bool,
}

/// The references in `value`, which is meant to fit `schema`.
pub(crate) fn find(schema: &Json, value: &Json) -> Vec<Found> {
    let mut finder = Finder { root: schema, path: Vec::new(), found: Vec::new() };
    finder.visit(schema, value, false);
    finder.found
}

struct Finder<'a> {
    root: &'a Json,
    path: Vec<Step>,
    found: Vec<Found>,
}

impl<'a> Finder<'a> {
    fn visit(&mut self, schema: &'a Json, value: &Json, several: bool) {
        let target = schema.get("$ref").and_then(Json::as_str);
        match target {
            Some("#/$defs/Input") => return self.collect(value, several),
            Some("#/$defs/Inputs") => return self.collect(value, true),
            _ => {}
        }
        let schema = shape::follow(self.root, schema);
        for key in ["anyOf", "oneOf", "allOf"] {
            let list = schema.get(key).and_then(Json::as_array);
            for one in list.into_iter().flatten() {
                if shape::fits_tag(self.root, one, value) {
                    self.visit(one, value, several);
                }
            }
        }
        match value {
            Json::Object(map) => {
                for (key, value) in map {
                    let property = schema.get("properties").and_then(|properties| properties.get(key));
                    let inner = property.or_else(|| schema.get("additionalProperties"));
                    if let Some(inner) = inner {
                        self.path.push(Step::Key(key.clone()));
                        self.visit(inner, value, false);
                        self.path.pop();
                    }
                }
            }
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(inner) = schema.get("items") {
                        self.path.push(Step::Index(index));
                        self.visit(inner, item, true);
                        self.path.pop();
                    }
                }
            }
            _ => {}
        }
    }

    /// Takes every text in `value` for a reference.
    fn collect(&mut self, value: &Json, several: bool) {
        match value {
            Json::String(text) => {
                self.found.push(Found { path: self.path.clone(), text: text.clone(), several });
            }
            Json::Array(items) if several => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push(Step::Index(index));
                    self.collect(item, several);
                    self.path.pop();
                }
            }
            Json::Object(map) if several => {
                for (key, item) in map {
                    self.path.push(Step::Key(key.clone()));
                    self.collect(item, several);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }
}
