//! References inside params.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A reference inside params: `"@stage"`, `"@stage/file.jsonl"`, or a file or folder relative to
/// the manifest (`"./data.jsonl"`).
///
/// In TOML it is a string; in resolved params it is `{"$input": "…"}`, so that the engine finds
/// references without knowing the kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Input(String);

/// The key that marks a resolved reference in JSON params.
pub const INPUT_MARK: &str = "$input";

impl Input {
    /// Wraps a reference as written.
    pub fn new(reference: impl Into<String>) -> Self {
        Self(reference.into())
    }

    /// The reference as written.
    pub fn reference(&self) -> &str {
        &self.0
    }

    /// True when it may stand for several instances of a stage: `@eval[*]`, `@eval[seed=*]`.
    pub fn is_fan_in(&self) -> bool {
        let stage = self.0.split('/').next().unwrap_or_default();
        match (stage.find('['), stage.find(']')) {
            (Some(open), Some(close)) if stage.starts_with('@') && open < close => {
                stage[open..close].contains('*')
            }
            _ => false,
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Input {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BTreeMap::from([(INPUT_MARK, &self.0)]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Input;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a reference such as \"@stage\", \"@stage/file\" or \"./file\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Input, E> {
                Ok(Input(text.to_owned()))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Input, A::Error> {
                match map.next_entry::<String, String>()? {
                    Some((key, reference)) if key == INPUT_MARK => Ok(Input(reference)),
                    _ => Err(serde::de::Error::custom("expected a reference")),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Input {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Input".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A reference: \"@stage\", \"@stage/file\" or a path beside the manifest such as \"./file\"."
        })
    }
}

/// Several inputs by label. In a manifest a reference such as `"@stage[*]"`, an array of
/// references, or a table of label → reference.
///
/// The engine expands a fan-in reference to every instance it names, labelled by what stands in
/// the instance's brackets (`lora`, or `lora,seed=1`); a single reference is labelled by its
/// stage, or its file. Under a label of its own (`math = "@eval[*]"`) a fan-in is labelled
/// `math/lora`. Until then such entries have keys starting with [`UNEXPANDED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Inputs(pub BTreeMap<String, Input>);

/// First character of the keys of entries of [`Inputs`] that the engine has yet to expand.
pub const UNEXPANDED: char = '*';

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Inputs;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("references: \"@stage[*]\", an array, or a table of label = \"@stage\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Inputs, E> {
                let key = UNEXPANDED.to_string();
                Ok(Inputs(BTreeMap::from([(key, Input::new(text))])))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Inputs, A::Error> {
                let mut inputs = BTreeMap::new();
                while let Some(input) = items.next_element::<Input>()? {
                    inputs.insert(format!("{UNEXPANDED}{:06}", inputs.len()), input);
                }
                Ok(Inputs(inputs))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Inputs, A::Error> {
                let mut inputs = BTreeMap::new();
                while let Some((label, input)) = map.next_entry::<String, Input>()? {
                    let label = if input.is_fan_in() { format!("{UNEXPANDED}{label}/") } else { label };
                    inputs.insert(label, input);
                }
                Ok(Inputs(inputs))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Inputs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Inputs".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Input>();
        schemars::json_schema!({
            "description": "References: \"@stage[*]\" for every instance of a stage, an array of references, or a table of label = reference.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": one},
                {"type": "object", "additionalProperties": one}
            ]
        })
    }
}
