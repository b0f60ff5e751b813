//! Atoms: numbers, names with their arguments, fractions, roots.

use super::Parser;
use super::lexer::{Kind, Token};
use crate::qwen::sym::expr::{Id, Node, extend_hash, name_hash};

impl Parser<'_> {
    /// An atom, or (unless `nofunc`) a letter or symbol with arguments in parentheses.
    pub(super) fn atom(&mut self, nofunc: bool) -> Option<Id> {
        match self.peek() {
            Kind::Letter | Kind::Symbol => self.named(nofunc),
            Kind::Digit => self.number(),
            Kind::Differential => {
                let text = self.text(self.pos);
                let variable: Vec<u8> =
                    text[1..].iter().copied().filter(|b| b.is_ascii_alphabetic()).collect();
                self.pos += 1;
                let hash = extend_hash(name_hash(b"d"), &variable);
                Some(self.arena.push(Node::Sym(hash)))
            }
            Kind::Mathit => {
                self.pos += 1;
                self.eat(Kind::LBrace)?;
                let start = self.tokens[self.pos].start as usize;
                while self.peek() == Kind::Letter {
                    self.pos += 1;
                }
                let end = self.tokens[self.pos].start as usize;
                self.eat(Kind::RBrace)?;
                let hash = name_hash(&self.src[start..end]);
                Some(self.arena.push(Node::Sym(hash)))
            }
            Kind::Frac => self.fraction(),
            Kind::Binom => {
                self.pos += 1;
                let n = self.braced()?;
                let k = self.braced()?;
                Some(self.arena.push(Node::Binomial(n, k)))
            }
            Kind::LAngle => {
                self.pos += 1;
                let id = self.expr()?;
                if !matches!(self.peek(), Kind::RBar | Kind::Bar) {
                    return None;
                }
                self.pos += 1;
                Some(self.arena.apply(name_hash(b"<|"), &[id]))
            }
            Kind::LBar | Kind::Bar => self.ket(),
            _ => None,
        }
    }

    /// Digits, groups of thousands, a fraction. White space between digits is skipped.
    pub(super) fn number(&mut self) -> Option<Id> {
        let run = self.tokens[self.pos..].iter().take_while(|t| t.kind == Kind::Digit).count();
        if self.dangling_point(self.pos + run) {
            // The parser looks ahead, finds no number that goes on after the point, and makes do
            // with single digits as far as it can.
            return match run {
                1 if self.first => self.committed(),
                1 => None,
                _ => {
                    self.pos += 1;
                    let digit = self.text(self.pos - 1)[0] - b'0';
                    Some(self.arena.push(Node::Num(f64::from(digit))))
                }
            };
        }
        let start = self.pos;
        self.pos += run;
        while self.peek() == Kind::Comma {
            let group = self.attempt(|p| {
                p.pos += 1;
                (0..3).try_for_each(|_| p.eat(Kind::Digit))?;
                (!p.dangling_point(p.pos)).then_some(())
            });
            if group.is_none() {
                break;
            }
        }
        let point = self.peek() == Kind::Point;
        if point {
            self.pos += 1;
            let run = self.tokens[self.pos..].iter().take_while(|t| t.kind == Kind::Digit).count();
            self.pos += run;
            // `1.23.4` is 1.2 times 3.4, and of `1.23.` only 1.2 is read.
            let again = self.peek() == Kind::Point;
            if again && run > 1 {
                let _ = self.dangling_point(self.pos);
                self.pos -= 1;
            }
        }
        let value = self.digits(start, self.pos)?;
        if !point && self.text(start) == b"0" && value != 0.0 {
            self.leading_zero = self.leading_zero.min(start);
        }
        Some(self.arena.push(if point { Node::Float(value) } else { Node::Num(value) }))
    }

    /// The number that some tokens spell, commas left out.
    pub(super) fn digits(&self, start: usize, end: usize) -> Option<f64> {
        let text = |t: &Token| self.src[t.start as usize] as char;
        let kept = self.tokens[start..end].iter().filter(|t| t.kind != Kind::Comma);
        kept.map(text).collect::<String>().parse().ok()
    }

    /// Whether a point without a digit after it stands at `at`.
    fn dangling_point(&mut self, at: usize) -> bool {
        if self.tokens[at].kind != Kind::Point {
            return false;
        }
        let next = self.tokens[at + 1].kind;
        self.bad |= next == Kind::Error;
        next != Kind::Digit
    }

    /// A letter or symbol with subscript and primes, and its arguments if it is a function.
    pub(super) fn named(&mut self, nofunc: bool) -> Option<Id> {
        let at = self.pos;
        let infinity = self.text(at) == b"\\infty";
        let name = self.text(at);
        let mut hash = name_hash(name.strip_prefix(b"\\").unwrap_or(name));
        self.pos += 1;
        let mut primes = None;
        for _ in 0..2 {
            match self.peek() {
                Kind::Underscore => {
                    let start = self.pos + 1;
                    if self.attempt(|p| p.script(Kind::Underscore)).is_none() {
                        return self.committed();
                    }
                    // sympy prints the subscript; its tokens do as well, braces aside.
                    for t in start..self.pos {
                        if !matches!(self.tokens[t].kind, Kind::LBrace | Kind::RBrace) {
                            let part = self.text(t).to_vec();
                            hash = extend_hash(extend_hash(hash, b"_"), &part);
                        }
                    }
                    if primes.is_some() {
                        break;
                    }
                }
                Kind::Quotes if primes.is_none() => {
                    primes = Some(self.text(self.pos).to_vec());
                    self.pos += 1;
                }
                _ => break,
            }
        }
        if let Some(primes) = primes {
            hash = extend_hash(hash, &primes);
        }
        if !nofunc && self.peek() == Kind::LParen {
            let call = self.attempt(|p| p.arguments());
            if let Some(args) = call {
                return Some(self.arena.apply(hash, &args));
            }
        }
        Some(self.arena.push(if infinity { Node::Infinity } else { Node::Sym(hash) }))
    }

    /// `(a, b)` after a name. A comma tells a function from a product, so from there on the rest
    /// must be right; but a comma after a digit might still go on with a group of thousands.
    fn arguments(&mut self) -> Option<Vec<Id>> {
        self.pos += 1;
        self.brackets += 1;
        let mut args = Vec::new();
        let mut open_end = 0;
        let closed = loop {
            let Some(id) = self.expr() else { break false };
            args.push(id);
            if self.peek() == Kind::Comma {
                self.pos += 1;
                let after_digit = self.tokens[self.pos - 2].kind == Kind::Digit;
                let rest = &self.tokens[self.pos..];
                let run = rest.iter().take_while(|t| t.kind == Kind::Digit).count();
                open_end = if after_digit { self.pos + run.min(2) } else { usize::MAX };
            } else {
                break self.eat(Kind::RParen).is_some();
            }
        };
        self.brackets -= 1;
        if closed {
            return Some(args);
        }
        if open_end == usize::MAX || (open_end > 0 && self.pos > open_end) {
            return self.committed();
        }
        None
    }

    pub(super) fn fraction(&mut self) -> Option<Id> {
        self.pos += 1;
        let top = self.fraction_part()?;
        let bottom = self.fraction_part()?;
        let inverse = self.inverse(bottom);
        if matches!(self.arena.nodes[top as usize], Node::Num(1.0)) {
            return Some(inverse);
        }
        Some(self.arena.push(Node::Mul(top, inverse)))
    }

    fn fraction_part(&mut self) -> Option<Id> {
        if self.peek() == Kind::Digit {
            let digit = self.text(self.pos)[0] - b'0';
            self.pos += 1;
            return Some(self.arena.push(Node::Num(f64::from(digit))));
        }
        self.braced()
    }

    pub(super) fn sqrt(&mut self) -> Option<Id> {
        self.pos += 1;
        let root = if self.peek() == Kind::LBracket { Some(self.group(Kind::RBracket)?) } else { None };
        let base = self.braced()?;
        let exponent = match root {
            Some(r) => self.inverse(r),
            None => self.arena.push(Node::Num(0.5)),
        };
        Some(self.arena.push(Node::Pow(base, exponent)))
    }
}
