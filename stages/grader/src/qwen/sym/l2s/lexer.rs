//! Tokens of `latex2sympy2` 1.9's `PS.g4`: the longest literal wins, commands need no end.

use super::commands::{ACCENTS, COMMANDS, SYMBOLS, WORDS};

/// Kinds of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    LParen,
    RParen,
    LBrace,
    RBrace,
    LBraceLit,
    RBraceLit,
    LBracket,
    RBracket,
    /// `\lgroup`, `\lbrace`, `\lbrack` and their partners, by number.
    LOther(u8),
    ROther(u8),
    Bar,
    LVert,
    RVert,
    Vert,
    Norm,
    LFloor(u8),
    RFloor(u8),
    LCeil(u8),
    RCeil(u8),
    Left,
    Right,
    MLeft,
    MRight,
    Func,
    MultiFunc,
    /// Integrals, sums, products, limits.
    Big,
    Sqrt,
    Frac,
    Binom,
    Choose,
    Mathit,
    MatrixStart,
    MatrixEnd,
    Amp,
    Row,
    Underscore,
    Caret,
    /// `^T`, `^{T}`, `^{\top}`, `'`
    Transpose,
    Semicolon,
    Comma,
    Differential,
    ExpE,
    Letter,
    Number,
    ENotation,
    Percent,
    Assign,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    Bang,
    Greek,
    /// `\pi`, `\infty`
    Pi,
    Infty,
    Accent,
    /// A token that no supported rule uses.
    Other,
    Skip,
    Error,
    End,
}

/// A token: its kind and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// Splits `src` into tokens, with one `End` after them.
pub fn tokens(src: &str) -> Vec<Token> {
    let b = src.as_bytes();
    let mut out = Vec::with_capacity(b.len() / 2 + 1);
    let mut i = 0;
    while i < b.len() {
        let (kind, len) = next(b, i);
        if kind != Kind::Skip {
            out.push(Token { kind, start: i, end: i + len });
        }
        i += len;
    }
    out.push(Token { kind: Kind::End, start: b.len(), end: b.len() });
    out
}

fn next(b: &[u8], i: usize) -> (Kind, usize) {
    let rest = &b[i..];
    let starts = |s: &str| rest.starts_with(s.as_bytes());
    let kind = match b[i] {
        b' ' | b'\t' | b'\r' | b'\n' => Kind::Skip,
        b'+' => Kind::Add,
        b'-' => Kind::Sub,
        b'*' => Kind::Mul,
        b'/' | b':' => Kind::Div,
        b'(' => Kind::LParen,
        b')' => Kind::RParen,
        b'{' => Kind::LBrace,
        b'}' => Kind::RBrace,
        b'[' => Kind::LBracket,
        b']' => Kind::RBracket,
        b'|' => Kind::Bar,
        b'&' => Kind::Amp,
        b'_' => Kind::Underscore,
        b'^' => {
            for t in ["^{\\top}", "^{T}", "^T"] {
                if starts(t) {
                    return (Kind::Transpose, t.len());
                }
            }
            Kind::Caret
        }
        b'\'' => Kind::Transpose,
        b';' => Kind::Semicolon,
        b'=' if starts("==") => return (Kind::Eq, 2),
        b'=' => Kind::Assign,
        b'<' if starts("<->") || starts("<=>") => return (Kind::Other, 3),
        b'<' => Kind::Lt,
        b'>' => Kind::Gt,
        b'!' if starts("!==") => return (Kind::Ne, 3),
        b'!' if starts("!=") => return (Kind::Ne, 2),
        b'!' => Kind::Bang,
        b'\\' => return command(rest),
        b'0'..=b'9' | b',' | b'.' => return number(rest),
        c if c.is_ascii_alphabetic() => return letter(rest),
        c if c < 0x80 => Kind::Error,
        _ => {
            let more = rest[1..].iter().take_while(|&&c| (0x80..0xc0).contains(&c)).count();
            return (Kind::Error, 1 + more);
        }
    };
    (kind, 1)
}

fn command(rest: &[u8]) -> (Kind, usize) {
    let body = &rest[1..];
    let mut best = (Kind::Error, 0);
    let mut offer = |name: &str, kind: Kind, extra: usize| {
        let first = body.first() == name.as_bytes().first();
        if first && body.starts_with(name.as_bytes()) && name.len() + extra > best.1 {
            best = (kind, name.len() + extra);
        }
    };
    for &(name, kind) in COMMANDS {
        offer(name, kind, 0);
    }
    for &name in ACCENTS {
        offer(name, Kind::Accent, 0);
    }
    for &name in SYMBOLS {
        let space = body.get(name.len()) == Some(&b' ');
        offer(name, Kind::Greek, usize::from(space));
    }
    (best.0, best.1 + 1)
}

fn letter(rest: &[u8]) -> (Kind, usize) {
    let word = WORDS.iter().filter(|w| rest.starts_with(w.as_bytes())).map(|w| w.len()).max();
    let mut best = match rest[0] {
        b'e' => (Kind::ExpE, 1),
        b'E' => (Kind::Other, 1),
        _ => (Kind::Letter, 1),
    };
    if rest[0] == b'd' {
        let gap = rest[1..].iter().take_while(|c| b" \t\r\n".contains(c)).count();
        match rest.get(1 + gap) {
            Some(c) if c.is_ascii_alphabetic() => best = (Kind::Differential, gap + 2),
            Some(b'\\') => {
                let n = rest[gap + 2..].iter().take_while(|c| c.is_ascii_alphabetic()).count();
                if n > 0 {
                    best = (Kind::Differential, gap + 2 + n);
                }
            }
            _ => {}
        }
    }
    match word {
        // "diag" and its like come before the differential in the grammar.
        Some(n) if n >= best.1 && n > 1 => (Kind::Other, n),
        _ => best,
    }
}

/// A number, with groups of thousands, a fraction, an exponent `E…` or a percent sign.
fn number(rest: &[u8]) -> (Kind, usize) {
    let digits = |from: usize| rest[from.min(rest.len())..].iter().take_while(|c| c.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    while rest.get(end) == Some(&b',') && digits(end + 1) >= 3 {
        end += 4;
    }
    let fraction = if rest.get(end) == Some(&b'.') { digits(end + 1) } else { 0 };
    if fraction > 0 {
        end += 1 + fraction;
    } else if whole == 0 {
        return (if rest[0] == b',' { Kind::Comma } else { Kind::Other }, 1);
    }
    if rest[end..].starts_with(b"\\%") {
        return (Kind::Percent, end + 2);
    }
    if rest.get(end) == Some(&b'E') {
        let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            return (Kind::ENotation, end + 1 + sign + exponent);
        }
    }
    (Kind::Number, end)
}
