//! Why two answers were judged equal or not.

use serde::{Deserialize, Serialize};

/// The rule that decided a comparison. In a negative verdict it names the last rule that could
/// have made the answers equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Same text after normalisation.
    Exact,
    /// Compared as numbers.
    Numeric,
    /// Compared as expressions.
    Symbolic,
    /// Compared as multiple-choice letters.
    Choice,
    /// Compared as words.
    Text,
    /// Compared as unordered sets or lists.
    Set,
    /// Compared as ordered tuples.
    Tuple,
    /// Compared as intervals or unions of them.
    Interval,
    /// Compared as matrices or vectors.
    Matrix,
    /// Compared as equations.
    Equation,
    /// Compared as inequalities.
    Inequality,
    /// Units differ or agree.
    Unit,
    /// The two answers are different kinds of object.
    Kind,
    /// No answer was given.
    None,
    /// An answer could not be read.
    Unparsable,
    /// The work budget ran out; counted as not equal.
    Budget,
}

impl Reason {
    /// The name used in JSON (`exact`, `numeric`, …).
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Exact => "exact",
            Reason::Numeric => "numeric",
            Reason::Symbolic => "symbolic",
            Reason::Choice => "choice",
            Reason::Text => "text",
            Reason::Set => "set",
            Reason::Tuple => "tuple",
            Reason::Interval => "interval",
            Reason::Matrix => "matrix",
            Reason::Equation => "equation",
            Reason::Inequality => "inequality",
            Reason::Unit => "unit",
            Reason::Kind => "kind",
            Reason::None => "none",
            Reason::Unparsable => "unparsable",
            Reason::Budget => "budget",
        }
    }
}
