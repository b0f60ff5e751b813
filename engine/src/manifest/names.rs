//! Which names are allowed, and which ones clash.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::problem::{Problem, Problems};
use super::source::Span;

/// Characters with a meaning in references, expanded names, paths or shells.
const FORBIDDEN: &str = "/\\[](){},;:=@$*?!&|<>#%'\"`~^";

/// Checks the name of a stage, an arm, an axis or an axis' value.
pub(crate) fn check(what: &str, name: &str, span: Span, problems: &mut Problems) {
    let bad = name.chars().find(|c| c.is_whitespace() || c.is_control() || FORBIDDEN.contains(*c));
    let message = match bad {
        Some(c) => format!("{what} `{}` contains {c:?}", name.escape_debug()),
        None if name.is_empty() => format!("{what} without a name"),
        None if name.starts_with(['-', '.']) => {
            format!("{what} `{name}` starts with `{}`", &name[..1])
        }
        None => return,
    };
    problems.push(
        Problem::new(
            "bad-name",
            message,
            "use letters, digits, `-`, `_`, `.` and `+`, starting with a letter or digit",
        )
        .at(span, "not a name"),
    );
}

/// Checks the experiment's name, which is also a folder's.
pub(crate) fn check_experiment(name: &str, span: Span, problems: &mut Problems) {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.is_empty() && name.chars().all(allowed) && !name.starts_with('-') {
        return;
    }
    let example = slug(name);
    problems.push(
        Problem::new(
            "bad-name",
            format!("the experiment's name `{}` is also a folder's", name.escape_debug()),
            format!("use lower-case letters, digits and `-`: name = \"{example}\""),
        )
        .at(span, "only a-z, 0-9 and `-`"),
    );
}

/// An experiment name made from any text.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.to_lowercase().chars() {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "my-experiment".to_owned() } else { slug.to_owned() }
}

/// What a file system that ignores case and Unicode composition makes of a name: two names with
/// one folded form cannot both be files there. Full case folding is approximated by going up and
/// down again, which maps `ß` and `SS` to `ss`; composition is undone before and after (NFC/NFD).
pub(crate) fn fold(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let decomposed: String = name.nfd().collect();
    decomposed.to_uppercase().to_lowercase().nfc().collect()
}

/// Reports names that are equal once folded.
pub(crate) fn check_clashes<'a>(
    what: &str,
    names: impl IntoIterator<Item = (&'a str, Span)>,
    problems: &mut Problems,
) {
    let mut seen: HashMap<String, (&str, Span)> = HashMap::new();
    for (name, span) in names {
        let folded = fold(name);
        match seen.get(&folded) {
            Some((other, other_span)) if *other == name => problems.push(
                Problem::new(
                    "name-clash",
                    format!("`{name}` appears twice among the {what}"),
                    "keep one of them",
                )
                .at(span, "again")
                .at(*other_span, "first here"),
            ),
            Some((other, other_span)) => problems.push(
                Problem::new(
                    "name-clash",
                    format!("{what} `{other}` and `{name}` are one name where case or accents are ignored"),
                    "rename one of them: file systems of macOS and Windows cannot hold both",
                )
                .at(span, "this name")
                .at(*other_span, "and this one"),
            ),
            None => {
                seen.insert(folded, (name, span));
            }
        }
    }
}
