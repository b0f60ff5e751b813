//! What right manifests mean.

use std::time::Duration;

use engine::plan::{Resources, Source};
use serde_json::json;

use crate::toys::{Folder, names, plan, registry};

/// A manifest that uses most of the format.
pub const FIVE_ARMS: &str = r#"
name = "five"
title = "Five arms"
seed = 17

[vars]
model = "@base"

[arm.base]
label = "Base"
[arm.base.eval]
model = "@base"
[arm.steering]
label = "Steering vectors"
[arm.lora]
[arm.lora.train]
lr = 2e-4

[matrix]
seed = [1, 2]

[defaults.data]
count = 7

[stage.table]
kind = "table"
samples = "@eval[*]"
claims = "${claims}"
arms = "${arms}"
publish = "table"

[stage.base]
kind = "note"

[stage.data]
kind = "data"
seed = "${seed}"

[stage.train]
kind = "train"
foreach = ["arm", "seed"]
arms = ["steering", "lora"]
model = "${model}"
data = "@data/train.jsonl"
seed = "${seed}"
timeout = "2h 30m"
retries = 2
resources = { memory = "8GB", cpus = 2 }

[stage.eval]
kind = "train"
foreach = ["arm", "seed"]
model = "@train"

[claims]
base = 0.5
"#;

#[test]
fn five_arms_expand_in_order() {
    let plan = plan(FIVE_ARMS);
    assert_eq!(
        names(&plan),
        [
            "base",
            "data",
            "train[steering,seed=1]",
            "train[steering,seed=2]",
            "train[lora,seed=1]",
            "train[lora,seed=2]",
            "eval[base,seed=1]",
            "eval[base,seed=2]",
            "eval[steering,seed=1]",
            "eval[steering,seed=2]",
            "eval[lora,seed=1]",
            "eval[lora,seed=2]",
            "table",
        ]
    );
    let stage = |name: &str| plan.stages.iter().find(|stage| stage.name == name).unwrap();
    assert_eq!(stage("data").params, json!({"count": 7, "seed": 17}));
    let train = stage("train[lora,seed=2]");
    assert_eq!(train.params["lr"], json!(2e-4));
    assert_eq!(train.params["seed"], json!(2));
    assert_eq!(train.params["model"], json!({"$input": "@base"}));
    assert_eq!(train.timeout.unwrap().as_secs(), 9000);
    assert_eq!(train.resources.memory, 8_000_000_000);
    assert_eq!(train.resources.gpus, 1);
    let table = stage("table");
    assert_eq!(table.depends_on, [6, 7, 8, 9, 10, 11]);
    assert_eq!(table.params["samples"]["lora,seed=2"], json!({"$input": "@eval[lora,seed=2]"}));
    assert_eq!(table.params["claims"], json!({"base": 0.5}));
    assert_eq!(table.params["arms"][1], json!({"name": "steering", "label": "Steering vectors"}));
    assert_eq!(table.publish.as_deref(), Some("table"));
    assert_eq!(stage("eval[base,seed=2]").params["model"], json!({"$input": "@base"}));
}

fn params(plan: &engine::plan::Plan, name: &str) -> serde_json::Value {
    plan.stages.iter().find(|stage| stage.name == name).expect("the stage").params.clone()
}

#[test]
fn one_number_written_in_several_ways_is_one_param() {
    let write = |lr: &str| {
        params(
            &plan(&format!(
                "name = \"x\"\n[stage.base]\nkind = \"note\"\n[stage.t]\nkind = \"train\"\nmodel = \"@base\"\n{lr}\n"
            )),
            "t",
        )
    };
    assert_eq!(write("lr = 1e-5").to_string(), write("lr = 0.00001").to_string());
    assert_eq!(write("lr = 1").to_string(), write("lr = 1.0").to_string());
    assert_eq!(write("steps = 1_000").to_string(), write("steps = 0x3e8").to_string());
    assert_eq!(write("").to_string(), write("lr = 0.001").to_string(), "a default is the same as writing it");
    assert_ne!(write("targets = [\"ab\", \"c\"]"), write("targets = [\"a\", \"bc\"]"));
    assert_ne!(write("steps = 1\nrollouts = 2"), write("steps = 2\nrollouts = 1"));
}

#[test]
fn the_order_of_keys_does_not_matter() {
    let head = "name = \"x\"\n[stage.base]\nkind = \"note\"\n";
    let one = plan(&format!("{head}[stage.t]\nkind = \"train\"\nmodel = \"@base\"\nlr = 1e-3\nsteps = 2\n"));
    let two = plan(&format!("{head}[stage.t]\nsteps = 2\nlr = 1e-3\nmodel = \"@base\"\nkind = \"train\"\n"));
    assert_eq!(params(&one, "t").to_string(), params(&two, "t").to_string());
}

#[test]
fn a_path_with_a_dot_is_the_same_manifest() {
    let folder = Folder::new(&[("m.toml", FIVE_ARMS)]);
    let one = engine::manifest::load(&folder.path("m.toml"), &[], &registry()).unwrap();
    let two = engine::manifest::load(&folder.path("./m.toml"), &[], &registry()).unwrap();
    assert_eq!(one.experiment.digest, two.experiment.digest);
    let params =
        |plan: &engine::plan::Plan| plan.stages.iter().map(|s| s.params.to_string()).collect::<Vec<_>>();
    assert_eq!(params(&one), params(&two));
}

#[test]
fn variables_keep_their_types() {
    let plan = plan(
        r#"
name = "vars"
title = "All of ${name}"
seed = 18446744073709551615
[vars]
n = 3
half = 0.5
list = ["a", "b"]
next = "${n}"
text = "n is ${n}, half is ${half}"
[arm.a]
label = "A"
[matrix]
size = ["small", "large"]
[claims.base]
math = 0.25
[deviations]
steps = "only ${n} steps"
[stage.base]
kind = "note"
text = "${text}; literally $${n}"
values = { arms = "${arms}", claims = "${claims}", one = "${claims.base.math}", seed = "${seed}" }
[stage.t]
kind = "train"
foreach = ["arm", "size"]
model = "@base"
steps = "${next}"
lr = "${half}"
targets = "${list}"
publish = "out/${arm}-${size}"
"#,
    );
    assert_eq!(plan.experiment.title, "All of ${name}", "the title is plain text");
    assert_eq!(plan.experiment.deviations, json!({"steps": "only 3 steps"}));
    let base = params(&plan, "base");
    assert_eq!(base["text"], "n is 3, half is 0.5; literally ${n}");
    assert_eq!(
        base["values"],
        json!({
            "arms": [{"name": "a", "label": "A"}],
            "claims": {"base": {"math": 0.25}},
            "one": 0.25,
            "seed": 18446744073709551615u64,
        })
    );
    let train = params(&plan, "t[a,size=large]");
    assert_eq!(train["steps"], 3);
    assert_eq!(train["lr"], 0.5);
    assert_eq!(train["targets"], json!(["a", "b"]));
    let published: Vec<_> = plan.stages.iter().filter_map(|stage| stage.publish.as_deref()).collect();
    assert_eq!(published, ["out/a-small", "out/a-large"]);
}

#[test]
fn fan_in_in_all_its_forms() {
    let plan = plan(
        r#"
name = "x"
[arm.base]
[arm.lora]
[matrix]
seed = [1, 2]
[stage.e]
kind = "note"
foreach = ["arm", "seed"]
[stage.alone]
kind = "note"
[stage.whole]
kind = "table"
samples = "@e[*]/s.jsonl"
[stage.single]
kind = "table"
samples = "@alone"
[stage.list]
kind = "table"
samples = ["@e[lora,seed=*]", "@alone/x", "@e[base,seed=2]"]
more = ["@alone", "@e[seed=1,*]"]
[stage.labelled]
kind = "table"
samples = { math = "@e[seed=1,*]", plain = "@alone", one = "@e[lora,seed=2]" }
[stage.each]
kind = "table"
foreach = ["arm"]
samples = "@e[seed=*]"
"#,
    );
    let labels = |name: &str| {
        let params = params(&plan, name);
        let samples = params["samples"].as_object().unwrap().iter();
        samples
            .map(|(label, input)| format!("{label}: {}", input["$input"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        labels("whole"),
        [
            "base,seed=1: @e[base,seed=1]/s.jsonl",
            "base,seed=2: @e[base,seed=2]/s.jsonl",
            "lora,seed=1: @e[lora,seed=1]/s.jsonl",
            "lora,seed=2: @e[lora,seed=2]/s.jsonl",
        ]
    );
    assert_eq!(labels("single"), ["alone: @alone"]);
    assert_eq!(
        labels("list"),
        [
            "lora,seed=1: @e[lora,seed=1]",
            "lora,seed=2: @e[lora,seed=2]",
            "alone: @alone/x",
            "base,seed=2: @e[base,seed=2]",
        ]
    );
    assert_eq!(
        params(&plan, "list")["more"],
        json!([{"$input": "@alone"}, {"$input": "@e[base,seed=1]"}, {"$input": "@e[lora,seed=1]"}])
    );
    let mut labelled = labels("labelled");
    labelled.sort();
    assert_eq!(
        labelled,
        [
            "math/base,seed=1: @e[base,seed=1]",
            "math/lora,seed=1: @e[lora,seed=1]",
            "one: @e[lora,seed=2]",
            "plain: @alone",
        ]
    );
    assert_eq!(labels("each[lora]"), ["lora,seed=1: @e[lora,seed=1]", "lora,seed=2: @e[lora,seed=2]"]);
    for stage in &plan.stages {
        assert_eq!(stage.stage.params(), stage.params, "what a worker gets is what was planned");
    }
}

#[test]
fn an_at_sign_in_plain_text_is_text() {
    let plan = plan("name = \"x\"\n[stage.a]\nkind = \"note\"\ntext = \"@nobody[*]\"\n");
    assert_eq!(params(&plan, "a")["text"], "@nobody[*]");
    assert!(plan.stages[0].inputs.is_empty());
}

#[test]
fn a_manifest_is_laid_over_the_one_it_extends() {
    let base = "name = \"base\"\nseed = 1\n[vars]\nsteps = 1\n[arm.a]\n[arm.b]\n\
        [stage.base]\nkind = \"note\"\n\
        [stage.t]\nkind = \"train\"\nmodel = \"./weights\"\nsteps = \"${steps}\"\ntargets = [\"x\", \"y\"]\n\
        adapter = { type = \"lora\", rank = 8, alpha = 16 }\n";
    let top = "extends = \"common/base.toml\"\nname = \"top\"\n[vars]\nsteps = 2\n[arm.c]\n\
        [stage.t]\ntargets = [\"z\"]\nadapter = { rank = 4 }\ndata = \"./data\"\n";
    let folder =
        Folder::new(&[("m.toml", top), ("common/base.toml", base), ("common/weights", ""), ("data", "")]);
    let plan = folder.load(&[]).unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)));
    assert_eq!(plan.experiment.name, "top");
    let arms: Vec<&str> = plan.experiment.arms.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(arms, ["a", "b", "c"]);
    let train = params(&plan, "t");
    assert_eq!(train["steps"], 2);
    assert_eq!(train["targets"], json!(["z"]), "arrays are replaced");
    assert_eq!(train["adapter"], json!({"type": "lora", "rank": 4, "alpha": 16.0}), "tables merge");
    // Paths start from the file that they are written in.
    let inputs = &plan.stages.iter().find(|stage| stage.name == "t").unwrap().inputs;
    let inputs: Vec<_> = inputs.iter().collect();
    assert_eq!(inputs[0].0, "./common/weights");
    assert_eq!(inputs[0].1, &Source::Path(folder.path("common/weights")));
    assert_eq!(inputs[1].0, "./data");
    assert_eq!(inputs[1].1, &Source::Path(folder.path("data")));
}

#[test]
fn several_manifests_are_extended_and_stages_left_out() {
    let study = "extends = \"parts/data.toml\"\nname = \"study\"\n[vars]\nmodel = \"@model\"\n[arm.a]\n\
        [arm.a.eval]\nlr = 2.0\n[stage.model]\nkind = \"note\"\ntext = \"large\"\n\
        [stage.t]\nkind = \"train\"\nmodel = \"${model}\"\ndata = \"@data\"\n\
        [stage.eval]\nkind = \"train\"\nforeach = [\"arm\"]\nmodel = \"@t\"\n";
    let data = "[stage.data]\nkind = \"data\"\ncount = 9\n";
    let small = "without = [\"model\"]\n[stage.data]\ncount = 1\n[stage.model]\nkind = \"data\"\n\
        [stage.extra]\nkind = \"note\"\n";
    let top = "extends = [\"study.toml\", \"parts/small.toml\"]\nwithout = \"eval\"\nname = \"top\"\n";
    let files =
        [("m.toml", top), ("study.toml", study), ("parts/data.toml", data), ("parts/small.toml", small)];
    let plan = Folder::new(&files).load(&[]).unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)));
    let names: Vec<&str> = plan.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["data", "model", "t", "extra"]);
    assert_eq!(params(&plan, "data")["count"], 1, "later ones are laid over earlier ones");
    let model = plan.stages.iter().find(|stage| stage.name == "model").unwrap();
    assert_eq!(model.kind.name, "data", "nothing is left of what was left out");
}

#[test]
fn a_table_is_laid_over_the_variable_that_stands_there() {
    let plan = plan(
        r#"
name = "x"
[vars]
rank = 8
adapter = { type = "lora", rank = "${rank}", alpha = 16 }
same = "${adapter}"
[defaults.train]
adapter = "${same}"
[arm.plain]
[arm.narrow.t]
adapter = { rank = 2 }
[stage.base]
kind = "note"
[stage.t]
kind = "train"
foreach = ["arm"]
model = "@base"
[stage.wide]
kind = "train"
model = "@base"
adapter = { alpha = 1 }
"#,
    );
    let lora = |rank: u64, alpha: f64| json!({"type": "lora", "rank": rank, "alpha": alpha});
    assert_eq!(params(&plan, "t[plain]")["adapter"], lora(8, 16.0));
    assert_eq!(params(&plan, "t[narrow]")["adapter"], lora(2, 16.0));
    assert_eq!(params(&plan, "wide")["adapter"], lora(8, 1.0));
}

#[test]
fn a_point_of_the_matrix_chooses_below_a_variable() {
    let plan = plan(
        r#"
name = "x"
[vars]
models = { small = { rank = 2, of = { k = "a" } }, large = { rank = 16, of = { k = "b" } }, 3 = {} }
[matrix]
model = ["small", "large"]
[stage.base]
kind = "note"
[stage.t]
kind = "train"
foreach = ["model"]
model = "@base"
adapter = { type = "lora", rank = "${models[model].rank}" }
targets = ["${models[ model ].of.k}-${model}"]
"#,
    );
    for (name, rank, target) in [("small", 2, "a-small"), ("large", 16, "b-large")] {
        let params = params(&plan, &format!("t[model={name}]"));
        assert_eq!((&params["adapter"]["rank"], &params["targets"]), (&json!(rank), &json!([target])));
    }
}

#[test]
fn the_digest_covers_every_file_and_no_path() {
    let digest = |files: &[(&str, &str)]| Folder::new(files).load(&[]).expect("a plan").experiment.digest;
    let top = "extends = \"b.toml\"\n";
    let base = "name = \"x\"\n[stage.a]\nkind = \"note\"\n";
    let one = digest(&[("m.toml", top), ("b.toml", base)]);
    assert_eq!(one, digest(&[("m.toml", top), ("b.toml", base)]), "the folder differs, the text does not");
    assert_ne!(one, digest(&[("m.toml", top), ("b.toml", &format!("{base}text = \"y\"\n"))]));
    assert_ne!(one, digest(&[("m.toml", &format!("{top}# z\n")), ("b.toml", base)]));
}

#[test]
fn settings_become_slots_and_limits() {
    let plan = plan(
        r#"
name = "x"
[defaults.train]
timeout = "1d"
[stage.base]
kind = "note"
[stage.a]
kind = "train"
model = "@base"
retries = 3
cache = false
resources = { gpus = 0, memory = "512MiB", cpus = 4 }
[stage.b]
kind = "train"
model = "@base"
timeout = "1h 30m 5s"
"#,
    );
    let [base, a, b] = &plan.stages[..] else { panic!("three stages") };
    assert_eq!((base.timeout, base.retries, base.cache), (None, 0, true));
    assert_eq!(base.resources, Resources::default());
    assert_eq!(a.timeout, Some(Duration::from_secs(86_400)));
    assert_eq!((a.retries, a.cache), (3, false));
    assert_eq!(a.resources, Resources { gpus: 0, memory: 512 * 1024 * 1024, cpus: 4 });
    assert_eq!(b.timeout, Some(Duration::from_secs(5405)));
    assert_eq!(b.resources.gpus, 1, "what the kind needs by default");
}

/// One file has one spelling, whatever the manifest writes; a name that begins with `@` stays a file.
#[test]
fn paths_are_tidied() {
    let text = "name = \"x\"\n[stage.t]\nkind = \"table\"\nsamples = { a = \"s\", b = \"./s\", c = \"././/s\", \
                d = \"d/./s\", e = \"d/../s\", f = \"./@s\" }\n";
    let folder = Folder::new(&[("m.toml", text), ("s", ""), ("d/s", ""), ("@s", "")]);
    let load = |path: &str| {
        let plan = engine::manifest::load(&folder.path(path), &[], &crate::toys::registry());
        plan.unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)))
    };
    let plan = load("././m.toml");
    let samples = &params(&plan, "t")["samples"];
    let written: Vec<&str> = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|label| samples[label]["$input"].as_str().unwrap())
        .collect();
    // `..` is left alone: with links it need not lead back.
    assert_eq!(written, ["./s", "./s", "./s", "./d/s", "./d/../s", "./@s"]);
    assert_eq!(plan.stages[0].inputs.len(), 4);
    assert_eq!(plan.experiment.manifest, folder.path("m.toml"));
    assert!(!plan.experiment.manifest.to_str().unwrap().contains("/./"));
}

/// Scenario 3: a number is its value, and a table its members.
#[test]
fn numbers_and_tables_mean_the_same_however_they_are_written() {
    let key = |lines: &str| {
        let plan = plan(&format!(
            "name = \"x\"\n[stage.base]\nkind = \"note\"\n[stage.t]\nkind = \"train\"\nmodel = \"@base\"\n{lines}\n"
        ));
        let none = std::collections::BTreeMap::new();
        engine::key::KeyParts::of(&plan.stages[1], &none, "cpu", &std::collections::BTreeMap::new()).key()
    };
    let one = key("lr = 1e-5\nsteps = 10\nadapter = { type = \"lora\", rank = 8, alpha = 2 }");
    for lines in [
        "lr = 0.00001\nsteps = 10\nadapter = { type = \"lora\", rank = 8, alpha = 2 }",
        "lr = 0.000_01\nsteps = 0xA\nadapter = { type = \"lora\", rank = 8, alpha = 2.0 }",
        "steps = 1_0\nadapter = { alpha = 2e0, rank = +8, type = \"lora\" }\nlr = 10e-6",
        "steps = 10\nlr = 1E-5\nadapter.type = \"lora\"\nadapter.rank = 8\nadapter.alpha = 2",
    ] {
        assert_eq!(one, key(lines), "{lines}");
    }
    assert_ne!(one, key("lr = 2e-5\nsteps = 10\nadapter = { type = \"lora\", rank = 8, alpha = 2 }"));
}
