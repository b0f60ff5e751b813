//! What one reference means: instances of a stage, or a file.

use std::path::Path;

use crate::plan::Source;

use super::axis::{AxisValues, Grid};
use super::family::Family;
use super::node::show_path;
use super::problem::Problem;
use super::read::tidy;
use super::reference::Reference;
use super::resolve::{Found, Resolver, Target};
use super::suggest::remedy;

impl Resolver<'_> {
    pub(super) fn example(&self, text: &str) -> String {
        let target = Reference::parse(text).ok();
        let number = target.and_then(|r| self.world.families.by_name.get(r.stage));
        match number.map(|number| &self.world.families.list[*number]) {
            Some(family) => format!("@{}", family.grid.name(family.name, &family.grid.coordinates(0))),
            None => "@stage[arm]".to_owned(),
        }
    }

    /// A path beside the manifest (or beside the manifest that it extends, where it is written),
    /// spelled in one way: `./` and plain parts, or absolute.
    pub(super) fn file(&mut self, text: &str) -> Option<String> {
        let written_in = self.span().file as usize;
        let own = &self.world.folders[0];
        let folder = self.world.folders.get(written_in).unwrap_or(own);
        let path = tidy(&folder.join(text));
        let rewritten = match folder == own || Path::new(text).is_absolute() {
            true => tidy(Path::new(text)),
            false => path.strip_prefix(tidy(own)).map_or(path.clone(), Path::to_owned),
        };
        let rewritten = match rewritten.is_absolute() || rewritten.starts_with("..") {
            true => rewritten.display().to_string(),
            false => format!("./{}", rewritten.display()),
        };
        self.changed |= rewritten != text;
        let found = self.look(&path);
        if !text.is_empty() && found == Found::Content {
            self.inputs.insert(rewritten.clone(), Source::Path(path));
            return Some(rewritten);
        }
        let (code, message, help) = if found == Found::Special && !text.is_empty() {
            let message = format!("{} is neither a file nor a folder", path.display());
            ("no-file", message, "put its content into a file and name that".to_owned())
        } else if text.is_empty() {
            let help = "write a path, which starts from the manifest's folder, or an output, `@stage`";
            ("no-file", "the name of a file or folder is empty".to_owned(), help.to_owned())
        } else {
            let help = match self.world.closest(text) {
                Some(name) => format!("did you mean the stage, `@{name}`?"),
                None => "paths start from the manifest's folder; outputs of stages are written `@stage`"
                    .to_owned(),
            };
            ("no-file", format!("there is no file or folder {}", path.display()), help)
        };
        self.report(Problem::new(code, message, help), "not there");
        None
    }

    /// What is at a path, looked up once.
    fn look(&self, path: &Path) -> Found {
        if let Some(known) = self.world.found.lock().ok().and_then(|known| known.get(path).copied()) {
            return known;
        }
        let found = match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() || meta.is_dir() => Found::Content,
            Ok(_) => Found::Special,
            Err(_) => Found::Nothing,
        };
        if let Ok(mut known) = self.world.found.lock() {
            known.insert(path.to_owned(), found);
        }
        found
    }

    /// The instances that a reference to a stage means.
    pub(super) fn targets(&mut self, text: &str) -> Option<Vec<Target>> {
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
            let help = self.world.remedy(reference.stage);
            let problem = Problem::new(
                "unknown-stage",
                format!("`{text}` refers to `{}`, which is no stage", reference.stage),
                help,
            );
            self.report(problem, "dangling reference");
            return None;
        };
        let target = &families.list[number];
        let choices = self.choose(&reference, target)?;
        let sub = if reference.path.is_empty() { String::new() } else { format!("/{}", reference.path) };
        let targets: Vec<Target> = product(&choices)
            .into_iter()
            .map(|coordinates| Target {
                path: reference.path.to_owned(),
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
    fn choose(&mut self, reference: &Reference<'_>, target: &Family<'_>) -> Option<Vec<Vec<usize>>> {
        let items = reference.selector.as_deref().unwrap_or_default();
        if items == [(None, "*")] && !target.grid.axes.is_empty() {
            let all = target.grid.axes.iter();
            return Some(all.map(|axis| (0..axis.texts.len()).collect()).collect());
        }
        for (axis, _) in items {
            let axis = axis.unwrap_or("arm");
            if target.grid.axis(axis).is_none() {
                let help = match target.grid.axes.as_slice() {
                    [] => format!("write `@{}`: it has one instance", reference.stage),
                    axes => remedy(axis, "its axes", axes.iter().map(|axis| axis.name.as_str())),
                };
                let message = format!("`{}` does not fan out over `{axis}`", reference.stage);
                self.report(Problem::new("unknown-axis", message, help), "no such instance");
                return None;
            }
        }
        let mut choices = Vec::with_capacity(target.grid.axes.len());
        for axis in &target.grid.axes {
            let item = items.iter().find(|(name, _)| name.unwrap_or("arm") == axis.name);
            let own = self.own(&self.family.grid, &axis.name);
            let wanted = match (item, own) {
                (Some((_, "*")), _) => {
                    choices.push((0..axis.texts.len()).collect());
                    continue;
                }
                (Some((_, value)), _) => *value,
                (None, Some(own)) => own,
                (None, None) => {
                    self.report(ambiguous(reference, target, axis), "which one?");
                    return None;
                }
            };
            let Some(at) = axis.position(wanted) else {
                let message = format!("`{}` has no instance for {} `{wanted}`", reference.stage, axis.name);
                let help = if item.is_some() {
                    remedy(wanted, "instances", axis.texts.iter().map(String::as_str))
                } else if axis.name == "arm" {
                    format!(
                        "give that arm a value of its own: [arm.{wanted}.{}] {} = \"…\"; or leave it out with `arms`",
                        self.family.name,
                        show_path(&self.path),
                    )
                } else {
                    format!("say which: `@{}[{}={}]`", reference.stage, axis.name, axis.texts[0])
                };
                self.report(Problem::new("no-instance", message, help), "no instance");
                return None;
            };
            choices.push(vec![at]);
        }
        Some(choices)
    }

    /// This instance's own value on an axis.
    fn own<'g>(&self, grid: &'g Grid, axis: &str) -> Option<&'g str> {
        let at = grid.axis(axis)?;
        Some(&grid.axes[at].texts[self.coordinates[at]])
    }
}

/// A reference that leaves open which of several instances it means.
fn ambiguous(reference: &Reference<'_>, target: &Family<'_>, axis: &AxisValues) -> Problem {
    let stage = reference.stage;
    let item = |value: &str| match axis.name.as_str() {
        "arm" => value.to_owned(),
        name => format!("{name}={value}"),
    };
    let (one, all) =
        (item(&axis.texts[0]), if target.grid.axes.len() == 1 { "*".to_owned() } else { item("*") });
    Problem::new(
        "ambiguous-reference",
        format!("`@{stage}` has an instance for each `{}`, and this stage does not", axis.name),
        format!(
            "say which: `@{stage}[{one}]` for one, `@{stage}[{all}]` for all, or add \"{}\" to `foreach` of this stage",
            axis.name
        ),
    )
}

/// Every combination, the last axis fastest.
fn product(choices: &[Vec<usize>]) -> Vec<Vec<usize>> {
    choices.iter().fold(vec![Vec::new()], |rows, axis| {
        rows.iter().flat_map(|row| axis.iter().map(move |at| [row.as_slice(), &[*at]].concat())).collect()
    })
}
