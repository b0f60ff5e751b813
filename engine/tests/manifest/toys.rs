//! Stage kinds that do nothing, for manifests under test, and a way to write these down.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::kind::{Input, Inputs, ParamProblem, Registry, Stage, StageCtx, StageError};
use engine::manifest::{self, ManifestErrors};
use engine::plan::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// Makes data.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Number of examples.
    #[serde(default = "hundred")]
    pub count: u32,
    /// Seed of the examples.
    #[serde(default)]
    pub seed: u64,
}

fn hundred() -> u32 {
    100
}

/// What is trained.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Adapter {
    /// A vector added to each layer.
    Steering,
    /// Low-rank matrices.
    Lora {
        /// Rank.
        rank: u32,
        /// Scale.
        #[serde(default)]
        alpha: f64,
    },
}

/// How the learning rate moves.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// Half a cosine down to zero.
    Cosine,
}

/// Trains a model.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// The model to start from.
    pub model: Input,
    /// Where the examples are.
    #[serde(default)]
    pub data: Option<Input>,
    /// Learning rate.
    #[serde(default = "lr")]
    pub lr: f64,
    /// Optimiser steps.
    #[serde(default)]
    pub steps: u32,
    /// Generations per prompt.
    #[serde(default)]
    pub rollouts: u32,
    /// Names of parameters to train.
    #[serde(default)]
    pub targets: Vec<String>,
    /// What is trained.
    #[serde(default)]
    pub adapter: Option<Adapter>,
    /// How the learning rate moves.
    #[serde(default)]
    pub schedule: Schedule,
    /// Seed of the sampling.
    #[serde(default)]
    pub seed: u64,
}

fn lr() -> f64 {
    1e-3
}

/// Brings samples together.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// One file of samples for each arm.
    pub samples: Inputs,
    /// Published numbers.
    #[serde(default)]
    pub claims: serde_json::Value,
    /// More files, in order.
    #[serde(default)]
    pub more: Vec<Input>,
}

/// Holds plain text.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The text.
    #[serde(default)]
    pub text: String,
    /// Anything.
    #[serde(default)]
    pub values: BTreeMap<String, serde_json::Value>,
}

impl Stage for Data {
    const KIND: &'static str = "data";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        vec!["train.jsonl".into(), "test.jsonl".into()]
    }
    fn check(&self) -> Vec<ParamProblem> {
        if self.count == 0 {
            return vec![ParamProblem {
                param: "count".into(),
                message: "no examples are made".into(),
                help: "ask for at least one".into(),
            }];
        }
        Vec::new()
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

impl Stage for Train {
    const KIND: &'static str = "train";
    const VERSION: u32 = 3;
    fn outputs(&self) -> Vec<String> {
        vec!["model".into()]
    }
    fn default_gpus(&self) -> u32 {
        1
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

impl Stage for Table {
    const KIND: &'static str = "table";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        vec!["table.csv".into()]
    }
    fn has_more_outputs(&self) -> bool {
        true
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

impl Stage for Note {
    const KIND: &'static str = "note";
    const VERSION: u32 = 1;
    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }
    fn run(&self, _: &StageCtx) -> Result<(), StageError> {
        Ok(())
    }
}

/// All toy kinds.
pub fn registry() -> Registry {
    Registry::new().with::<Data>().with::<Train>().with::<Table>().with::<Note>()
}

/// A folder with files.
pub struct Folder(TempDir);

impl Folder {
    /// Writes `files` (name, text) into a new folder.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Loads `m.toml`.
    pub fn load(&self, sets: &[&str]) -> Result<Plan, ManifestErrors> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        manifest::load(&self.path("m.toml"), &sets, &registry())
    }

    /// What is printed for the mistakes in `m.toml`, without the folder's name.
    pub fn mistakes(&self, sets: &[&str]) -> String {
        let errors = self.load(sets).err().expect("the manifest has mistakes");
        let text = errors.render(false, 100);
        let folder = format!("{}/", self.0.path().display());
        text.replace(&folder, "")
    }
}

/// Loads one manifest from its text.
pub fn load(text: &str) -> Result<Plan, ManifestErrors> {
    Folder::new(&[("m.toml", text)]).load(&[])
}

/// As [`load`], for manifests that are right.
pub fn plan(text: &str) -> Plan {
    load(text).unwrap_or_else(|errors| panic!("{}", errors.render(false, 100)))
}

/// What is printed for the mistakes in a manifest.
pub fn mistakes(text: &str) -> String {
    Folder::new(&[("m.toml", text)]).mistakes(&[])
}

/// Names of the expanded stages, in order.
pub fn names(plan: &Plan) -> Vec<&str> {
    plan.stages.iter().map(|stage| stage.name.as_str()).collect()
}
