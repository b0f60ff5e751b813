//! Multiple-choice cleaning (`choice_answer_clean` of Qwen2.5-Math's `parser.py` and `grader.py`).

use super::pystr;

/// Phrases before a direct answer.
const TRIGGERS: [&str; 2] = ["choice is", "answer is"];

/// The choice that a whole output gives: the first stand-alone A–E after "choice is" or
/// "answer is", else the last of the text, else the cleaned text itself.
pub fn choice_answer_clean(text: &str) -> String {
    let mut s = text.trim_matches('\n');
    // Several answers mean that the model went on to further questions: keep the first block.
    if TRIGGERS.iter().any(|t| s.matches(t).count() > 1) {
        s = s.split("\n\n").next().unwrap_or(s);
    }
    let after = TRIGGERS.iter().filter_map(|t| s.rfind(t).map(|at| at + t.len())).max();
    if let Some(at) = after {
        s = &s[at..];
    }
    clean(s, after.is_some())
}

/// The choice that a short answer gives: the last stand-alone A–E, else the cleaned answer.
pub fn choice_of_answer(answer: &str) -> String {
    clean(answer, false)
}

/// The last stand-alone A–E of a text, case ignored.
pub fn last_choice_letter(text: &str) -> Option<String> {
    letters(text).next_back().map(String::from)
}

/// What remains of a prediction when the gold is made of the letters A–E only.
pub fn keep_choice_letters(pred: &str) -> String {
    pred.chars().filter(|c| ('A'..='E').contains(c)).collect()
}

fn clean(s: &str, first: bool) -> String {
    let s = s.trim_matches('\n').trim_end_matches('.').trim_end_matches('/');
    let s = s.trim_matches(' ').trim_start_matches(':');
    let mut found = letters(s);
    let letter = if first { found.next() } else { found.next_back() };
    let out = match letter {
        Some(c) => return c.to_string(),
        None => pystr::strip(s).trim_matches('.'),
    };
    out.trim_end_matches('.').trim_end_matches('/').to_string()
}

/// Stand-alone letters A–E of the upper-cased text.
fn letters(text: &str) -> impl DoubleEndedIterator<Item = char> {
    let upper: Vec<char> = text.to_uppercase().chars().collect();
    let word = |i: usize| upper.get(i).is_some_and(|&c| pystr::is_word(c));
    let found: Vec<char> = (0..upper.len())
        .filter(|&i| ('A'..='E').contains(&upper[i]))
        .filter(|&i| !word(i + 1) && (i == 0 || !word(i - 1)))
        .map(|i| upper[i])
        .collect();
    found.into_iter()
}
