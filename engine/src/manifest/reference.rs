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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kind::Input;

    #[test]
    fn every_form_is_read() {
        let parse = |text| Reference::parse(text).unwrap();
        assert_eq!(parse("@data"), Reference { stage: "data", selector: None, path: "" });
        assert_eq!(parse("@data/a/b.txt").path, "a/b.txt");
        assert_eq!(parse("@e[lora]").selector, Some(vec![(None, "lora")]));
        assert_eq!(parse("@e[*]/x").selector, Some(vec![(None, "*")]));
        assert_eq!(parse("@e[lora, seed = 2]").selector, Some(vec![(None, "lora"), (Some("seed"), "2")]));
        assert_eq!(parse("@e/x[1]").path, "x[1]", "brackets belong to a path after the first slash");
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for text in [
            "data", "@", "@/x", "@a[", "@a[]", "@a[,]", "@a[=1]", "@a[x]y", "@a]", "@a/", "@a//b", "@a/../b",
            "@a/.",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        /// A reference is what it was read from.
        #[test]
        fn reading_and_writing_agree(
            stage in "[a-zA-Zé0-9_.-]{1,8}",
            selector in prop::option::of(prop::collection::vec(
                (prop::option::of("[a-z]{1,5}"), "([a-z0-9.-]{1,5}|\\*)"), 1..4)),
            path in prop::option::of("[a-z0-9]{1,5}(/[a-z0-9]{1,5}(\\.[a-z]{1,3})?){0,3}"),
        ) {
            let selector = selector.as_ref().map(|items| {
                items.iter().map(|(axis, value)| (axis.as_deref(), value.as_str())).collect::<Vec<_>>()
            });
            let reference = Reference { stage: &stage, selector, path: path.as_deref().unwrap_or_default() };
            let text = reference.to_string();
            prop_assert_eq!(Reference::parse(&text).unwrap(), reference.clone());
            let several = reference.selector.iter().flatten().any(|(_, value)| *value == "*");
            prop_assert_eq!(Input::new(text).is_fan_in(), several);
        }

        /// No text makes the parser panic.
        #[test]
        fn any_text_is_answered(text in "@?[a-z\\[\\]/,=*.@é ]{0,16}") {
            let _ = Reference::parse(&text);
            let _ = Input::new(text).is_fan_in();
        }
    }
}
