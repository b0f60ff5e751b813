//! From text to tokens: LaTeX commands, numbers, letters, words.

use super::ast::hash_name;
use super::commands::{self, Cmd};
use super::number::{Reading, number_len};
use super::words;

/// A token's kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A decimal literal as written (thousands separators included).
    Num,
    /// A letter that stands for itself; `true` in text or roman style.
    Letter(u64, bool),
    /// A word (text, or a run of letters that is no product).
    Word,
    /// A known command.
    Cmd(Cmd),
    /// One character of punctuation or an operator.
    Char(char),
    /// `\\` or a line break between rows.
    Row,
}

/// A token: kind, byte span, and whether white space stood before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub start: u32,
    pub end: u32,
    pub space: bool,
}

/// Why a text could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {what}")]
pub struct ParseError {
    /// Byte position in the answer.
    pub at: usize,
    /// What was wrong.
    pub what: &'static str,
}

/// Most tokens read.
pub(crate) const MAX_TOKENS: usize = 3000;

/// Splits `text` (already through [`super::norm::prepare`]) into tokens. What numbers look like
/// is up to `reading`.
pub(crate) fn lex(text: &str, reading: Reading) -> Result<Vec<Token>, ParseError> {
    let mut lx = Lexer {
        src: text,
        b: text.as_bytes(),
        i: 0,
        out: Vec::with_capacity(32),
        space: false,
        group: true,
        brackets: 0,
        infix: false,
        reading,
    };
    // Unescaped dollars are formula delimiters, a single one is a currency sign.
    let delimiters = dollars(lx.b) > 1 || lx.b.last() == Some(&b'$');
    // Inside brackets a comma separates items, unless the separators there have spaces.
    let spaced = text.contains(", ");

    // Brace depths at which a text-style group ends.
    let mut text_until: Vec<usize> = Vec::new();
    let mut depth = 0usize;
    while lx.i < lx.b.len() {
        if lx.out.len() > MAX_TOKENS {
            return Err(ParseError { at: lx.i, what: "too long" });
        }
        let in_text = !text_until.is_empty();
        let c = lx.b[lx.i];
        match c {
            b' ' | b'\t' | b'\n' | b'\r' | b'~' => {
                lx.i += 1;
                lx.space = true;
            }
            b'{' => {
                depth += 1;
                lx.one('{');
            }
            b'}' => {
                if text_until.last() == Some(&depth) {
                    text_until.pop();
                    lx.i += 1;
                    lx.space = true;
                    depth = depth.saturating_sub(1);
                } else {
                    depth = depth.saturating_sub(1);
                    lx.one('}');
                }
            }
            b'$' if delimiters => {
                lx.i += 1;
                lx.space = true;
            }
            b'(' | b'[' => {
                lx.brackets += 1;
                lx.one(c as char);
            }
            b')' | b']' => {
                lx.brackets = lx.brackets.saturating_sub(1);
                lx.one(c as char);
            }
            b'0'..=b'9' => {
                lx.group = reading != Reading::Apart && (spaced || lx.brackets == 0);
                lx.number();
            }
            b'.' if lx.digit(lx.i + 1) && !lx.after_digit() => lx.number(),
            b'a'..=b'z' | b'A'..=b'Z' => lx.letters(in_text),
            b'\\' => {
                if lx.command()? {
                    // A text-style command: its group, if any, is read as text.
                    while lx.i < lx.b.len() && lx.b[lx.i] == b' ' {
                        lx.i += 1;
                    }
                    if lx.b.get(lx.i) == Some(&b'{') {
                        depth += 1;
                        text_until.push(depth);
                        lx.i += 1;
                        lx.space = true;
                    }
                }
            }
            b'*' if lx.b.get(lx.i + 1) == Some(&b'*') => lx.push(Kind::Char('^'), 2),
            b'<' if lx.b.get(lx.i + 1) == Some(&b'=') => lx.push(Kind::Cmd(Cmd::Rel(super::ast::Rel::Le)), 2),
            b'>' if lx.b.get(lx.i + 1) == Some(&b'=') => lx.push(Kind::Cmd(Cmd::Rel(super::ast::Rel::Ge)), 2),
            b'!' if lx.b.get(lx.i + 1) == Some(&b'=') => lx.push(Kind::Cmd(Cmd::Rel(super::ast::Rel::Ne)), 2),
            b'=' if lx.b.get(lx.i + 1) == Some(&b'=') => lx.push(Kind::Char('='), 2),
            b'-' if lx.b.get(lx.i + 1) == Some(&b'>') => lx.push(Kind::Cmd(Cmd::Rel(super::ast::Rel::To)), 2),
            b'.' if lx.b[lx.i..].starts_with(b"...") => lx.push(Kind::Cmd(Cmd::Dots), 3),
            0..=127 => lx.one(c as char),
            _ => {
                let ch = lx.src[lx.i..].chars().next().unwrap_or('?');
                if ch.is_whitespace() {
                    lx.i += ch.len_utf8();
                    lx.space = true;
                } else if ch.is_alphabetic() {
                    // A run of letters beyond ASCII (names, other scripts) is a word.
                    let len: usize = lx.src[lx.i..]
                        .chars()
                        .take_while(|c| c.is_alphabetic() && !c.is_ascii())
                        .map(char::len_utf8)
                        .sum();
                    lx.push(Kind::Word, len);
                } else {
                    lx.push(Kind::Char(ch), ch.len_utf8());
                }
            }
        }
    }
    if !text_until.is_empty() {
        return Err(ParseError { at: text.len(), what: "unclosed brace" });
    }
    if lx.infix {
        super::rewrite::rewrite(&mut lx.out);
    }
    Ok(lx.out)
}

pub(super) struct Lexer<'a> {
    pub(super) src: &'a str,
    b: &'a [u8],
    pub(super) i: usize,
    out: Vec<Token>,
    space: bool,
    /// Whether plain commas may group thousands here.
    group: bool,
    /// Open round, square and set brackets.
    brackets: usize,
    /// A command was read that [`super::rewrite`] has to put in its place.
    infix: bool,
    reading: Reading,
}

impl Lexer<'_> {
    pub(super) fn push(&mut self, kind: Kind, len: usize) {
        self.out.push(Token { kind, start: self.i as u32, end: (self.i + len) as u32, space: self.space });
        self.i += len;
        self.space = false;
    }

    fn one(&mut self, c: char) {
        self.push(Kind::Char(c), 1);
    }

    fn digit(&self, i: usize) -> bool {
        self.b.get(i).is_some_and(u8::is_ascii_digit)
    }

    fn after_digit(&self) -> bool {
        self.i > 0 && self.b[self.i - 1].is_ascii_digit()
    }

    fn number(&mut self) {
        let len = number_len(&self.b[self.i..], self.group, self.reading);
        self.push(Kind::Num, len);
    }

    /// A run of letters: a function name, words, or a product of letters.
    fn letters(&mut self, in_text: bool) {
        let run = self.b[self.i..].iter().take_while(|c| c.is_ascii_alphabetic()).count();
        let word = &self.src[self.i..self.i + run];
        if run == 1 {
            let c = self.b[self.i] as u64;
            // `3 x 10^8`
            if matches!(c as u8, b'x' | b'X') && self.out.last().is_some_and(|t| t.kind == Kind::Num) {
                let rest = self.src[self.i + 1..].trim_start();
                let power = rest.strip_prefix("10").map(str::trim_start);
                if power.is_some_and(|r| r.starts_with(['^', '*'])) {
                    return self.push(Kind::Cmd(Cmd::Times), 1);
                }
            }
            return self.push(Kind::Letter(c, in_text), 1);
        }
        let after_number = self.out.last().is_some_and(|t| {
            matches!(t.kind, Kind::Num | Kind::Char('}' | ')' | '%' | '$')) || t.kind == Kind::Word
        }) || (self.out.last().is_some_and(|t| matches!(t.kind, Kind::Char('/')))
            && in_text);
        if let Some(cmd) = commands::plain_name(word) {
            return self.push(Kind::Cmd(cmd), run);
        }
        let after_power = matches!(self.out.as_slice(), [.., p, o] if p.kind == Kind::Char('^') && o.kind == Kind::Char('{'));
        if after_power && matches!(word, "th" | "st" | "nd" | "rd") {
            return self.push(Kind::Word, run);
        }
        if word == "US" && self.src[self.i + run..].trim_start_matches('\\').starts_with('$') {
            return self.push(Kind::Word, run);
        }
        if word == "cis" {
            return self.push(Kind::Cmd(Cmd::Func(super::ast::Func::Cis)), run);
        }
        if matches!(word, "min" | "max" | "sec" | "det") {
            let called = matches!(self.b.get(self.i + run), Some(b'(' | b'{' | b'_' | b'^' | b'\\'));
            match commands::lookup(word) {
                Some(cmd) if called => return self.push(Kind::Cmd(cmd), run),
                _ => return self.push(Kind::Word, run),
            }
        }
        if in_text || words::is_word(word) || (after_number && words::is_unit_symbol(word)) {
            return self.push(Kind::Word, run);
        }
        self.split(run);
    }

    /// A product of letters, with function names found inside (`2sinx`, `xlnx`).
    fn split(&mut self, run: usize) {
        let end = self.i + run;
        while self.i < end {
            let rest = &self.src[self.i..end];
            match commands::longest_function(rest) {
                Some((cmd, len)) => self.push(Kind::Cmd(cmd), len),
                None => {
                    let c = self.b[self.i] as u64;
                    self.push(Kind::Letter(c, false), 1);
                }
            }
        }
    }

    /// A backslash command. Returns true for a text-style command (`\text`, `\mathrm`, …).
    fn command(&mut self) -> Result<bool, ParseError> {
        let at = self.i;
        let Some(&c) = self.b.get(at + 1) else {
            self.i += 1; // a lone trailing backslash says nothing
            self.space = true;
            return Ok(false);
        };
        if !c.is_ascii_alphabetic() {
            match c {
                b'\\' => {
                    // `\\frac` (a doubled backslash) against a row break.
                    let name = letters_at(self.b, at + 2);
                    if name > 1 && commands::lookup(&self.src[at + 2..at + 2 + name]).is_some() {
                        self.i += 1;
                        return self.command();
                    }
                    self.push(Kind::Row, 2);
                }
                b'{' => {
                    self.brackets += 1;
                    self.push(Kind::Cmd(Cmd::SetOpen), 2);
                }
                b'}' => {
                    self.brackets = self.brackets.saturating_sub(1);
                    self.push(Kind::Cmd(Cmd::SetClose), 2);
                }
                b'|' => self.push(Kind::Cmd(Cmd::Norm), 2),
                b'%' => self.push(Kind::Char('%'), 2),
                b'$' => self.push(Kind::Char('$'), 2),
                b'&' => self.push(Kind::Cmd(Cmd::Operator(hash_name(b"land"))), 2),
                b'#' | b'_' => self.push(Kind::Char('#'), 2),
                // Spaces and delimiters of formulas.
                b',' | b';' | b':' | b'!' | b' ' | b'/' | b'(' | b')' | b'[' | b']' | b'-' | b'\n' | b'>' => {
                    self.i += 2;
                    self.space = true;
                }
                _ if c.is_ascii() => {
                    self.i += 2;
                    self.space = true;
                }
                _ => {
                    self.i += 1;
                    self.space = true;
                }
            }
            return Ok(false);
        }
        let run = letters_at(self.b, at + 1);
        let name = &self.src[at + 1..at + 1 + run];
        // The longest known prefix: `\cdotx` is `\cdot x`.
        let (cmd, used) = match commands::lookup(name) {
            Some(cmd) => (cmd, run),
            None => match commands::known_prefix(name) {
                Some(found) => found,
                None => (Cmd::Symbol(hash_name(name.as_bytes())), run),
            },
        };
        match cmd {
            Cmd::Named => {
                self.i += 1 + used;
                match &name[..used] {
                    "operatorname" => self.operator_name(),
                    "mathbb" => self.blackboard(),
                    name => self.environment(name == "begin")?,
                }
                Ok(false)
            }
            Cmd::Fence => {
                self.i += 1 + used;
                let gap = self.b[self.i..].iter().take_while(|c| **c == b' ').count();
                if self.b.get(self.i + gap) == Some(&b'.') {
                    self.i += gap + 1;
                }
                Ok(false)
            }
            Cmd::Skip => {
                self.i += 1 + used;
                self.space = true;
                Ok(false)
            }
            Cmd::TextStyle => {
                self.i += 1 + used;
                self.space = true;
                Ok(true)
            }
            Cmd::Row => {
                self.push(Kind::Row, 1 + used);
                Ok(false)
            }
            Cmd::Char(c) => {
                self.push(Kind::Char(c), 1 + used);
                Ok(false)
            }
            cmd => {
                self.infix |= matches!(cmd, Cmd::Over | Cmd::Choose | Cmd::Not);
                self.push(Kind::Cmd(cmd), 1 + used);
                Ok(false)
            }
        }
    }
}

fn letters_at(b: &[u8], i: usize) -> usize {
    b[i.min(b.len())..].iter().take_while(|c| c.is_ascii_alphabetic()).count()
}

/// Unescaped dollar signs.
fn dollars(b: &[u8]) -> usize {
    (0..b.len()).filter(|&i| b[i] == b'$' && (i == 0 || b[i - 1] != b'\\')).count()
}
