//! `--set` on right manifests.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::toys::Folder;

const MANIFEST: &str = r#"
name = "x"
seed = 1
[vars]
x = "text"
n = 1
[arm.a]
[arm.b]
[matrix]
size = [1, 2]
[stage.base]
kind = "note"
text = "${x}"
[stage.t]
kind = "train"
foreach = ["arm"]
model = "@base"
steps = "${n}"
seed = "${seed}"
"#;

fn params(sets: &[&str], stage: &str) -> Value {
    let folder = Folder::new(&[("m.toml", MANIFEST)]);
    let plan = folder.load(sets).unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)));
    plan.stages.into_iter().find(|s| s.name == stage).expect("the stage").params
}

#[test]
fn values_keep_their_types() {
    assert_eq!(params(&["stage.t.steps=2"], "t[a]")["steps"], json!(2));
    assert_eq!(params(&["stage.t.lr=0.000001"], "t[a]")["lr"], json!(0.000001));
    assert_eq!(params(&["stage.t.lr=5e-4"], "t[a]")["lr"], json!(5e-4));
    assert_eq!(params(&["stage.t.targets=[\"q\", \"k\"]"], "t[a]")["targets"], json!(["q", "k"]));
    assert_eq!(params(&["stage.t.schedule=cosine"], "t[a]")["schedule"], "cosine");
    assert_eq!(params(&["stage.t.model=@base"], "t[a]")["model"], json!({"$input": "@base"}));
    let adapter = params(&["stage.t.adapter={type=\"lora\", rank=2}"], "t[b]");
    assert_eq!(adapter["adapter"], json!({"type": "lora", "rank": 2, "alpha": 0.0}));
    let nested = params(&["stage.t.adapter.type=lora", "stage.t.adapter.rank=3"], "t[a]");
    assert_eq!(nested["adapter"]["rank"], 3);
}

#[test]
fn everything_can_be_set() {
    assert_eq!(params(&["arm.b.t.lr=2e-4"], "t[b]")["lr"], json!(2e-4));
    assert_eq!(params(&["arm.b.t.lr=2e-4"], "t[a]")["lr"], json!(1e-3));
    assert_eq!(params(&["vars.n=7"], "t[a]")["steps"], json!(7));
    assert_eq!(params(&["seed=3"], "t[a]")["seed"], json!(3));
    assert_eq!(params(&["defaults.train.rollouts=9"], "t[a]")["rollouts"], json!(9));
    // One-letter variables, with and without `vars.`.
    assert_eq!(params(&["n=8"], "t[a]")["steps"], json!(8));
    assert_eq!(params(&["x=a=b"], "base")["text"], json!("a=b"));
    assert_eq!(params(&["vars.x = spaced out "], "base")["text"], json!(" spaced out "));
    assert_eq!(params(&["x=\"5\""], "base")["text"], json!("5"), "quotes keep a number text");
    // The last one counts.
    assert_eq!(params(&["n=1", "n=2"], "t[a]")["steps"], json!(2));
}

#[test]
fn the_file_and_its_digest_stay_as_they_are() {
    let folder = Folder::new(&[("m.toml", MANIFEST)]);
    let plain = folder.load(&[]).expect("a plan").experiment.digest;
    let set = folder.load(&["n=5"]).expect("a plan").experiment.digest;
    assert_eq!(plain, set);
    assert_eq!(std::fs::read_to_string(folder.path("m.toml")).unwrap(), MANIFEST);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole numbers arrive as themselves, not as floats or text.
    #[test]
    fn whole_numbers_stay_whole(n in any::<u32>()) {
        let got = params(&[&format!("stage.t.steps={n}")], "t[a]");
        prop_assert_eq!(&got["steps"], &json!(n));
    }

    /// Floats arrive bit for bit.
    #[test]
    fn floats_stay_exact(x in any::<f64>().prop_filter("finite", |x| x.is_finite())) {
        let got = params(&[&format!("stage.t.lr={x:?}")], "t[a]");
        prop_assert_eq!(got["lr"].as_f64().map(f64::to_bits), Some(x.to_bits()));
    }

    /// Text that is no TOML value needs no quotes.
    #[test]
    fn text_needs_no_quotes(text in "[g-mo-z][ a-z:/@.]{0,20}") {
        prop_assume!(!text.contains("${") && !["inf", "nan", "true", "false"].contains(&text.trim()));
        let got = params(&[&format!("stage.base.text={text}")], "base");
        prop_assert_eq!(&got["text"], &json!(text));
    }
}

/// A seed of another type is there, though wrong: that is all there is to say.
#[test]
fn a_seed_of_the_wrong_type_is_called_that_and_nothing_else() {
    let folder = Folder::new(&[("m.toml", MANIFEST)]);
    for set in ["seed=1.5", "seed=abc", "seed=[1]", "seed=true"] {
        let said = folder.mistakes(&[set]);
        assert!(said.contains("`seed` must be a whole number"), "{set}: {said}");
        assert!(!said.contains("no variable"), "{set}: {said}");
    }
    let without = Folder::new(&[("m.toml", &MANIFEST.replace("seed = 1\n", ""))]);
    assert!(without.mistakes(&[]).contains("there is no variable `seed`"));
}

/// An empty path is called empty; no stage, written or generated, is meant by it.
#[test]
fn an_empty_path_suggests_no_stage() {
    let text = "name = \"x\"\n[vars]\nm = \"@q\"\n[stage.q]\nkind = \"note\"\ntext = \"t\"\n\
                [stage.t]\nkind = \"train\"\nmodel = \"${m}\"\nsteps = 1\n";
    let said = Folder::new(&[("m.toml", text)]).mistakes(&["vars.m=''"]);
    assert!(said.contains("the name of a file or folder is empty"), "{said}");
    assert!(!said.contains("did you mean"), "{said}");
}
