//! `math_equal` of Qwen2.5-Math's `grader.py`, rule by rule.

use super::choice::choice_of_answer;
use super::pystr;
use super::sym::symbolic_equal;
use crate::reason::Reason;

/// Verdict of the Qwen rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QwenVerdict {
    /// Whether `math_equal` returns True.
    pub equal: bool,
    /// The rule that decided.
    pub reason: Reason,
}

/// Longest answer (bytes) that is compared as an expression; the original times out on less.
const MAX_LEN: usize = 20_000;

/// Nested lists that are taken apart.
const MAX_DEPTH: u32 = 32;

fn yes(reason: Reason) -> QwenVerdict {
    QwenVerdict { equal: true, reason }
}

fn no(reason: Reason) -> QwenVerdict {
    QwenVerdict { equal: false, reason }
}

/// Compares two normalised answers as `math_equal(pred, gold)` does.
pub fn math_equal(pred: &str, gold: &str) -> QwenVerdict {
    compare(pred, gold, 0)
}

fn compare(pred: &str, gold: &str, depth: u32) -> QwenVerdict {
    if same(pystr::strip(pred), pystr::strip(gold)) {
        return yes(Reason::Exact);
    }
    if matches!(gold, "A" | "B" | "C" | "D" | "E") && choice_of_answer(pred) == gold {
        return yes(Reason::Choice);
    }
    if let (Some(p), Some(g)) = (parse_digits(pred), parse_digits(gold)) {
        let equal = [g / 100.0, g, g * 100.0].iter().any(|&g| close(g, p));
        return QwenVerdict { equal, reason: Reason::Numeric };
    }
    if pred.is_empty() {
        return no(Reason::None);
    }
    if pred.len() > MAX_LEN || gold.len() > MAX_LEN || depth > MAX_DEPTH {
        return no(Reason::Budget);
    }
    let (pred, mut gold) = (pystr::strip(pred), pystr::strip(gold));
    let as_matrix;
    if pred.contains("pmatrix") && !gold.contains("pmatrix") {
        as_matrix = str_to_pmatrix(gold);
        gold = &as_matrix;
    }
    if same_without_brackets(pred, gold) {
        return yes(Reason::Exact);
    }
    if is_list(pred) && is_list(gold) && lists_equal(pred, gold, depth) {
        return yes(Reason::Tuple);
    }
    if is_matrix(pred) && is_matrix(gold) && matrices_equal(pred, gold, depth) {
        return yes(Reason::Matrix);
    }
    if equations_equal(pred, gold, depth) {
        return yes(Reason::Equation);
    }
    QwenVerdict { equal: symbolic_equal(pred, gold), reason: Reason::Symbolic }
}

/// Equal but for case.
fn same(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    a.to_lowercase() == b.to_lowercase()
}

/// `math.isclose(a, b, rel_tol=1e-4)`.
pub(super) fn close(a: f64, b: f64) -> bool {
    if a == b {
        return true;
    }
    let difference = (b - a).abs();
    a.is_finite() && b.is_finite() && (difference <= 1e-4 * a.abs() || difference <= 1e-4 * b.abs())
}

/// A number, its commas dropped; a percentage is a hundredth.
fn parse_digits(s: &str) -> Option<f64> {
    // Numbers are short, and most answers that are none end in a letter or a brace.
    let last = *s.as_bytes().last()?;
    if s.len() > 400 || matches!(last, b'}' | b')' | b']') {
        return None;
    }
    let plain;
    let s = if s.contains(',') {
        plain = s.replace(',', "");
        plain.as_str()
    } else {
        s
    };
    if let Some(x) = pystr::parse_float(s) {
        return Some(x);
    }
    let s = s.strip_suffix('%')?;
    let s = s.strip_suffix('\\').unwrap_or(s);
    Some(pystr::parse_float(s)? / 100.0)
}

/// The `{a,b}` of a gold as a column, where the prediction is a matrix.
fn str_to_pmatrix(gold: &str) -> String {
    let column = |line: &str| -> Option<String> {
        let end = line.rfind('}')?;
        let comma = line[..end].rfind(',')?;
        let start = line[..comma].find('{')?;
        let inner = line[start..=end].trim_matches(['{', '}']).replace(',', "\\");
        Some(format!("\\begin{{pmatrix}}{inner}\\end{{pmatrix}}"))
    };
    let columns: Vec<String> = gold.split('\n').filter_map(column).collect();
    columns.join(", ")
}

/// Text equality once brackets are gone, whatever they group.
fn same_without_brackets(pred: &str, gold: &str) -> bool {
    let wrapped = |s: &str, open, close| s.starts_with(open) && s.ends_with(close);
    let strip = (wrapped(pred, '[', ']') && !gold.starts_with('('))
        || (wrapped(pred, '(', ')') && !gold.starts_with('['));
    if !strip && !pred.contains(['{', '}', '(', ')']) && !gold.contains(['{', '}', '(', ')']) {
        return false;
    }
    fn inside(s: &str, strip: bool) -> &str {
        if strip { s.trim_matches(['[', ']', '(', ')']) } else { s }
    }
    let (pred, gold) = (inside(pred, strip), inside(gold, strip));
    let kept = |c: &char| !matches!(c, '{' | '}' | '(' | ')');
    if pred.is_ascii() && gold.is_ascii() {
        let lower = |c: char| c.to_ascii_lowercase();
        return pred.chars().filter(kept).map(lower).eq(gold.chars().filter(kept).map(lower));
    }
    let text = |s: &str| s.chars().filter(kept).collect::<String>().to_lowercase();
    text(pred) == text(gold)
}

/// Starts with `(` or `[` and has a `)` or `]` later on the line.
fn is_list(s: &str) -> bool {
    if !s.starts_with(['(', '[']) {
        return false;
    }
    let line = s.split('\n').next().unwrap_or(s);
    let mut rest = line[1..].chars();
    rest.next();
    rest.as_str().contains([')', ']'])
}

/// The text without its first and last character.
fn inner(s: &str) -> &str {
    let mut chars = s.chars();
    chars.next();
    chars.next_back();
    chars.as_str()
}

fn lists_equal(pred: &str, gold: &str, depth: u32) -> bool {
    let (pred, gold) = (inner(pred), inner(gold));
    pred.split(',').count() == gold.split(',').count()
        && pred.split(',').zip(gold.split(',')).all(|(p, g)| compare(p, g, depth + 1).equal)
}

fn is_matrix(s: &str) -> bool {
    (s.starts_with("\\begin{pmatrix}") || s.starts_with("\\begin{bmatrix}"))
        && (s.ends_with("\\end{pmatrix}") || s.ends_with("\\end{bmatrix}"))
}

fn matrices_equal(pred: &str, gold: &str, depth: u32) -> bool {
    fn rows(s: &str) -> Vec<&str> {
        let (start, end) = ("\\begin{pmatrix}".len(), "\\end{pmatrix}".len());
        let body = s.get(start..s.len().saturating_sub(end)).unwrap_or_default();
        body.split("\\\\").map(pystr::strip).filter(|l| !l.is_empty()).collect()
    }
    let (pred, gold) = (rows(pred), rows(gold));
    pred.len() == gold.len()
        && pred.iter().zip(&gold).all(|(p, g)| {
            p.split('&').count() == g.split('&').count()
                && p.split('&').zip(g.split('&')).all(|(p, g)| compare(p, g, depth + 1).equal)
        })
}

fn equations_equal(pred: &str, gold: &str, depth: u32) -> bool {
    let sides = |s: &'_ str| -> Option<(usize, usize)> {
        let at = s.find('=')?;
        (!s[at + 1..].contains('=')).then_some((at, at + 1))
    };
    match (sides(pred), sides(gold)) {
        (Some(p), Some(g)) => {
            let difference = |s: &str, (l, r): (usize, usize)| {
                format!("{} - ({})", pystr::strip(&s[..l]), pystr::strip(&s[r..]))
            };
            let (p, g) = (difference(pred, p), difference(gold, g));
            symbolic_equal(&p, &g) || symbolic_equal(&format!("-({p})"), &g)
        }
        (Some((l, r)), None) if short(&pred[..l]) && !gold.contains('=') => {
            compare(&pred[r..], gold, depth + 1).equal
        }
        (None, Some((l, r))) if short(&gold[..l]) && !pred.contains('=') => {
            compare(pred, &gold[r..], depth + 1).equal
        }
        _ => false,
    }
}

/// At most two characters.
fn short(s: &str) -> bool {
    pystr::strip(s).chars().nth(2).is_none()
}
