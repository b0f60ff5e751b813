//! Benchmark questions that training rows repeat, at three levels.
//!
//! - exact: the same text after Unicode's NFKC, in lower case, with white space as one space;
//! - template: the same with every number replaced, so that only numbers differ;
//! - words: a run of 13 words in common, words being lower case without punctuation, as EleutherAI's
//!   evaluation harness finds contamination. A question of fewer words is compared by runs of 8.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// Length of the runs that shorter questions are compared by.
pub const SHORT: usize = 8;

/// How alike a row and a question are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The same text.
    Exact,
    /// The same text with other numbers.
    Template,
    /// A run of words in common.
    Words,
}

impl Level {
    /// All levels, the closest first.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Template, Self::Words];
}

/// A question that a row repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// How alike they are.
    pub level: Level,
    /// The benchmark.
    pub benchmark: String,
    /// The question's identity there.
    pub question: String,
}

/// The questions of all benchmarks, ready to be looked up.
pub struct Filter {
    levels: Vec<Level>,
    ngram: usize,
    questions: Vec<(String, String)>,
    exact: HashMap<String, usize>,
    template: HashMap<String, usize>,
    /// By run length: digest of a run → question.
    runs: [(usize, HashMap<[u8; 16], usize>); 2],
}

impl Filter {
    /// A filter without questions that looks at these levels; `ngram` is the run length for
    /// questions that have so many words.
    pub fn new(levels: &[Level], ngram: usize) -> Self {
        Self {
            levels: levels.to_vec(),
            ngram,
            questions: Vec::new(),
            exact: HashMap::new(),
            template: HashMap::new(),
            runs: [(ngram, HashMap::new()), (SHORT, HashMap::new())],
        }
    }

    /// Adds a benchmark's question. Where several are alike, the first is named.
    pub fn add(&mut self, benchmark: &str, id: &str, problem: &str) {
        let at = self.questions.len();
        self.questions.push((benchmark.to_owned(), id.to_owned()));
        let text = normalised(problem);
        self.template.entry(template(&text)).or_insert(at);
        let words = words(&text);
        let (length, runs) = &mut self.runs[usize::from(words.len() < self.ngram)];
        for run in words.windows(*length) {
            runs.entry(digest(run)).or_insert(at);
        }
        self.exact.entry(text).or_insert(at);
    }

    /// The question that a problem repeats, at the closest level.
    pub fn find(&self, problem: &str) -> Option<Hit> {
        let text = normalised(problem);
        let find = |level: Level| match level {
            Level::Exact => self.exact.get(&text).copied(),
            Level::Template => self.template.get(&template(&text)).copied(),
            Level::Words => {
                let words = words(&text);
                self.runs.iter().find_map(|(length, runs)| {
                    words.windows(*length).find_map(|run| runs.get(&digest(run)).copied())
                })
            }
        };
        let looked_at = Level::ALL.into_iter().filter(|level| self.levels.contains(level));
        let (level, at) = looked_at.into_iter().find_map(|level| Some((level, find(level)?)))?;
        let (benchmark, question) = self.questions[at].clone();
        Some(Hit { level, benchmark, question })
    }
}

/// NFKC, lower case, white space as one space.
pub fn normalised(text: &str) -> String {
    let text: String = text.nfkc().flat_map(char::to_lowercase).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A normalised text with `<n>` for every number (`3`, `1,234`, `2.5`).
fn template(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        if !chars[at].is_ascii_digit() {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        out.push_str("<n>");
        let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
        while digit(at) || (matches!(chars.get(at), Some(',' | '.')) && digit(at + 1)) {
            at += 1;
        }
    }
    out
}

/// The words of a normalised text, without punctuation.
fn words(text: &str) -> Vec<String> {
    let plain: String = text.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    plain.split_whitespace().map(str::to_owned).collect()
}

/// Half of a BLAKE3: that two different runs agree in 128 bits does not happen.
fn digest(run: &[String]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for word in run {
        hasher.update(word.as_bytes());
        hasher.update(b" ");
    }
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}
