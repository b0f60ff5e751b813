//! Whether one id is one question for every arm: arms are paired by id.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use engine::kind::StageError;

use super::compute::RunSamples;
use crate::samples::Sample;

/// Characters shown of each of two texts that differ.
const SHOWN: usize = 160;
/// Characters shown before the first that differs.
const BEFORE: usize = 40;

/// Refuses an id that stands for two questions of one benchmark, by problem or by correct answer.
///
/// Samples of other programs may lack the problem; these are taken for any.
pub fn same_questions(runs: &BTreeMap<String, Vec<RunSamples>>) -> Result<(), StageError> {
    let mut problems: BTreeMap<(&str, &str), (&str, &Sample)> = BTreeMap::new();
    let mut golds = problems.clone();
    for (name, run) in runs.values().flatten() {
        for graded in run {
            let (sample, benchmark) = (&graded.sample, graded.benchmark.as_str());
            let first = |of: &mut BTreeMap<_, _>| match of.entry((benchmark, sample.id.as_str())) {
                Entry::Occupied(first) => *first.get(),
                Entry::Vacant(free) => *free.insert((name.as_str(), sample)),
            };
            if !sample.problem.is_empty() {
                let (other, seen) = first(&mut problems);
                if seen.problem != sample.problem {
                    let texts = [(other, seen.problem.as_str()), (name, &sample.problem)];
                    return Err(refusal(benchmark, &sample.id, "question", texts));
                }
            }
            let (other, seen) = first(&mut golds);
            if seen.gold != sample.gold {
                let texts = [(other, seen.gold.as_str()), (name, &sample.gold)];
                return Err(refusal(benchmark, &sample.id, "correct answer", texts));
            }
        }
    }
    Ok(())
}

fn refusal(benchmark: &str, id: &str, what: &str, [one, other]: [(&str, &str); 2]) -> StageError {
    let same = one.1.chars().zip(other.1.chars()).take_while(|(a, b)| a == b).count();
    let told = |(run, text): (&str, &str)| format!("\n  {run}: {}", part(text, same.saturating_sub(BEFORE)));
    let whose =
        if one.0 == other.0 { format!("{} has", one.0) } else { format!("{} and {} have", one.0, other.0) };
    StageError::input(format!(
        "{benchmark}: {whose} another {what} each under the id `{id}`, and arms are paired by id{}{}",
        told(one),
        told(other)
    ))
    .with_help(
        "let every `eval` of a benchmark read the same `questions`; for other questions give their rows an `id` of \
         their own, or their `grade` another `benchmark`",
    )
}

/// `text` from a character on, on one line and cut.
fn part(text: &str, from: usize) -> String {
    let mut rest = text.chars().skip(from);
    let shown: String = rest.by_ref().take(SHOWN).collect();
    let (before, after) = (if from > 0 { "…" } else { "" }, if rest.next().is_some() { "…" } else { "" });
    format!("{before}{}{after}", shown.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::aggregate::tests::graded;
    use crate::samples::Graded;

    fn asked(id: usize, problem: &str, gold: &str) -> Graded {
        let mut row = graded(id, true, 1);
        (row.sample.problem, row.sample.gold) = (problem.into(), gold.into());
        row
    }

    fn check(base: Vec<Graded>, lora: Vec<Graded>) -> Result<(), StageError> {
        same_questions(&BTreeMap::from([
            ("base".to_owned(), vec![("base".to_owned(), base)]),
            ("lora".to_owned(), vec![("lora,seed=1".to_owned(), lora)]),
        ]))
    }

    #[test]
    fn one_id_is_one_question() {
        let base = || vec![asked(0, "1 + 1?", "2"), asked(1, "1 + 2?", "3")];
        assert!(check(base(), base()).is_ok());
        assert!(check(base(), vec![asked(2, "2 + 2?", "4")]).is_ok(), "another id may be another question");
        assert!(check(base(), vec![asked(0, "", "2")]).is_ok(), "a problem that is not told");

        let error = check(base(), vec![asked(0, "1 + 1?", "2"), asked(1, "5 + 5?", "10")]).unwrap_err();
        assert_eq!(
            error.message,
            "toy: base and lora,seed=1 have another question each under the id `1`, and arms are paired by id\
             \n  base: 1 + 2?\n  lora,seed=1: 5 + 5?"
        );
        let message = check(base(), vec![asked(0, "", "7")]).unwrap_err().message;
        assert!(message.contains("another correct answer each under the id `0`"), "{message}");
        let message = check(vec![asked(0, "a", "1"), asked(0, "b", "1")], Vec::new()).unwrap_err().message;
        assert!(message.starts_with("toy: base has another question each"), "{message}");

        // Another benchmark numbers its questions from 0, too.
        let mut elsewhere = vec![asked(0, "5 + 5?", "10")];
        elsewhere[0].benchmark = "other".into();
        assert!(check(base(), elsewhere).is_ok());
    }

    #[test]
    fn long_texts_are_shown_where_they_differ() {
        let long = |end: &str| format!("{}{end}{}", "a".repeat(500), "z".repeat(500));
        let message =
            check(vec![asked(0, &long("X\nX"), "1")], vec![asked(0, &long("Y"), "1")]).unwrap_err().message;
        assert!(message.contains(&format!("base: …{}X X{}…", "a".repeat(40), "z".repeat(117))), "{message}");
        assert!(message.contains(&format!("seed=1: …{}Y{}…", "a".repeat(40), "z".repeat(119))), "{message}");
    }
}
