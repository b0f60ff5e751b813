//! Filters that write what Python writes, where minijinja's own differ.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// `json.dumps(x, ensure_ascii=False, indent=…, separators=…, sort_keys=…)`.
///
/// Python puts a space after `:` and after `,` (the latter not when indenting) and does not
/// escape HTML.
pub(super) fn to_json(value: Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let sort: Option<bool> = kwargs.get("sort_keys")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    kwargs.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators takes two texts")),
    };
    let value = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let style = Style { indent, item, key, sort: sort.unwrap_or(false), ascii: ascii.unwrap_or(false) };
    let mut out = String::new();
    style.write(&mut out, &value, 0);
    Ok(out)
}

struct Style {
    indent: Option<usize>,
    item: String,
    key: String,
    sort: bool,
    ascii: bool,
}

impl Style {
    fn write(&self, out: &mut String, value: &serde_json::Value, depth: usize) {
        match value {
            serde_json::Value::Array(list) if !list.is_empty() => {
                out.push('[');
                for (i, value) in list.iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.write(out, value, depth + 1);
                }
                self.new_line(out, depth);
                out.push(']');
            }
            serde_json::Value::Object(map) if !map.is_empty() => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort {
                    entries.sort_by_key(|(key, _)| *key);
                }
                out.push('{');
                for (i, (key, value)) in entries.into_iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.text(out, key);
                    out.push_str(&self.key);
                    self.write(out, value, depth + 1);
                }
                self.new_line(out, depth);
                out.push('}');
            }
            serde_json::Value::String(text) => self.text(out, text),
            serde_json::Value::Number(number) if number.is_f64() => {
                out.push_str(&float(number.as_f64().unwrap_or_default()));
            }
            other => out.push_str(&other.to_string()),
        }
    }

    fn separate(&self, out: &mut String, index: usize, depth: usize) {
        if index > 0 {
            out.push_str(&self.item);
        }
        self.new_line(out, depth);
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    /// A quoted text. Python escapes the same control characters as serde_json, and U+007F not.
    fn text(&self, out: &mut String, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ascii {
            return out.push_str(&quoted);
        }
        let mut units = [0; 2];
        for c in quoted.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}

/// `repr(float)`: the shortest digits, an exponent below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// `str.strip`: Python counts the four ASCII information separators as white space.
pub(super) fn trim(value: &Value, characters: Option<String>) -> Result<String, Error> {
    let text = match value.kind() {
        ValueKind::Undefined => String::new(),
        _ => value.to_string(),
    };
    Ok(match characters {
        Some(characters) => text.trim_matches(|c| characters.contains(c)).to_string(),
        None => text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)).to_string(),
    })
}

/// Turns `{% generation %}` blocks, an extension of `transformers` that marks what the
/// assistant wrote and prints its content, into blocks that only print it.
pub(super) fn plain_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(length) = rest[at..].find("%}") else { break };
        let tag = &rest[at + 2..at + length];
        let word = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            other => other,
        };
        out.push_str(&rest[..at + 2]);
        out.push_str(&if replacement == word { tag.to_string() } else { tag.replace(word, replacement) });
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}
