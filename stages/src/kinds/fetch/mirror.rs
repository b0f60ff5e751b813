//! Local folders that stand in for the network, and copying out of them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use engine::kind::{Access, StageCtx, StageError};

/// Where a mirror has the source: the longest matching prefix that holds it wins.
pub fn lookup(access: &Access, source: &str) -> Option<PathBuf> {
    let mut matching: Vec<(&str, &PathBuf)> = access
        .mirrors
        .iter()
        .filter_map(|(prefix, folder)| Some((source.strip_prefix(prefix.as_str())?, folder)))
        .collect();
    matching.sort_by_key(|(rest, _)| rest.len());
    matching.into_iter().find_map(|(rest, folder)| {
        let rest = rest.split(['?', '#']).next().unwrap_or(rest).trim_start_matches('/');
        let path = if rest.is_empty() { folder.clone() } else { folder.join(rest) };
        (is_plain_path(rest) || rest.is_empty()).then_some(path).filter(|path| path.exists())
    })
}

/// Copies a file as `name`, or a folder's wanted files, into `ctx.out()`; returns what to digest.
pub fn copy(
    ctx: &StageCtx,
    from: &Path,
    name: Option<&str>,
    patterns: &[glob::Pattern],
) -> Result<PathBuf, StageError> {
    if from.is_dir() {
        return copy_folder(ctx, from, name, patterns);
    }
    let fallback = from.file_name().and_then(|n| n.to_str());
    let name = name
        .or(fallback)
        .ok_or_else(|| StageError::input(format!("{}: give `rename` for this file", from.display())))?;
    let dest = ctx.out().join(name);
    copy_file(from, &dest)?;
    Ok(dest)
}

fn copy_folder(
    ctx: &StageCtx,
    from: &Path,
    name: Option<&str>,
    patterns: &[glob::Pattern],
) -> Result<PathBuf, StageError> {
    let dest = name.map_or_else(|| ctx.out().to_owned(), |name| ctx.out().join(name));
    let mut copied = 0;
    // Version control and download caches are no part of a repository's files.
    let skipped = |entry: &walkdir::DirEntry| {
        entry.depth() > 0
            && entry.file_type().is_dir()
            && entry.file_name().to_string_lossy().starts_with('.')
    };
    let files = walkdir::WalkDir::new(from).follow_links(true).sort_by_file_name();
    for entry in files.into_iter().filter_entry(|entry| !skipped(entry)) {
        let entry = entry.map_err(|e| StageError::environment(format!("{e}")))?;
        let relative = entry.path().strip_prefix(from).unwrap_or(entry.path());
        if !entry.file_type().is_file() || !wanted(&relative.to_string_lossy(), patterns) {
            continue;
        }
        if ctx.stopping() {
            return Err(StageError::stopped());
        }
        copy_file(entry.path(), &dest.join(relative))?;
        copied += 1;
    }
    if copied == 0 {
        return Err(StageError::input(format!("{} has no file that is asked for", from.display()))
            .with_help("check the mirror's folder and `files`"));
    }
    Ok(dest)
}

fn copy_file(from: &Path, to: &Path) -> Result<(), StageError> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(|e| StageError::io(parent, e))?;
    }
    fs::copy(from, to).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            StageError::input(format!("{} does not exist", from.display())).with_help("check `source`")
        }
        _ => StageError::io(from, e),
    })?;
    Ok(())
}

/// Whether a path is one of the files asked for; no patterns ask for all.
pub fn wanted(path: &str, patterns: &[glob::Pattern]) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(path))
}

/// True for a relative path that stays below its folder.
pub fn is_plain_path(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0'])
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
