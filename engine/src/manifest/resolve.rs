//! Looks references up: which instance of which stage, or which file, each one means.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value as Json};

use crate::kind::{INPUT_MARK, Input, UNEXPANDED};
use crate::plan::Source;

use super::family::{Families, Family};
use super::inputs;
use super::node::{Step, Table, locate, show_path};
use super::problem::{Problem, Problems};
use super::source::Span;
use super::suggest::{closest, remedy};

/// What references may mean, for all stages.
pub(crate) struct World<'a> {
    pub families: &'a Families<'a>,
    /// The folder of each file read, see [`super::read::Read`].
    pub folders: &'a [PathBuf],
    /// What is at paths, looked up once each.
    pub found: Mutex<HashMap<PathBuf, Found>>,
    suggested: AtomicUsize,
}

impl<'a> World<'a> {
    /// At most this many references get a "did you mean", which compares them with every stage.
    const SUGGESTED: usize = 200;

    /// A world in which nothing was looked up yet.
    pub fn new(families: &'a Families<'a>, folders: &'a [PathBuf]) -> Self {
        Self { families, folders, found: Mutex::default(), suggested: AtomicUsize::new(0) }
    }

    /// The stage that may have been meant.
    pub fn closest(&self, wrong: &str) -> Option<&'a str> {
        self.may_suggest().then(|| closest(wrong, self.stages()))?
    }

    /// A remedy for a reference to no stage.
    pub fn remedy(&self, wrong: &str) -> String {
        if self.may_suggest() {
            remedy(wrong, "stages", self.stages())
        } else {
            "write the name of a stage".to_owned()
        }
    }

    fn may_suggest(&self) -> bool {
        self.suggested.fetch_add(1, Ordering::Relaxed) < Self::SUGGESTED
    }

    fn stages(&self) -> impl Iterator<Item = &'a str> {
        self.families.list.iter().map(|family| family.name)
    }
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A file or folder.
    Content,
    /// A device, pipe or socket: reading it may never end.
    Special,
    /// Nothing.
    Nothing,
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
    /// Stage instances used.
    pub uses: Vec<Use>,
    /// True once a reference was rewritten.
    pub changed: bool,
    pub(super) path: Vec<Step>,
}

/// A use of a stage instance.
pub(crate) struct Use {
    /// Number of the instance.
    pub number: usize,
    /// Path inside its artifact; empty for the whole.
    pub path: String,
    /// Where it is written.
    pub span: Span,
}

/// An instance that a reference means.
pub(crate) struct Target {
    pub number: usize,
    /// The rewritten reference.
    pub text: String,
    /// Path inside the artifact; empty for the whole.
    pub path: String,
    /// Its label in a fan-in.
    pub label: String,
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

    /// Looks up a reference of params that could not be typed: for what is wrong with it, and for
    /// what the stage needs.
    pub fn probe(&mut self, found: inputs::Found) {
        self.path = found.path;
        if found.several && found.text.starts_with('@') {
            for target in self.targets(&found.text).unwrap_or_default() {
                self.add(target);
            }
        } else {
            self.single(&found.text);
        }
        self.path.clear();
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
    pub(super) fn span(&self) -> Span {
        locate(self.template, &self.path).map_or(self.family.key, |place| place.value)
    }

    pub(super) fn report(&mut self, problem: Problem, label: &str) {
        let mut problem = problem.at(self.span(), label);
        if !self.family.grid.axes.is_empty() {
            problem = problem.in_instance(&self.family.grid.name(self.family.name, self.coordinates));
        }
        self.problems.push(problem);
    }

    fn add(&mut self, target: Target) {
        self.uses.push(Use { number: target.number, path: target.path.clone(), span: self.span() });
        self.inputs.insert(target.text, Source::Stage { index: target.number, path: target.path });
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
