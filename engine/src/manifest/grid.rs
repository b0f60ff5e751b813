//! Reads `foreach` and `arms`: over what a stage fans out.

use std::collections::HashSet;
use std::sync::Arc;

use super::axis::{AxisValues, Grid};
use super::document::Document;
use super::node::{Step, Table, locate};
use super::problem::{Problem, Problems};
use super::settings::{self, Settings};
use super::source::Span;
use super::suggest::{closest, remedy};
use super::vars::Scope;

/// Reads `foreach` and `arms`.
pub(crate) fn read_grid(key: Span, table: &Table, document: &Document<'_>, problems: &mut Problems) -> Grid {
    if !table.contains_key("foreach") && !table.contains_key("arms") {
        return Grid::default();
    }
    let scope = Scope { globals: &document.globals, locals: &[] };
    let written = scope.resolve_table(table, |key| key != "foreach" && key != "arms", problems);
    let Some(written) = written else {
        return Grid::default();
    };
    let place = |key: &str, index: usize| {
        let path = [Step::Key(key.to_owned()), Step::Index(index)];
        locate(table, &path).map_or(Span { file: 0, start: 0, end: 0 }, |place| place.value)
    };
    let settings: Settings = match settings::parse_structure(written) {
        Ok(settings) => settings,
        Err(found) => {
            for misfit in found {
                let span = locate(table, &misfit.path).map_or(key, |place| place.value);
                problems.push(Problem::new(misfit.code, misfit.message, misfit.help).at(span, "here"));
            }
            return Grid::default();
        }
    };
    let mut grid = Grid::default();
    for (index, name) in settings.foreach.iter().enumerate() {
        if grid.axis(name).is_some() {
            problems.push(
                Problem::new("unknown-axis", format!("`{name}` stands twice in `foreach`"), "keep one")
                    .at(place("foreach", index), "again"),
            );
            continue;
        }
        let known = || {
            let axes = document.matrix.iter().map(|axis| axis.name.as_str());
            document.arm_axis.iter().map(|_| "arm").chain(axes)
        };
        let axis = match &document.arm_axis {
            Some(axis) if name == "arm" => Some(axis),
            _ => document.matrix.iter().find(|axis| axis.name == *name),
        };
        match axis {
            Some(axis) => grid.axes.push(axis.clone()),
            None => {
                let help = match name.as_str() {
                    "arm" => "add arms: [arm.NAME]".to_owned(),
                    _ => match closest(name, known()) {
                        Some(close) => format!("did you mean `{close}`?"),
                        None => format!("add `{name} = [1, 2]` to [matrix], or remove it here"),
                    },
                };
                problems.push(
                    Problem::new("unknown-axis", format!("there is no axis `{name}` to fan out over"), help)
                        .at(place("foreach", index), "unknown axis"),
                );
            }
        }
    }
    if let Some(wanted) = settings.arms {
        select_arms(&mut grid, &wanted, &|index| place("arms", index), document, problems);
    }
    grid
}

fn select_arms(
    grid: &mut Grid,
    wanted: &[String],
    place: &dyn Fn(usize) -> Span,
    document: &Document<'_>,
    problems: &mut Problems,
) {
    let Some(all) = &document.arm_axis else {
        problems.push(
            Problem::new(
                "unknown-arm",
                "`arms` without any arm in the manifest",
                "add [arm.NAME] tables, or remove `arms`",
            )
            .at(place(0), "no arms"),
        );
        return;
    };
    for (index, name) in wanted.iter().enumerate() {
        if all.position(name).is_none() {
            problems.push(
                Problem::new(
                    "unknown-arm",
                    format!("there is no arm `{name}`"),
                    remedy(name, "arms", all.texts.iter().map(String::as_str)),
                )
                .at(place(index), "unknown arm"),
            );
        }
    }
    let Some(at) = grid.axis("arm") else {
        problems.push(
            Problem::new(
                "unknown-axis",
                "`arms` needs `foreach` with \"arm\"",
                "add foreach = [\"arm\"], or remove `arms`",
            )
            .at(place(0), "no effect"),
        );
        return;
    };
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let subset: AxisValues = all.subset(|name| wanted.contains(name));
    if subset.texts.is_empty() {
        if wanted.is_empty() {
            problems.push(
                Problem::new("unknown-arm", "`arms` is empty", "name at least one arm, or remove the stage")
                    .at(place(0), "empty"),
            );
        }
        return;
    }
    grid.axes[at] = Arc::new(subset);
}
