//! A `[stage.NAME]` table: its kind, how it fans out, and the params of its instances.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::kind::Registry;

use super::axis::Grid;
use super::document::{Document, wrong_type};
use super::grid::read_grid;
use super::kinds::Kinds;
use super::names;
use super::node::{Entry, Table, locate, merge};
use super::problem::{Problem, Problems};
use super::settings::STRUCTURE;
use super::shape::Misfit;
use super::source::Span;
use super::suggest::remedy;
use super::vars::Globals;

/// More stages than this are a slip of the pen, not an experiment.
const MAX_STAGES: usize = 1_000_000;

/// A `[stage.NAME]` table before expansion.
pub(crate) struct Family<'a> {
    pub name: &'a str,
    /// Where the name stands.
    pub key: Span,
    /// Number of its kind in [`Kinds`]; `None` when unknown, which has been reported.
    pub kind: Option<usize>,
    pub grid: Grid,
    /// Number of its first instance among all.
    pub first: usize,
    table: &'a Table,
    defaults: Option<&'a Table>,
    overrides: HashMap<&'a str, &'a Table>,
}

/// All families, and their numbers by name.
pub(crate) struct Families<'a> {
    pub list: Vec<Family<'a>>,
    pub by_name: HashMap<&'a str, usize>,
    /// How many instances there are in all.
    pub count: usize,
}

impl<'a> Families<'a> {
    /// Reads all stages; what is wrong is reported and left out.
    pub fn read(
        document: &Document<'a>,
        registry: &Registry,
        kinds: &mut Kinds,
        problems: &mut Problems,
    ) -> Self {
        names::check_clashes(
            "stages",
            document.stages.iter().map(|(name, entry)| (*name, entry.key)),
            problems,
        );
        let defaults = read_defaults(document, registry, kinds, problems);
        let mut families = Self {
            list: Vec::with_capacity(document.stages.len()),
            by_name: HashMap::with_capacity(document.stages.len()),
            count: 0,
        };
        for (name, entry) in &document.stages {
            names::check("a stage", name, entry.key, problems);
            if *name == "label" {
                problems.push(
                    Problem::new(
                        "bad-name",
                        "a stage cannot be called `label`",
                        "rename it: [arm.NAME] uses `label` for the arm's own label",
                    )
                    .at(entry.key, "taken"),
                );
            }
            let Some(table) = entry.node.table() else {
                let key = format!("stage.{name}");
                let example = format!("[stage.{name}]");
                problems.push(wrong_type(&key, &entry.node, "a table", &example));
                continue;
            };
            let kind = read_kind(name, entry, table, registry, kinds, problems);
            let is_setting = |key: &str| kinds.is_setting(kind, key);
            let grid = read_grid(entry.key, table, &is_setting, document, problems);
            families.by_name.insert(name, families.list.len());
            families.list.push(Family {
                name,
                key: entry.key,
                kind,
                defaults: kind.and_then(|kind| defaults.get(kinds.name(kind)).copied()),
                grid,
                first: 0,
                table,
                overrides: HashMap::new(),
            });
        }
        families.read_overrides(document, kinds, problems);
        families.number(problems);
        families
    }

    /// Gives every instance its number.
    fn number(&mut self, problems: &mut Problems) {
        for family in &mut self.list {
            family.first = self.count;
            let total = family.grid.checked_count().and_then(|n| n.checked_add(self.count));
            match total.filter(|total| *total <= MAX_STAGES) {
                Some(total) => self.count = total,
                None => {
                    problems.push(
                        Problem::new(
                            "too-many-stages",
                            format!("`{}` brings the number of stages above {MAX_STAGES}", family.name),
                            "fan out over fewer axes, or shorten them",
                        )
                        .at(family.key, "this stage"),
                    );
                    family.grid = Grid::default();
                    self.count += 1;
                }
            }
        }
    }

    fn read_overrides(&mut self, document: &Document<'a>, kinds: &Kinds, problems: &mut Problems) {
        for arm in &document.arms {
            for &(stage, entry) in &arm.overrides {
                let Some(&number) = self.by_name.get(stage) else {
                    let known = self.list.iter().map(|family| family.name);
                    problems.push(
                        Problem::new(
                            "unknown-stage",
                            format!("arm `{}` changes `{stage}`, which is no stage", arm.name),
                            remedy(stage, "stages", known),
                        )
                        .at(entry.key, "unknown stage"),
                    );
                    continue;
                };
                let family = &mut self.list[number];
                let axis = family.grid.axis("arm").map(|at| &family.grid.axes[at]);
                if axis.is_none_or(|axis| axis.position(arm.name).is_none()) {
                    let help = match axis {
                        None => format!("add foreach = [\"arm\"] to [stage.{stage}], or remove this table"),
                        Some(_) => {
                            format!("add \"{}\" to `arms` of [stage.{stage}], or remove this table", arm.name)
                        }
                    };
                    problems.push(
                        Problem::new(
                            "no-instance",
                            format!(
                                "`{stage}` has no instance for arm `{}`, so this has no effect",
                                arm.name
                            ),
                            help,
                        )
                        .at(entry.key, "no effect")
                        .at(family.key, "this stage"),
                    );
                    continue;
                }
                if let Some(table) = entry.node.table() {
                    let is_setting = |key: &str| kinds.is_setting(family.kind, key);
                    reject_structure(table, "an arm", &is_setting, problems);
                    family.overrides.insert(arm.name, table);
                }
            }
        }
    }
}

impl<'a> Family<'a> {
    /// The stage's table with the kind's defaults below it and the arm's params on top.
    pub fn template(&self, arm: Option<&str>, globals: &Globals) -> Cow<'a, Table> {
        let over = arm.and_then(|arm| self.overrides.get(arm));
        if self.defaults.is_none() && over.is_none() {
            return Cow::Borrowed(self.table);
        }
        let mut table = self.defaults.cloned().unwrap_or_default();
        for over in [Some(&self.table), over].into_iter().flatten() {
            globals.write_out(&mut table, over);
            merge(&mut table, (*over).clone());
        }
        Cow::Owned(table)
    }

    /// Turns a mistake found in an instance's params into a problem at its place in the file.
    pub fn problem(&self, misfit: Misfit, template: &Table, globals: &Globals) -> Problem {
        let Misfit { path, code, message, help } = misfit;
        let mut problem = Problem::new(code, message, help);
        let Some(place) = locate(template, &path) else {
            return problem.at(self.key, "in this stage");
        };
        problem = match code {
            "unknown-param" if place.depth == path.len() => problem.at(place.key, "unknown"),
            "missing-param" if place.depth < path.len() => problem.at(place.key, "in this"),
            _ => problem.at(place.value, "here"),
        };
        // A value that comes from elsewhere is shown there, too.
        let variable = place.text.and_then(|text| text.strip_prefix("${")?.strip_suffix('}'));
        match variable.and_then(|path| globals.span(path.split('.').next()?)) {
            Some(span) => problem.at(span, "its value"),
            None => problem,
        }
    }
}

fn read_defaults<'a>(
    document: &Document<'a>,
    registry: &Registry,
    kinds: &mut Kinds,
    problems: &mut Problems,
) -> HashMap<&'a str, &'a Table> {
    let mut defaults = HashMap::new();
    for (name, entry) in &document.defaults {
        let Some(kind) = kinds.get(name, registry) else {
            problems.push(unknown_kind(name, entry.key, registry));
            continue;
        };
        let Some(table) = entry.node.table() else {
            let key = format!("defaults.{name}");
            let example = format!("[defaults.{name}]");
            problems.push(wrong_type(&key, &entry.node, "a table", &example));
            continue;
        };
        let is_setting = |key: &str| kinds.is_setting(Some(kind), key);
        reject_structure(table, "[defaults]", &is_setting, problems);
        for (key, entry) in table.iter().filter(|(key, _)| !is_setting(key)) {
            if let Some(misfit) = kinds.unknown_param(kind, key) {
                problems
                    .push(Problem::new(misfit.code, misfit.message, misfit.help).at(entry.key, "unknown"));
            }
        }
        defaults.insert(*name, table);
    }
    defaults
}

fn reject_structure(table: &Table, place: &str, is_setting: &dyn Fn(&str) -> bool, problems: &mut Problems) {
    for key in STRUCTURE.into_iter().filter(|key| is_setting(key)) {
        if let Some(entry) = table.get(key) {
            problems.push(
                Problem::new(
                    "bad-override",
                    format!("`{key}` cannot stand in {place}"),
                    "it shapes the whole stage: write it in [stage.NAME]",
                )
                .at(entry.key, "not here"),
            );
        }
    }
}

fn unknown_kind(name: &str, span: Span, registry: &Registry) -> Problem {
    Problem::new(
        "unknown-kind",
        format!("there is no stage kind `{name}`"),
        remedy(name, "kinds", registry.iter().map(|kind| kind.name)),
    )
    .at(span, "unknown kind")
}

fn read_kind(
    name: &str,
    entry: &Entry,
    table: &Table,
    registry: &Registry,
    kinds: &mut Kinds,
    problems: &mut Problems,
) -> Option<usize> {
    let Some(written) = table.get("kind") else {
        let known: Vec<&str> = registry.iter().map(|kind| kind.name).collect();
        problems.push(
            Problem::new(
                "missing-kind",
                format!("stage `{name}` does not say its kind"),
                format!("add kind = one of {}", known.join(", ")),
            )
            .at(entry.key, "this stage"),
        );
        return None;
    };
    let Some(kind) = written.node.text() else {
        problems.push(wrong_type("kind", &written.node, "a string", "kind = \"…\""));
        return None;
    };
    let number = kinds.get(kind, registry);
    if number.is_none() {
        problems.push(unknown_kind(kind, written.node.span, registry));
    }
    number
}

/// A param path as text, for problems that kinds report.
pub(crate) fn misfit_of(problem: crate::kind::ParamProblem, code: &'static str) -> Misfit {
    Misfit {
        path: super::node::parse_path(&problem.param),
        code,
        message: problem.message,
        help: problem.help,
    }
}
