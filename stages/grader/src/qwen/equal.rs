//! `math_equal` of Qwen2.5-Math's `grader.py`, rule by rule.

use super::choice::choice_of_answer;
use super::pystr;
use crate::reason::Reason;

/// Verdict of the Qwen rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QwenVerdict {
    /// Whether `math_equal` returns True.
    pub equal: bool,
    /// The rule that decided.
    pub reason: Reason,
}

fn yes(reason: Reason) -> QwenVerdict {
    QwenVerdict {
        equal: true,
        reason,
    }
}

fn no(reason: Reason) -> QwenVerdict {
    QwenVerdict {
        equal: false,
        reason,
    }
}

/// Compares two normalised answers as `math_equal(pred, gold)` does.
pub fn math_equal(pred: &str, gold: &str) -> QwenVerdict {
    if pystr::strip(pred).to_lowercase() == pystr::strip(gold).to_lowercase() {
        return yes(Reason::Exact);
    }
    if matches!(gold, "A" | "B" | "C" | "D" | "E") && choice_of_answer(pred) == gold {
        return yes(Reason::Choice);
    }
    if let (Ok(p), Ok(g)) = (
        pred.replace(',', "").parse::<f64>(),
        gold.replace(',', "").parse(),
    ) {
        let equal = [g / 100.0, g, g * 100.0].iter().any(|&g: &f64| close(p, g));
        return QwenVerdict {
            equal,
            reason: Reason::Numeric,
        };
    }
    no(Reason::Text)
}

/// `math.isclose(a, b, rel_tol=1e-4)`.
fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-4 * a.abs().max(b.abs())
}
