//! Characters beyond ASCII to the LaTeX that means the same.

use std::borrow::Cow;

/// Rewrites mathematical Unicode to LaTeX. ASCII text is returned as it is.
pub(crate) fn prepare(text: &str) -> Cow<'_, str> {
    let mut text = text;
    // Markdown bold around the whole.
    if let Some(inner) = text.trim().strip_prefix("**").and_then(|t| t.strip_suffix("**")) {
        text = inner;
    }
    // Boxes in running text hold the answer.
    if text.contains("\\boxed") || text.contains("\\fbox") {
        if let Some(inner) = boxes(text) {
            return Cow::Owned(prepare(&inner).into_owned());
        }
    }
    // Backslashes doubled by an escape (a row break needs an environment).
    if text.contains(r"\\") && !text.contains(r"\begin") {
        let single = text.replace(r"\\", r"\");
        return Cow::Owned(rewrite(&single));
    }
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(rewrite(text))
}

fn rewrite(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        match replacement(c) {
            Some(s) => out.push_str(s),
            None => match c {
                '\u{ff01}'..='\u{ff5e}' => {
                    // Full-width forms of ASCII.
                    out.push(char::from_u32(c as u32 - 0xfee0).unwrap_or(c));
                }
                _ => out.push(c),
            },
        }
    }
    out
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
        '⁰' => "^{0}",
        '¹' => "^{1}",
        '²' => "^{2}",
        '³' => "^{3}",
        '⁴' => "^{4}",
        '⁵' => "^{5}",
        '⁶' => "^{6}",
        '⁷' => "^{7}",
        '⁸' => "^{8}",
        '⁹' => "^{9}",
        'ⁿ' => "^{n}",
        '⁻' => "^-",
        '₀' => "_{0}",
        '₁' => "_{1}",
        '₂' => "_{2}",
        '₃' => "_{3}",
        '₄' => "_{4}",
        '₅' => "_{5}",
        '₆' => "_{6}",
        '₇' => "_{7}",
        '₈' => "_{8}",
        '₉' => "_{9}",
        '½' => r"\frac{1}{2}",
        '¼' => r"\frac{1}{4}",
        '¾' => r"\frac{3}{4}",
        '⅓' => r"\frac{1}{3}",
        '⅔' => r"\frac{2}{3}",
        '⅕' => r"\frac{1}{5}",
        '⅛' => r"\frac{1}{8}",
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
