//! Words, units and multiple-choice letters.

use super::ast::Expr;
use super::judge::Judge;

/// Whether words are the answer or part of it.
pub(crate) fn is_text(e: &Expr) -> bool {
    matches!(e, Expr::Word(_) | Expr::Phrase(_))
}

/// Two texts: word by word, formulas among them compared as such.
pub(crate) fn same_text(j: &mut Judge, a: &Expr, b: &Expr) -> bool {
    let (x, y) = (parts(a), parts(b));
    x.len() == y.len()
        && x.iter().zip(y).all(|(p, q)| match (p, q) {
            (Expr::Word(v), Expr::Word(w)) => v == w,
            (Expr::Word(_), _) | (_, Expr::Word(_)) => false,
            _ => j.same(p, q),
        })
}

fn parts(e: &Expr) -> &[Expr] {
    match e {
        Expr::Phrase(v) => v,
        e => std::slice::from_ref(e),
    }
}

/// `none`, `no solution`: the empty set in words.
pub(crate) fn says_empty(e: &Expr) -> bool {
    let words: Option<Vec<&str>> =
        parts(e).iter().map(|p| if let Expr::Word(w) = p { Some(&**w) } else { None }).collect();
    words.is_some_and(|w| {
        matches!(
            w[..],
            ["none"]
                | ["no", "solution" | "solutions"]
                | ["empty", "set"]
                | ["no", "real", "solution" | "solutions"]
        )
    })
}

/// Whether two units are one: the same words, or words of which one only says more
/// (`dollar` and `us dollar`).
pub(crate) fn same_unit(a: &str, b: &str) -> bool {
    a == b
        || a.ends_with(&format!(" {b}"))
        || b.ends_with(&format!(" {a}"))
        || a.starts_with(&format!("{b} "))
        || b.starts_with(&format!("{a} "))
}

/// Whether a unit is one of degrees.
pub(crate) fn is_degree(unit: &str) -> bool {
    matches!(unit, "degree" | "celsius" | "fahrenheit" | "degree celsius" | "degree fahrenheit")
}

/// The factor from one unit to another of the same quantity.
pub(crate) fn conversion(from: &str, to: &str) -> Option<(u64, u64)> {
    // (unit, quantity, numerator, denominator in the quantity's base unit)
    const TABLE: &[(&str, u8, u64, u64)] = &[
        ("meter", 0, 1, 1),
        ("centimeter", 0, 1, 100),
        ("millimeter", 0, 1, 1000),
        ("decimeter", 0, 1, 10),
        ("kilometer", 0, 1000, 1),
        ("meter^2", 1, 1, 1),
        ("centimeter^2", 1, 1, 10_000),
        ("kilometer^2", 1, 1_000_000, 1),
        ("meter^3", 2, 1, 1),
        ("centimeter^3", 2, 1, 1_000_000),
        ("liter", 2, 1, 1000),
        ("milliliter", 2, 1, 1_000_000),
        ("second", 3, 1, 1),
        ("minute", 3, 60, 1),
        ("hour", 3, 3600, 1),
        ("day", 3, 86400, 1),
        ("gram", 4, 1, 1000),
        ("kilogram", 4, 1, 1),
        ("milligram", 4, 1, 1_000_000),
        ("inch", 5, 1, 12),
        ("foot", 5, 1, 1),
        ("yard", 5, 3, 1),
        ("mile", 5, 5280, 1),
        ("cent", 6, 1, 100),
        ("dollar", 6, 1, 1),
    ];
    let find = |u: &str| TABLE.iter().find(|t| t.0 == u);
    let (f, t) = (find(from)?, find(to)?);
    (f.1 == t.1).then_some((f.2 * t.3, f.3 * t.2))
}

/// The letter when an answer is nothing but a choice (`B`, `(B)`, `\text{B}`, `b.`), and whether
/// only the letter is there (`false` for `(B) 12`).
pub(crate) fn choice(text: &str) -> Option<(char, bool)> {
    let mut s = text.trim();
    // Most answers show at once that they are none.
    match s.as_bytes() {
        [b'0'..=b'9' | b'-' | b'.' | b'+', ..] => return None,
        [b'\\', c, ..] if !matches!(c, b't' | b'm' | b'b' | b'(' | b'[') => return None,
        _ => {}
    }
    loop {
        let before = s;
        s = s.trim().trim_matches(|c| c == '$' || c == '*').trim();
        for (open, close) in [
            ("\\text{", "}"),
            ("\\textbf{", "}"),
            ("\\mathrm{", "}"),
            ("\\mathbf{", "}"),
            ("\\boxed{", "}"),
            ("\\textit{", "}"),
            ("\\mbox{", "}"),
            ("{", "}"),
            ("\\(", "\\)"),
            ("\\[", "\\]"),
            ("\\mathsf{", "}"),
            ("\\textrm{", "}"),
            ("\\mathbb{", "}"),
        ] {
            if let Some(inner) = s.strip_prefix(open) {
                if let Some(inner) = inner.strip_suffix(close) {
                    s = inner;
                } else if inner.starts_with('(') && open.ends_with('{') {
                    s = inner;
                }
            }
        }
        for lead in ["answer", "Answer", "option", "Option", "choice", "Choice", "the", "The", "is", ":"] {
            if let Some(rest) = s.strip_prefix(lead)
                && (lead == ":" || rest.starts_with([' ', ':', '~']))
            {
                s = rest;
            }
        }
        s = s.trim_end_matches(['.', ',', ':']).trim();
        if s == before {
            break;
        }
    }
    let letter = |c: char| ('A'..='H').contains(&c.to_ascii_uppercase());
    let mut chars = s.chars();
    let first = chars.next()?;
    let rest = chars.as_str();
    if letter(first) {
        if rest.is_empty() {
            return Some((first, true));
        }
        // `B) 12`, `B. twelve`, `B: 12`
        let mark = rest.strip_prefix([')', '.', ':']);
        return match mark {
            Some("") => Some((first, true)),
            Some(m) if first.is_ascii_uppercase() && (rest.starts_with(')') || m.starts_with(' ')) => {
                Some((first, false))
            }
            _ => None,
        };
    }
    if first == '(' || first == '[' {
        let mut inner = rest.chars();
        let c = inner.next().filter(|c| letter(*c))?;
        let tail = inner.as_str().strip_prefix(if first == '(' { ')' } else { ']' })?;
        let tail = tail.trim_start_matches('}').trim();
        if tail.is_empty() {
            return Some((c, true));
        }
        // `(A) and (B)` names two choices.
        let word = tail.trim_start_matches("\\text{").trim_start();
        if tail.starts_with([',', ';', '&', '/', '(']) || word.starts_with("and") || word.starts_with("or ") {
            return None;
        }
        return c.is_ascii_uppercase().then_some((c, false));
    }
    None
}
