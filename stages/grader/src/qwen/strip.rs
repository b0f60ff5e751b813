//! `strip_string` of Qwen2.5-Math's `parser.py`: the normalisation of an answer.

use super::{pystr, units, words};

/// The ASCII characters of a text and those that follow a backslash, as sets: most rules are
/// skipped because a character of theirs is missing.
#[derive(Clone, Copy)]
struct Chars {
    all: u128,
    commands: u128,
}

impl Chars {
    fn of(s: &str) -> Self {
        let (mut all, mut commands, mut before) = (0u128, 0u128, b' ');
        for b in s.bytes() {
            let bit = if b < 128 { 1 << b } else { 0 };
            all |= bit;
            if before == b'\\' {
                commands |= bit;
            }
            before = b;
        }
        // What follows a doubled backslash may change when one of them goes.
        if commands >> b'\\' & 1 == 1 {
            commands = u128::MAX;
        }
        Chars { all, commands }
    }

    fn has(self, b: u8) -> bool {
        self.all >> b & 1 == 1
    }

    /// Whether the text may hold `pattern`, judged by how it starts.
    fn may_hold(self, pattern: &str) -> bool {
        match *pattern.as_bytes() {
            [b'\\', b, ..] => self.commands >> b & 1 == 1,
            [b, ..] => self.has(b),
            [] => false,
        }
    }

    /// `s = s.replace(from, to)`, without a copy where nothing changes.
    fn replace(self, s: &mut String, from: &str, to: &str) {
        if self.may_hold(from) && s.contains(from) {
            *s = s.replace(from, to);
        }
    }
}

/// Normalises an answer; `keep_units` leaves unit words in place.
pub fn strip_string(answer: &str, keep_units: bool) -> String {
    let trimmed = pystr::strip(answer);
    let mut s = if trimmed.contains('\n') { trimmed.replace('\n', "") } else { trimmed.to_string() };
    s.truncate(s.trim_end_matches('.').len());
    if s.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b',')) {
        return words::word_to_num(&s).unwrap_or(s);
    }
    canonical_commands(&mut s);
    drop_trailing_text(&mut s);
    if !keep_units {
        units::drop_units(&mut s);
    }
    let chars = Chars::of(&s);
    for gone in ["^{\\circ}", "^\\circ", "\\$", "$", "\\(", "\\)"] {
        chars.replace(&mut s, gone, "");
    }
    if let Some(number) = words::word_to_num(&s) {
        s = number;
    }
    cut_groups(&mut s, "\\text{", true);
    if chars.has(b'=') || chars.has(b'\\') {
        for gone in ["x=", "y=", "z=", "x\\in", "y\\in", "z\\in", "x\\to", "y\\to", "z\\to"] {
            chars.replace(&mut s, gone, "");
        }
    }
    chars.replace(&mut s, "\\emptyset", "{}");
    if chars.has(b'\\') {
        chars.replace(&mut s, "(-\\infty,\\infty)", "\\mathbb{R}");
    }
    if chars.has(b'%') {
        chars.replace(&mut s, "\\%", "");
        chars.replace(&mut s, "%", "");
    }
    if s.contains('.') {
        chars.replace(&mut s, " .", " 0.");
        chars.replace(&mut s, "{.", "{0.");
    }
    if chars.has(b'i') && chars.has(b'f') {
        chars.replace(&mut s, "infinity", "\\infty");
        if !s.contains("\\infty") {
            chars.replace(&mut s, "inf", "\\infty");
        }
    }
    if chars.has(b'd') {
        chars.replace(&mut s, "and", "");
    }
    chars.replace(&mut s, "\\mathbf", "");
    cut_groups(&mut s, "\\mbox{", false);
    if chars.has(b'j') && s.contains('j') && !s.contains('i') {
        s = s.replace('j', "i");
    }
    drop_zero_fractions(&mut s);
    if s.is_empty() {
        return s;
    }
    if s.starts_with('.') {
        s.insert(0, '0');
    }
    if let Some(rhs) = short_equation(&s) {
        s = rhs.to_string();
    }
    if chars.may_hold("\\sqrt") {
        brace_sqrt(&mut s);
    }
    if chars.has(b' ') {
        s.retain(|c| c != ' ');
    }
    if s.contains("\\frac") {
        s = brace_fractions(s);
    }
    slash_to_fraction(s)
}

/// One spelling for each command; drops `\left` and `\right`.
fn canonical_commands(s: &mut String) {
    let chars = Chars::of(s);
    chars.replace(s, "\\!", "");
    if chars.has(b'y') {
        array_to_pmatrix(s);
    }
    if chars.has(b'x') {
        chars.replace(s, "bmatrix", "pmatrix");
    }
    chars.replace(s, "tfrac", "frac");
    chars.replace(s, "dfrac", "frac");
    for (long, short) in [("\\neq", "\\ne"), ("\\leq", "\\le"), ("\\geq", "\\ge")] {
        chars.replace(s, long, short);
    }
    for (from, to) in [("\\left", ""), ("\\right", ""), ("\\{", "{"), ("\\}", "}")] {
        chars.replace(s, from, to);
    }
}

/// Cuts from the first `\text{` where the answer ends in a brace (meant for a unit at the end), and
/// trims, unless nothing would remain.
fn drop_trailing_text(s: &mut String) {
    let cut = s.find("\\text{").filter(|at| s.ends_with('}') && s.len() > at + 6);
    let rest = pystr::strip(&s[..cut.unwrap_or(s.len())]);
    if !rest.is_empty() && rest.len() != s.len() {
        *s = rest.to_string();
    }
}

/// `\begin{array}{…}` and `\end{array}` become those of a pmatrix.
fn array_to_pmatrix(s: &mut String) {
    if !s.contains("{array}") {
        return;
    }
    const BEGIN: &str = "\\begin{array}{";
    let mut out = String::with_capacity(s.len());
    let mut rest = s.as_str();
    while let Some(at) = rest.find(BEGIN) {
        let Some(end) = rest[at + BEGIN.len()..].find('}') else {
            break;
        };
        out.push_str(&rest[..at]);
        out.push_str("\\begin{pmatrix}");
        rest = &rest[at + BEGIN.len() + end + 1..];
    }
    out.push_str(rest);
    *s = out.replace("\\end{array}", "\\end{pmatrix}");
}

/// Each group that `open` begins, up to the next closing brace, becomes its content or goes.
fn cut_groups(s: &mut String, open: &str, keep: bool) {
    if !s.contains(open) {
        return;
    }
    let mut out = String::with_capacity(s.len());
    let mut rest = s.as_str();
    while let Some(at) = rest.find(open) {
        let Some(end) = rest[at + open.len()..].find('}') else {
            break;
        };
        out.push_str(&rest[..at]);
        if keep {
            out.push_str(&rest[at + open.len()..at + open.len() + end]);
        }
        rest = &rest[at + open.len() + end + 1..];
    }
    out.push_str(rest);
    *s = out;
}

/// `(\d+)\.0*([^\d])` and `(\d+)\.0*$` lose their point and zeros.
fn drop_zero_fractions(s: &mut String) {
    if !s.contains('.') {
        return;
    }
    let chars: Vec<char> = s.chars().collect();
    let mut out = String::with_capacity(s.len());
    let mut i = 0;
    // A digit that an earlier match took up cannot begin the next one.
    let mut taken = 0;
    while i < chars.len() {
        let after_digit = i > taken && pystr::is_decimal(chars[i - 1]);
        if chars[i] == '.' && after_digit {
            let mut j = i + 1;
            while j < chars.len() && chars[j] == '0' {
                j += 1;
            }
            if let Some(&c) = chars.get(j).filter(|&&c| !pystr::is_decimal(c)) {
                out.push(c);
                i = j + 1;
                taken = i;
                continue;
            }
        }
        out.push(chars[i]);
        i += 1;
    }
    let zeros = out.trim_end_matches('0');
    if let Some(head) = zeros.strip_suffix('.').filter(|h| h.ends_with(pystr::is_decimal)) {
        out.truncate(head.len());
    }
    *s = out;
}

/// The right side of `ab=…`: one `=` and at most two characters before it.
fn short_equation(s: &str) -> Option<&str> {
    let (left, right) = s.split_once('=')?;
    (!right.contains('=') && left.chars().count() <= 2).then_some(right)
}

/// `\sqrtw` becomes `\sqrt{w}` for a run of word characters.
fn brace_sqrt(s: &mut String) {
    const SQRT: &str = "\\sqrt";
    if !s.contains(SQRT) {
        return;
    }
    let mut out = String::with_capacity(s.len() + 2);
    let mut rest = s.as_str();
    while let Some(at) = rest.find(SQRT) {
        out.push_str(&rest[..at + SQRT.len()]);
        rest = &rest[at + SQRT.len()..];
        let end = rest.find(|c| !pystr::is_word(c)).unwrap_or(rest.len());
        if end > 0 {
            out.push('{');
            out.push_str(&rest[..end]);
            out.push('}');
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    *s = out;
}

/// `\frac12` and `\frac1{72}` get their braces; one `\frac` without two characters after it
/// leaves everything as it was.
fn brace_fractions(s: String) -> String {
    let mut parts = s.split("\\frac");
    let mut out = String::with_capacity(s.len() + 8);
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str("\\frac");
        if part.starts_with('{') {
            out.push_str(part);
            continue;
        }
        let mut chars = part.chars();
        let (Some(a), Some(b)) = (chars.next(), chars.next()) else {
            return s;
        };
        out.push('{');
        out.push(a);
        out.push('}');
        if b == '{' {
            out.push(b);
        } else {
            out.push('{');
            out.push(b);
            out.push('}');
        }
        out.push_str(chars.as_str());
    }
    out
}

/// `a/b` of two integers (or of anything with `sqrt`) becomes `\frac{a}{b}`.
fn slash_to_fraction(s: String) -> String {
    let Some((a, b)) = s.split_once('/') else {
        return s;
    };
    if b.contains('/') {
        return s;
    }
    let fits = |side: &str| side.contains("sqrt") || is_plain_int(side);
    if fits(a) && fits(b) { format!("\\frac{{{a}}}{{{b}}}") } else { s }
}

/// Whether Python's `str(int(s)) == s`.
fn is_plain_int(s: &str) -> bool {
    let digits = s.strip_prefix('-').unwrap_or(s);
    let plain = match digits.as_bytes() {
        [] => false,
        [b'0'] => s.len() == 1,
        [first, ..] => *first != b'0' && digits.bytes().all(|b| b.is_ascii_digit()),
    };
    plain && digits.len() <= 4300
}
