//! Counts over many verdicts, and the list of those where the two modes differ.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Verdict;

/// Counts over graded samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Samples graded.
    pub total: usize,
    /// Correct by the Qwen rules.
    pub qwen: usize,
    /// Correct by the strict mode.
    pub strict: usize,
    /// Correct by the Qwen rules only.
    pub qwen_only: usize,
    /// Correct by the strict mode only.
    pub strict_only: usize,
    /// Samples by extraction method.
    pub methods: BTreeMap<String, usize>,
    /// Samples where the modes differ, in order.
    pub disagreements: Vec<Disagreement>,
}

/// A sample on which the two modes differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The sample's number, as the caller counts.
    pub sample: usize,
    /// The answer, as it stands in the output.
    pub answer: String,
    /// The gold answer, as the data set gives it.
    pub gold: String,
    /// Verdict of the Qwen rules.
    pub qwen: bool,
    /// Verdict of the strict mode.
    pub strict: bool,
    /// The rules that decided: Qwen's, then strict.
    pub reasons: (String, String),
}

impl Summary {
    /// Counts one verdict; `sample` is the number to name in the disagreement list.
    pub fn add(&mut self, sample: usize, verdict: &Verdict) {
        self.total += 1;
        self.qwen += usize::from(verdict.qwen);
        self.strict += usize::from(verdict.strict);
        *self.methods.entry(verdict.method.as_str().to_string()).or_default() += 1;
        if verdict.qwen == verdict.strict {
            return;
        }
        if verdict.qwen {
            self.qwen_only += 1;
        } else {
            self.strict_only += 1;
        }
        self.disagreements.push(Disagreement {
            sample,
            answer: verdict.raw.clone(),
            gold: verdict.gold.clone(),
            qwen: verdict.qwen,
            strict: verdict.strict,
            reasons: (verdict.qwen_reason.as_str().into(), verdict.strict_reason.as_str().into()),
        });
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |n: usize| 100.0 * n as f64 / self.total.max(1) as f64;
        writeln!(f, "graded        {:>8}", self.total)?;
        writeln!(f, "qwen correct  {:>8}  {:6.2} %", self.qwen, share(self.qwen))?;
        writeln!(f, "strict correct{:>8}  {:6.2} %", self.strict, share(self.strict))?;
        writeln!(f, "qwen only     {:>8}  {:6.2} %", self.qwen_only, share(self.qwen_only))?;
        writeln!(f, "strict only   {:>8}  {:6.2} %", self.strict_only, share(self.strict_only))?;
        for (method, n) in &self.methods {
            writeln!(f, "by {method:<16} {n:>6}  {:6.2} %", share(*n))?;
        }
        if !self.disagreements.is_empty() {
            writeln!(f, "\nline  qwen    strict  reasons             answer | gold")?;
        }
        for d in &self.disagreements {
            let reasons = format!("{}/{}", d.reasons.0, d.reasons.1);
            writeln!(
                f,
                "{:<5} {:<7} {:<7} {reasons:<19} {} | {}",
                d.sample,
                d.qwen,
                d.strict,
                shown(&d.answer),
                shown(&d.gold)
            )?;
        }
        Ok(())
    }
}

/// The start of a text on one line.
fn shown(text: &str) -> String {
    let mut out: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect();
    if text.chars().count() > 60 {
        out.push('…');
    }
    out
}
