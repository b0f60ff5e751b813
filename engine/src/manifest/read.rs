//! Reads a manifest and what it extends into one tree.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeTable;

use super::node::{Node, Origin, Table, Value, from_toml, merge};
use super::problem::{Problem, Problems};
use super::source::{Sources, Span};
use super::suggest::remedy;

/// A manifest as read: its merged tree and what identifies its text.
pub(crate) struct Read {
    /// The manifest laid over what it extends.
    pub root: Table,
    /// The folder of each file read, by its number in the sources.
    pub folders: Vec<PathBuf>,
    /// BLAKE3 (hex) over the texts, see [`digest`].
    pub digest: String,
}

/// Reads `path` and the files it extends. `None` when a file is missing or not TOML; what could be
/// said about its content then would be noise.
pub(crate) fn read(path: &Path, sources: &mut Sources, problems: &mut Problems) -> Option<Read> {
    let mut reader = Reader { sources, problems, folders: Vec::new(), texts: Vec::new(), open: Vec::new() };
    let Layer { table: root, without } = reader.file(path, None)?;
    for name in without.into_iter().filter(|name| !name.found) {
        let stages = root.get("stage").and_then(|entry| entry.node.table());
        let known = stages.into_iter().flat_map(Table::keys).map(String::as_str);
        let help = remedy(&name.stage, "stages", known);
        let message = format!("there is no stage `{}` to leave out", name.stage);
        reader.problems.push(Problem::new("unknown-stage", message, help).at(name.span, "unknown stage"));
    }
    Some(Read { root, digest: digest(&reader.texts), folders: reader.folders })
}

/// A file with what it extends, to be laid over something.
struct Layer {
    table: Table,
    /// What is left out of everything below it.
    without: Vec<LeftOut>,
}

/// A stage to leave out.
struct LeftOut {
    stage: String,
    span: Span,
    /// Whether there was such a stage below.
    found: bool,
}

/// What has been read so far.
struct Reader<'a> {
    sources: &'a mut Sources,
    problems: &'a mut Problems,
    folders: Vec<PathBuf>,
    texts: Vec<Arc<str>>,
    /// The files that are being read, each extended by the one before it.
    open: Vec<PathBuf>,
}

impl Reader<'_> {
    /// The file at `path`, laid over what it extends.
    fn file(&mut self, path: &Path, extended_at: Option<Span>) -> Option<Layer> {
        let text = match read_text(path) {
            Ok(text) => Arc::<str>::from(text),
            Err(error) => {
                self.problems.push(unreadable(path, &error, extended_at));
                return None;
            }
        };
        let file = self.sources.add(path.display().to_string(), text.clone());
        self.folders.push(folder_of(path));
        self.texts.push(text.clone());
        let mut table = parse(&text, file, self.problems)?;
        let bases = match table.shift_remove("extends") {
            Some(entry) => self.texts_of("extends", &entry.node, EXTENDS)?,
            None => Vec::new(),
        };
        let own = match table.shift_remove("without") {
            Some(entry) => self.texts_of("without", &entry.node, WITHOUT)?,
            None => Vec::new(),
        };
        self.open.push(path.to_owned());
        let (mut root, mut without) = (Table::new(), Vec::new());
        for (base, span) in bases {
            let base = tidy(&folder_of(path).join(base));
            if self.open.iter().any(|known| same_file(known, &base)) {
                let names: Vec<String> =
                    self.open.iter().chain([&base]).map(|path| shown(path, &self.folders[0])).collect();
                self.problems.push(
                    Problem::new(
                        "extends-cycle",
                        format!("manifests extend each other: {}", names.join(" → ")),
                        "remove one `extends`",
                    )
                    .at(span, "leads back"),
                );
                return None;
            }
            let mut layer = self.file(&base, Some(span))?;
            for name in &mut layer.without {
                name.found |= leave_out(&mut root, &name.stage);
            }
            merge(&mut root, layer.table);
            without.append(&mut layer.without);
        }
        self.open.pop();
        for (stage, span) in own {
            let found = leave_out(&mut root, &stage);
            without.push(LeftOut { stage, span, found });
        }
        merge(&mut root, table);
        Some(Layer { table: root, without })
    }

    /// The texts of a string or of an array of strings, with their places.
    fn texts_of(&mut self, key: &str, node: &Node, help: &str) -> Option<Vec<(String, Span)>> {
        let items = match &node.value {
            Value::Array(items) => items.iter().collect(),
            _ => vec![node],
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let Some(text) = item.text() else {
                let message =
                    format!("`{key}` must be a string or an array of strings, not {}", item.describe());
                self.problems.push(Problem::new("wrong-type", message, help).at(item.span, "not a string"));
                return None;
            };
            texts.push((text.to_owned(), item.span));
        }
        Some(texts)
    }
}

const EXTENDS: &str = "write the path of a manifest: extends = \"base.toml\"";
const WITHOUT: &str = "write names of stages: without = [\"model\"]";

/// Removes a stage, and what arms say about it; whether there was one.
fn leave_out(root: &mut Table, stage: &str) -> bool {
    let found = table_of(root, "stage").is_some_and(|stages| stages.shift_remove(stage).is_some());
    for arm in table_of(root, "arm").into_iter().flat_map(Table::values_mut) {
        if let Value::Table(arm) = &mut arm.node.value {
            arm.shift_remove(stage);
        }
    }
    found
}

fn table_of<'a>(root: &'a mut Table, key: &str) -> Option<&'a mut Table> {
    match &mut root.get_mut(key)?.node.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// No manifest is this large; what is longer may have no end.
const LARGEST: u64 = 64 << 20;

/// Reads a file, or what a pipe gives.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    if file.take(LARGEST + 1).read_to_string(&mut text)? as u64 > LARGEST {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "too large for a manifest"));
    }
    Ok(text)
}

/// The path without `.` and doubled slashes: one spelling for one file.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| *part != std::path::Component::CurDir);
    let tidy: PathBuf = parts.collect();
    if tidy.as_os_str().is_empty() { PathBuf::from(".") } else { tidy }
}

/// BLAKE3 (hex) over the texts of a manifest and what it extends, in reading order, each preceded
/// by its length. Paths are left out: a copied manifest is the same manifest.
fn digest(texts: &[Arc<str>]) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("pipeline manifest text v1");
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn parse(text: &str, file: u32, problems: &mut Problems) -> Option<Table> {
    let origin = Origin { file, offset: 0 };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(from_toml(table.get_ref(), origin, problems));
    }
    for error in errors {
        let message = format!("this is not TOML: {}", error.message());
        let problem = Problem::new("toml", message, syntax_remedy(error.message()));
        problems.push(problem.at(origin.span(error.span().unwrap_or(0..0)), "here"));
    }
    None
}

fn syntax_remedy(message: &str) -> &'static str {
    if message.contains("duplicate") {
        "a key may appear once in a table: keep one of them, or rename one"
    } else if message.contains("string values must be quoted") {
        "put text in double quotes"
    } else {
        "correct the syntax; https://toml.io/en/v1.0.0 describes it"
    }
}

fn unreadable(path: &Path, error: &std::io::Error, extended_at: Option<Span>) -> Problem {
    let help = match error.kind() {
        std::io::ErrorKind::NotFound if path.is_symlink() => {
            "it is a link to nothing: remove it, or put back what it led to".to_owned()
        }
        std::io::ErrorKind::NotFound => {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let beside = manifests_in(&folder_of(path));
            remedy(&name.unwrap_or_default(), "manifests in that folder", beside.iter().map(String::as_str))
        }
        std::io::ErrorKind::InvalidData => "save it as UTF-8 text".to_owned(),
        _ if path.is_dir() => "name a file in that folder".to_owned(),
        _ => "check the path and its permissions".to_owned(),
    };
    let problem = Problem::new("unreadable", format!("{}: {error}", path.display()), help);
    match extended_at {
        Some(span) => problem.at(span, "extended here"),
        None => problem,
    }
}

fn manifests_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    names
}

/// The folder that relative paths in the file at `path` start from; never empty.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A path without the folder of the manifest that was asked for.
fn shown(path: &Path, folder: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    below.strip_prefix("./").unwrap_or(below).display().to_string()
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
