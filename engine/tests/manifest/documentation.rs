//! What is documented from the structs: kinds, schema, starter, graphs.

use engine::kind::{ParamProblem, Stage, StageCtx, StageError};
use engine::{docs, graph};
use insta::assert_snapshot;

use crate::meaning::FIVE_ARMS;
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

/// Needs no params, and yet does not run without some.
#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Blank {
    /// Nothing without it.
    #[serde(default)]
    content: Option<String>,
}

impl Stage for Blank {
    const KIND: &'static str = "blank";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        vec!["blank".into()]
    }
    fn check(&self) -> Vec<ParamProblem> {
        let problem = |param: &str| ParamProblem {
            param: param.into(),
            message: "nothing to write".into(),
            help: "give `content`".into(),
        };
        self.content.is_none().then(|| problem("content")).into_iter().collect()
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

#[test]
fn the_starter_begins_with_a_kind_that_runs_as_it_is() {
    let registry = registry().with::<Blank>();
    let text = docs::starter::starter("x", &registry);
    let folder = Folder::new(&[("m.toml", &text)]);
    let plan = engine::manifest::load(&folder.path("m.toml"), &[], &registry).expect("a right manifest");
    assert_eq!(plan.stages[0].kind.name, "data", "`blank` comes first and fails its own check");
    assert!(text.contains("# [stage.blank]"), "{text}");
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

/// What a JSON Schema validator says of a manifest; empty when it fits.
fn against_schema(manifest: &str) -> String {
    let schema = docs::schema::manifest_schema(&registry());
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("https://example.com/manifest.json", schema).unwrap();
    let index = compiler.compile("https://example.com/manifest.json", &mut schemas).unwrap();
    let manifest: serde_json::Value = toml::from_str(manifest).unwrap();
    schemas.validate(&manifest, index).err().map(|error| format!("{error:#}")).unwrap_or_default()
}

#[test]
fn right_manifests_fit_the_schema() {
    assert_eq!(against_schema(FIVE_ARMS), "");
    assert_eq!(against_schema(&docs::starter::starter("x", &registry())), "");
    let head = "extends = \"base.toml\"\n[stage.t]\nkind = \"train\"\n";
    for line in [
        "lr = 1",
        "lr = \"${lr}\"",
        "steps = \"${steps}\"",
        "targets = [\"q\", \"${k}\"]",
        "targets = \"${targets}\"",
        "adapter = { type = \"lora\", rank = \"${rank}\" }",
        "adapter = \"${adapter}\"",
        "schedule = \"cosine\"",
        "schedule = \"${schedule}\"",
        "foreach = [\"arm\"]\narms = \"${arms}\"",
        "resources = { gpus = \"${gpus}\", memory = \"8GB\" }",
        "publish = \"t/${arm}\"",
        "cache = false",
    ] {
        assert_eq!(against_schema(&format!("{head}{line}\n")), "", "{line}");
    }
}

#[test]
fn wrong_manifests_do_not_fit_the_schema() {
    let head = "name = \"x\"\n[stage.t]\nkind = \"train\"\n";
    for line in [
        "lr = \"high\"",
        "steps = -1",
        "steps = 1.5",
        "stepz = 1",
        "model = [\"@a\"]",
        "adapter = { type = \"lorra\" }",
        "adapter = { type = \"steering\", rank = 1 }",
        "adapter = { type = \"lora\", rank = \"8\" }",
        "schedule = \"cosin\"",
        "foreach = \"arm\"",
        "resources = { gpu = 1 }",
        "timeout = 5",
        "cache = \"no\"",
    ] {
        assert_ne!(against_schema(&format!("{head}{line}\n")), "", "{line}");
    }
    for manifest in [
        "nmae = \"x\"",
        "name = \"Not a slug\"",
        "name = 5",
        "name = \"x\"\n[stage.t]\nlr = 1",
        "name = \"x\"\n[stage.t]\nkind = \"nothing\"",
        "name = \"x\"\n[defaults.nothing]\nlr = 1",
        "name = \"x\"\n[defaults.train]\nkind = \"train\"",
        "name = \"x\"\n[defaults.train]\nstepz = 1",
        "name = \"x\"\n[arm.a]\nlabel = 1",
        "name = \"x\"\n[arm]\na = 1",
    ] {
        assert_ne!(against_schema(manifest), "", "{manifest}");
    }
}
