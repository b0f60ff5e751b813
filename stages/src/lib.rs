//! Every stage kind, and the registry that hands them to the engine.
//!
//! | kind | file | does |
//! |---|---|---|
//! | `aggregate` | `kinds/aggregate/` | compares the arms: intervals, paired tests, claims |
//! | `chart` | `kinds/chart.rs` | draws accuracy and training curves |
//! | `command` | `kinds/command.rs` | runs any program |
//! | `eval` | `kinds/eval.rs` | generates answers to a benchmark |
//! | `prepare` | `kinds/prepare/` | formats, filters and splits a training set |
//! | `init` | `kinds/init.rs` | makes a model with random weights |
//! | `convert` | `kinds/convert.rs` | folds an adapter into a plain checkpoint |
//! | `fetch` | `kinds/fetch/` | brings files from outside, pinned by digest |
//! | `grade` | `kinds/grade.rs` | extracts and checks answers |
//! | `reference` | `kinds/reference.rs` | computes a frozen model's log-probabilities, once for many trainings |
//! | `report` | `kinds/report/` | writes the page that people read |
//! | `synth` | `kinds/synth/` | makes arithmetic word problems |
//! | `train` | `kinds/train/` | trains a model or an adapter |
//! | `tokenizer` | `kinds/tokenizer.rs` | learns a small BPE tokenizer |
//!
//! What kinds share is their contract and its arithmetic: [`samples`] (sample lines), [`arms`] (arms
//! and claims), [`demonstration`] (questions and answers as tokens), [`table`] (results), [`metrics`] (training curves), [`stats`] (intervals and tests),
//! [`gpu`] and [`gpu_use`] (memory, and how much was used), [`repetition`] and [`mod@chart`] (SVG and
//! PNG).
//!
//! To add a kind: write `kinds/NAME.rs` with a params struct that implements
//! [`engine::kind::Stage`], and add its line to [`registry`].

pub mod adapter;
pub mod arms;
pub mod chart;
pub mod commands;
pub mod demonstration;
pub mod gpu;
pub mod gpu_use;
pub mod kinds;
pub mod metrics;
pub mod model;
pub mod questions;
pub mod repetition;
pub mod samples;
#[cfg(test)]
mod samples_of_tests;
pub mod sampling;
pub mod stats;
pub mod table;

use engine::kind::Registry;

/// Every kind the binary knows.
pub fn registry() -> Registry {
    Registry::new()
        .with::<kinds::aggregate::Aggregate>()
        .with::<kinds::chart::Chart>()
        .with::<kinds::command::Command>()
        .with::<kinds::eval::Eval>()
        .with::<kinds::train::Train>()
        .with::<kinds::init::Init>()
        .with::<kinds::convert::Convert>()
        .with::<kinds::fetch::Fetch>()
        .with::<kinds::grade::Grade>()
        .with::<kinds::prepare::Prepare>()
        .with::<kinds::reference::Reference>()
        .with::<kinds::report::Report>()
        .with::<kinds::synth::Synth>()
        .with::<kinds::tokenizer::Tokenizer>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine::kind::StageCtx;

    /// What `pipeline init` writes checks and runs as it is.
    #[test]
    fn the_starter_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (path, out) = (dir.path().join("starter.toml"), dir.path().join("out"));
        let registry = super::registry();
        std::fs::write(&path, engine::docs::starter::starter("starter", &registry)).unwrap();
        let plan = engine::manifest::load(&path, &[], &registry);
        let plan = plan.unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)));
        assert!(!plan.stages.is_empty());
        for planned in &plan.stages {
            assert!(planned.publish.is_some() && planned.inputs.is_empty());
            std::fs::create_dir_all(&out).unwrap();
            planned.stage.run(&StageCtx::detached(&out, dir.path(), BTreeMap::new())).unwrap();
            for name in planned.stage.outputs() {
                assert!(out.join(&name).exists(), "{name}");
            }
        }
    }
}
