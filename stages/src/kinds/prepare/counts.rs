//! What was kept, what was dropped, and why.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::contamination::{Hit, Level};

/// Why a row was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It has no problem or no answer.
    Incomplete,
    /// The same problem and solution came before.
    Duplicate,
    /// It repeats a benchmark's question.
    Contaminated(Level),
    /// The answer cannot be read from the solution.
    Unreadable,
    /// It has too many tokens.
    TooLong,
    /// Its problem is among those held out.
    HeldOutProblem,
    /// There were enough.
    BeyondLimit,
}

impl Reason {
    const ALL: [Self; 9] = [
        Self::Incomplete,
        Self::Duplicate,
        Self::Contaminated(Level::Exact),
        Self::Contaminated(Level::Template),
        Self::Contaminated(Level::Words),
        Self::Unreadable,
        Self::TooLong,
        Self::HeldOutProblem,
        Self::BeyondLimit,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Duplicate => "duplicate",
            Self::Contaminated(Level::Exact) => "contaminated_exact",
            Self::Contaminated(Level::Template) => "contaminated_template",
            Self::Contaminated(Level::Words) => "contaminated_words",
            Self::Unreadable => "unreadable",
            Self::TooLong => "too_long",
            Self::HeldOutProblem => "held_out_problem",
            Self::BeyondLimit => "beyond_limit",
        }
    }
}

/// What `counts.json` holds.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Rows read.
    pub read: usize,
    /// Rows to train on.
    pub train: usize,
    /// Rows held out.
    pub held_out: usize,
    /// Rows dropped, by reason; read = train + held_out + all of these.
    pub dropped: BTreeMap<&'static str, usize>,
    /// By benchmark: rows dropped at each level, and how many of its questions they repeat.
    pub benchmarks: BTreeMap<String, Repeated>,
    /// Solutions that got a last line with the boxed answer.
    pub boxes_added: usize,
    /// Tokens of prompt and solution over the rows that fit.
    pub tokens: Option<Lengths>,
}

/// How a benchmark's questions are repeated.
#[derive(Debug, Default, Serialize)]
pub struct Repeated {
    /// Rows with the same text.
    pub exact: usize,
    /// Rows with the same text but for numbers.
    pub template: usize,
    /// Rows with a run of words in common.
    pub words: usize,
    /// Different questions of the benchmark that these rows repeat.
    pub questions: usize,
    #[serde(skip)]
    ids: BTreeSet<String>,
}

/// Lengths in tokens.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Lengths {
    /// Rows counted.
    pub rows: usize,
    /// All tokens.
    pub total: usize,
    /// Tokens of the longest row.
    pub longest: usize,
}

impl Counts {
    /// Nothing counted yet, with an entry for each benchmark and reason.
    pub fn new<'a>(benchmarks: impl Iterator<Item = &'a str>) -> Self {
        Self {
            dropped: Reason::ALL.map(|reason| (reason.name(), 0)).into(),
            benchmarks: benchmarks.map(|name| (name.to_owned(), Repeated::default())).collect(),
            ..Self::default()
        }
    }

    /// Counts a dropped row.
    pub fn add(&mut self, reason: Reason) {
        *self.dropped.entry(reason.name()).or_default() += 1;
    }

    /// Counts a row that repeats a question.
    pub fn hit(&mut self, hit: &Hit) {
        let repeated = self.benchmarks.entry(hit.benchmark.clone()).or_default();
        match hit.level {
            Level::Exact => repeated.exact += 1,
            Level::Template => repeated.template += 1,
            Level::Words => repeated.words += 1,
        }
        repeated.ids.insert(hit.question.clone());
        repeated.questions = repeated.ids.len();
    }

    /// Counts the tokens of a row that fits.
    pub fn tokens(&mut self, tokens: usize) {
        let lengths = self.tokens.get_or_insert_default();
        lengths.rows += 1;
        lengths.total += tokens;
        lengths.longest = lengths.longest.max(tokens);
    }

    /// Sets the number of rows kept.
    pub fn finish(&mut self, train: usize, held_out: usize) {
        (self.train, self.held_out) = (train, held_out);
    }

    /// What was dropped, for people.
    pub fn dropped_text(&self) -> String {
        let some = self.dropped.iter().filter(|(_, count)| **count > 0);
        let texts: Vec<String> = some.map(|(name, count)| format!("{count} {name}")).collect();
        if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
    }
}
