//! TOML as a tree that knows where each key and value was written.

use indexmap::IndexMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems};
use super::source::Span;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Where the value stands.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// A TOML value; dates are kept as text.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    /// An integer above `i64::MAX`.
    Big(u64),
    Float(f64),
    Bool(bool),
    Array(Vec<Node>),
    Table(Table),
}

/// A table in the order of the file.
pub(crate) type Table = IndexMap<String, Entry>;

/// A table's entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where the key stands.
    pub key: Span,
    /// The value.
    pub node: Node,
}

impl Node {
    /// The text, if this is a string.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The table, if this is one.
    pub fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// What the value is, with an article.
    pub fn describe(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "a string",
            Value::Int(_) | Value::Big(_) => "a whole number",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a boolean",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }
}

/// One step of a path into a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Reads `adapter.targets[0]`.
pub(crate) fn parse_path(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let mut pieces = part.split('[');
        if let Some(key) = pieces.next().filter(|key| !key.is_empty()) {
            steps.push(Step::Key(key.to_owned()));
        }
        steps.extend(pieces.filter_map(|piece| piece.trim_end_matches(']').parse().ok()).map(Step::Index));
    }
    steps
}

/// Writes a path as `adapter.targets[0]`.
pub(crate) fn show_path(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Where something on the way along a path is written.
pub(crate) struct Place<'a> {
    /// Where the key stands (in an array: the item).
    pub key: Span,
    /// Where the value stands.
    pub value: Span,
    /// How many steps of the path lead here.
    pub depth: usize,
    /// The value, if it is text.
    pub text: Option<&'a str>,
}

/// The deepest place on the way along `path` that was written down.
pub(crate) fn locate<'a>(table: &'a Table, path: &[Step]) -> Option<Place<'a>> {
    let Some(Step::Key(first)) = path.first() else {
        return None;
    };
    let entry = table.get(first)?;
    let (mut key, mut node, mut depth) = (entry.key, &entry.node, 1);
    for step in &path[1..] {
        match (&node.value, step) {
            (Value::Table(table), Step::Key(name)) => match table.get(name) {
                Some(entry) => (key, node) = (entry.key, &entry.node),
                None => break,
            },
            (Value::Array(items), Step::Index(index)) => match items.get(*index) {
                Some(item) => (key, node) = (item.span, item),
                None => break,
            },
            _ => break,
        }
        depth += 1;
    }
    Some(Place { key, value: node.span, depth, text: node.text() })
}

/// Lays `over` on `base`: tables merge deeply, everything else is replaced. New keys go last.
pub(crate) fn merge(base: &mut Table, over: Table) {
    for (name, entry) in over {
        match base.get_mut(&name) {
            Some(old) => match (&mut old.node.value, entry.node.value) {
                (Value::Table(old), Value::Table(new)) => merge(old, new),
                (_, value) => {
                    *old = Entry { key: entry.key, node: Node { span: entry.node.span, value } };
                }
            },
            None => {
                base.insert(name, entry);
            }
        }
    }
}

/// Where parsed TOML comes from: a text, and how far into it.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// Number of the text.
    pub file: u32,
    /// Bytes of the text before the TOML.
    pub offset: usize,
}

impl Origin {
    /// The span of a range of the TOML.
    pub fn span(self, range: std::ops::Range<usize>) -> Span {
        let at = |byte: usize| u32::try_from(self.offset + byte).unwrap_or(u32::MAX);
        Span { file: self.file, start: at(range.start), end: at(range.end) }
    }
}

/// Turns parsed TOML into a tree; numbers that are not finite or too large are reported.
pub(crate) fn from_toml(table: &DeTable<'_>, origin: Origin, problems: &mut Problems) -> Table {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
        .into_iter()
        .map(|(key, value)| {
            let entry = Entry { key: origin.span(key.span()), node: from_value(value, origin, problems) };
            (key.get_ref().clone().into_owned(), entry)
        })
        .collect()
}

/// As [`from_toml`], for one value.
pub(crate) fn from_value(value: &Spanned<DeValue<'_>>, origin: Origin, problems: &mut Problems) -> Node {
    let place = origin.span(value.span());
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Integer(number) => {
            let (digits, radix) = (number.as_str(), number.radix());
            if let Ok(int) = i64::from_str_radix(digits, radix) {
                Value::Int(int)
            } else if let Ok(big) = u64::from_str_radix(digits, radix) {
                Value::Big(big)
            } else {
                problems.push(
                    Problem::new(
                        "number-too-large",
                        format!("{digits} does not fit into 64 bits"),
                        "write a smaller number, or a string if it is an identifier",
                    )
                    .at(place, "too large"),
                );
                Value::Int(0)
            }
        }
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(float) if float.is_finite() => Value::Float(float),
            _ => {
                problems.push(
                    Problem::new(
                        "not-finite",
                        format!("{} is not a finite number", number.as_str()),
                        "write a finite number; leave the param out for its default",
                    )
                    .at(place, "not finite"),
                );
                Value::Float(0.0)
            }
        },
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| from_value(item, origin, problems)).collect())
        }
        DeValue::Table(table) => Value::Table(from_toml(table, origin, problems)),
    };
    Node { span: place, value }
}
