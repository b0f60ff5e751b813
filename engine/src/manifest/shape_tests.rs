//! The shape checker against serde, on values drawn at random.

use std::collections::BTreeMap;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::shape::misfits;
use crate::kind::{Input, Inputs};

/// Params with everything that stage kinds use.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// A number.
    lr: f64,
    /// A count.
    #[serde(default)]
    steps: u32,
    /// A flag.
    #[serde(default)]
    flag: Option<bool>,
    /// Texts.
    #[serde(default)]
    list: Vec<String>,
    /// A table of numbers.
    #[serde(default)]
    table: BTreeMap<String, i64>,
    /// A choice.
    #[serde(default)]
    choice: Choice,
    /// A tagged choice.
    #[serde(default)]
    tagged: Option<Tagged>,
    /// A choice tagged by its key.
    #[serde(default)]
    keyed: Option<Keyed>,
    /// A reference.
    #[serde(default)]
    input: Option<Input>,
    /// References.
    #[serde(default)]
    inputs: Inputs,
    /// A pair.
    #[serde(default)]
    pair: Option<(u8, String)>,
}

#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
enum Choice {
    #[default]
    One,
    Two,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Tagged {
    Plain {},
    Ranked {
        rank: u32,
        #[serde(default)]
        inner: Option<Choice>,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Keyed {
    Nothing,
    Amount(f64),
    Table { rank: u32 },
}

fn scalars() -> impl Strategy<Value = Json> {
    prop_oneof![
        any::<bool>().prop_map(Json::from),
        (-3i64..300).prop_map(Json::from),
        Just(json!(5_000_000_000i64)),
        (-10.0..10.0f64).prop_map(Json::from),
        prop::sample::select(vec!["one", "two", "plain", "ranked", "nothing", "@a", "x"])
            .prop_map(Json::from),
    ]
}

fn keys() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "lr", "steps", "flag", "list", "table", "choice", "tagged", "keyed", "input", "inputs", "pair",
        "type", "rank", "stepz",
    ])
}

fn values() -> impl Strategy<Value = Json> {
    scalars().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::btree_map(keys(), inner, 0..4)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// Values that a param takes.
fn right(key: &str) -> Vec<Json> {
    match key {
        "lr" => vec![json!(0.5), json!(1)],
        "steps" => vec![json!(0), json!(7)],
        "flag" => vec![json!(true)],
        "list" => vec![json!([]), json!(["x", "@y"])],
        "table" => vec![json!({}), json!({"a": -1})],
        "choice" => vec![json!("one"), json!("two")],
        "tagged" => vec![
            json!({"type": "plain"}),
            json!({"type": "ranked", "rank": 3}),
            json!({"type": "ranked", "rank": 3, "inner": "two"}),
        ],
        "keyed" => vec![json!("nothing"), json!({"amount": 0.5}), json!({"table": {"rank": 1}})],
        "input" => vec![json!("@a"), json!("x")],
        "inputs" => vec![json!("@a[*]"), json!(["x", "@y"]), json!({"a": "@b"})],
        _ => vec![json!([3, "x"])],
    }
}

/// Params that are right or nearly so.
fn params() -> impl Strategy<Value = Json> {
    let entry = keys().prop_flat_map(|key| {
        let value = prop_oneof![4 => prop::sample::select(right(key)), 1 => values(), 1 => scalars()];
        (Just(key), value)
    });
    prop::collection::vec(entry, 0..4).prop_map(|entries| {
        let mut map: serde_json::Map<String, Json> =
            entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        map.entry("lr").or_insert(json!(1));
        Json::Object(map)
    })
}

/// The values drawn below are neither all right nor all wrong, and reach every param both ways.
#[test]
fn the_values_drawn_are_of_both_sorts() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut right, mut wrong) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..3000 {
        let value = params().new_tree(&mut runner).unwrap().current();
        let counts = if Params::deserialize(&value).is_ok() { &mut right } else { &mut wrong };
        for key in value.as_object().unwrap().keys() {
            *counts.entry(key.clone()).or_insert(0) += 1;
        }
    }
    for key in
        ["lr", "steps", "flag", "list", "table", "choice", "tagged", "keyed", "input", "inputs", "pair"]
    {
        assert!(right.get(key).is_some_and(|count| *count > 5), "{key} is right at times: {right:?}");
        assert!(wrong.get(key).is_some_and(|count| *count > 5), "{key} is wrong at times: {wrong:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// The checker finds something exactly when serde refuses.
    #[test]
    fn the_checker_and_serde_agree(value in params()) {
        // Serde reads a tagged table from a list, too, whose first item is the tag; the schema says no.
        prop_assume!(!value["tagged"].is_array());
        let schema = schemars::schema_for!(Params).to_value();
        let accepted = Params::deserialize(&value);
        let found = misfits(&schema, &value);
        prop_assert_eq!(
            accepted.is_ok(),
            found.is_empty(),
            "{} {:?} {:?}", value, accepted.err(), found
        );
        for misfit in found {
            prop_assert!(!misfit.help.is_empty());
        }
    }
}
