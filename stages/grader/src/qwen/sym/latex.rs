//! `parse_latex` of sympy 1.12: grammar `LaTeX.g4` and its conversion to expressions.
//!
//! The grammar's start rule does not ask for the end of the text, and ANTLR gives up an optional
//! continuation that cannot be completed. So the longest valid prefix counts and the rest is
//! ignored: `1,2` reads as 1 and `12^{` as 12.

use super::expr::{Arena, Fun, Id, Node, Object, Op, extend_hash, name_hash};
use super::lexer::{Kind, Token, tokens};

/// Nesting at which Python's recursion limit stops the original.
const MAX_DEPTH: u32 = 60;

/// Tries of sub-parses in one string; backtracking beyond it is given up.
const MAX_STEPS: u32 = 100_000;

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
    if p.bad || p.leading_zero < p.pos {
        None
    } else {
        object
    }
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

    /// Runs a sub-parse one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        self.steps += 1;
        if self.depth > MAX_DEPTH || self.steps > MAX_STEPS {
            self.bad = true;
        }
        let out = if self.bad { None } else { f(self) };
        self.depth -= 1;
        out
    }

    /// Runs a sub-parse and goes back where it fails.
    fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let pos = self.pos;
        let out = f(self);
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
                let abs = self
                    .attempt(|p| p.absolute(false))
                    .or_else(|| self.attempt(|p| p.absolute(true)));
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

    /// An atom, or (unless `nofunc`) a letter or symbol with arguments in parentheses.
    fn atom(&mut self, nofunc: bool) -> Option<Id> {
        match self.peek() {
            Kind::Letter | Kind::Symbol => self.named(nofunc),
            Kind::Digit => self.number(),
            Kind::Differential => {
                let text = self.text(self.pos);
                let variable: Vec<u8> = text[1..]
                    .iter()
                    .copied()
                    .filter(|b| b.is_ascii_alphabetic())
                    .collect();
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
    fn number(&mut self) -> Option<Id> {
        let run = self.tokens[self.pos..]
            .iter()
            .take_while(|t| t.kind == Kind::Digit)
            .count();
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
            let run = self.tokens[self.pos..]
                .iter()
                .take_while(|t| t.kind == Kind::Digit)
                .count();
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
        Some(self.arena.push(if point {
            Node::Float(value)
        } else {
            Node::Num(value)
        }))
    }

    /// The number that some tokens spell, commas left out.
    fn digits(&self, start: usize, end: usize) -> Option<f64> {
        let text = |t: &Token| self.src[t.start as usize] as char;
        let kept = self.tokens[start..end]
            .iter()
            .filter(|t| t.kind != Kind::Comma);
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
    fn named(&mut self, nofunc: bool) -> Option<Id> {
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
        Some(self.arena.push(if infinity {
            Node::Infinity
        } else {
            Node::Sym(hash)
        }))
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
                open_end = if after_digit {
                    self.pos + run.min(2)
                } else {
                    usize::MAX
                };
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

    fn fraction(&mut self) -> Option<Id> {
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

    fn sqrt(&mut self) -> Option<Id> {
        self.pos += 1;
        let root = if self.peek() == Kind::LBracket {
            Some(self.group(Kind::RBracket)?)
        } else {
            None
        };
        let base = self.braced()?;
        let exponent = match root {
            Some(r) => self.inverse(r),
            None => self.arena.push(Node::Num(0.5)),
        };
        Some(self.arena.push(Node::Pow(base, exponent)))
    }

    fn named_function(&mut self) -> Option<Id> {
        let name =
            &self.src[self.tokens[self.pos].start as usize + 1..self.tokens[self.pos].end as usize];
        self.pos += 1;
        let (mut sub, mut sup) = (None, None);
        for _ in 0..2 {
            match self.peek() {
                Kind::Underscore if sub.is_none() => {
                    sub = self.attempt(|p| p.script(Kind::Underscore))
                }
                Kind::Caret if sup.is_none() => sup = self.attempt(|p| p.script(Kind::Caret)),
                _ => break,
            }
        }
        let parens = if self.peek() == Kind::LParen {
            self.attempt(|p| {
                p.pos += 1;
                let id = p.expr()?;
                // Only the first argument counts.
                while p.eat(Kind::Comma).is_some() {
                    p.expr()?;
                }
                p.eat(Kind::RParen)?;
                Some(id)
            })
        } else {
            None
        };
        let arg = match parens.or_else(|| self.attempt(|p| p.product(true))) {
            Some(id) => id,
            None => self.argument_from_script(sub.as_mut().or(sup.as_mut())?)?,
        };
        let minus_one = sup.is_some_and(|s| self.is_minus_one(s));
        let (id, raised) = self.function(name, arg, sub, minus_one);
        match sup {
            Some(sup) if !raised && !matches!(self.arena.nodes[sup as usize], Node::Num(0.0)) => {
                Some(self.arena.push(Node::Pow(id, sup)))
            }
            _ => Some(id),
        }
    }

    /// `\log_28`: where no argument is left, the script's last digit is the argument.
    fn argument_from_script(&mut self, script: &mut Id) -> Option<Id> {
        let last = self.pos.checked_sub(1)?;
        let run = self.tokens[..last]
            .iter()
            .rev()
            .take_while(|t| t.kind == Kind::Digit)
            .count();
        let sign = self.tokens[(last - run).checked_sub(1)?].kind;
        let digit = self.tokens[last].kind == Kind::Digit;
        if !digit || run == 0 || !matches!(sign, Kind::Underscore | Kind::Caret) {
            return None;
        }
        let value = self.digits(last - run, last)?;
        *script = self.arena.push(Node::Num(value));
        self.pos = last;
        self.product(true)
    }

    fn is_minus_one(&self, id: Id) -> bool {
        match self.arena.nodes[id as usize] {
            Node::Num(n) => n == -1.0,
            Node::Neg(n) => matches!(self.arena.nodes[n as usize], Node::Num(1.0)),
            _ => false,
        }
    }

    /// A function of `arg`, and whether an exponent −1 made it the inverse function.
    fn function(&mut self, name: &[u8], arg: Id, base: Option<Id>, minus_one: bool) -> (Id, bool) {
        if matches!(name, b"log" | b"ln" | b"lg") {
            let id = match base {
                Some(b) => Node::Log(arg, b),
                None if name == b"lg" => {
                    let ten = self.arena.push(Node::Num(10.0));
                    Node::Log(arg, ten)
                }
                None => Node::Fun(Fun::Ln, arg),
            };
            return (self.arena.push(id), false);
        }
        let (fun, inverse) = function_of(name);
        match inverse {
            Some(inverse) if minus_one => (self.arena.push(Node::Fun(inverse, arg)), true),
            _ => (self.arena.push(Node::Fun(fun, arg)), false),
        }
    }

    /// Integrals, sums, products and limits are kept as unknown functions of their parts.
    fn integral(&mut self) -> Option<Id> {
        self.pos += 1;
        let mut args = Vec::new();
        for _ in 0..2 {
            if let sign @ (Kind::Underscore | Kind::Caret) = self.peek() {
                args.push(self.script(sign)?);
            }
        }
        args.push(self.additive()?);
        Some(self.arena.apply(name_hash(b"int"), &args))
    }

    fn big_operator(&mut self) -> Option<Id> {
        let name = name_hash(self.text(self.pos));
        self.pos += 1;
        let mut args = Vec::new();
        for _ in 0..2 {
            match self.peek() {
                Kind::Caret => args.push(self.script(Kind::Caret)?),
                Kind::Underscore => {
                    self.pos += 1;
                    self.eat(Kind::LBrace)?;
                    args.push(self.expr()?);
                    self.eat(Kind::Eq)?;
                    args.push(self.expr()?);
                    self.eat(Kind::RBrace)?;
                }
                _ => return None,
            }
        }
        args.push(self.product(false)?);
        Some(self.arena.apply(name, &args))
    }

    fn limit(&mut self) -> Option<Id> {
        self.pos += 1;
        self.eat(Kind::Underscore)?;
        self.eat(Kind::LBrace)?;
        if !matches!(self.peek(), Kind::Letter | Kind::Symbol) {
            return None;
        }
        let variable = name_hash(self.text(self.pos));
        self.pos += 1;
        self.eat(Kind::To)?;
        let to = self.expr()?;
        self.eat(Kind::RBrace)?;
        let of = self.product(false)?;
        Some(self.arena.apply(extend_hash(variable, b"lim"), &[to, of]))
    }
}

/// A function by its command's name, and its inverse where an exponent −1 stands for that.
pub(super) fn function_of(name: &[u8]) -> (Fun, Option<Fun>) {
    match name {
        b"exp" => (Fun::Exp, None),
        b"sin" => (Fun::Sin, Some(Fun::Asin)),
        b"cos" => (Fun::Cos, Some(Fun::Acos)),
        b"tan" => (Fun::Tan, Some(Fun::Atan)),
        b"csc" => (Fun::Csc, Some(Fun::Acsc)),
        b"sec" => (Fun::Sec, Some(Fun::Asec)),
        b"cot" => (Fun::Cot, Some(Fun::Acot)),
        b"sinh" => (Fun::Sinh, Some(Fun::Asinh)),
        b"cosh" => (Fun::Cosh, Some(Fun::Acosh)),
        b"tanh" => (Fun::Tanh, Some(Fun::Atanh)),
        b"arcsin" => (Fun::Asin, None),
        b"arccos" => (Fun::Acos, None),
        b"arctan" => (Fun::Atan, None),
        b"arccsc" => (Fun::Acsc, None),
        b"arcsec" => (Fun::Asec, None),
        b"arccot" => (Fun::Acot, None),
        b"arsinh" | b"arcsinh" => (Fun::Asinh, None),
        b"arcosh" | b"arccosh" => (Fun::Acosh, None),
        _ => (Fun::Atanh, None),
    }
}
