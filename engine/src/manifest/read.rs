//! Reads a manifest and what it extends into one tree.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeTable;

use super::node::{Origin, Table, from_toml, merge};
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

/// Reads `path` and the chain of files it extends. `None` when a file is missing or not TOML; what
/// could be said about its content then would be noise.
pub(crate) fn read(path: &Path, sources: &mut Sources, problems: &mut Problems) -> Option<Read> {
    let mut chain: Vec<(PathBuf, Table)> = Vec::new();
    let mut texts: Vec<Arc<str>> = Vec::new();
    let mut folders = Vec::new();
    let mut next: Option<(PathBuf, Option<Span>)> = Some((path.to_owned(), None));
    while let Some((path, extended_at)) = next.take() {
        let text = match read_text(&path) {
            Ok(text) => Arc::<str>::from(text),
            Err(error) => {
                problems.push(unreadable(&path, &error, extended_at));
                return None;
            }
        };
        let file = sources.add(path.display().to_string(), text.clone());
        folders.push(folder_of(&path));
        texts.push(text.clone());
        let mut table = parse(&text, file, problems)?;
        if let Some(entry) = table.shift_remove("extends") {
            let Some(base) = entry.node.text() else {
                problems.push(
                    Problem::new(
                        "wrong-type",
                        format!("`extends` must be a string, not {}", entry.node.describe()),
                        "write the path of one manifest: extends = \"base.toml\"",
                    )
                    .at(entry.node.span, "not a path"),
                );
                return None;
            };
            let base = tidy(&folder_of(&path).join(base));
            let known = chain.iter().map(|(path, _)| path).chain([&path]);
            if known.into_iter().any(|known| same_file(known, &base)) {
                let names: Vec<String> = chain
                    .iter()
                    .map(|(path, _)| path)
                    .chain([&path, &base])
                    .map(|path| shown(path, &folders[0]))
                    .collect();
                problems.push(
                    Problem::new(
                        "extends-cycle",
                        format!("manifests extend each other: {}", names.join(" → ")),
                        "remove one `extends`",
                    )
                    .at(entry.node.span, "leads back"),
                );
                return None;
            }
            next = Some((base, Some(entry.node.span)));
        }
        chain.push((path, table));
    }
    let mut root = Table::new();
    for (_, table) in chain.into_iter().rev() {
        merge(&mut root, table);
    }
    Some(Read { root, folders, digest: digest(&texts) })
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
