//! `latex2sympy` of `latex2sympy2` 1.9: what the other parsers do not read, above all lists,
//! matrices, `$`, `~` and percentages.
//!
//! Unlike `parse_latex` it knows π, e and `I`, reads decimals as fractions, and takes `x=3` for an
//! assignment whose value is 3. As there, the longest valid prefix counts.

mod atoms;
mod commands;
mod lexer;

use std::borrow::Cow;

use super::expr::{Arena, Fun, Id, Node, Object, Op, extend_hash, name_hash};
use lexer::{Kind, Token, tokens};

const MAX_DEPTH: u32 = 60;
const MAX_STEPS: u32 = 10_000;
/// Multiplications in one product of matrices.
const MAX_PRODUCT: usize = 4096;

/// Parses `src` as `latex2sympy` does; `None` where that raises an exception.
pub fn latex2sympy(src: &str, arena: &mut Arena) -> Option<Object> {
    let src = prepared(src);
    let tokens = tokens(&src);
    let mut p = Parser {
        src: src.as_bytes(),
        tokens: &tokens,
        pos: 0,
        arena,
        furthest: 0,
        depth: 0,
        steps: 0,
        bad: false,
        no_symbols: false,
        matrices: Vec::new(),
    };
    let list = p.attempt(|p| p.list());
    let object = list.or_else(|| {
        let relation = p.relation();
        // The choice between list and relation looks at all that can go on, so a prefix only
        // counts where nothing more was possible after it.
        relation.filter(|_| p.furthest <= p.pos)
    });
    p.peek();
    if p.bad { None } else { object }
}

/// The replacements before the grammar is applied.
fn prepared(src: &str) -> Cow<'_, str> {
    const CHANGES: [(&str, &str); 12] = [
        ("\\dfrac", "\\frac"),
        ("\\tfrac", "\\frac"),
        ("\\mathrm{T}", "T"),
        ("\\mathrm{d}", "d"),
        ("{\\rm d}", "d"),
        ("\\left[\\begin{matrix}", "\\begin{bmatrix}"),
        ("\\end{matrix}\\right]", "\\end{bmatrix}"),
        ("\\displaystyle", " "),
        ("\\quad", " "),
        ("\\qquad", " "),
        ("\\,", " "),
        ("~", " "),
    ];
    let mut out = Cow::Borrowed(src);
    for (from, to) in CHANGES.into_iter().chain([("$", " ")]) {
        if out.contains(from) {
            out = Cow::Owned(out.replace(from, to));
        }
    }
    out
}

/// A matrix under construction; its node stands for it in other expressions.
struct Matrix {
    id: Id,
    rows: usize,
    cols: usize,
    /// Written out, not a sum or product of matrices.
    plain: bool,
    entries: Vec<Id>,
}

struct Parser<'a> {
    src: &'a [u8],
    tokens: &'a [Token],
    pos: usize,
    arena: &'a mut Arena,
    furthest: usize,
    depth: u32,
    steps: u32,
    bad: bool,
    /// A differential overwrites the table in which the original looks symbols up.
    no_symbols: bool,
    matrices: Vec<Matrix>,
}

impl Parser<'_> {
    fn peek(&mut self) -> Kind {
        let kind = self.tokens[self.pos.min(self.tokens.len() - 1)].kind;
        self.bad |= kind == Kind::Error;
        self.furthest = self.furthest.max(self.pos);
        kind
    }

    fn eat(&mut self, kind: Kind) -> Option<()> {
        (self.peek() == kind).then(|| self.pos += 1)
    }

    fn text(&self, at: usize) -> &[u8] {
        let t = self.tokens[at];
        &self.src[t.start..t.end]
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        self.steps += 1;
        self.bad |= self.depth > MAX_DEPTH || self.steps > MAX_STEPS;
        let out = if self.bad { None } else { f(self) };
        self.depth -= 1;
        out
    }

    fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.steps += 1;
        self.bad |= self.steps > MAX_STEPS;
        let (pos, no_symbols) = (self.pos, self.no_symbols);
        let out = if self.bad { None } else { f(self) };
        if out.is_none() {
            self.pos = pos;
            self.no_symbols = no_symbols;
        }
        out
    }

    /// Several relations between commas or semicolons, in brackets or braces or bare.
    fn list(&mut self) -> Option<Object> {
        let closes: &[Kind] = match self.peek() {
            Kind::LBracket => &[Kind::RBracket],
            Kind::LBrace => &[Kind::RBrace],
            Kind::LBraceLit => &[Kind::RBraceLit],
            Kind::Left | Kind::MLeft => {
                let right = if self.peek() == Kind::Left { Kind::Right } else { Kind::MRight };
                match (self.tokens.get(self.pos + 1).map(|t| t.kind), right) {
                    (Some(Kind::LBracket), Kind::Right) => &[Kind::Right, Kind::RBracket],
                    (Some(Kind::LBraceLit), Kind::Right) => &[Kind::Right, Kind::RBraceLit],
                    (Some(Kind::LBracket), _) => &[Kind::MRight, Kind::RBracket],
                    (Some(Kind::LBraceLit), _) => &[Kind::MRight, Kind::RBraceLit],
                    _ => &[],
                }
            }
            _ => &[],
        };
        if !closes.is_empty() {
            let inside = self.attempt(|p| {
                p.pos += closes.len();
                let items = p.items()?;
                closes.iter().try_for_each(|&c| p.eat(c))?;
                Some(items)
            });
            if let Some(items) = inside {
                return Some(Object::List(items));
            }
        }
        self.items().map(Object::List)
    }

    fn items(&mut self) -> Option<Vec<Object>> {
        let mut items = vec![self.relation()?];
        let sign = match self.peek() {
            sign @ (Kind::Comma | Kind::Semicolon) => sign,
            _ => return None,
        };
        while self.peek() == sign {
            let item = self.attempt(|p| {
                p.pos += 1;
                p.relation()
            });
            match item {
                Some(item) => items.push(item),
                None => break,
            }
        }
        (items.len() > 1).then_some(items)
    }

    fn relation(&mut self) -> Option<Object> {
        let start = self.pos;
        let mut left = Object::Expr(self.expr()?);
        loop {
            let op = match self.peek() {
                Kind::Assign => None,
                Kind::Eq => Some(Op::Eq),
                Kind::Ne => Some(Op::Ne),
                Kind::Lt => Some(Op::Lt),
                Kind::Le => Some(Op::Le),
                Kind::Gt => Some(Op::Gt),
                Kind::Ge => Some(Op::Ge),
                Kind::In => {
                    self.bad = true;
                    return None;
                }
                _ => break,
            };
            self.pos += 1;
            let right = self.expr()?;
            left = match (op, left) {
                (None, Object::Expr(l)) if matches!(self.arena.nodes[l as usize], Node::Sym(_)) => {
                    Object::Expr(right)
                }
                // A matrix that is written out has no `is_Symbol`.
                (None, Object::Expr(l)) if self.matrix_of(l).is_some_and(|m| m.plain) => {
                    return None;
                }
                (None, Object::Expr(l)) => {
                    let from = l.min(right);
                    // An equation in symbols is solved; here it only equals itself.
                    if self.arena.has_symbols(from.min(self.first_node(l)), right) {
                        Object::Chain(self.text_hash(start))
                    } else {
                        Object::Rel(Op::Eq, l, right)
                    }
                }
                (None, _) => return None,
                (Some(op), Object::Expr(l)) => Object::Rel(op, l, right),
                (Some(_), Object::Rel(..) | Object::Chain(_)) => Object::Chain(self.text_hash(start)),
                (Some(_), _) => return None,
            };
        }
        Some(match left {
            Object::Expr(id) => match self.matrix_of(id) {
                Some(m) => Object::Matrix { cols: m.cols, plain: m.plain, entries: m.entries.clone() },
                None => Object::Expr(id),
            },
            other => other,
        })
    }

    /// The first node of the subtree of `id`.
    fn first_node(&self, id: Id) -> Id {
        let mut first = id;
        loop {
            first = match self.arena.nodes[first as usize] {
                Node::Add(a, _) | Node::Mul(a, _) | Node::Pow(a, _) | Node::Log(a, _) => a,
                Node::Binomial(a, _) | Node::Neg(a) | Node::Fun(_, a) => a,
                _ => return first,
            };
        }
    }

    /// Hash of the tokens since `start`; spellings of one comparison sign are the same.
    fn text_hash(&self, start: usize) -> u64 {
        let mut hash = name_hash(b"");
        for t in start..self.pos {
            hash = match self.tokens[t].kind {
                Kind::Le => extend_hash(hash, b"<="),
                Kind::Ge => extend_hash(hash, b">="),
                Kind::Ne => extend_hash(hash, b"!="),
                _ => extend_hash(hash, self.text(t)),
            };
        }
        hash
    }

    fn matrix_of(&self, id: Id) -> Option<&Matrix> {
        self.matrices.iter().find(|m| m.id == id)
    }

    fn is_matrix(&self, id: Id) -> bool {
        self.matrix_of(id).is_some()
    }

    fn make_matrix(&mut self, rows: usize, cols: usize, entries: Vec<Id>, plain: bool) -> Id {
        let name = name_hash(format!("{rows}x{cols}").as_bytes());
        let id = self.arena.apply(name, &entries);
        self.matrices.push(Matrix { id, rows, cols, plain, entries });
        id
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
                right = self.negated(right)?;
            }
            left = self.sum(left, right)?;
        }
    }

    fn negated(&mut self, id: Id) -> Option<Id> {
        let minus = self.arena.push(Node::Num(-1.0));
        self.times(minus, id)
    }

    /// An exception of sympy's: the whole string is not read.
    fn raise<T>(&mut self) -> Option<T> {
        self.bad = true;
        None
    }

    fn sum(&mut self, a: Id, b: Id) -> Option<Id> {
        match (self.matrix_of(a), self.matrix_of(b)) {
            (None, None) => Some(self.arena.push(Node::Add(a, b))),
            (Some(x), Some(y)) if (x.rows, x.cols) == (y.rows, y.cols) => {
                let (rows, cols) = (x.rows, x.cols);
                let (x, y) = (x.entries.clone(), y.entries.clone());
                let sums = x.into_iter().zip(y).map(|(x, y)| self.arena.push(Node::Add(x, y)));
                let entries = sums.collect();
                Some(self.make_matrix(rows, cols, entries, false))
            }
            _ => self.raise(),
        }
    }

    fn times(&mut self, a: Id, b: Id) -> Option<Id> {
        let (scalar, m) = match (self.matrix_of(a), self.matrix_of(b)) {
            (None, None) => return Some(self.arena.push(Node::Mul(a, b))),
            (Some(_), Some(_)) => return self.matrix_product(a, b),
            (Some(m), None) => (b, m),
            (None, Some(m)) => (a, m),
        };
        let (rows, cols, entries) = (m.rows, m.cols, m.entries.clone());
        let entries = entries.into_iter().map(|e| self.arena.push(Node::Mul(scalar, e))).collect();
        Some(self.make_matrix(rows, cols, entries, false))
    }

    fn matrix_product(&mut self, a: Id, b: Id) -> Option<Id> {
        let (x, y) = (self.matrix_of(a)?, self.matrix_of(b)?);
        let (rows, inner, cols) = (x.rows, x.cols, y.cols);
        if inner != y.rows || rows * inner * cols > MAX_PRODUCT {
            return self.raise();
        }
        let (x, y) = (x.entries.clone(), y.entries.clone());
        let mut entries = Vec::with_capacity(rows * cols);
        for i in 0..rows {
            for j in 0..cols {
                let mut sum = self.arena.push(Node::Mul(x[i * inner], y[j]));
                for k in 1..inner {
                    let term = self.arena.push(Node::Mul(x[i * inner + k], y[k * cols + j]));
                    sum = self.arena.push(Node::Add(sum, term));
                }
                entries.push(sum);
            }
        }
        Some(self.make_matrix(rows, cols, entries, false))
    }

    fn inverse(&mut self, id: Id) -> Id {
        let minus_one = self.arena.push(Node::Num(-1.0));
        self.arena.push(Node::Pow(id, minus_one))
    }

    fn product(&mut self, nofunc: bool) -> Option<Id> {
        let mut left = self.unary(nofunc)?;
        loop {
            let sign = match self.peek() {
                sign @ (Kind::Mul | Kind::Div | Kind::Mod) => sign,
                _ => return Some(left),
            };
            let right = self.attempt(|p| {
                p.pos += 1;
                p.unary(nofunc)
            });
            let Some(right) = right else {
                return Some(left);
            };
            left = match sign {
                Kind::Mul => self.times(left, right)?,
                Kind::Div => {
                    let inverse = self.inverse(right);
                    self.times(left, inverse)?
                }
                _ => self.arena.apply(name_hash(b"mod"), &[left, right]),
            };
        }
    }

    fn unary(&mut self, nofunc: bool) -> Option<Id> {
        match self.peek() {
            Kind::Add => {
                self.pos += 1;
                self.nested(|p| p.unary(nofunc))
            }
            Kind::Sub => {
                self.pos += 1;
                let id = self.nested(|p| p.unary(nofunc))?;
                if self.is_matrix(id) {
                    // The original passes an argument that does not exist.
                    return self.raise();
                }
                self.negated(id)
            }
            _ => {
                let mut factors = Vec::new();
                loop {
                    let first = factors.is_empty();
                    let Some(id) = self.attempt(|p| p.postfix(nofunc && !first)) else {
                        break;
                    };
                    factors.push(id);
                }
                let mut product = factors.pop()?;
                while let Some(id) = factors.pop() {
                    product = self.times(id, product)?;
                }
                Some(product)
            }
        }
    }

    fn postfix(&mut self, nofunc: bool) -> Option<Id> {
        let mut id = self.power(nofunc)?;
        loop {
            match self.peek() {
                Kind::Bang => id = self.arena.push(Node::Fun(Fun::Factorial, id)),
                Kind::Transpose => id = self.arena.apply(name_hash(b"^T"), &[id]),
                _ => return Some(id),
            }
            self.pos += 1;
        }
    }

    fn power(&mut self, nofunc: bool) -> Option<Id> {
        let mut base = self.component(nofunc)?;
        while self.peek() == Kind::Caret {
            let Some(exponent) = self.attempt(|p| p.script(Kind::Caret)) else {
                break;
            };
            if self.peek() == Kind::Underscore {
                self.attempt(|p| p.script(Kind::Underscore));
            }
            base = self.arena.push(Node::Pow(base, exponent));
        }
        Some(base)
    }

    fn script(&mut self, sign: Kind) -> Option<Id> {
        self.eat(sign)?;
        if self.peek() == Kind::LBrace {
            self.pos += 1;
            let id = self.expr()?;
            while sign == Kind::Underscore && self.eat(Kind::Comma).is_some() {
                self.expr()?;
            }
            self.eat(Kind::RBrace)?;
            return Some(id);
        }
        self.nested(|p| p.atom(true))
    }
}
