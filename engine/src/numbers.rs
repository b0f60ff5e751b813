//! Which numbers of two JSON documents differ: what a run measured, before and now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// A number that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberChange {
    /// Where it stands: `rows[lora].accuracy`.
    pub path: String,
    /// Before; none if there was no number.
    pub old: Option<f64>,
    /// Now; none if there is no number any more.
    pub new: Option<f64>,
}

impl fmt::Display for NumberChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<f64>| value.map_or("(not there)".to_owned(), shortest);
        write!(f, "{}: {} → {}", self.path, shown(self.old), shown(self.new))?;
        match (self.old, self.new) {
            (Some(old), Some(new)) if new > old => write!(f, " (+{})", shortest(new - old)),
            (Some(old), Some(new)) => write!(f, " (−{})", shortest(old - new)),
            _ => Ok(()),
        }
    }
}

/// Whole numbers whole, others with up to six digits that count.
fn shortest(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let digits = 5 - value.abs().log10().floor() as i32;
    if (0..=10).contains(&digits) {
        return trimmed(&format!("{value:.*}", digits as usize));
    }
    let text = format!("{value:.5e}");
    text.split_once('e').map_or(text.clone(), |(digits, power)| format!("{}e{power}", trimmed(digits)))
}

/// Every number that differs, in the order of the new document's paths. Elements of an array are
/// matched by what names them, where something does.
pub fn changed(old: &Value, new: &Value) -> Vec<NumberChange> {
    let [before, now] = [old, new].map(|document| {
        let mut numbers = Numbers::default();
        numbers.walk(String::new(), document);
        numbers
    });
    let gone = before.order.iter().filter(|path| !now.values.contains_key(*path));
    let change = |path: &String| {
        let (old, new) = (before.values.get(path).copied(), now.values.get(path).copied());
        (old != new).then(|| NumberChange { path: path.clone(), old, new })
    };
    now.order.iter().chain(gone).filter_map(change).collect()
}

#[derive(Default)]
struct Numbers {
    order: Vec<String>,
    values: BTreeMap<String, f64>,
}

impl Numbers {
    fn walk(&mut self, path: String, value: &Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.walk(inner, value);
                }
            }
            Value::Array(items) => {
                let names = names(items);
                for (at, item) in items.iter().enumerate() {
                    let name = names.as_ref().map_or(at.to_string(), |names| names[at].to_owned());
                    self.walk(format!("{path}[{name}]"), item);
                }
            }
            Value::Number(number) => {
                if let Some(number) = number.as_f64()
                    && self.values.insert(path.clone(), number).is_none()
                {
                    self.order.push(path);
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
}

/// What names the elements of an array, if they are objects with a text of their own each.
fn names(items: &[Value]) -> Option<Vec<&str>> {
    ["name", "arm", "id", "label"].into_iter().find_map(|field| {
        let names: Vec<&str> = items.iter().map(|item| item.get(field)?.as_str()).collect::<Option<_>>()?;
        let distinct: BTreeSet<&&str> = names.iter().collect();
        (distinct.len() == names.len() && !names.is_empty()).then_some(names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_named_and_elements_matched_by_name() {
        let old = json!({"rows": [{"arm": "base", "accuracy": 0.5, "p": null}, {"arm": "lora", "accuracy": 0.75}],
                         "norms": [1.0, 2.0], "note": "a"});
        let new = json!({"rows": [{"arm": "lora", "accuracy": 0.7501234567}, {"arm": "base", "accuracy": 0.5, "p": 0.01}],
                         "norms": [1.0, 2.5, 3], "note": "b"});
        let lines: Vec<String> = changed(&old, &new).iter().map(NumberChange::to_string).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        rows[lora].accuracy: 0.75 → 0.750123 (+0.000123457)
        rows[base].p: (not there) → 0.01
        norms[1]: 2 → 2.5 (+0.5)
        norms[2]: (not there) → 3
        ");
        assert_eq!(changed(&new, &new), []);
        let back: Vec<String> = changed(&new, &old).iter().map(NumberChange::to_string).collect();
        assert!(back.contains(&"norms[1]: 2.5 → 2 (−0.5)".to_owned()), "{back:?}");
        assert!(back.contains(&"norms[2]: 3 → (not there)".to_owned()), "{back:?}");
    }

    #[test]
    fn numbers_of_any_size_are_short() {
        let shown = [1_234_567.0, 1_234_567.25, 1e-7, 0.1, 1e20, -3.0, 0.0].map(shortest);
        assert_eq!(shown, ["1234567", "1.23457e6", "1e-7", "0.1", "1e20", "-3", "0"]);
    }
}
