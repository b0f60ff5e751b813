//! From manifest text to a [`Plan`]: everything is checked before anything runs, and every mistake
//! is shown at its place with what to write instead.
//!
//! [`load`] reads top-down:
//! 1. `read` reads the file and what it `extends` into one tree (`node`) that knows the place of
//!    each key and value; `set` lays `--set` over it.
//! 2. `document` checks the top level; `vars` evaluates variables; `axis` holds arms and matrix.
//! 3. `family` reads each `[stage.NAME]`: its kind, and (`grid`) the instances it fans out to.
//! 4. `build` makes the instances: `settings` are the engine's keys, `kinds` types the params
//!    (`shape` finds every mistake in them, `inputs` the references in what could not be typed),
//!    `resolve` rewrites references (`reference` is their grammar, `lookup` their meaning),
//!    `publish` compares destinations, [`crate::graph`] orders the result.
//!
//! `problem` collects mistakes and shows them; `names`, `suggest` and `wording` say what is allowed,
//! what may have been meant, and how.

mod axis;
mod build;
mod document;
mod family;
mod grid;
mod inputs;
mod kinds;
mod lookup;
mod names;
mod node;
mod problem;
mod publish;
mod read;
mod reference;
mod resolve;
mod set;
mod settings;
mod shape;
#[cfg(test)]
mod shape_tests;
mod source;
mod suggest;
mod vars;
mod wording;

use std::path::Path;

use crate::kind::Registry;
use crate::plan::{Experiment, Plan};

pub use problem::{ManifestErrors, Problem};
pub(crate) use settings::{duration, size};
pub use source::Span;

#[cfg(test)]
pub(crate) use document::TOP_KEYS;
pub(crate) use names::slug;
#[cfg(test)]
pub(crate) use settings::SETTINGS;
pub(crate) use settings::Settings;
pub(crate) use suggest::{listed, remedy};

use build::Builder;
use document::Document;
use family::Families;
use kinds::Kinds;
use problem::Problems;
use source::Sources;

/// Reads the manifest at `path` with each of `sets` (`path=value`) laid over it.
///
/// # Errors
/// Every mistake in the manifest, with places and remedies.
pub fn load(path: &Path, sets: &[String], registry: &Registry) -> Result<Plan, ManifestErrors> {
    let path = &read::tidy(path);
    let mut sources = Sources::default();
    let mut problems = Problems::default();
    let plan = plan(path, sets, registry, &mut sources, &mut problems);
    match plan {
        Some(plan) if problems.is_empty() => Ok(plan),
        _ => Err(problems.into_errors(path, sources)),
    }
}

fn plan(
    path: &Path,
    sets: &[String],
    registry: &Registry,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Plan> {
    let mut read = read::read(path, sources, problems)?;
    for setting in sets {
        set::apply(&mut read.root, setting, sources, problems);
    }
    let document = Document::read(&read.root, problems);
    let mut kinds = Kinds::default();
    let families = Families::read(&document, registry, &mut kinds, problems);
    let builder = Builder { document: &document, families: &families, kinds: &kinds, folders: &read.folders };
    if document.stages.is_empty() && problems.is_empty() {
        let help = "add a stage: [stage.NAME] with a `kind`; `pipeline kinds` lists these";
        problems.push(Problem::new("no-stages", "the manifest has no stages", help));
    }
    let stages = builder.build(problems);
    let arms = document.arms.iter();
    Some(Plan {
        experiment: Experiment {
            name: document.name.clone(),
            title: document.title.clone(),
            manifest: path.to_owned(),
            folder: read::folder_of(path),
            arms: arms.map(|arm| (arm.name.to_owned(), arm.label.clone())).collect(),
            digest: read.digest,
            claims: document.claims.clone(),
            deviations: document.deviations.clone(),
        },
        stages,
    })
}
