//! Functions and their arguments, fractions, roots, sums, and the forms of numbers.

use super::ast::{Const, Delim, Expr, Func, Num};
use super::commands::Cmd;
use super::lexer::{Kind, Token};
use super::number::Reading;
use super::parser::{Parser, Res, mul};

impl Parser<'_> {
    /// A function with its exponent, base and argument: `\sin^2 2x`, `\log_2 8`, `\ln(x)`.
    pub fn function(&mut self, f: Func) -> Res<Expr> {
        let mut f = f;
        let mut base = None;
        let mut exponent = None;
        loop {
            if self.is_char('_') && matches!(f, Func::Log | Func::Ln) {
                self.i += 1;
                // `\log_28` is the logarithm of 8 to base 2.
                if self.at(1).is_none() {
                    self.split_digit();
                }
                base = Some(self.argument()?);
            } else if self.is_char('^') && exponent.is_none() {
                self.i += 1;
                exponent = Some(self.argument()?);
            } else {
                break;
            }
        }
        if let Some(Expr::Neg(one)) = &exponent
            && **one == Expr::int(1)
            && let Some(inverse) = inverse(f)
        {
            f = inverse;
            exponent = None;
        }
        while self.eat('.') {}
        let args = self.function_argument()?;
        let call = match (base, f) {
            (Some(b), _) => Expr::Func(Func::LogBase, vec![b, single(args)]),
            (None, Func::Det) if matches!(args[..], [Expr::Matrix(..)]) => match single(args) {
                Expr::Matrix(columns, v) => super::matrix::determinant(columns, v),
                e => e,
            },
            (None, Func::Min | Func::Max | Func::Gcd | Func::Lcm | Func::Binom) => Expr::Func(f, args),
            (None, Func::Cis) => {
                let angle = Expr::Mul(vec![Expr::Const(Const::I), single(args)]);
                Expr::pow(Expr::Const(Const::E), angle)
            }
            (None, Func::Exp) => Expr::pow(Expr::Const(Const::E), single(args)),
            (None, _) => Expr::Func(f, vec![single(args)]),
        };
        Ok(match exponent {
            Some(e) => Expr::pow(call, e),
            None => call,
        })
    }

    fn function_argument(&mut self) -> Res<Vec<Expr>> {
        match self.peek() {
            Some(Kind::Char('(' | '[' | '{')) | Some(Kind::Cmd(Cmd::SetOpen)) => {
                let e = self.deeper(|p| p.power_base())?;
                Ok(match e {
                    Expr::Group(_, _, items) => items,
                    e => vec![e],
                })
            }
            _ => {
                // Signs, then factors up to an operator, a bracket or another function.
                let negative = self.eat('-');
                let mut factors = vec![self.deeper(|p| p.power())?];
                while self.starts_factor()
                    && !matches!(
                        self.peek(),
                        Some(Kind::Char('(' | '[' | '|' | '{'))
                            | Some(Kind::Cmd(Cmd::Func(_) | Cmd::Big(_) | Cmd::SetOpen | Cmd::Mid))
                    )
                {
                    factors.push(self.power()?);
                }
                let e = mul(factors);
                Ok(vec![if negative { Expr::neg(e) } else { e }])
            }
        }
    }

    /// A bracketed argument alone: an exponent after it belongs to the function's value.
    fn power_base(&mut self) -> Res<Expr> {
        match self.peek() {
            Some(Kind::Char('(')) => self.bracket(Delim::Paren),
            Some(Kind::Char('[')) => self.bracket(Delim::Square),
            _ => self.argument(),
        }
    }

    /// The two arguments of `\frac` and `\binom`; unbraced ones are single digits.
    pub fn two_arguments(&mut self) -> Res<(Expr, Expr)> {
        let braced = !matches!(self.peek(), Some(Kind::Num));
        if !braced && self.at(1) != Some(Kind::Char('{')) {
            self.split_digit();
        }
        let a = self.argument()?;
        if !braced {
            self.split_digit();
        }
        Ok((a, self.argument()?))
    }

    /// Splits the first digit (or what stands before a space) off a number that begins here.
    fn split_digit(&mut self) {
        let Some(t) = self.toks.get(self.i).copied() else { return };
        let text = self.text(self.i);
        if t.kind != Kind::Num || text.len() < 2 || !text.is_ascii() {
            return;
        }
        let (len, gap) = match text.find(' ') {
            Some(k) => (k, 1),
            None if text.bytes().all(|b| b.is_ascii_digit()) => (1, 0),
            None => return,
        };
        let at = self.i;
        self.toks[at].end = t.start + len as u32;
        self.toks.insert(at + 1, Token { start: t.start + (len + gap) as u32, ..t });
    }

    /// A braced group or one token, as `\frac` takes: `\frac12` is one half.
    pub fn argument(&mut self) -> Res<Expr> {
        match self.peek() {
            Some(Kind::Char('{')) => self.deeper(|p| p.group_argument()),
            Some(Kind::Num) => {
                let n = self.literal(self.text(self.i))?;
                self.i += 1;
                Ok(Expr::Num(n))
            }
            Some(Kind::Char('-')) => {
                self.i += 1;
                Ok(Expr::neg(self.deeper(|p| p.argument())?))
            }
            _ => self.deeper(|p| p.primary()),
        }
    }

    /// What a brace group holds; empty and list groups are errors here.
    fn group_argument(&mut self) -> Res<Expr> {
        self.i += 1;
        let saved = (self.bars, self.angles, self.builder);
        (self.bars, self.angles, self.builder) = (0, 0, false);
        let (sep, mut items) = self.list()?;
        (self.bars, self.angles, self.builder) = saved;
        if !self.eat('}') {
            return self.fail("unclosed brace");
        }
        match items.len() {
            0 => self.fail("empty group"),
            1 => Ok(items.remove(0)),
            _ => Ok(Expr::List(sep, items)),
        }
    }

    /// The argument of a root: a group, brackets, or one number, letter or command.
    pub fn root_argument(&mut self) -> Res<Expr> {
        match self.peek() {
            Some(Kind::Char('(')) => self.deeper(|p| p.bracket(Delim::Paren)),
            Some(Kind::Num) => {
                let n = self.literal(self.text(self.i))?;
                self.i += 1;
                Ok(Expr::Num(n))
            }
            _ => self.argument(),
        }
    }

    /// `\sum_{…}^{…} …`: limits and body, compared part by part.
    pub fn big(&mut self, h: u64) -> Res<Expr> {
        let mut parts = Vec::new();
        let mut kinds = h;
        while let Some(Kind::Char(c @ ('_' | '^'))) = self.peek() {
            self.i += 1;
            parts.push(self.argument()?);
            kinds = super::field::mix(kinds ^ c as u64);
        }
        self.symbols += 1;
        if !self.at_closer() && self.starts_factor() || matches!(self.peek(), Some(Kind::Char('-'))) {
            let negative = self.eat('-');
            let body = self.deeper(|p| p.product())?;
            parts.push(if negative { Expr::neg(body) } else { body });
        }
        Ok(Expr::Opaque(kinds, parts))
    }

    /// A literal with what belongs to it: a base, repeating digits, a fraction of a mixed number.
    pub fn number(&mut self) -> Res<Expr> {
        let text = self.text(self.i).to_owned();
        let mut n = self.literal(&text)?;
        self.i += 1;
        // `2.5 million`
        if self.peek() == Some(Kind::Word)
            && let Some(power) = super::words::scale(self.text(self.i))
        {
            n.exp10 = n.exp10.saturating_add(power);
            self.i += 1;
            return Ok(Expr::Num(n));
        }
        if !n.decimal
            && let Some(base) = self.base_in_words()
        {
            return Ok(Expr::Based(text.into(), base));
        }
        match self.peek() {
            Some(Kind::Char('_')) => return self.based(text),
            // `0.8(3)`: digits in brackets repeat.
            Some(Kind::Char('(')) if n.decimal && self.reading == Reading::Joined => {
                let digits = self.text(self.i + 1).to_owned();
                let closed = self.at(1) == Some(Kind::Num) && self.at(2) == Some(Kind::Char(')'));
                if closed
                    && digits.bytes().all(|b| b.is_ascii_digit())
                    && let Some(e) = repeated(&format!("{text}{digits}"), &digits)
                {
                    self.i += 3;
                    return Ok(e);
                }
            }
            Some(Kind::Cmd(Cmd::Repeat(_))) if n.decimal => return self.repeating(&text),
            Some(Kind::Cmd(Cmd::Dots)) if n.decimal => {
                // 0.333…, 0.3939…: what is written at least twice (one digit: three times) repeats.
                let fraction = text.find('.').map_or("", |p| &text[p + 1..]);
                if let Some(period) = period(fraction.as_bytes()) {
                    self.i += 1;
                    let digits = &text[text.len() - period..];
                    return Ok(repeated(&text, digits).unwrap_or(Expr::Num(n)));
                }
            }
            _ => {}
        }
        if !n.decimal
            && let Some(f) = self.mixed()
        {
            return Ok(Expr::Add(vec![Expr::Num(n), f]));
        }
        Ok(Expr::Num(n))
    }

    /// The proper fraction that makes a mixed number of the integer before it.
    fn mixed(&mut self) -> Option<Expr> {
        let before = self.i.checked_sub(2).map(|k| self.toks[k].kind);
        if matches!(before, Some(Kind::Num | Kind::Letter(..) | Kind::Char('^' | '_' | '}' | ')' | '/'))) {
            return None;
        }
        let start = self.i;
        let value = |k: usize| match self.toks.get(k) {
            Some(t) if t.kind == Kind::Num => self.text(k).parse::<u64>().ok(),
            _ => None,
        };
        let (n, d, used) = if self.peek() == Some(Kind::Cmd(Cmd::Frac)) {
            let braces = |k: usize| {
                (self.toks.get(k)?.kind == Kind::Char('{') && self.toks.get(k + 2)?.kind == Kind::Char('}'))
                    .then(|| value(k + 1))?
            };
            match (braces(start + 1), braces(start + 4), value(start + 1)) {
                (Some(n), Some(d), _) => (n, d, 7),
                // `\frac12`
                (None, _, Some(two)) if (10..100).contains(&two) => (two / 10, two % 10, 2),
                (None, _, Some(n)) => match (value(start + 2), braces(start + 2)) {
                    (Some(d), _) => (n, d, 3),
                    (_, Some(d)) => (n, d, 5),
                    _ => return None,
                },
                _ => return None,
            }
        } else if self.peek() == Some(Kind::Num)
            && self.toks[start].space
            && self.at(1) == Some(Kind::Char('/'))
        {
            (value(start)?, value(start + 2)?, 3)
        } else {
            return None;
        };
        if n >= d || self.toks.get(start + used).is_some_and(|t| t.kind == Kind::Char('^')) {
            return None;
        }
        self.i += used;
        Some(Expr::div(Expr::int(n), Expr::int(d)))
    }

    /// The base in `203 (base 7)`, `203 base 7`, `203 in base seven`.
    fn base_in_words(&mut self) -> Option<u32> {
        let word = |k: usize, w: &str| self.at(k) == Some(Kind::Word) && self.text(self.i + k) == w;
        let open = self.is_char('(') as usize;
        let lead = open + word(open, "in") as usize;
        if !word(lead, "base") {
            return None;
        }
        let base = self.text(self.i + lead + 1);
        let base = base.parse().ok().or_else(|| super::words::number_words(&[base]))?;
        let close = open == 1;
        if close && self.at(lead + 2) != Some(Kind::Char(')')) || !(2..=36).contains(&base) {
            return None;
        }
        self.i += lead + 2 + close as usize;
        Some(base as u32)
    }

    /// Digits in a base written as a subscript.
    pub fn based(&mut self, digits: String) -> Res<Expr> {
        let start = self.i;
        self.i += 1;
        let arg = self.argument();
        let base = match &arg {
            Ok(Expr::Num(n)) => n.as_u64(),
            Ok(Expr::Word(w)) => super::words::number_words(&[w]),
            _ => None,
        };
        match base {
            Some(b @ 2..=36) => Ok(Expr::Based(digits.into(), b as u32)),
            _ => {
                self.i = start;
                self.fail("no base")
            }
        }
    }

    fn repeating(&mut self, text: &str) -> Res<Expr> {
        let save = self.i;
        self.i += 1;
        let from = self.i;
        let arg = self.argument()?;
        // `0.\dot{1}42\dot{3}`: from the first dot to the last.
        let dot = self.toks[save].kind;
        let next = (self.peek() == Some(Kind::Num)) as usize;
        if self.at(next) == Some(dot) {
            self.i += next + 1;
            self.argument()?;
        }
        if matches!(arg, Expr::Num(_)) {
            let inner: String = (from..self.i).map(|k| self.text(k)).collect();
            let digits: String = inner.chars().filter(char::is_ascii_digit).collect();
            if let Some(e) = repeated(&format!("{text}{digits}"), &digits) {
                return Ok(e);
            }
        }
        self.i = save;
        self.fail("bad repeating decimal")
    }
}

/// Length of the shortest run of digits that `b` ends in more than once.
fn period(b: &[u8]) -> Option<usize> {
    (1..=6).find(|&p| {
        let tail = (2 * p).max(3);
        b.len() >= tail && (b.len() - tail + p..b.len()).all(|k| b[k] == b[k - p])
    })
}

/// The fraction of a decimal whose last digits (`period`, already written once) repeat.
fn repeated(text: &str, period: &str) -> Option<Expr> {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let fraction = text.len() - text.find('.')? - 1;
    if digits.len() > 18 || period.is_empty() || period.len() > fraction {
        return None;
    }
    // x·10^f − x·10^(f−p) = all − head
    let all: u64 = digits.parse().ok()?;
    let head: u64 = digits[..digits.len() - period.len()].parse().unwrap_or(0);
    let scale = 10u64.pow(fraction as u32) - 10u64.pow((fraction - period.len()) as u32);
    // The flag tells that this was written as a decimal.
    let scale = Num { decimal: true, ..Num::int(scale) };
    Some(Expr::div(Expr::int(all - head), Expr::Num(scale)))
}

fn single(mut args: Vec<Expr>) -> Expr {
    if args.len() == 1 { args.remove(0) } else { Expr::Group(Delim::Paren, Delim::Paren, args) }
}

fn inverse(f: Func) -> Option<Func> {
    Some(match f {
        Func::Sin => Func::Asin,
        Func::Cos => Func::Acos,
        Func::Tan => Func::Atan,
        Func::Cot => Func::Acot,
        Func::Sec => Func::Asec,
        Func::Csc => Func::Acsc,
        Func::Sinh => Func::Asinh,
        Func::Cosh => Func::Acosh,
        Func::Tanh => Func::Atanh,
        _ => return None,
    })
}
