//! The grammar of references: `@stage`, `@stage/path`, `@stage[lora]`, `@stage[*]/file`,
//! `@stage[lora,seed=2]`, `@stage[seed=*]`.

use std::fmt;

/// A reference to a stage's output, parsed but not yet looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    /// The stage's name as in `[stage.NAME]`.
    pub stage: &'a str,
    /// What stands in brackets, if anything: axis (none: `arm`) and value (`*`: all).
    pub selector: Option<Vec<(Option<&'a str>, &'a str)>>,
    /// Path inside the artifact; empty for the whole of it.
    pub path: &'a str,
}

impl<'a> Reference<'a> {
    /// Parses a reference, including its `@`. The error says what is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let rest = text.strip_prefix('@').ok_or("it does not start with `@`")?;
        let end = rest.find(['[', '/', ']']).unwrap_or(rest.len());
        let (stage, rest) = rest.split_at(end);
        if stage.is_empty() {
            return Err("no stage is named after `@`".to_owned());
        }
        let (selector, rest) = match rest.strip_prefix('[') {
            None => (None, rest),
            Some(inside) => {
                let end = inside.find(']').ok_or("`[` is not closed")?;
                (Some(selector(&inside[..end])?), &inside[end + 1..])
            }
        };
        let path = match rest.strip_prefix('/') {
            Some(path) => path,
            None if rest.is_empty() => "",
            None => return Err(format!("`{rest}` stands where `/` or the end should be")),
        };
        let whole = rest.is_empty();
        if !whole && path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!("`{path}` is not a plain path inside an artifact"));
        }
        Ok(Self { stage, selector, path })
    }
}

fn selector(inside: &str) -> Result<Vec<(Option<&str>, &str)>, String> {
    inside
        .split(',')
        .map(|item| {
            let (axis, value) = match item.split_once('=') {
                Some((axis, value)) => (Some(axis.trim()), value.trim()),
                None => (None, item.trim()),
            };
            if value.is_empty() || axis.is_some_and(str::is_empty) {
                return Err("an entry between the brackets is empty".to_owned());
            }
            Ok((axis, value))
        })
        .collect()
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.stage)?;
        if let Some(items) = &self.selector {
            f.write_str("[")?;
            for (index, (axis, value)) in items.iter().enumerate() {
                if index > 0 {
                    f.write_str(",")?;
                }
                if let Some(axis) = axis {
                    write!(f, "{axis}=")?;
                }
                f.write_str(value)?;
            }
            f.write_str("]")?;
        }
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}
