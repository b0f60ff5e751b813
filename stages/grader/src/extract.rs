//! Answer extraction from a model's full output, in the order of Qwen2.5-Math's `extract_answer`
//! (QwenLM/Qwen2.5-Math, `evaluation/parser.py`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::qwen::choice::{choice_answer_clean, last_choice_letter};
use crate::qwen::pystr;
use crate::qwen::strip::strip_string;

/// The rule that found an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// After the last `boxed` (`\boxed{…}`, or `boxed` up to the next `$`).
    Boxed,
    /// After the last "he answer is".
    TheAnswerIs,
    /// After the last "final answer is".
    FinalAnswerIs,
    /// Between "final answer is $" and "$. I hope".
    Minerva,
    /// After the first "答案是", up to an empty line.
    Chinese,
    /// The last number of the text.
    LastNumber,
    /// After the last `####`.
    Gsm8k,
    /// A multiple-choice letter of the whole text.
    Choice,
    /// The answer was given as such, nothing was extracted.
    Given,
    /// No answer was found.
    None,
}

impl Method {
    /// The name used in JSON (`boxed`, `last_number`, …).
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Boxed => "boxed",
            Method::TheAnswerIs => "the_answer_is",
            Method::FinalAnswerIs => "final_answer_is",
            Method::Minerva => "minerva",
            Method::Chinese => "chinese",
            Method::LastNumber => "last_number",
            Method::Gsm8k => "gsm8k",
            Method::Choice => "choice",
            Method::Given => "given",
            Method::None => "none",
        }
    }
}

/// An answer found in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extraction {
    /// The answer as it stands in the text, trimmed.
    pub raw: String,
    /// The answer after Qwen's normalisation: what `extract_answer` returns.
    pub answer: String,
    /// The rule that found it.
    pub method: Method,
    /// Byte span of the raw answer in the text; `None` when there is no answer.
    pub span: Option<(usize, usize)>,
}

/// Two Cyrillic letters that Qwen's first models put into answers; `extract_answer` drops them.
const STRAY: &str = "\u{43a}\u{438}";

/// Data sets whose whole output is read as a choice.
const CHOICE_SETS: [&str; 4] = ["mmlu_stem", "sat_math", "aqua", "gaokao2023"];

/// Data sets whose answers keep their units.
pub fn keeps_units(data_name: &str) -> bool {
    matches!(data_name, "carp_en" | "minerva_math")
}

/// Extracts the answer of `text` by Qwen2.5-Math's rules for the data set `data_name`.
pub fn extract_answer(text: &str, data_name: &str) -> Extraction {
    let (clean, removed) = drop_stray(text);
    if CHOICE_SETS.contains(&data_name) {
        let answer = choice_answer_clean(&clean);
        let method = if answer.is_empty() { Method::None } else { Method::Choice };
        return Extraction { raw: answer.clone(), answer, method, span: None };
    }
    let (start, end, method) = find(&clean);
    let raw = match method {
        // The last number is searched without the thousands separators.
        Method::LastNumber => Cow::Owned(clean[start..end].replace(',', "")),
        _ => Cow::Borrowed(&clean[start..end]),
    };
    let mut answer = raw.to_string();
    if data_name.contains("mmlu") {
        answer = last_choice_letter(&answer)
            .unwrap_or_else(|| pystr::strip(&answer).trim_matches('.').to_string());
    }
    let answer = normalised(&answer, data_name);
    if method == Method::None || start == end {
        return Extraction { raw: String::new(), answer, method: Method::None, span: None };
    }
    let span = Some((restore(&removed, start), restore(&removed, end)));
    Extraction { raw: raw.into_owned(), answer, method, span }
}

/// A raw answer after Qwen's normalisation.
pub fn normalised(raw: &str, data_name: &str) -> String {
    strip_string(&tidy(raw), keeps_units(data_name))
}

/// Extracts a GSM8K answer: what follows the last `####`, without thousands separators.
pub fn extract_gsm8k(text: &str) -> Option<Extraction> {
    let at = text.rfind("####")? + 4;
    let line = text[at..].split('\n').find(|l| !l.trim().is_empty())?;
    let raw = line.trim();
    let start = raw.as_ptr() as usize - text.as_ptr() as usize;
    let answer = strip_string(&raw.replace(',', ""), false);
    let span = Some((start, start + raw.len()));
    Some(Extraction { raw: raw.to_string(), answer, method: Method::Gsm8k, span })
}

/// Byte range of the answer in `text`, and the rule that found it.
fn find(text: &str) -> (usize, usize, Method) {
    const MINERVA: &str = "final answer is $";
    const HOPE: &str = "$. I hope";
    if let (Some(at), true) = (text.find(MINERVA), text.contains(HOPE)) {
        let start = at + MINERVA.len();
        let end = text[start..].find(HOPE).map_or(text.len(), |e| start + e);
        return trimmed(text, start, end, Method::Minerva);
    }
    if let Some(at) = text.rfind("boxed") {
        return boxed(text, at + "boxed".len());
    }
    for (marker, method) in
        [("he answer is", Method::TheAnswerIs), ("final answer is", Method::FinalAnswerIs)]
    {
        if let Some(at) = text.rfind(marker) {
            return trimmed(text, at + marker.len(), text.len(), method);
        }
    }
    const CHINESE: &str = "答案是";
    if let Some(at) = text.find(CHINESE) {
        let start = at + CHINESE.len();
        let end = text[start..].find(CHINESE).map_or(text.len(), |e| start + e);
        let (start, end, _) = trimmed(text, start, end, Method::Chinese);
        let end = text[start..end].find("\n\n").map_or(end, |e| start + e);
        return trimmed(text, start, end, Method::Chinese);
    }
    match last_number(text) {
        Some((start, end)) => (start, end, Method::LastNumber),
        None => (text.len(), text.len(), Method::None),
    }
}

/// The content of the box that opens at `start`; an unclosed box runs to the end of the text.
fn boxed(text: &str, start: usize) -> (usize, usize, Method) {
    let rest = &text[start..];
    if !rest.starts_with('{') {
        let end = rest.find('$').map_or(text.len(), |e| start + e);
        return trimmed(text, start, end, Method::Boxed);
    }
    let mut depth = 0usize;
    for (i, b) in rest.bytes().enumerate() {
        match b {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return (start + 1, start + i, Method::Boxed);
                }
            }
            _ => {}
        }
    }
    (start + 1, text.len(), Method::Boxed)
}

fn trimmed(text: &str, start: usize, end: usize, method: Method) -> (usize, usize, Method) {
    let part = &text[start..end];
    let inner = pystr::strip(part);
    let lead = inner.as_ptr() as usize - part.as_ptr() as usize;
    (start + lead, start + lead + inner.len(), method)
}

/// The last match of `-?\d*\.?\d+` once commas are taken out, as a span of the text with commas.
pub(crate) fn last_number(text: &str) -> Option<(usize, usize)> {
    let mut chars = text.char_indices().filter(|&(_, c)| c != ',').peekable();
    let mut last = None;
    let mut minus = None;
    // `state` walks one candidate: start of the match, end of its digits, end before a point.
    while let Some((at, c)) = chars.next() {
        if c == '-' {
            minus = Some((at, at + 1));
            continue;
        }
        let digit = pystr::is_decimal(c);
        let point = c == '.' && chars.peek().is_some_and(|&(_, d)| pystr::is_decimal(d));
        if !digit && !point {
            minus = None;
            continue;
        }
        let start = minus.map_or(at, |(m, _)| m);
        minus = None;
        let mut end = at + c.len_utf8();
        let mut seen_point = point;
        while let Some(&(i, d)) = chars.peek() {
            if pystr::is_decimal(d) {
                end = i + d.len_utf8();
                chars.next();
            } else if d == '.' && !seen_point {
                let mut ahead = chars.clone();
                ahead.next();
                if !ahead.peek().is_some_and(|&(_, e)| pystr::is_decimal(e)) {
                    break;
                }
                seen_point = true;
                chars.next();
            } else {
                break;
            }
        }
        last = Some((start, end));
    }
    last
}

/// Drops line breaks with the spaces after them, one leading `:`, one trailing `.` and `/`.
fn tidy(answer: &str) -> Cow<'_, str> {
    fn ends(s: &str) -> &str {
        let s = s.strip_prefix(':').unwrap_or(s);
        let s = s.strip_suffix('.').unwrap_or(s);
        s.strip_suffix('/').unwrap_or(s)
    }
    if !answer.contains('\n') {
        return Cow::Borrowed(ends(answer));
    }
    let mut out = String::with_capacity(answer.len());
    let mut after_break = false;
    for c in answer.chars() {
        after_break = c == '\n' || (after_break && pystr::is_space(c));
        if !after_break {
            out.push(c);
        }
    }
    Cow::Owned(ends(&out).to_string())
}

/// The text without [`STRAY`], and the places (in the clean text) where it was taken out.
fn drop_stray(text: &str) -> (Cow<'_, str>, Vec<usize>) {
    if !text.contains(STRAY) {
        return (Cow::Borrowed(text), Vec::new());
    }
    let mut clean = String::with_capacity(text.len());
    let mut removed = Vec::new();
    for (i, part) in text.split(STRAY).enumerate() {
        if i > 0 {
            removed.push(clean.len());
        }
        clean.push_str(part);
    }
    (Cow::Owned(clean), removed)
}

/// The place in the original text of a place in the clean one.
fn restore(removed: &[usize], at: usize) -> usize {
    at + removed.iter().filter(|&&r| r <= at).count() * STRAY.len()
}
