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
        let texts: Vec<String> = values
            .iter()
            .map(|value| match value {
                Json::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        let index = texts.iter().enumerate().map(|(index, text)| (text.clone(), index)).collect();
        Self { name: name.to_owned(), values, texts, index }
    }

    /// Where a value stands, by its text.
    pub fn position(&self, text: &str) -> Option<usize> {
        self.index.get(text).copied()
    }

    /// The axis with only these values, in this axis' order.
    pub fn subset(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.values.iter().zip(&self.texts);
        let kept = kept.filter(|(_, text)| keep(text));
        Self::new(&self.name, kept.map(|(value, _)| value.clone()).collect())
    }
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
