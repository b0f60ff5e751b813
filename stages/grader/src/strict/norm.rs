//! Characters beyond ASCII to the LaTeX that means the same.

use std::borrow::Cow;

/// Rewrites mathematical Unicode to LaTeX. ASCII text is returned as it is.
pub(crate) fn prepare(text: &str) -> Cow<'_, str> {
    let mut text = text.trim();
    // The full stop of a sentence.
    if let Some(rest) = text.strip_suffix('.').filter(|r| !r.ends_with('.')) {
        text = rest;
    }
    // Markdown bold or quotation marks around the whole.
    for (open, close) in [("**", "**"), ("\"", "\""), ("``", "''"), ("“", "”")] {
        if let Some(inner) = text.strip_prefix(open).and_then(|t| t.strip_suffix(close))
            && !inner.contains(open)
        {
            text = inner;
        }
    }
    // Boxes in running text hold the answer.
    if (text.contains("\\boxed") || text.contains("\\fbox"))
        && let Some(inner) = boxes(text)
    {
        return Cow::Owned(prepare(&inner).into_owned());
    }
    // Backslashes doubled by an escape (a row break needs an environment).
    if text.contains(r"\\") && !text.contains(r"\begin") {
        let single = text.replace(r"\\", r"\");
        return Cow::Owned(rewrite(&single));
    }
    // Wide space before the next name: `x = 1 \quad y = 2`.
    if text.contains("quad")
        && let Some(apart) = columns(text)
    {
        return Cow::Owned(rewrite(&apart));
    }
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(rewrite(text))
}

/// The text with a comma for each `\quad` that stands before `name =`; `None` without one.
fn columns(text: &str) -> Option<String> {
    let mut parts = text.split(r"\quad").flat_map(|p| p.split(r"\qquad"));
    let mut out = parts.next()?.to_string();
    let mut found = false;
    for part in parts {
        let name = part.trim_start().find('=').map(|k| part.trim_start()[..k].trim_end());
        let named = name.is_some_and(|n| {
            n.starts_with(|c: char| c.is_ascii_alphabetic())
                && n.len() <= 6
                && n.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'{' | b'}' | b'(' | b')'))
        });
        let value = out.trim_end().ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '}' | ')'));
        out.push_str(if named && value { ", " } else { " " });
        found |= named && value;
        out.push_str(part);
    }
    found.then_some(out)
}

fn rewrite(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    let mut script = None; // `^` or `_` while in a run of raised or lowered characters
    for c in text.chars() {
        let raised = raised(c).map(|r| ('^', r)).or_else(|| lowered(c).map(|r| ('_', r)));
        if script != raised.map(|r| r.0) {
            if script.is_some() {
                out.push('}');
            }
            if let Some((mark, _)) = raised {
                out.extend([mark, '{']);
            }
            script = raised.map(|r| r.0);
        }
        if let Some((_, r)) = raised {
            out.push(r);
            continue;
        }
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        match replacement(c) {
            Some(s) => out.push_str(s),
            None => match c {
                // Mathematical alphabets: bold, italic, double-struck …
                '\u{1d400}'..='\u{1d6a3}' => {
                    let k = (c as u32 - 0x1d400) % 52;
                    let base = if k < 26 { b'A' } else { b'a' - 26 };
                    out.push(char::from(base + k as u8));
                }
                '\u{1d7ce}'..='\u{1d7ff}' => {
                    out.push(char::from(b'0' + ((c as u32 - 0x1d7ce) % 10) as u8));
                }
                '\u{ff01}'..='\u{ff5e}' => {
                    // Full-width forms of ASCII.
                    out.push(char::from_u32(c as u32 - 0xfee0).unwrap_or(c));
                }
                _ => out.push(c),
            },
        }
    }
    if script.is_some() {
        out.push('}');
    }
    out
}

/// A superscript's plain character.
fn raised(c: char) -> Option<char> {
    let at = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸᵃᵇᶜᵈᵉᵏᵐᵗᵀ".chars().position(|s| s == c)?;
    "0123456789+-=()nixyabcdekmtT".chars().nth(at)
}

/// A subscript's plain character.
fn lowered(c: char) -> Option<char> {
    let at = "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙᵢⱼₖₘₓₐₑ".chars().position(|s| s == c)?;
    "0123456789+-=()nijkmxae".chars().nth(at)
}

fn replacement(c: char) -> Option<&'static str> {
    Some(match c {
        '−' | '–' | '—' | '‐' | '‑' | '﹣' => "-",
        '×' | '✕' | '⨯' => r"\times ",
        '·' | '⋅' | '∙' | '•' => r"\cdot ",
        '÷' => r"\div ",
        '∕' | '⁄' => "/",
        '√' => r"\sqrt ",
        '∛' => r"\cbrt ",
        'π' | '𝜋' => r"\pi ",
        '∞' => r"\infty ",
        '≤' | '⩽' | '≦' => r"\le ",
        '≥' | '⩾' | '≧' => r"\ge ",
        '≠' => r"\ne ",
        '≈' | '≃' => r"\approx ",
        '∪' => r"\cup ",
        '∩' => r"\cap ",
        '∖' => r"\setminus ",
        '∈' => r"\in ",
        '∉' => r"\notin ",
        '∅' => r"\emptyset ",
        'ℝ' => r"\mathbb{R}",
        'ℤ' => r"\mathbb{Z}",
        'ℕ' => r"\mathbb{N}",
        'ℚ' => r"\mathbb{Q}",
        '±' => r"\pm ",
        '∓' => r"\mp ",
        '→' | '⟶' => r"\to ",
        '°' | '˚' | 'º' => r"^\circ ",
        '′' | '’' | '‘' => "'",
        '“' | '”' => " ",
        '…' | '⋯' => r"\ldots ",
        '⟨' | '〈' => r"\langle ",
        '⟩' | '〉' => r"\rangle ",
        '⌊' => r"\lfloor ",
        '⌋' => r"\rfloor ",
        '⌈' => r"\lceil ",
        '⌉' => r"\rceil ",
        '∑' => r"\sum ",
        '∫' => r"\int ",
        '∏' => r"\prod ",
        '½' => r"\frac{1}{2}",
        '¼' => r"\frac{1}{4}",
        '¾' => r"\frac{3}{4}",
        '⅓' => r"\frac{1}{3}",
        '⅔' => r"\frac{2}{3}",
        '⅕' => r"\frac{1}{5}",
        '⅖' => r"\frac{2}{5}",
        '⅗' => r"\frac{3}{5}",
        '⅘' => r"\frac{4}{5}",
        '⅙' => r"\frac{1}{6}",
        '⅚' => r"\frac{5}{6}",
        '⅛' => r"\frac{1}{8}",
        '⅜' => r"\frac{3}{8}",
        '⅝' => r"\frac{5}{8}",
        '⅞' => r"\frac{7}{8}",
        '∗' => "*",
        '∶' => ":",
        '∣' => r"\mid ",
        '∥' => r"\parallel ",
        '⊥' => r"\perp ",
        '∠' => r"\angle ",
        '△' => r"\triangle ",
        '∂' => r"\partial ",
        '≡' => r"\equiv ",
        '⊂' => r"\subset ",
        '⊆' => r"\subseteq ",
        '∧' => r"\land ",
        '∨' => r"\lor ",
        'ℂ' => r"\mathbb{C}",
        '℃' => r"^\circ C ",
        '℉' => r"^\circ F ",
        'ζ' => r"\zeta ",
        'η' => r"\eta ",
        'ι' => r"\iota ",
        'κ' => r"\kappa ",
        'ν' => r"\nu ",
        'ξ' => r"\xi ",
        'χ' => r"\chi ",
        'Γ' => r"\Gamma ",
        'Θ' => r"\Theta ",
        'Λ' => r"\Lambda ",
        'Ξ' => r"\Xi ",
        'Π' => r"\Pi ",
        'Σ' => r"\Sigma ",
        'Φ' => r"\Phi ",
        'Ψ' => r"\Psi ",
        'α' => r"\alpha ",
        'β' => r"\beta ",
        'γ' => r"\gamma ",
        'δ' => r"\delta ",
        'Δ' | '∆' => r"\Delta ",
        'ε' | 'ϵ' => r"\epsilon ",
        'θ' | 'ϑ' => r"\theta ",
        'λ' => r"\lambda ",
        'μ' | 'µ' => r"\mu ",
        'ρ' => r"\rho ",
        'σ' => r"\sigma ",
        'τ' => r"\tau ",
        'φ' | 'ϕ' => r"\phi ",
        'ψ' => r"\psi ",
        'ω' => r"\omega ",
        'Ω' => r"\Omega ",
        '，' | '、' => ",",
        '；' => ";",
        '：' => ":",
        '。' => ".",
        '\u{200b}' | '\u{200c}' | '\u{200d}' | '\u{feff}' | '\u{2060}' => "",
        '\u{a0}' | '\u{2009}' | '\u{202f}' | '\u{3000}' => " ",
        '€' => r" euro ",
        '£' => r" pound ",
        _ => return None,
    })
}

/// What the boxes of a text hold, joined by commas; `None` where a box is not closed or two boxes
/// are nested.
fn boxes(text: &str) -> Option<String> {
    let mut found: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("boxed").or_else(|| rest.find("fbox")) {
        let from = at + rest[at..].find('{')?;
        let mut depth = 0usize;
        let mut end = None;
        for (k, c) in rest[from..].bytes().enumerate() {
            match c {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = Some(from + k);
                break;
            }
        }
        let end = end?;
        let inner = rest[from + 1..end].trim();
        if inner.contains("boxed") || inner.is_empty() {
            return None;
        }
        if !found.contains(&inner) {
            found.push(inner);
        }
        rest = &rest[end + 1..];
    }
    Some(found.join(", "))
}
