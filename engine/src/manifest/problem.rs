//! What is wrong with a manifest, and how it is shown.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource};
use serde_json::json;

use super::source::{Sources, Span};

/// At most this many problems are printed; the rest are counted.
const SHOWN: usize = 50;

/// One mistake: what, where and what to write instead.
#[derive(Debug, Clone)]
pub struct Problem {
    /// A stable name of the class of mistake, such as `unknown-key`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
    labels: Vec<(Span, String)>,
    /// Expanded stages it concerns, when the mistake lies in a stage that fans out.
    instances: Vec<String>,
    source: Option<NamedSource<Arc<str>>>,
    elsewhere: Vec<Elsewhere>,
}

/// A label in another file than the problem's own.
#[derive(Debug, Clone)]
struct Elsewhere {
    label: LabeledSpan,
    source: NamedSource<Arc<str>>,
}

/// Longest line, in bytes, that is shown around a problem. Beyond 65,535 columns miette panics, and
/// long before that the line hides the message.
const LONGEST_LINE: usize = 10_000;

impl Problem {
    /// True if the file has a line that is too long to show.
    fn has_huge_line(&self) -> bool {
        let huge =
            |source: &NamedSource<Arc<str>>| source.inner().lines().any(|line| line.len() > LONGEST_LINE);
        self.source.as_ref().is_some_and(huge) || self.elsewhere.iter().any(|other| huge(&other.source))
    }

    /// A problem without a place.
    pub(crate) fn new(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            help: help.into(),
            labels: Vec::new(),
            instances: Vec::new(),
            source: None,
            elsewhere: Vec::new(),
        }
    }

    /// Points at a place; the first one decides which file is shown.
    pub(crate) fn at(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    /// Says which expanded stage it was found in.
    pub(crate) fn in_instance(mut self, name: &str) -> Self {
        self.instances.push(name.to_owned());
        self
    }

    fn attach(&mut self, sources: &Sources) {
        let Some(&(first, _)) = self.labels.first() else {
            return;
        };
        let named = |file| {
            let source = sources.get(file);
            NamedSource::new(source.name.clone(), source.text.clone()).with_language("toml")
        };
        self.source = Some(named(first.file));
        self.elsewhere = self
            .labels
            .iter()
            .filter(|(span, _)| span.file != first.file)
            .map(|(span, text)| Elsewhere { label: labelled(span, text), source: named(span.file) })
            .collect();
    }

    fn order(&self) -> Option<Span> {
        self.labels.first().map(|(span, _)| *span)
    }

    fn json(&self, sources: &Sources) -> serde_json::Value {
        let places: Vec<_> = self
            .labels
            .iter()
            .map(|(span, text)| {
                let source = sources.get(span.file);
                let before = &source.text[..span.start as usize];
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                json!({
                    "file": source.name,
                    "line": before.matches('\n').count() + 1,
                    "column": before[line_start..].chars().count() + 1,
                    "offset": span.start,
                    "length": span.end - span.start,
                    "label": text,
                })
            })
            .collect();
        json!({
            "code": self.code,
            "message": self.to_string(),
            "help": self.help,
            "places": places,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.instances.as_slice() {
            [] => Ok(()),
            [one] => write!(f, " (in `{one}`)"),
            [one, two] => write!(f, " (in `{one}` and `{two}`)"),
            [one, two, rest @ ..] => {
                write!(f, " (in `{one}`, `{two}` and {} more)", rest.len())
            }
        }
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(format!("manifest::{}", self.code)))
    }
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }
    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.source.as_ref().map(|source| source as _)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let file = self.labels.first()?.0.file;
        Some(Box::new(
            self.labels
                .iter()
                .filter(move |(span, _)| span.file == file)
                .map(|(span, text)| labelled(span, text)),
        ))
    }
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        if self.elsewhere.is_empty() {
            return None;
        }
        Some(Box::new(self.elsewhere.iter().map(|e| e as &dyn Diagnostic)))
    }
}

fn labelled(span: &Span, text: &str) -> LabeledSpan {
    let text = (!text.is_empty()).then(|| text.to_owned());
    LabeledSpan::new(text, span.start as usize, (span.end - span.start) as usize)
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("in another file")
    }
}

impl std::error::Error for Elsewhere {}

impl Diagnostic for Elsewhere {
    fn severity(&self) -> Option<miette::Severity> {
        Some(miette::Severity::Advice)
    }
    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&self.source)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(self.label.clone())))
    }
}

/// Collects problems; the same mistake seen from several expanded stages counts once.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    seen: HashMap<(&'static str, Option<Span>, String), usize>,
}

impl Problems {
    /// Adds a problem, or only its stage when it is already known.
    pub fn push(&mut self, problem: Problem) {
        let key = (problem.code, problem.order(), problem.message.clone());
        match self.seen.get(&key) {
            Some(&index) => self.list[index].instances.extend(problem.instances),
            None => {
                self.seen.insert(key, self.list.len());
                self.list.push(problem);
            }
        }
    }

    /// Adds all of `other`.
    pub fn append(&mut self, other: Problems) {
        for problem in other.list {
            self.push(problem);
        }
    }

    /// True when nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A number that cannot be read stands in the tree as 0: what else is said of that place is about
    /// the 0, not about what was written.
    fn drop_echoes(&mut self) {
        let is_root = |problem: &Problem| ["not-finite", "number-too-large"].contains(&problem.code);
        let roots: HashSet<Span> =
            self.list.iter().filter(|problem| is_root(problem)).filter_map(Problem::order).collect();
        let echoes = |problem: &Problem| problem.labels.iter().any(|(span, _)| roots.contains(span));
        self.list.retain(|problem| is_root(problem) || !echoes(problem));
    }

    /// The error to return, in the order of the files.
    pub fn into_errors(mut self, path: &std::path::Path, sources: Sources) -> ManifestErrors {
        self.drop_echoes();
        self.list.sort_by_key(Problem::order);
        for problem in &mut self.list {
            problem.attach(&sources);
        }
        ManifestErrors { manifest: path.display().to_string(), problems: self.list, sources }
    }
}

/// Everything that is wrong with a manifest.
#[derive(Debug)]
pub struct ManifestErrors {
    manifest: String,
    problems: Vec<Problem>,
    sources: Sources,
}

impl ManifestErrors {
    /// The problems, in the order of the files.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// All problems with source snippets, ready to print.
    ///
    /// `color` asks for ANSI colours; `width` is that of the terminal in columns.
    pub fn render(&self, color: bool, width: usize) -> String {
        let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(width)
            .with_links(false)
            .with_context_lines(1);
        let mut text = String::new();
        for problem in self.problems.iter().take(SHOWN) {
            if problem.has_huge_line() {
                text.push_str(&format!("{}\n\n  × {problem}\n  help: {}\n", problem.code, problem.help));
            } else {
                // Writing into a string cannot fail.
                let _ = handler.render_report(&mut text, problem);
            }
            text.push('\n');
        }
        if self.problems.len() > SHOWN {
            text.push_str(&format!("… and {} more problems\n", self.problems.len() - SHOWN));
        }
        text.push_str(&format!("{self}\n"));
        text
    }

    /// All problems as JSON, with lines and columns counted from 1.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "manifest": self.manifest,
            "problems": self.problems.iter().map(|p| p.json(&self.sources)).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => write!(f, "{}: 1 problem", self.manifest),
            count => write!(f, "{}: {count} problems", self.manifest),
        }
    }
}

impl std::error::Error for ManifestErrors {}

impl Diagnostic for ManifestErrors {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.problems.iter().map(|p| p as &dyn Diagnostic)))
    }
}
