//! Draws problems from the families, keeping train and test apart.

use std::collections::HashSet;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use super::families::{FAMILIES, Family, NAMES, OBJECTS, Operand, Range};

/// One line of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The question.
    pub problem: String,
    /// The solution, ending in the boxed answer.
    pub solution: String,
    /// The answer, a positive integer.
    pub answer: String,
    /// Difficulty, 1 to 5.
    pub level: u8,
    /// What it is about.
    pub subject: String,
}

/// Which file a problem is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training problems.
    Train,
    /// Held-out problems.
    Test,
}

impl Split {
    /// The output's name.
    pub fn file_name(self) -> &'static str {
        match self {
            Split::Train => "train.jsonl",
            Split::Test => "test.jsonl",
        }
    }
}

/// One of this many (family, numbers) pairs belongs to the test split.
const TEST_SHARE: u64 = 8;
/// Draws after which a level counts as exhausted.
const ATTEMPTS: u32 = 10_000;
/// Draws spent on numbers not yet used in a family before the same numbers may come again in
/// another wording.
const FRESH_ATTEMPTS: u32 = 200;

/// A seeded stream of distinct problems of one split.
pub struct Generator {
    rng: ChaCha8Rng,
    seed: u64,
    split: Split,
    largest: i64,
    direct: f64,
    seen_texts: HashSet<String>,
    seen_numbers: HashSet<(&'static str, Vec<i64>)>,
}

impl Generator {
    /// A generator whose stream depends on the arguments only.
    pub fn new(seed: u64, split: Split, largest: u32, direct: f64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(split as u64);
        Self {
            rng,
            seed,
            split,
            largest: i64::from(largest),
            direct: if split == Split::Train { direct } else { 0.0 },
            seen_texts: HashSet::new(),
            seen_numbers: HashSet::new(),
        }
    }

    /// Each level as often as its quota says, in random order (Fisher–Yates).
    pub fn shuffled_levels(&mut self, levels: &[u8], quotas: &[u32]) -> Vec<u8> {
        let mut order: Vec<u8> = levels
            .iter()
            .zip(quotas)
            .flat_map(|(&level, &quota)| std::iter::repeat_n(level, quota as usize))
            .collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }

    /// A problem of that level with a text not drawn before; none when the level is exhausted.
    pub fn draw(&mut self, level: u8) -> Option<Problem> {
        let families: Vec<&'static Family> = FAMILIES.iter().filter(|f| f.level == level).collect();
        for attempt in 0..ATTEMPTS {
            let family = self.pick(&families);
            let Some((numbers, results)) = self.draw_numbers(family) else {
                continue;
            };
            if split_of(self.seed, family, &numbers) != self.split {
                continue;
            }
            let used = (family.name, numbers.clone());
            if attempt < FRESH_ATTEMPTS && self.split == Split::Test && self.seen_numbers.contains(&used) {
                continue;
            }
            let text = self.word(family, &numbers);
            if self.seen_texts.insert(text.clone()) {
                self.seen_numbers.insert(used);
                return Some(self.solve(family, &numbers, &results, text));
            }
        }
        None
    }

    /// Numbers in range whose steps stay positive and whole, with the results of the steps.
    fn draw_numbers(&mut self, family: &Family) -> Option<(Vec<i64>, Vec<i64>)> {
        let numbers: Vec<i64> = family
            .numbers
            .iter()
            .map(|range| {
                let (low, high) = match *range {
                    Range::Small => (2, self.largest),
                    Range::Of(low, high) => (low, high),
                };
                low + self.below((high - low + 1) as u64) as i64
            })
            .collect();
        let mut results = Vec::with_capacity(family.steps.len());
        for &(left, op, right) in family.steps {
            let (a, b) = (value(left, &numbers, &results), value(right, &numbers, &results));
            let result = match op {
                '+' => a + b,
                '-' => a - b,
                '*' => a * b,
                _ if a % b == 0 => a / b,
                _ => return None,
            };
            if result < 1 {
                return None;
            }
            results.push(result);
        }
        Some((numbers, results))
    }

    /// Fills a wording's placeholders.
    fn word(&mut self, family: &Family, numbers: &[i64]) -> String {
        let mut text = self.pick(family.wordings).to_owned();
        let mut names = NAMES.to_vec();
        for slot in ["{A}", "{B}", "{C}"] {
            let chosen = self.below(names.len() as u64) as usize;
            text = text.replace(slot, names.remove(chosen));
        }
        text = text.replace("{obj}", self.pick(OBJECTS));
        for (place, number) in numbers.iter().enumerate() {
            text = text.replace(&format!("{{{place}}}"), &number.to_string());
        }
        text
    }

    /// Adds the solution, worked or stated.
    fn solve(&mut self, family: &Family, numbers: &[i64], results: &[i64], text: String) -> Problem {
        let answer = results.last().map(i64::to_string).unwrap_or_default();
        let conclusion = format!("The answer is \\boxed{{{answer}}}.");
        // 53 random bits make a uniform number in [0, 1).
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let solution = if uniform < self.direct {
            conclusion
        } else {
            let steps: Vec<String> = family
                .steps
                .iter()
                .zip(results)
                .map(|(&(left, op, right), result)| {
                    let (a, b) = (value(left, numbers, results), value(right, numbers, results));
                    format!("{a} {op} {b} = {result}.")
                })
                .collect();
            format!("To solve this, {} {conclusion}", steps.join(" Then "))
        };
        Problem { problem: text, solution, answer, level: family.level, subject: family.subject.to_owned() }
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Uniform in `0..n` (n ≥ 1), without modulo bias. Written out because the `rand` crate does
    /// not promise the same values across versions.
    fn below(&mut self, n: u64) -> u64 {
        let usable = u64::MAX - u64::MAX % n;
        loop {
            let draw = self.rng.next_u64();
            if draw < usable {
                return draw % n;
            }
        }
    }
}

fn value(operand: Operand, numbers: &[i64], results: &[i64]) -> i64 {
    match operand {
        Operand::N(place) => numbers[place],
        Operand::S(step) => results[step],
        Operand::K(constant) => constant,
    }
}

/// Whether these numbers in this family are for training or held out.
fn split_of(seed: u64, family: &Family, numbers: &[i64]) -> Split {
    let text = format!("synth split {seed} {} {numbers:?}", family.name);
    let hash = blake3::hash(text.as_bytes());
    let first = hash.as_bytes()[..8].iter().fold(0u64, |x, &b| x << 8 | u64::from(b));
    if first % TEST_SHARE == 0 { Split::Test } else { Split::Train }
}
