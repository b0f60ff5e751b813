//! Every recipe is right, and the small and tiny twins are twins.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use engine::manifest::load;
use engine::plan::Plan;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

fn manifests() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    paths
}

fn plan(path: &Path) -> Plan {
    load(path, &[], &stages::registry()).unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)))
}

/// Stages that bring models and data into form: what a twin does differently.
const SOURCES: [&str; 9] =
    ["model", "questions", "rows", "parquet", "slice", "data", "synth", "gsm8k", "one-step"];

/// The names of the other stages, as in `[stage.NAME]`.
fn work(plan: &Plan) -> BTreeSet<String> {
    let names = plan.stages.iter().map(|stage| stage.base.clone());
    names.filter(|name| !SOURCES.contains(&name.as_str())).collect()
}

fn arms(plan: &Plan) -> Vec<&str> {
    plan.experiment.arms.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn every_recipe_is_right_and_named_like_its_file() {
    let paths = manifests();
    assert!(paths.len() >= 14, "{paths:?}");
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(plan(&path).experiment.name, name);
    }
}

#[test]
fn twins_have_the_arms_and_stages_of_their_study() {
    let twins = [
        ("one-shot-em-full", ["one-shot-em-small", "one-shot-em-tiny"]),
        ("steering-five-arm", ["steering-five-arm-small", "quickstart"]),
        ("finemath-sft", ["finemath-sft-small", "finemath-sft-tiny"]),
        ("psft-vs-spft", ["psft-vs-spft-small", "psft-vs-spft-tiny"]),
    ];
    for (study, twins) in twins {
        let study = plan(&folder().join(study).with_extension("toml"));
        for twin in twins {
            let twin = plan(&folder().join(twin).with_extension("toml"));
            assert_eq!(arms(&twin), arms(&study), "{}", twin.experiment.name);
            assert_eq!(work(&twin), work(&study), "{}", twin.experiment.name);
        }
    }
}

/// Recipes whose results are kept name what they fetch, to the byte: their lock files pin every source
/// and nothing else.
#[test]
fn kept_results_have_whole_lock_files() {
    let mut pinned = 0;
    for path in manifests() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.ends_with("-small") && name != "steering-five-arm-cpu" {
            continue;
        }
        let wanted: BTreeSet<String> =
            plan(&path).stages.iter().flat_map(|stage| stage.stage.sources()).collect();
        let lock = std::fs::read_to_string(path.with_extension("lock")).unwrap();
        let lock: toml::Table = lock.parse().unwrap();
        let locked = lock["source"].as_table().unwrap();
        assert_eq!(locked.keys().cloned().collect::<BTreeSet<_>>(), wanted, "{name}");
        assert!(locked.values().all(|pin| pin["digest"].as_str().unwrap().len() == 64), "{name}");
        pinned += 1;
    }
    assert_eq!(pinned, 5);
}

#[test]
fn tiny_twins_need_no_network_and_no_consent() {
    for path in manifests() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.ends_with("-tiny") && name != "quickstart" {
            continue;
        }
        for stage in plan(&path).stages {
            assert!(!["fetch", "command"].contains(&stage.kind.name), "{name}: {}", stage.name);
        }
    }
}
