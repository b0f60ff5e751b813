//! Tokens of sympy 1.12's `LaTeX.g4`: the longest match wins, then the earlier rule.

/// Kinds of token that the grammar tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Add,
    Sub,
    /// `*`, `\times`, `\cdot`
    Mul,
    /// `/`, `\div`, `:`
    Div,
    LParen,
    RParen,
    LBrace,
    RBrace,
    /// `\{`
    LBraceLit,
    /// `\}`
    RBraceLit,
    LBracket,
    RBracket,
    Bar,
    /// `\left|`
    LBar,
    /// `\right|`
    RBar,
    LAngle,
    RAngle,
    Lim,
    To,
    Int,
    Sum,
    Prod,
    /// `\sin`, `\log`, …
    Func,
    LFloor,
    RFloor,
    LCeil,
    RCeil,
    Sqrt,
    Overline,
    Frac,
    Binom,
    Mathit,
    Underscore,
    Caret,
    /// `d` and the variable after it
    Differential,
    Letter,
    Digit,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Bang,
    Quotes,
    Symbol,
    Comma,
    Point,
    /// A character that no rule reads.
    Error,
    End,
}

/// A token: its kind and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    pub start: u32,
    pub end: u32,
}

/// Commands that are more than a symbol. `None`: skipped.
const COMMANDS: [(&str, Option<Kind>); 74] = [
    ("Longrightarrow", Some(Kind::To)),
    ("Rightarrow", Some(Kind::To)),
    ("arccos", Some(Kind::Func)),
    ("arccot", Some(Kind::Func)),
    ("arccsc", Some(Kind::Func)),
    ("arcosh", Some(Kind::Func)),
    ("arcsec", Some(Kind::Func)),
    ("arcsin", Some(Kind::Func)),
    ("arctan", Some(Kind::Func)),
    ("arsinh", Some(Kind::Func)),
    ("artanh", Some(Kind::Func)),
    ("binom", Some(Kind::Binom)),
    ("cdot", Some(Kind::Mul)),
    ("cos", Some(Kind::Func)),
    ("cosh", Some(Kind::Func)),
    ("cot", Some(Kind::Func)),
    ("csc", Some(Kind::Func)),
    ("dbinom", Some(Kind::Binom)),
    ("dfrac", Some(Kind::Frac)),
    ("div", Some(Kind::Div)),
    ("exp", Some(Kind::Func)),
    ("frac", Some(Kind::Frac)),
    ("ge", Some(Kind::Ge)),
    ("geq", Some(Kind::Ge)),
    ("geqq", Some(Kind::Ge)),
    ("geqslant", Some(Kind::Ge)),
    ("hfil", None),
    ("int", Some(Kind::Int)),
    ("langle", Some(Kind::LAngle)),
    ("lceil", Some(Kind::LCeil)),
    ("le", Some(Kind::Le)),
    ("left", None),
    ("leq", Some(Kind::Le)),
    ("leqq", Some(Kind::Le)),
    ("leqslant", Some(Kind::Le)),
    ("lfloor", Some(Kind::LFloor)),
    ("lg", Some(Kind::Func)),
    ("lim", Some(Kind::Lim)),
    ("ln", Some(Kind::Func)),
    ("log", Some(Kind::Func)),
    ("longrightarrow", Some(Kind::To)),
    ("mathit", Some(Kind::Mathit)),
    ("medspace", None),
    ("negmedspace", None),
    ("negthickspace", None),
    ("negthinspace", None),
    ("neq", Some(Kind::Ne)),
    ("overline", Some(Kind::Overline)),
    ("prod", Some(Kind::Prod)),
    ("qquad", None),
    ("quad", None),
    ("rangle", Some(Kind::RAngle)),
    ("rceil", Some(Kind::RCeil)),
    ("rfloor", Some(Kind::RFloor)),
    ("right", None),
    ("rightarrow", Some(Kind::To)),
    ("sec", Some(Kind::Func)),
    ("sin", Some(Kind::Func)),
    ("sinh", Some(Kind::Func)),
    ("sqrt", Some(Kind::Sqrt)),
    ("sum", Some(Kind::Sum)),
    ("tan", Some(Kind::Func)),
    ("tanh", Some(Kind::Func)),
    ("tbinom", Some(Kind::Binom)),
    ("tfrac", Some(Kind::Frac)),
    ("thickspace", None),
    ("thinspace", None),
    ("times", Some(Kind::Mul)),
    ("to", Some(Kind::To)),
    ("vbox", None),
    ("vcenter", None),
    ("vrule", None),
    ("vskip", None),
    ("vspace", None),
];

/// Splits `src` into tokens, white space and skipped commands left out, with one `End` after them.
pub fn tokens(src: &str) -> Vec<Token> {
    let b = src.as_bytes();
    let mut out = Vec::with_capacity(b.len() + 1);
    let mut i = 0;
    while i < b.len() {
        let (kind, len) = next(b, i);
        if let Some(kind) = kind {
            out.push(Token { kind, start: i as u32, end: (i + len) as u32 });
        }
        i += len;
    }
    out.push(Token { kind: Kind::End, start: b.len() as u32, end: b.len() as u32 });
    out
}

fn space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn run(b: &[u8], from: usize, f: impl Fn(u8) -> bool) -> usize {
    b[from.min(b.len())..].iter().take_while(|&&c| f(c)).count()
}

/// Kind (`None`: skipped) and length of the token at `i`.
fn next(b: &[u8], i: usize) -> (Option<Kind>, usize) {
    let one = |kind| (Some(kind), 1);
    match b[i] {
        c if space(c) => (None, run(b, i, space)),
        b'+' => one(Kind::Add),
        b'-' => one(Kind::Sub),
        b'*' => one(Kind::Mul),
        b'/' | b':' => one(Kind::Div),
        b'(' => one(Kind::LParen),
        b')' => one(Kind::RParen),
        b'{' => one(Kind::LBrace),
        b'}' => one(Kind::RBrace),
        b'[' => one(Kind::LBracket),
        b']' => one(Kind::RBracket),
        b'|' => one(Kind::Bar),
        b'_' => one(Kind::Underscore),
        b'^' => one(Kind::Caret),
        b'<' => one(Kind::Lt),
        b'>' => one(Kind::Gt),
        b'!' => one(Kind::Bang),
        b',' => one(Kind::Comma),
        b'.' => one(Kind::Point),
        b'\'' => (Some(Kind::Quotes), run(b, i, |c| c == b'\'')),
        b'0'..=b'9' => one(Kind::Digit),
        b'd' => differential(b, i),
        b'a'..=b'z' | b'A'..=b'Z' => one(Kind::Letter),
        b'=' => {
            let gap = run(b, i + 1, space);
            let amp = b.get(i + 1 + gap) == Some(&b'&');
            (Some(Kind::Eq), if amp { gap + 2 } else { 1 })
        }
        b'&' => {
            let gap = run(b, i + 1, space);
            match b.get(i + 1 + gap) {
                Some(b'=') => (Some(Kind::Eq), gap + 2),
                _ => one(Kind::Error),
            }
        }
        b'\\' => command(b, i),
        c if c < 0x80 => one(Kind::Error),
        _ => (Some(Kind::Error), 1 + run(b, i + 1, |c| (0x80..0xc0).contains(&c))),
    }
}

fn differential(b: &[u8], i: usize) -> (Option<Kind>, usize) {
    let at = i + 1 + run(b, i + 1, space);
    match b.get(at) {
        Some(c) if c.is_ascii_alphabetic() => (Some(Kind::Differential), at + 1 - i),
        Some(b'\\') => match run(b, at + 1, |c| c.is_ascii_alphabetic()) {
            0 => (Some(Kind::Letter), 1),
            n => (Some(Kind::Differential), at + 1 + n - i),
        },
        _ => (Some(Kind::Letter), 1),
    }
}

fn command(b: &[u8], i: usize) -> (Option<Kind>, usize) {
    let letters = run(b, i + 1, |c| c.is_ascii_alphabetic());
    if letters == 0 {
        return match b.get(i + 1) {
            Some(b',' | b':' | b';' | b'!' | b'*' | b'-' | b'.' | b'/' | b'"' | b'(' | b'=') => (None, 2),
            Some(b'{') => (Some(Kind::LBraceLit), 2),
            Some(b'}') => (Some(Kind::RBraceLit), 2),
            _ => (Some(Kind::Error), 1),
        };
    }
    let name = &b[i + 1..i + 1 + letters];
    let rest = &b[i + 1 + letters..];
    match name {
        b"left" if rest.first() == Some(&b'|') => return (Some(Kind::LBar), letters + 2),
        b"right" if rest.first() == Some(&b'|') => return (Some(Kind::RBar), letters + 2),
        b"int" if rest.starts_with(b"\\limits") => return (Some(Kind::Int), letters + 8),
        _ => {}
    }
    let kind = match COMMANDS.binary_search_by(|(n, _)| n.as_bytes().cmp(name)) {
        Ok(k) => COMMANDS[k].1,
        Err(_) => Some(Kind::Symbol),
    };
    (kind, letters + 1)
}
