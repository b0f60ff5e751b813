//! Where outputs are copied for people: no two stages may write to one place.

use super::names::fold;
use super::problem::{Problem, Problems};
use super::source::Span;

/// Checks one `publish` path; the error says what is wrong.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let bad = |part: &str| {
        matches!(part, "" | "." | "..") || part.chars().any(|c| c.is_control() || "\\:*?\"<>|".contains(c))
    };
    if path.split('/').any(bad) {
        return Err(format!("`{}` cannot be published to", path.escape_debug()));
    }
    Ok(())
}

/// A stage that publishes.
pub(crate) struct Published<'a> {
    /// Its expanded name.
    pub stage: &'a str,
    /// Number of the `[stage.NAME]` it comes from.
    pub family: usize,
    /// Where to.
    pub path: &'a str,
    /// Where that is written.
    pub span: Span,
}

/// Reports stages that publish to one path, or to one inside another's.
pub(crate) fn check_collisions(mut published: Vec<Published<'_>>, problems: &mut Problems) {
    let key = |entry: &Published<'_>| -> Vec<String> { entry.path.split('/').map(fold).collect() };
    published.sort_by_cached_key(key);
    let mut outer: Option<(Vec<String>, &Published<'_>)> = None;
    for entry in &published {
        let parts = key(entry);
        let Some((outer_parts, other)) = &outer else {
            outer = Some((parts, entry));
            continue;
        };
        if !parts.starts_with(outer_parts) {
            outer = Some((parts, entry));
            continue;
        }
        let nested = parts.len() > outer_parts.len();
        let problem = if entry.family == other.family {
            Problem::new(
                "publish-collision",
                format!("instances of one stage publish to `{}`", entry.path),
                "let the path tell them apart, for example with ${arm}",
            )
            .at(entry.span, "the same for each instance")
            .in_instance(other.stage)
            .in_instance(entry.stage)
        } else if nested {
            Problem::new(
                "publish-collision",
                format!(
                    "`{}` publishes inside `{}`, where `{}` publishes",
                    entry.stage, other.path, other.stage
                ),
                "publish side by side: neither path may contain the other",
            )
            .at(entry.span, "inside the other's folder")
            .at(other.span, "this folder")
        } else {
            Problem::new(
                "publish-collision",
                format!("`{}` and `{}` both publish to `{}`", other.stage, entry.stage, entry.path),
                "give one of them another path",
            )
            .at(entry.span, "this path")
            .at(other.span, "and this one")
        };
        problems.push(problem);
    }
}
