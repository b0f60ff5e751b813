//! Manifest text and places in it.

use std::sync::Arc;

/// A half-open byte range in one of the [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index into the sources, in reading order.
    pub(crate) file: u32,
    /// First byte.
    pub(crate) start: u32,
    /// One past the last byte.
    pub(crate) end: u32,
}

/// One text that a manifest is made of: a file, or the text of a `--set`.
#[derive(Debug, Clone)]
pub(crate) struct SourceText {
    /// What to call it: the path as given, or `--set`.
    pub name: String,
    /// Its content.
    pub text: Arc<str>,
}

/// Every text that was read, so that a [`Span`] can be shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources(Vec<SourceText>);

impl Sources {
    /// Adds a text and returns its number.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> u32 {
        self.0.push(SourceText { name: name.into(), text: text.into() });
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }

    /// The text that a span lies in.
    pub fn get(&self, file: u32) -> &SourceText {
        &self.0[file as usize]
    }
}
