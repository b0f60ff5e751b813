//! Strict mode: mathematical equality.

use crate::reason::Reason;

/// Verdict of the strict mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrictVerdict {
    /// Whether the answers are mathematically equal.
    pub equal: bool,
    /// The rule that decided.
    pub reason: Reason,
}

/// Whether `pred` and `gold` are the same answer.
pub fn equal(pred: &str, gold: &str) -> StrictVerdict {
    if pred.trim().is_empty() {
        return StrictVerdict {
            equal: false,
            reason: Reason::None,
        };
    }
    StrictVerdict {
        equal: pred.trim() == gold.trim(),
        reason: Reason::Exact,
    }
}
