//! How answers were found: by benchmark and row, how often each extraction rule found one, and how
//! often what it found was right.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::arms::{self, Arm, Names, row_of};
use crate::samples::Graded;

/// The extraction audit of one benchmark.
#[derive(Debug, PartialEq, Serialize)]
pub struct Audit {
    benchmark: String,
    /// Rules, the most frequent first.
    methods: Vec<String>,
    rows: Vec<AuditRow>,
}

#[derive(Debug, PartialEq, Serialize)]
struct AuditRow {
    row: String,
    label: String,
    samples: usize,
    /// For each rule: found, right.
    cells: Vec<(usize, usize)>,
}

/// Counts while samples go by.
#[derive(Default)]
pub struct Counts {
    /// By benchmark and row.
    found: BTreeMap<String, BTreeMap<String, Rules>>,
}

/// By rule: found, right.
type Rules = BTreeMap<String, (usize, usize)>;

impl Counts {
    /// Counts one sample of an instance.
    pub fn add(&mut self, label: &str, graded: &Graded) {
        let rows = self.found.entry(graded.benchmark.clone()).or_default();
        let count =
            rows.entry(row_of(label)).or_default().entry(graded.method.replace('_', " ")).or_default();
        count.0 += 1;
        count.1 += usize::from(graded.correct);
    }

    /// The tables, with the rows in the order of the arms.
    pub fn tables(&self, given: &[Arm]) -> Vec<Audit> {
        self.found.iter().map(|(benchmark, rows)| table(benchmark, rows, given)).collect()
    }
}

fn table(benchmark: &str, rows: &BTreeMap<String, Rules>, given: &[Arm]) -> Audit {
    let mut totals: BTreeMap<&String, usize> = BTreeMap::new();
    for (method, (found, _)) in rows.values().flatten() {
        *totals.entry(method).or_default() += found;
    }
    let mut methods: Vec<&String> = totals.keys().copied().collect();
    methods.sort_by_key(|method| std::cmp::Reverse(totals[method]));
    let mut names: Vec<&String> = rows.keys().collect();
    arms::sort(&mut names, given);
    let shown = Names::of(&names, given);
    let row = |name: &String| AuditRow {
        row: name.clone(),
        label: shown.show(name),
        samples: rows[name].values().map(|count| count.0).sum(),
        cells: methods.iter().map(|method| rows[name].get(*method).copied().unwrap_or_default()).collect(),
    };
    Audit {
        benchmark: benchmark.to_owned(),
        rows: names.into_iter().map(row).collect(),
        methods: methods.into_iter().cloned().collect(),
    }
}
