//! What is documented from the structs: kinds, schema, starter, graphs.

use engine::{docs, graph};
use insta::assert_snapshot;

use crate::toys::{Folder, plan, registry};

#[test]
fn kinds_are_listed_with_the_settings_of_every_stage() {
    assert_snapshot!(docs::kinds::overview(&registry()));
}

#[test]
fn a_kind_is_described_down_to_nested_params() {
    assert_snapshot!(docs::kinds::describe_kind(registry().get("train").unwrap()));
    assert_snapshot!(docs::kinds::describe_kind(registry().get("table").unwrap()));
}

#[test]
fn the_starter_is_a_right_manifest() {
    let text = docs::starter::starter("my-study", &registry());
    let plan = plan(&text);
    assert_eq!(plan.experiment.name, "my-study");
    assert_eq!(plan.stages.len(), 1);
    assert_snapshot!(text);
}

#[test]
fn the_starter_names_every_kind_and_param() {
    let text = docs::starter::starter("x", &registry());
    for kind in registry().iter() {
        assert!(text.contains(&format!("kind = \"{}\"", kind.name)));
        let schema = (kind.schema)().to_value();
        let params = schema["properties"].as_object().unwrap();
        assert!(!params.is_empty());
        for param in params.keys() {
            assert!(text.contains(&format!("{param} = ")), "{param} of {}", kind.name);
        }
    }
}

#[test]
fn graphs_are_drawn_in_two_languages() {
    let plan = plan(
        "name = \"x\"\n[arm.a]\n[arm.b]\n[stage.base]\nkind = \"note\"\n\
         [stage.t]\nkind = \"train\"\nforeach = [\"arm\"]\nmodel = \"@base\"\n\
         [stage.table]\nkind = \"table\"\nsamples = \"@t[*]\"\n",
    );
    assert_snapshot!(graph::dot(&plan, false));
    assert_snapshot!(graph::mermaid(&plan, false));
    assert_snapshot!(graph::mermaid(&plan, true));
}

#[test]
fn problems_as_json_have_lines_and_columns() {
    let folder = Folder::new(&[("m.toml", "name = \"x\"\n[stage.a]\nkind = \"note\"\n  txet = \"é\" \n")]);
    let errors = folder.load(&[]).err().expect("a mistake");
    let json = errors.json();
    let place = &json["problems"][0]["places"][0];
    assert_eq!((place["line"].as_u64(), place["column"].as_u64()), (Some(4), Some(3)));
    assert_eq!(json["problems"][0]["code"], "unknown-param");
    assert_eq!(json["problems"][0]["help"], "did you mean `text`?");
}
