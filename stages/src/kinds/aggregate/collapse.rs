//! Whether a model still writes answers, and different ones.

use std::collections::{HashMap, HashSet};

use super::compute::Runs;
use crate::repetition;
use crate::samples::Graded;
use crate::table::Collapse;

/// The signs over all generations of a row; a run's texts are compared within it.
pub fn collapse(runs: &Runs) -> Collapse {
    let samples: Vec<&Graded> = runs.values().flatten().copied().collect();
    let share = |count: usize| count as f64 / samples.len() as f64;
    let holding = |holds: &dyn Fn(&Graded) -> bool| share(samples.iter().filter(|g| holds(g)).count());
    let (commonest, given) = commonest(&samples);
    Collapse {
        boxed: holding(&|g| g.method == "boxed"),
        empty: holding(&|g| g.sample.text.trim().is_empty()),
        looping: holding(&|g| repetition::ends_in_loop(&g.sample.text)),
        copied: share(runs.values().map(|run| copied(run)).sum()),
        distinct_2: distinct_2(samples.iter().map(|g| g.sample.text.as_str())),
        commonest: commonest.to_owned(),
        commonest_share: share(given),
        commonest_right: holding(&|g| g.correct && !g.unanswered() && g.extracted == commonest),
    }
}

/// How many generations have the text of a generation for another question.
fn copied(run: &[&Graded]) -> usize {
    let mut questions: HashMap<&str, HashSet<&str>> = HashMap::new();
    for Graded { sample, .. } in run {
        questions.entry(sample.text.trim()).or_default().insert(&sample.id);
    }
    run.iter().filter(|g| questions[g.sample.text.trim()].len() > 1).count()
}

/// The answer given most often and how often; of several, the first in the alphabet.
fn commonest<'a>(samples: &[&'a Graded]) -> (&'a str, usize) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for graded in samples.iter().filter(|g| !g.unanswered()) {
        *counts.entry(&graded.extracted).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(answer, count)| (*count, std::cmp::Reverse(*answer)));
    most.unwrap_or_default()
}

/// Different pairs of successive words over all pairs.
fn distinct_2<'a>(texts: impl Iterator<Item = &'a str>) -> Option<f64> {
    let (mut pairs, mut all) = (HashSet::new(), 0usize);
    for text in texts {
        let words: Vec<&str> = text.split_whitespace().collect();
        all += words.len().saturating_sub(1);
        pairs.extend(words.windows(2).map(|pair| (pair[0], pair[1])));
    }
    (all > 0).then(|| pairs.len() as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::aggregate::tests::graded;

    /// A generation for question `id`.
    fn wrote(id: usize, text: &str, extracted: &str, correct: bool) -> Graded {
        let mut row = graded(id, correct, 1);
        row.sample.text = text.into();
        row.extracted = extracted.into();
        row.method = if text.contains("boxed") { "boxed" } else { "the_answer_is" }.into();
        row
    }

    #[test]
    fn signs_are_counted() {
        let looping = "so it is 5, ".repeat(5);
        let rows = [
            wrote(0, "a b c \\boxed{5}", "5", true),
            wrote(1, "a b d \\boxed{6}", "6", false),
            wrote(2, "a b d \\boxed{6} ", "6", true),
            wrote(3, "  ", "", false),
            wrote(4, &looping, "5", false),
        ];
        let all: Vec<&Graded> = rows.iter().collect();
        let found = collapse(&[("one", all.clone())].into());
        assert_eq!((found.boxed, found.empty, found.looping, found.copied), (0.6, 0.2, 0.2, 0.4));
        // 5 and 6 are given twice each; 5 comes first, and is right once.
        assert_eq!((found.commonest.as_str(), found.commonest_share, found.commonest_right), ("5", 0.4, 0.2));
        // 3 + 3 + 3 + 0 + 19 pairs; different: a b, b c, c 5, b d, d 6, and four of the loop.
        assert_eq!(found.distinct_2, Some(9.0 / 28.0));
        // Another run may write the same.
        let twice = collapse(&[("one", vec![&rows[0], &rows[1]]), ("two", vec![&rows[1]])].into());
        assert_eq!(twice.copied, 0.0);
        assert_eq!(collapse(&[("one", vec![&rows[3]])].into()).distinct_2, None);
    }
}
