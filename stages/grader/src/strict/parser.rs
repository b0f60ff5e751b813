//! The grammar of answers, from lists down to products. Brackets, functions and numbers are in
//! [`super::primary`], units in [`super::unit`].
//!
//! ```text
//! answer   = item ((',' | ';' | 'and' | 'or') item)*
//! item     = (relation | word)*
//! relation = union (('=' | '<' | '\in' …) union)*
//! union    = ratio (('\cup' | '\cap' | '\setminus') ratio)*
//! ratio    = sum (':' sum)*
//! sum      = ('+' | '-' | '\pm' | '\mp')? product (('+' | '-' | '\pm' | '\mp') product)*
//! product  = power (('\cdot' | '/' | nothing) power)*
//! power    = postfix ('^' exponent)?
//! ```

use super::ast::{Expr, Rel};
use super::commands::Cmd;
use super::lexer::{Kind, ParseError, Token};
use super::number::Reading;

/// Deepest nesting of brackets, fractions and exponents.
const MAX_DEPTH: usize = 48;

/// Most exponents, divisions or marks in a row (`a/b/c`, `n!!!`): each deepens the tree.
pub(crate) const MAX_CHAIN: usize = 16;

pub(crate) struct Parser<'a> {
    pub src: &'a str,
    pub toks: Vec<Token>,
    pub i: usize,
    depth: usize,
    /// Open `|…|`: a bar at a place where a factor may start then closes.
    pub bars: usize,
    /// Open `<…>`.
    pub angles: usize,
    /// Symbols read in the present side of a relation.
    pub symbols: usize,
    /// Inside `[…]`: a single item in square brackets of its own is a row.
    pub square: bool,
    /// `:` and `|` end the first part of a set builder.
    pub builder: bool,
    pub reading: Reading,
    /// Tokens looked at in search of units, for the test that bounds them.
    pub looked: usize,
}

pub(crate) type Res<T> = Result<T, ParseError>;

/// Parses a whole answer.
pub(crate) fn parse(src: &str, toks: Vec<Token>, reading: Reading) -> Res<Expr> {
    let mut p = Parser::new(src, toks, reading);
    p.skip_lead();
    p.drop_tail();
    // A number in words: its `and` is no separator.
    if p.toks[p.i..].iter().all(|t| matches!(t.kind, Kind::Word | Kind::Char('-' | '.'))) {
        let words: Vec<&str> =
            (p.i..p.toks.len()).filter(|k| p.toks[*k].kind == Kind::Word).map(|k| p.text(k)).collect();
        if let Some(v) = super::words::number_words(&words) {
            return Ok(Expr::int(v));
        }
    }
    let (sep, mut items) = p.list()?;
    if p.i < p.toks.len() {
        return p.fail("unexpected closing bracket");
    }
    match items.len() {
        0 => p.fail("empty"),
        1 => Ok(items.remove(0)),
        _ => Ok(Expr::List(sep, items)),
    }
}

impl<'a> Parser<'a> {
    /// A parser at the first token of `src`.
    pub fn new(src: &'a str, toks: Vec<Token>, reading: Reading) -> Self {
        Self {
            src,
            toks,
            i: 0,
            depth: 0,
            bars: 0,
            angles: 0,
            symbols: 0,
            square: false,
            builder: false,
            reading,
            looked: 0,
        }
    }
}

impl Parser<'_> {
    pub fn fail<T>(&self, what: &'static str) -> Res<T> {
        let at = self.toks.get(self.i).map_or(self.src.len(), |t| t.start as usize);
        Err(ParseError { at, what })
    }

    pub fn peek(&self) -> Option<Kind> {
        self.toks.get(self.i).map(|t| t.kind)
    }

    pub fn at(&self, k: usize) -> Option<Kind> {
        self.toks.get(self.i + k).map(|t| t.kind)
    }

    pub fn is_char(&self, c: char) -> bool {
        self.peek() == Some(Kind::Char(c))
    }

    pub fn eat(&mut self, c: char) -> bool {
        let hit = self.is_char(c);
        self.i += hit as usize;
        hit
    }

    pub fn eat_cmd(&mut self, c: Cmd) -> bool {
        let hit = self.peek() == Some(Kind::Cmd(c));
        self.i += hit as usize;
        hit
    }

    pub fn text(&self, i: usize) -> &str {
        self.toks.get(i).map_or("", |t| &self.src[t.start as usize..t.end as usize])
    }

    /// Runs `f` one level deeper.
    pub fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth >= MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    /// Whether the next token ends every construct inside a bracket.
    pub fn at_closer(&self) -> bool {
        match self.peek() {
            None => true,
            Some(Kind::Char(')' | ']' | '}' | '&')) | Some(Kind::Row) => true,
            Some(Kind::Char('|')) => self.bars > 0 || self.builder,
            Some(Kind::Char('>')) => self.angles > 0,
            Some(Kind::Char(':')) => self.builder,
            Some(Kind::Cmd(c)) => match c {
                Cmd::SetClose | Cmd::AngleClose | Cmd::FloorClose | Cmd::CeilClose | Cmd::End => true,
                Cmd::Mid => self.builder || self.bars > 0,
                Cmd::Norm => self.bars > 0,
                _ => false,
            },
            _ => false,
        }
    }

    fn rel(&self) -> Option<Rel> {
        match self.peek()? {
            Kind::Char('=') => Some(Rel::Eq),
            Kind::Char('<') => Some(Rel::Lt),
            Kind::Char('>') if self.angles == 0 => Some(Rel::Gt),
            Kind::Cmd(Cmd::Rel(r)) => Some(r),
            _ => None,
        }
    }

    pub fn relation(&mut self) -> Res<Expr> {
        self.symbols = 0;
        let mut first = self.union()?;
        if self.rel().is_none() {
            // `5 cm = x`
            let start = self.i;
            match self.unit_suffix(&first) {
                Some(e) if self.rel().is_some() => first = e,
                _ => {
                    self.i = start;
                    return Ok(first);
                }
            }
        }
        let mut sides = vec![first];
        let mut rels = Vec::new();
        while let Some(r) = self.rel() {
            self.i += 1;
            // `=` said twice, or nothing on the right.
            while self.rel() == Some(Rel::Eq) {
                self.i += 1;
            }
            if self.at_closer() || self.separator().is_some() {
                break;
            }
            self.symbols = 0;
            if self.peek() == Some(Kind::Word) {
                // Text to the end of the item.
                let text = self.deeper(|p| p.item())?;
                sides.extend(text);
                rels.push(r);
                break;
            } else {
                let side = self.union()?;
                let side = self.unit_suffix(&side).unwrap_or(side);
                sides.push(side);
            }
            rels.push(r);
        }
        if rels.is_empty() { Ok(sides.remove(0)) } else { Ok(Expr::Relation(sides, rels)) }
    }

    fn union(&mut self) -> Res<Expr> {
        let mut left = self.ratio()?;
        let mut chain = 0;
        loop {
            chain += 1;
            if chain > 4 * MAX_CHAIN {
                return self.fail("too many set operations");
            }
            let op = match self.peek() {
                Some(Kind::Cmd(c @ (Cmd::Cup | Cmd::Cap | Cmd::SetMinus))) => c,
                Some(Kind::Letter(85, _)) if self.between_brackets() => Cmd::Cup,
                _ => return Ok(left),
            };
            self.i += 1;
            self.eat(','); // `\cup,`
            let right = self.ratio()?;
            left = match (op, left) {
                (Cmd::Cup, Expr::Union(mut v)) => {
                    v.push(right);
                    Expr::Union(v)
                }
                (Cmd::Cap, Expr::Inter(mut v)) => {
                    v.push(right);
                    Expr::Inter(v)
                }
                (Cmd::Cup, l) => Expr::Union(vec![l, right]),
                (Cmd::Cap, l) => Expr::Inter(vec![l, right]),
                (_, l) => Expr::SetMinus(Box::new((l, right))),
            };
        }
    }

    /// `U` between two intervals is a union.
    pub fn between_brackets(&self) -> bool {
        let before = self.i > 0
            && matches!(self.toks[self.i - 1].kind, Kind::Char(')' | ']') | Kind::Cmd(Cmd::SetClose));
        before && matches!(self.at(1), Some(Kind::Char('(' | '[') | Kind::Cmd(Cmd::SetOpen)))
    }

    fn ratio(&mut self) -> Res<Expr> {
        let first = self.sum()?;
        if (!self.is_char(':') || self.builder) && !self.to_between_numbers() {
            return Ok(first);
        }
        let mut parts = vec![first];
        let mut clock = true;
        while self.is_char(':') && !self.builder || self.to_between_numbers() {
            self.i += 1;
            if self.at_closer() || self.peek() == Some(Kind::Word) {
                break;
            }
            clock &= self.peek() == Some(Kind::Num) && self.text(self.i).len() == 2;
            parts.push(self.sum()?);
        }
        if parts.len() == 1 { Ok(parts.remove(0)) } else { Ok(Expr::Ratio(parts, clock)) }
    }

    /// `5 to 26`
    fn to_between_numbers(&self) -> bool {
        self.peek() == Some(Kind::Word)
            && self.text(self.i) == "to"
            && self.i > 0
            && self.toks[self.i - 1].kind == Kind::Num
            && self.at(1) == Some(Kind::Num)
    }

    pub fn sum(&mut self) -> Res<Expr> {
        let mut terms: Vec<Expr> = Vec::new();
        loop {
            let sign = match self.peek() {
                Some(Kind::Char(c @ ('+' | '-'))) => Some(c),
                Some(Kind::Cmd(Cmd::Pm)) => Some('p'),
                Some(Kind::Cmd(Cmd::Mp)) => Some('m'),
                _ => None,
            };
            if sign.is_some() {
                self.i += 1;
            } else if !terms.is_empty() {
                break;
            }
            // `+-`, `--`: the sign of the term itself. `+/-` is ±.
            if sign == Some('+') && self.is_char('/') && self.at(1) == Some(Kind::Char('-')) {
                self.i += 2;
                let t = self.product()?;
                terms.push(Expr::Pm(true, Box::new(t)));
                continue;
            }
            if sign.is_some() && matches!(self.peek(), Some(Kind::Char('+' | '-'))) {
                let inner = self.deeper(|p| p.sum())?;
                terms.push(match sign {
                    Some('-') => Expr::neg(inner),
                    Some('p') => Expr::Pm(true, Box::new(inner)),
                    Some('m') => Expr::Pm(false, Box::new(inner)),
                    _ => inner,
                });
                break;
            }
            let t = self.product()?;
            terms.push(match sign {
                Some('-') => Expr::neg(t),
                Some('p') => Expr::Pm(true, Box::new(t)),
                Some('m') => Expr::Pm(false, Box::new(t)),
                _ => t,
            });
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Expr::Add(terms) })
    }

    /// A product; `a / b c` is `(a / b) c`, and `a / (b c)` in the tight reading.
    pub fn product(&mut self) -> Res<Expr> {
        // A stray operator in front says nothing.
        while matches!(self.peek(), Some(Kind::Char('*') | Kind::Cmd(Cmd::Times))) {
            self.i += 1;
        }
        let mut factors = vec![self.power()?];
        let mut chain = 0;
        loop {
            if chain > MAX_CHAIN {
                return self.fail("too many divisions");
            }
            match self.peek() {
                Some(Kind::Char('*')) | Some(Kind::Cmd(Cmd::Times)) => {
                    self.i += 1;
                    let f = self.signed_power()?;
                    factors.push(f);
                }
                Some(Kind::Char('/')) | Some(Kind::Cmd(Cmd::Divide)) => {
                    self.i += 1;
                    chain += 1;
                    let mut d = self.signed_power()?;
                    if self.reading == Reading::Tight {
                        let mut tight = vec![d];
                        while self.starts_factor() && self.peek() != Some(Kind::Num) {
                            tight.push(self.power()?);
                        }
                        d = mul(tight);
                    }
                    let n = mul(std::mem::take(&mut factors));
                    factors.push(Expr::div(n, d));
                }
                Some(Kind::Cmd(Cmd::Operator(h))) if self.separator().is_none() => {
                    self.i += 1;
                    chain += 1;
                    let r = self.signed_power()?;
                    let l = mul(std::mem::take(&mut factors));
                    factors.push(Expr::Opaque(h, vec![l, r]));
                }
                // `7 5` is no product, `2 2^{1/2}` is.
                Some(Kind::Num) if self.number_gap() => {
                    let r = self.power()?;
                    let l = mul(std::mem::take(&mut factors));
                    factors.push(Expr::Opaque(super::ast::hash_name(b"gap"), vec![l, r]));
                    chain += 1;
                }
                Some(_) if self.starts_factor() => factors.push(self.power()?),
                _ => return Ok(mul(factors)),
            }
        }
    }

    /// Whether a number here only follows another number.
    fn number_gap(&self) -> bool {
        let after = self.at(1);
        self.toks[self.i - 1].kind == Kind::Num && !matches!(after, Some(Kind::Char('^' | '!')))
    }

    fn signed_power(&mut self) -> Res<Expr> {
        if self.eat('-') {
            return Ok(Expr::neg(self.deeper(|p| p.signed_power())?));
        }
        if self.eat('+') {
            return self.deeper(|p| p.signed_power());
        }
        self.power()
    }

    /// Whether a factor may start here without an operator.
    pub fn starts_factor(&self) -> bool {
        match self.peek() {
            Some(Kind::Num) => true,
            Some(Kind::Letter(c, _)) => !(self.unit_starts() || c == 85 && self.between_brackets()),
            Some(Kind::Char('(' | '[' | '{')) => true,
            Some(Kind::Char('|')) => self.bars == 0 && !self.builder,
            Some(Kind::Cmd(c)) => match c {
                Cmd::Norm | Cmd::Mid => self.bars == 0 && !self.builder,
                Cmd::Func(_)
                | Cmd::Const(_)
                | Cmd::Symbol(_)
                | Cmd::Frac
                | Cmd::Sqrt
                | Cmd::Cbrt
                | Cmd::Binom
                | Cmd::SetOpen
                | Cmd::AngleOpen
                | Cmd::FloorOpen
                | Cmd::CeilOpen
                | Cmd::Dots
                | Cmd::Begin(_)
                | Cmd::Repeat(_)
                | Cmd::Accent(_)
                | Cmd::Big(_)
                | Cmd::Circ => true,
                _ => false,
            },
            _ => false,
        }
    }
}

/// A product of factors, one factor standing for itself.
pub(crate) fn mul(mut factors: Vec<Expr>) -> Expr {
    if factors.len() == 1 { factors.remove(0) } else { Expr::Mul(factors) }
}
