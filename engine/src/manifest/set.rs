//! `--set path=value`.

use toml::de::{DeTable, DeValue};

use super::node::{Entry, Node, Origin, Table, Value, from_value};
use super::problem::{Problem, Problems};
use super::source::{Sources, Span};
use super::suggest::remedy;

/// Top-level keys that `--set` may start with.
const ROOTS: [&str; 9] = ["name", "title", "seed", "vars", "arm", "matrix", "defaults", "stage", "claims"];

/// Lays one `path=value` over the tree. The value is read as TOML, else taken as text. A bare
/// name that is no top-level key names a variable. Params that the kind does not know are found
/// later, like those in the file.
pub(crate) fn apply(root: &mut Table, setting: &str, sources: &mut Sources, problems: &mut Problems) {
    let file = sources.add("--set", setting);
    let whole = |text: &str| Span { file, start: 0, end: u32::try_from(text.len()).unwrap_or(u32::MAX) };
    let Some((path, equals)) = split(setting) else {
        problems.push(
            Problem::new(
                "bad-set",
                format!("`{setting}` is not path=value"),
                "write for example --set stage.train.lr=5e-4",
            )
            .at(whole(setting), "no `path=`"),
        );
        return;
    };
    let node = value(&setting[equals..], Origin { file, offset: equals }, problems);
    let mut path: Vec<(&str, Span)> = path
        .iter()
        .map(|(key, start, end)| {
            let span = Span { file, start: *start, end: *end };
            (key.as_str(), span)
        })
        .collect();
    let vars = root.get("vars").and_then(|entry| entry.node.table());
    if let [(only, span)] = path[..]
        && !ROOTS.contains(&only)
        && vars.is_some_and(|vars| vars.contains_key(only))
    {
        path.insert(0, ("vars", span));
    }
    if let Some(problem) = mistake(root, &path) {
        problems.push(problem);
        return;
    }
    insert(root, &path, node, problems);
}

/// What is wrong with a path: everything must exist before it may be set, except that below a
/// stage or an arm params need not.
fn mistake(root: &Table, path: &[(&str, Span)]) -> Option<Problem> {
    let (first, span) = path[0];
    let below = |name: &str| root.get(name).and_then(|entry| entry.node.table());
    if first == "extends" {
        return Some(
            Problem::new(
                "bad-set",
                "`extends` cannot be set from the command line",
                "run the manifest that extends the other one",
            )
            .at(span, "not settable"),
        );
    }
    if !ROOTS.contains(&first) && first != "deviations" {
        let vars = below("vars").into_iter().flat_map(Table::keys);
        let known = ROOTS.into_iter().chain(vars.map(String::as_str));
        return Some(
            Problem::new(
                "unknown-path",
                format!("there is no `{first}` to set"),
                remedy(first, "paths start with one of", known),
            )
            .at(span, "unknown"),
        );
    }
    let needs_more = match first {
        "stage" | "arm" | "defaults" => 3,
        "vars" | "matrix" | "claims" | "deviations" => 2,
        _ => 1,
    };
    if path.len() < needs_more {
        let pattern = ["", "", ".NAME", ".NAME.PARAM"][needs_more];
        return Some(
            Problem::new(
                "bad-set",
                format!("`{first}` is a table"),
                format!("name what to change in it: --set {first}{pattern}=…"),
            )
            .at(span, "too short"),
        );
    }
    if needs_more == 1 && path.len() > 1 {
        return Some(
            Problem::new(
                "unknown-path",
                format!("`{first}` is not a table"),
                format!("write --set {first}=…"),
            )
            .at(path[1].1, "nothing lies below"),
        );
    }
    if ["stage", "arm", "vars", "matrix"].contains(&first) {
        let (name, span) = path[1];
        let known = below(first);
        if !known.is_some_and(|known| known.contains_key(name)) {
            let (noun, plural) = match first {
                "stage" => ("stage", "stages"),
                "arm" => ("arm", "arms"),
                "vars" => ("variable", "variables"),
                _ => ("axis", "axes of the matrix"),
            };
            return Some(
                Problem::new(
                    "unknown-path",
                    format!("the manifest has no {noun} `{name}`"),
                    remedy(name, plural, known.into_iter().flat_map(Table::keys).map(String::as_str)),
                )
                .at(span, "unknown"),
            );
        }
    }
    None
}

fn insert(root: &mut Table, path: &[(&str, Span)], node: Node, problems: &mut Problems) {
    let mut table = root;
    let (&(last, span), parents) = path.split_last().expect("a path has at least one key");
    for &(name, span) in parents {
        let entry = table
            .entry(name.to_owned())
            .or_insert_with(|| Entry { key: span, node: Node { span, value: Value::Table(Table::new()) } });
        let kind = entry.node.describe();
        let Value::Table(next) = &mut entry.node.value else {
            problems.push(
                Problem::new(
                    "unknown-path",
                    format!("`{name}` is {kind}, nothing lies below it"),
                    format!("end the path at `{name}`"),
                )
                .at(span, "not a table"),
            );
            return;
        };
        table = next;
    }
    table.insert(last.to_owned(), Entry { key: span, node });
}

type Keys = Vec<(String, u32, u32)>;

/// The keys of the path with their places, and where the value starts.
fn split(setting: &str) -> Option<(Keys, usize)> {
    let equals = setting
        .match_indices('=')
        .map(|(at, _)| at)
        .find(|at| DeTable::parse(&format!("{} = 0", &setting[..*at])).is_ok())?;
    let text = format!("{} = 0", &setting[..equals]);
    let table = DeTable::parse(&text).ok()?;
    let mut keys = Vec::new();
    let mut table = table.get_ref();
    while let Some((key, value)) = table.iter().next() {
        let range = key.span();
        keys.push((
            key.get_ref().clone().into_owned(),
            u32::try_from(range.start).ok()?,
            u32::try_from(range.end).ok()?,
        ));
        match value.get_ref() {
            DeValue::Table(next) => table = next,
            _ => break,
        }
    }
    (!keys.is_empty()).then_some((keys, equals + 1))
}

fn value(text: &str, origin: Origin, problems: &mut Problems) -> Node {
    let lead = text.len() - text.trim_start().len();
    match DeValue::parse(text.trim()) {
        Ok(parsed) => {
            let origin = Origin { offset: origin.offset + lead, ..origin };
            from_value(&parsed, origin, problems)
        }
        Err(_) => Node { span: origin.span(0..text.len()), value: Value::Text(text.to_owned()) },
    }
}
