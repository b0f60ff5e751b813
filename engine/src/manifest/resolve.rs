//! Looks references up: which instance of which stage, or which file, each one means.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::{Map, Value as Json};

use crate::kind::{INPUT_MARK, Input, UNEXPANDED};
use crate::plan::Source;

use super::axis::Grid;
use super::family::{Families, Family};
use super::node::{Step, Table, locate, show_path};
use super::problem::{Problem, Problems};
use super::reference::Reference;
use super::source::Span;
use super::suggest::remedy;

/// What references may mean, for all stages.
pub(crate) struct World<'a> {
    pub families: &'a Families<'a>,
    /// The folder of each file read, see [`super::read::Read`].
    pub folders: &'a [PathBuf],
    /// Whether paths exist, looked up once each.
    pub exists: Mutex<HashMap<PathBuf, bool>>,
}

/// Resolves the references of one instance.
pub(crate) struct Resolver<'a> {
    pub world: &'a World<'a>,
    pub family: &'a Family<'a>,
    pub coordinates: &'a [usize],
    pub template: &'a Table,
    pub problems: &'a mut Problems,
    /// Where every reference points, by its rewritten text.
    pub inputs: BTreeMap<String, Source>,
    /// Stage instances used, with the place that says so.
    pub uses: Vec<(usize, Span)>,
    /// True once a reference was rewritten.
    pub changed: bool,
    path: Vec<Step>,
}

/// An instance that a reference means.
struct Target {
    number: usize,
    /// The rewritten reference.
    text: String,
    /// Its label in a fan-in.
    label: String,
}

impl<'a> Resolver<'a> {
    /// A resolver that has seen nothing yet.
    pub fn new(
        world: &'a World<'a>,
        family: &'a Family<'a>,
        coordinates: &'a [usize],
        template: &'a Table,
        problems: &'a mut Problems,
    ) -> Self {
        Self {
            world,
            family,
            coordinates,
            template,
            problems,
            inputs: BTreeMap::new(),
            uses: Vec::new(),
            changed: false,
            path: Vec::new(),
        }
    }

    /// Rewrites every reference in typed params to an expanded name.
    pub fn rewrite(&mut self, value: &mut Json) {
        match value {
            Json::Object(map) => {
                if let Some(text) = marked(map) {
                    if let Some(text) = self.single(&text) {
                        map.insert(INPUT_MARK.to_owned(), Json::String(text));
                    }
                    return;
                }
                if map.keys().any(|key| key.starts_with(UNEXPANDED)) {
                    self.expand_map(map);
                    return;
                }
                for (key, value) in map.iter_mut() {
                    if value.is_object() || value.is_array() {
                        self.path.push(Step::Key(key.clone()));
                        self.rewrite(value);
                        self.path.pop();
                    }
                }
            }
            Json::Array(items) => self.rewrite_array(items),
            _ => {}
        }
    }

    fn rewrite_array(&mut self, items: &mut Vec<Json>) {
        let fans = |item: &Json| {
            let text = item.as_object().and_then(marked);
            text.is_some_and(|text| Input::new(text).is_fan_in())
        };
        if !items.iter().any(fans) {
            for (index, item) in items.iter_mut().enumerate() {
                if item.is_object() || item.is_array() {
                    self.path.push(Step::Index(index));
                    self.rewrite(item);
                    self.path.pop();
                }
            }
            return;
        }
        let mut expanded = Vec::new();
        for (index, mut item) in std::mem::take(items).into_iter().enumerate() {
            self.path.push(Step::Index(index));
            if fans(&item) {
                let text = item.as_object().and_then(marked).unwrap_or_default();
                self.changed = true;
                for target in self.targets(&text).unwrap_or_default() {
                    expanded.push(mark(target.text.clone()));
                    self.add(target);
                }
            } else {
                self.rewrite(&mut item);
                expanded.push(item);
            }
            self.path.pop();
        }
        *items = expanded;
    }

    /// Expands the entries of an [`crate::kind::Inputs`].
    fn expand_map(&mut self, map: &mut Map<String, Json>) {
        self.changed = true;
        for (key, value) in std::mem::take(map) {
            let Some(text) = value.as_object().and_then(marked) else {
                continue;
            };
            let Some(label) = key.strip_prefix(UNEXPANDED) else {
                self.path.push(Step::Key(key.clone()));
                let text = self.single(&text).unwrap_or(text);
                self.label(map, key, text);
                self.path.pop();
                continue;
            };
            // `*math/` came from a table, `*000002` from an array, `*` from a plain string.
            let (step, prefix) = match label.strip_suffix('/') {
                Some(name) => (Some(Step::Key(name.to_owned())), label),
                None => (label.parse().ok().map(Step::Index), ""),
            };
            let steps = self.path.len();
            self.path.extend(step);
            if text.starts_with('@') {
                for target in self.targets(&text).unwrap_or_default() {
                    let label = format!("{prefix}{}", target.label);
                    self.label(map, label, target.text.clone());
                    self.add(target);
                }
            } else if let Some(text) = self.file(&text) {
                let stem = Path::new(&text).file_stem().map(|stem| stem.to_string_lossy().into_owned());
                self.label(map, stem.unwrap_or_default(), text);
            }
            self.path.truncate(steps);
        }
    }

    fn label(&mut self, map: &mut Map<String, Json>, label: String, text: String) {
        if map.contains_key(&label) {
            let problem = Problem::new(
                "label-clash",
                format!("two inputs are labelled `{label}`"),
                "write a table, so that each has a label of its own: { math = \"@eval[*]\", … }",
            );
            self.report(problem, "again");
        }
        map.insert(label, mark(text));
    }

    /// Where the param being looked at is written.
    fn span(&self) -> Span {
        locate(self.template, &self.path).map_or(self.family.key, |(_, value, _)| value)
    }

    fn report(&mut self, problem: Problem, label: &str) {
        let mut problem = problem.at(self.span(), label);
        if !self.family.grid.axes.is_empty() {
            problem = problem.in_instance(&self.family.grid.name(self.family.name, self.coordinates));
        }
        self.problems.push(problem);
    }

    fn add(&mut self, target: Target) {
        let path = Reference::parse(&target.text).map_or("", |reference| reference.path);
        let source = Source::Stage {
            index: target.number,
            path: path.to_owned(),
        };
        self.uses.push((target.number, self.span()));
        self.inputs.insert(target.text, source);
    }

    /// The rewritten text of a reference that must mean one thing.
    fn single(&mut self, text: &str) -> Option<String> {
        if !text.starts_with('@') {
            return self.file(text);
        }
        if Input::new(text).is_fan_in() {
            let name = show_path(&self.path);
            let problem = Problem::new(
                "fan-in",
                format!("`{name}` takes one input, but `{text}` stands for several"),
                format!("name one instance, such as `{}`", self.example(text)),
            );
            self.report(problem, "several");
            return None;
        }
        let target = self.targets(text)?.pop()?;
        let text = target.text.clone();
        self.add(target);
        Some(text)
    }

    fn example(&self, text: &str) -> String {
        let target = Reference::parse(text).ok();
        let number = target.and_then(|r| self.world.families.by_name.get(r.stage));
        match number.map(|number| &self.world.families.list[*number]) {
            Some(family) => format!("@{}", family.grid.name(family.name, &family.grid.coordinates(0))),
            None => "@stage[arm]".to_owned(),
        }
    }

    /// A path beside the manifest (or beside the manifest that it extends, where it is written).
    fn file(&mut self, text: &str) -> Option<String> {
        let written_in = self.span().file as usize;
        let folder = &self.world.folders[0];
        let rewritten = match self.world.folders.get(written_in) {
            Some(other) if other != folder && Path::new(text).is_relative() => {
                self.changed = true;
                let joined = other.join(text);
                joined.strip_prefix(folder).map_or(joined.clone(), Path::to_owned).display().to_string()
            }
            _ => text.to_owned(),
        };
        let path = match self.world.folders.get(written_in) {
            Some(other) if other != folder => other.join(text),
            _ => folder.join(text),
        };
        let known = self.world.exists.lock().ok().and_then(|known| known.get(&path).copied());
        let exists = known.unwrap_or_else(|| {
            let exists = path.exists();
            if let Ok(mut known) = self.world.exists.lock() {
                known.insert(path.clone(), exists);
            }
            exists
        });
        if text.is_empty() || !exists {
            let families = self.world.families.list.iter().map(|family| family.name);
            let help = match super::suggest::closest(text, families) {
                Some(name) => format!("did you mean the stage, `@{name}`?"),
                None => "paths start from the manifest's folder; outputs of stages are written `@stage`".to_owned(),
            };
            let problem = Problem::new("no-file", format!("there is no file or folder {}", path.display()), help);
            self.report(problem, "not there");
            return None;
        }
        self.inputs.insert(rewritten.clone(), Source::Path(path));
        Some(rewritten)
    }

    /// The instances that a reference to a stage means.
    fn targets(&mut self, text: &str) -> Option<Vec<Target>> {
        let reference = match Reference::parse(text) {
            Ok(reference) => reference,
            Err(message) => {
                let problem = Problem::new(
                    "bad-reference",
                    format!("`{text}` is not a reference: {message}"),
                    "write \"@stage\", \"@stage/file\", \"@stage[arm]\" or \"@stage[*]\"",
                );
                self.report(problem, "not a reference");
                return None;
            }
        };
        let families = self.world.families;
        let Some(&number) = families.by_name.get(reference.stage) else {
            let known = families.list.iter().map(|family| family.name);
            let help = match super::suggest::closest(reference.stage, known.clone()) {
                Some(name) => format!("did you mean `@{name}`?"),
                None => remedy(reference.stage, "stages", known),
            };
            let problem = Problem::new(
                "unknown-stage",
                format!("`{text}` refers to `{}`, which is no stage", reference.stage),
                help,
            );
            self.report(problem, "dangling reference");
            return None;
        };
        let target = &families.list[number];
        let choices = match self.choose(&reference, target) {
            Ok(choices) => choices,
            Err((problem, label)) => {
                self.report(problem, label);
                return None;
            }
        };
        let sub = if reference.path.is_empty() {
            String::new()
        } else {
            format!("/{}", reference.path)
        };
        let targets: Vec<Target> = product(&choices)
            .into_iter()
            .map(|coordinates| Target {
                number: target.first + target.grid.number(&coordinates),
                text: format!("@{}{sub}", target.grid.name(target.name, &coordinates)),
                label: match target.grid.axes.len() {
                    0 => target.name.to_owned(),
                    _ => target.grid.label(&coordinates),
                },
            })
            .collect();
        self.changed |= !target.grid.axes.is_empty();
        Some(targets)
    }

    /// For each axis of the target, the positions that the reference means.
    fn choose(
        &self,
        reference: &Reference<'_>,
        target: &Family<'_>,
    ) -> Result<Vec<Vec<usize>>, (Problem, &'static str)> {
        let items = reference.selector.as_deref().unwrap_or_default();
        let text = format!("@{}", reference.stage);
        if items == [(None, "*")] && !target.grid.axes.is_empty() {
            let all = target.grid.axes.iter();
            return Ok(all.map(|axis| (0..axis.texts.len()).collect()).collect());
        }
        for (axis, _) in items {
            let axis = axis.unwrap_or("arm");
            if target.grid.axis(axis).is_none() {
                let help = match target.grid.axes.as_slice() {
                    [] => format!("write `{text}`: it has one instance"),
                    axes => remedy(axis, "its axes", axes.iter().map(|axis| axis.name.as_str())),
                };
                let message = format!("`{}` does not fan out over `{axis}`", reference.stage);
                return Err((Problem::new("unknown-axis", message, help), "no such instance"));
            }
        }
        let axes = target.grid.axes.iter();
        axes.map(|axis| {
            let item = items
                .iter()
                .find(|(name, _)| name.unwrap_or("arm") == axis.name);
            let wanted = match item {
                Some((_, "*")) => return Ok((0..axis.texts.len()).collect()),
                Some((_, value)) => value,
                None => match self.own(&self.family.grid, &axis.name) {
                    Some(value) => value,
                    None => {
                        let message = format!(
                            "`{text}` has an instance for each `{}`, and this stage does not",
                            axis.name
                        );
                        let one = match axis.name.as_str() {
                            "arm" => axis.texts[0].clone(),
                            name => format!("{name}={}", axis.texts[0]),
                        };
                        let help = format!(
                            "say which: `{text}[{one}]` for one, `{text}[*]` for all, or fan this stage out: foreach = [\"{}\"]",
                            axis.name
                        );
                        return Err((Problem::new("ambiguous-reference", message, help), "which one?"));
                    }
                },
            };
            axis.position(wanted).map(|at| vec![at]).ok_or_else(|| {
                let message = format!("`{}` has no instance for {} `{wanted}`", reference.stage, axis.name);
                let help = if item.is_some() {
                    remedy(wanted, "instances", axis.texts.iter().map(String::as_str))
                } else {
                    let param = show_path(&self.path);
                    format!(
                        "give that {} a value of its own: [{}.{wanted}.{}] {param} = \"…\"; or leave it out of this stage",
                        axis.name, axis.name, self.family.name
                    )
                };
                (Problem::new("no-instance", message, help), "no instance")
            })
        })
        .collect()
    }

    /// This instance's own value on an axis.
    fn own<'g>(&self, grid: &'g Grid, axis: &str) -> Option<&'g str> {
        let at = grid.axis(axis)?;
        Some(&grid.axes[at].texts[self.coordinates[at]])
    }
}

/// Every combination, the last axis fastest.
fn product(choices: &[Vec<usize>]) -> Vec<Vec<usize>> {
    choices.iter().fold(vec![Vec::new()], |rows, axis| {
        rows.iter()
            .flat_map(|row| axis.iter().map(move |at| [row.as_slice(), &[*at]].concat()))
            .collect()
    })
}

/// The reference in `{"$input": "…"}`.
fn marked(map: &Map<String, Json>) -> Option<String> {
    if map.len() != 1 {
        return None;
    }
    Some(map.get(INPUT_MARK)?.as_str()?.to_owned())
}

fn mark(text: String) -> Json {
    Json::Object(Map::from_iter([(INPUT_MARK.to_owned(), Json::String(text))]))
}
