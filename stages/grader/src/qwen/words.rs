//! English number words to digits, as the Python package word2number 1.1 reads them.

use super::pystr;

/// Numbers by their words; the first ten may follow "point".
const WORDS: [(&str, u64); 31] = [
    ("zero", 0),
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("seventy", 70),
    ("eighty", 80),
    ("ninety", 90),
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
];
const BILLION: u64 = 1_000_000_000;

/// A word of a number.
#[derive(Clone, Copy, PartialEq)]
enum Word {
    Number(u64),
    Point,
}

/// The number that a text names, or `None` where it names none or is malformed.
///
/// Words that are no numbers are skipped ("two red apples" is 2), and a text of digits only loses
/// its leading zeros.
pub fn word_to_num(text: &str) -> Option<String> {
    let mut chars = text.chars().peekable();
    if chars.peek().is_some() && chars.all(pystr::is_decimal) {
        return digits(text);
    }
    if !text.bytes().any(|b| b.is_ascii_alphabetic()) {
        return None;
    }
    // A single look at the words first: hardly any answer names a number.
    if text.is_ascii() {
        let mut parts = text.split(|c: char| c == '-' || (c <= ' ' && pystr::is_space(c)));
        if !parts.any(may_be_number_word) {
            return None;
        }
    }
    let lower = text.replace('-', " ").to_lowercase();
    let words: Vec<Word> = lower.split(pystr::is_space).filter_map(word).collect();
    if words.is_empty() {
        return None;
    }
    let count = |w: Word| words.iter().filter(|&&x| x == w).count();
    let scales = [Word::Number(1_000), Word::Number(1_000_000), Word::Number(BILLION), Word::Point];
    if scales.into_iter().any(|w| count(w) > 1) {
        return None;
    }
    let (whole, decimals) = match words.iter().position(|&w| w == Word::Point) {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (&words[..], &words[..0]),
    };
    let whole: Vec<u64> = whole
        .iter()
        .filter_map(|w| match w {
            Word::Number(n) => Some(*n),
            Word::Point => None,
        })
        .collect();
    let total = whole_part(&whole)?;
    if decimals.is_empty() || decimals.iter().any(|w| !matches!(w, Word::Number(0..=9))) {
        return Some(total.to_string());
    }
    let mut fraction = String::from("0.");
    for w in decimals {
        if let Word::Number(n) = w {
            fraction.push_str(&n.to_string());
        }
    }
    let value = total as f64 + fraction.parse::<f64>().ok()?;
    Some(super::pystr::float_repr(value))
}

/// A cheap look at length and letters before the word is looked up.
fn may_be_number_word(w: &str) -> bool {
    const FIRST: &[u8] = b"zotfsenhmbpZOTFSENHMBP";
    let same = |name: &str| name.len() == w.len() && name.eq_ignore_ascii_case(w);
    (3..=9).contains(&w.len())
        && FIRST.contains(&w.as_bytes()[0])
        && w.bytes().all(|b| b.is_ascii_alphabetic())
        && (same("point") || same("billion") || WORDS.iter().any(|(name, _)| same(name)))
}

fn word(w: &str) -> Option<Word> {
    match w {
        "point" => Some(Word::Point),
        "billion" => Some(Word::Number(BILLION)),
        _ => WORDS.iter().find(|(name, _)| *name == w).map(|&(_, n)| Word::Number(n)),
    }
}

/// A text of digits without leading zeros; Python refuses integers of more than 4,300 digits.
fn digits(text: &str) -> Option<String> {
    if text.chars().count() > 4300 {
        return None;
    }
    let ascii: String =
        text.chars().filter_map(pystr::decimal_value).filter_map(|d| char::from_digit(d, 10)).collect();
    let trimmed = ascii.trim_start_matches('0');
    Some(if trimmed.is_empty() { "0" } else { trimmed }.to_string())
}

fn whole_part(words: &[u64]) -> Option<u64> {
    if words.len() <= 1 {
        return Some(words.first().copied().unwrap_or(0));
    }
    let at = |n: u64| words.iter().position(|&w| w == n);
    let (billion, million, thousand) = (at(BILLION), at(1_000_000), at(1_000));
    // `None` is before everything, as −1 is in the original.
    if thousand.is_some() && (thousand < million || thousand < billion)
        || million.is_some() && million < billion
    {
        return None;
    }
    let mut total = 0;
    let mut start = 0;
    for (place, scale) in [(billion, BILLION), (million, 1_000_000), (thousand, 1_000)] {
        if let Some(place) = place {
            total += group(&words[start..place])? * scale;
            start = place + 1;
        }
    }
    if start < words.len() {
        total += group(&words[start..])?;
    }
    Some(total)
}

/// A group below a thousand: "two hundred twenty three".
fn group(words: &[u64]) -> Option<u64> {
    match *words {
        [] => None,
        [a, b, c, d] => Some(a * b + c + d),
        [a, b, c] => Some(a * b + c),
        [a, b] if a == 100 || b == 100 => Some(a * b),
        [a, b] => Some(a + b),
        [a, ..] => Some(a),
    }
}
