//! `parse_latex` of sympy 1.12: grammar `LaTeX.g4` and its conversion to expressions.
//!
//! The grammar's start rule does not ask for the end of the text, and ANTLR gives up an optional
//! continuation that cannot be completed. So the longest valid prefix counts and the rest is
//! ignored: `1,2` reads as 1 and `12^{` as 12.

mod atoms;
mod functions;
mod lexer;

use super::expr::{Arena, Fun, Id, Node, Object, Op, name_hash};
use lexer::{Kind, Token, tokens};

pub(super) use functions::function_of;

/// Nesting at which Python's recursion limit stops the original.
const MAX_DEPTH: u32 = 60;

/// Tries of sub-parses in one string; backtracking beyond it is given up.
const MAX_STEPS: u32 = 10_000;

/// Parses `src` as `parse_latex` does; `None` where that raises an exception.
pub fn parse_latex(src: &str, arena: &mut Arena) -> Option<Object> {
    let tokens = tokens(src);
    let mut p = Parser {
        src: src.as_bytes(),
        tokens: &tokens,
        pos: 0,
        arena,
        depth: 0,
        brackets: 0,
        first: true,
        bar_closes: false,
        leading_zero: usize::MAX,
        steps: 0,
        bad: false,
    };
    let object = p.relation();
    if p.bad || p.leading_zero < p.pos { None } else { object }
}

struct Parser<'a> {
    src: &'a [u8],
    tokens: &'a [Token],
    pos: usize,
    arena: &'a mut Arena,
    depth: u32,
    brackets: u32,
    /// Whether the atom to come is the first of its run: it must be there.
    first: bool,
    /// Whether a `|` closes an absolute value rather than opens anything.
    bar_closes: bool,
    /// The first whole number with a leading zero: Python does not read it.
    leading_zero: usize,
    steps: u32,
    /// A character outside the grammar was met, or the budget ran out.
    bad: bool,
}

impl Parser<'_> {
    fn peek(&mut self) -> Kind {
        let kind = self.tokens[self.pos.min(self.tokens.len() - 1)].kind;
        self.bad |= kind == Kind::Error;
        kind
    }

    fn eat(&mut self, kind: Kind) -> Option<()> {
        (self.peek() == kind).then(|| self.pos += 1)
    }

    fn text(&self, at: usize) -> &[u8] {
        let t = self.tokens[at];
        &self.src[t.start as usize..t.end as usize]
    }

    /// Counts a sub-parse; texts full of `|` and open brackets can be read in very many ways.
    fn step(&mut self) {
        self.steps += 1;
        self.bad |= self.steps > MAX_STEPS;
    }

    /// Runs a sub-parse one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        self.bad |= self.depth > MAX_DEPTH;
        self.step();
        let out = if self.bad { None } else { f(self) };
        self.depth -= 1;
        out
    }

    /// Runs a sub-parse and goes back where it fails.
    fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.step();
        let pos = self.pos;
        let out = if self.bad { None } else { f(self) };
        if out.is_none() {
            self.pos = pos;
        }
        out
    }

    /// A failure that no shorter prefix makes good: the parser took the way that one token told.
    /// Inside brackets the decision to enter them looked further ahead.
    fn committed<T>(&mut self) -> Option<T> {
        self.bad |= self.brackets == 0;
        None
    }

    fn relation(&mut self) -> Option<Object> {
        let mut left = Object::Expr(self.expr()?);
        loop {
            let op = match self.peek() {
                Kind::Eq => Op::Eq,
                Kind::Ne => Op::Ne,
                Kind::Lt => Op::Lt,
                Kind::Le => Op::Le,
                Kind::Gt => Op::Gt,
                Kind::Ge => Op::Ge,
                _ => return Some(left),
            };
            // A comparison sign is taken as soon as it is seen, so its right side must follow.
            self.pos += 1;
            let right = self.expr()?;
            left = match left {
                Object::Expr(l) => super::relation::build(self.arena, op, l, right),
                other => super::relation::chain(self.arena, other, op, right)?,
            };
        }
    }

    fn expr(&mut self) -> Option<Id> {
        self.nested(|p| p.additive())
    }

    fn additive(&mut self) -> Option<Id> {
        let mut left = self.product(false)?;
        loop {
            let minus = match self.peek() {
                Kind::Add => false,
                Kind::Sub => true,
                _ => return Some(left),
            };
            let right = self.attempt(|p| {
                p.pos += 1;
                p.product(false)
            });
            let Some(mut right) = right else {
                return Some(left);
            };
            if minus {
                right = self.arena.push(Node::Neg(right));
            }
            left = self.arena.push(Node::Add(left, right));
        }
    }

    /// `mp`, or `mp_nofunc` inside a function's argument without parentheses.
    fn product(&mut self, nofunc: bool) -> Option<Id> {
        let mut left = self.unary(nofunc)?;
        loop {
            let divide = match self.peek() {
                Kind::Mul => false,
                Kind::Div => true,
                _ => return Some(left),
            };
            let right = self.attempt(|p| {
                p.pos += 1;
                p.unary(nofunc)
            });
            let Some(mut right) = right else {
                return Some(left);
            };
            if divide {
                right = self.inverse(right);
            }
            left = self.arena.push(Node::Mul(left, right));
        }
    }

    fn inverse(&mut self, id: Id) -> Id {
        let minus_one = self.arena.push(Node::Num(-1.0));
        self.arena.push(Node::Pow(id, minus_one))
    }

    fn unary(&mut self, nofunc: bool) -> Option<Id> {
        match self.peek() {
            Kind::Add => {
                self.pos += 1;
                self.nested(|p| p.unary(nofunc))
            }
            Kind::Sub => {
                self.pos += 1;
                let inner = self.nested(|p| p.unary(nofunc))?;
                Some(self.arena.push(Node::Neg(inner)))
            }
            _ => self.juxtaposed(nofunc),
        }
    }

    /// A run of factors without signs between them. An `x` between two constants is a
    /// multiplication sign and drops out.
    fn juxtaposed(&mut self, nofunc: bool) -> Option<Id> {
        let mut factors: Vec<(Id, bool, bool)> = Vec::new();
        loop {
            let from = self.arena.nodes.len() as Id;
            let pos = self.pos;
            let first = factors.is_empty();
            self.first = first;
            let id = self.attempt(|p| p.postfix(nofunc && !first));
            let Some(id) = id else { break };
            let is_x = self.pos == pos + 1 && self.text(pos) == b"x";
            factors.push((id, self.arena.has_symbols(from, id), is_x));
        }
        let n = factors.len();
        let mut product = None;
        for i in (0..n).rev() {
            let (id, _, is_x) = factors[i];
            let sign = is_x && i > 0 && i + 1 < n && !factors[i - 1].1 && !factors[i + 1].1;
            product = match product {
                None => Some(id),
                Some(p) if sign => Some(p),
                Some(p) => Some(self.arena.push(Node::Mul(id, p))),
            };
        }
        product
    }

    fn postfix(&mut self, nofunc: bool) -> Option<Id> {
        let mut id = self.power(nofunc)?;
        loop {
            match self.peek() {
                Kind::Bang => {
                    self.pos += 1;
                    id = self.arena.push(Node::Fun(Fun::Factorial, id));
                }
                Kind::Bar if self.bar_closes => return Some(id),
                Kind::Bar => match self.attempt(|p| p.eval_at(id)) {
                    Some(at) => id = at,
                    None => return Some(id),
                },
                _ => return Some(id),
            }
        }
    }

    /// `|_{…}`, `|^{…}`: kept as an unknown function of its parts.
    fn eval_at(&mut self, id: Id) -> Option<Id> {
        self.eat(Kind::Bar)?;
        let mut args = vec![id];
        let mut seen = false;
        for sign in [Kind::Caret, Kind::Underscore] {
            if self.peek() != sign {
                continue;
            }
            let part = self.attempt(|p| {
                p.pos += 1;
                p.eat(Kind::LBrace)?;
                let mut part = p.expr()?;
                if p.eat(Kind::Eq).is_some() {
                    let right = p.expr()?;
                    part = p.arena.apply(name_hash(b"="), &[part, right]);
                }
                p.eat(Kind::RBrace)?;
                Some(part)
            });
            if let Some(part) = part {
                seen = true;
                args.push(part);
            }
        }
        seen.then(|| self.arena.apply(name_hash(b"|"), &args))
    }

    fn power(&mut self, nofunc: bool) -> Option<Id> {
        let mut base = self.component(nofunc)?;
        while self.peek() == Kind::Caret {
            let Some(exponent) = self.attempt(|p| p.script(Kind::Caret)) else {
                break;
            };
            // A subscript after an exponent is read and dropped.
            if self.peek() == Kind::Underscore {
                self.attempt(|p| p.script(Kind::Underscore));
            }
            base = self.arena.push(Node::Pow(base, exponent));
        }
        Some(base)
    }

    /// `^` or `_` with an atom or a braced expression.
    fn script(&mut self, sign: Kind) -> Option<Id> {
        self.eat(sign)?;
        if self.peek() == Kind::LBrace {
            self.pos += 1;
            let id = self.expr()?;
            self.eat(Kind::RBrace)?;
            return Some(id);
        }
        self.first = true;
        self.nested(|p| p.atom(true))
    }

    fn component(&mut self, nofunc: bool) -> Option<Id> {
        match self.peek() {
            Kind::LParen => self.group(Kind::RParen),
            Kind::LBracket => self.group(Kind::RBracket),
            Kind::LBrace => self.group(Kind::RBrace),
            Kind::LBraceLit => self.group(Kind::RBraceLit),
            Kind::Bar => {
                if self.bar_closes {
                    return None;
                }
                let abs = self.attempt(|p| p.absolute(false)).or_else(|| self.attempt(|p| p.absolute(true)));
                abs.or_else(|| self.ket())
            }
            Kind::LFloor => {
                let id = self.group(Kind::RFloor)?;
                Some(self.arena.push(Node::Fun(Fun::Floor, id)))
            }
            Kind::LCeil => {
                let id = self.group(Kind::RCeil)?;
                Some(self.arena.push(Node::Fun(Fun::Ceiling, id)))
            }
            Kind::Func | Kind::Int | Kind::Sum | Kind::Prod | Kind::Lim if nofunc => None,
            Kind::Sqrt | Kind::Overline if nofunc => None,
            Kind::Func => self.nested(|p| p.named_function()),
            Kind::Sqrt => self.sqrt(),
            Kind::Overline => {
                self.pos += 1;
                let id = self.braced()?;
                Some(self.arena.push(Node::Fun(Fun::Conjugate, id)))
            }
            Kind::Int => self.nested(|p| p.integral()),
            Kind::Sum | Kind::Prod => self.nested(|p| p.big_operator()),
            Kind::Lim => self.nested(|p| p.limit()),
            _ => self.atom(nofunc),
        }
    }

    fn group(&mut self, close: Kind) -> Option<Id> {
        self.pos += 1;
        self.brackets += 1;
        let before = self.bar_closes;
        self.bar_closes &= close == Kind::Bar;
        let id = self.expr();
        self.bar_closes = before;
        self.brackets -= 1;
        self.eat(close)?;
        id
    }

    /// `|…|`; the second try takes every `|` for the closing one.
    fn absolute(&mut self, closes: bool) -> Option<Id> {
        let before = std::mem::replace(&mut self.bar_closes, closes);
        let id = self.group(Kind::Bar);
        self.bar_closes = before;
        let id = id?;
        Some(self.arena.push(Node::Fun(Fun::Abs, id)))
    }

    fn braced(&mut self) -> Option<Id> {
        if self.peek() != Kind::LBrace {
            return None;
        }
        self.group(Kind::RBrace)
    }

    fn ket(&mut self) -> Option<Id> {
        self.attempt(|p| {
            let id = p.group(Kind::RAngle)?;
            Some(p.arena.apply(name_hash(b"|>"), &[id]))
        })
    }
}
