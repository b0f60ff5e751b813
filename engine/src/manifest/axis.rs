//! Axes, and how a stage fans out over them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

/// The values of an axis: arm names, seeds, benchmark names …
#[derive(Debug)]
pub(crate) struct AxisValues {
    /// `arm`, or its name in `[matrix]`.
    pub name: String,
    /// The values as written.
    pub values: Vec<Json>,
    /// The values as they appear in expanded names.
    pub texts: Vec<String>,
    index: HashMap<String, usize>,
}

impl AxisValues {
    /// An axis with these plain values.
    pub fn new(name: &str, values: Vec<Json>) -> Self {
        let texts: Vec<String> = values.iter().map(text).collect();
        let index = texts.iter().enumerate().map(|(index, text)| (text.clone(), index)).collect();
        Self { name: name.to_owned(), values, texts, index }
    }

    /// Where a value stands, by its text. A number may be written in another way (`0.00002`, `2e-5`).
    pub fn position(&self, text: &str) -> Option<usize> {
        let as_named = || text.parse().ok().map(number).and_then(|text| self.index.get(&text));
        self.index.get(text).or_else(as_named).copied()
    }

    /// The axis with only these values, in this axis' order.
    pub fn subset(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.values.iter().zip(&self.texts);
        let kept = kept.filter(|(_, text)| keep(text));
        Self::new(&self.name, kept.map(|(value, _)| value.clone()).collect())
    }
}

/// A plain value as it appears in expanded names and inside strings.
pub(crate) fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Number(value) => value.as_f64().filter(|_| value.is_f64()).map_or(value.to_string(), number),
        other => other.to_string(),
    }
}

/// One spelling for every number: small ones, such as learning rates, as `2e-5`.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:e}") } else { Json::from(value).to_string() }
}

/// The axes that a stage fans out over. Its instances are numbered with the last axis fastest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grid {
    /// In the order of `foreach`.
    pub axes: Vec<Arc<AxisValues>>,
}

impl Grid {
    /// How many instances there are; 1 without axes. `None` when that does not fit.
    pub fn checked_count(&self) -> Option<usize> {
        self.axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.texts.len()))
    }

    /// The position on each axis of instance `number`.
    pub fn coordinates(&self, mut number: usize) -> Vec<usize> {
        let mut coordinates = vec![0; self.axes.len()];
        for (at, axis) in self.axes.iter().enumerate().rev() {
            let length = axis.texts.len();
            coordinates[at] = number % length;
            number /= length;
        }
        coordinates
    }

    /// The number of the instance at these coordinates.
    pub fn number(&self, coordinates: &[usize]) -> usize {
        let axes = self.axes.iter().zip(coordinates);
        axes.fold(0, |number, (axis, at)| number * axis.texts.len() + at)
    }

    /// Where an axis stands among the stage's axes.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// What stands in brackets in the expanded name: `lora,seed=2`.
    pub fn label(&self, coordinates: &[usize]) -> String {
        let mut label = String::new();
        for (axis, &at) in self.axes.iter().zip(coordinates) {
            if !label.is_empty() {
                label.push(',');
            }
            if axis.name != "arm" {
                label.push_str(&axis.name);
                label.push('=');
            }
            label.push_str(&axis.texts[at]);
        }
        label
    }

    /// The expanded name: `train[lora,seed=2]`, or just the stage's.
    pub fn name(&self, base: &str, coordinates: &[usize]) -> String {
        if self.axes.is_empty() { base.to_owned() } else { format!("{base}[{}]", self.label(coordinates)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_have_one_spelling_and_are_found_by_any() {
        let values = [json!(1e-6), json!(5e-6), json!(0.00002), json!(-2.5e-4), json!(0.001), json!(2.0)];
        let axis = AxisValues::new("lr", [&values[..], &[json!(0), json!(7), json!("0.00003")]].concat());
        let texts = ["1e-6", "5e-6", "2e-5", "-2.5e-4", "0.001", "2.0", "0", "7", "0.00003"];
        assert_eq!(axis.texts, texts);
        for (at, text) in texts.iter().enumerate() {
            assert_eq!(axis.position(text), Some(at));
        }
        assert_eq!(
            ["0.00002", "2e-5", "20e-6", "1e-3"].map(|text| axis.position(text)),
            [2, 2, 2, 4].map(Some)
        );
        assert_eq!(["3e-5", "8", "x", ""].map(|text| axis.position(text)), [None; 4]);
    }
}
