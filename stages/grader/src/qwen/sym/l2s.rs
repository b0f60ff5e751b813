//! `latex2sympy` of `latex2sympy2` 1.9: what the other parsers do not read, above all lists,
//! matrices, `$`, `~` and percentages.
//!
//! Unlike `parse_latex` it knows π, e and `I`, reads decimals as fractions, and takes `x=3` for an
//! assignment whose value is 3. As there, the longest valid prefix counts.

use std::borrow::Cow;

use super::expr::{Arena, Const, Fun, Id, Node, Object, Op, extend_hash, name_hash};
use super::l2s_lexer::{Kind, Token, tokens};

const MAX_DEPTH: u32 = 60;
const MAX_STEPS: u32 = 100_000;

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
    p.furthest = 0;
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
        let (pos, no_symbols) = (self.pos, self.no_symbols);
        let out = f(self);
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
                let right = if self.peek() == Kind::Left {
                    Kind::Right
                } else {
                    Kind::MRight
                };
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
                (Some(_), Object::Rel(..) | Object::Chain(_)) => {
                    Object::Chain(self.text_hash(start))
                }
                (Some(_), _) => return None,
            };
        }
        Some(match left {
            Object::Expr(id) => match self.matrix_of(id) {
                Some(m) => Object::Matrix(m.rows, m.cols, m.entries.clone()),
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

    fn make_matrix(&mut self, rows: usize, cols: usize, entries: Vec<Id>) -> Id {
        let name = name_hash(format!("{rows}x{cols}").as_bytes());
        let id = self.arena.apply(name, &entries);
        self.matrices.push(Matrix {
            id,
            rows,
            cols,
            entries,
        });
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
                right = self.negated(right);
            }
            left = self.sum(left, right)?;
        }
    }

    fn negated(&mut self, id: Id) -> Id {
        let minus = self.arena.push(Node::Num(-1.0));
        self.times(minus, id)
    }

    fn sum(&mut self, a: Id, b: Id) -> Option<Id> {
        match (self.matrix_of(a), self.matrix_of(b)) {
            (None, None) => Some(self.arena.push(Node::Add(a, b))),
            (Some(x), Some(y)) if (x.rows, x.cols) == (y.rows, y.cols) => {
                let (rows, cols) = (x.rows, x.cols);
                let pairs: Vec<(Id, Id)> = x
                    .entries
                    .iter()
                    .copied()
                    .zip(y.entries.iter().copied())
                    .collect();
                let entries = pairs
                    .into_iter()
                    .map(|(a, b)| self.arena.push(Node::Add(a, b)))
                    .collect();
                Some(self.make_matrix(rows, cols, entries))
            }
            _ => None,
        }
    }

    fn times(&mut self, a: Id, b: Id) -> Id {
        let (scalar, matrix) = match (self.is_matrix(a), self.is_matrix(b)) {
            (false, false) => return self.arena.push(Node::Mul(a, b)),
            (true, true) => return self.arena.apply(name_hash(b"matmul"), &[a, b]),
            (true, false) => (b, a),
            (false, true) => (a, b),
        };
        let (rows, cols, old) = match self.matrix_of(matrix) {
            Some(m) => (m.rows, m.cols, m.entries.clone()),
            None => return matrix,
        };
        let entries = old
            .into_iter()
            .map(|e| self.arena.push(Node::Mul(scalar, e)))
            .collect();
        self.make_matrix(rows, cols, entries)
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
                Kind::Mul => self.times(left, right),
                Kind::Div => {
                    let inverse = self.inverse(right);
                    self.times(left, inverse)
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
                    self.bad = true;
                    return None;
                }
                Some(self.negated(id))
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
                    product = self.times(id, product);
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

    fn component(&mut self, nofunc: bool) -> Option<Id> {
        let right = match self.peek() {
            Kind::Left => Some(Kind::Right),
            Kind::MLeft => Some(Kind::MRight),
            _ => None,
        };
        if right.is_some() {
            self.pos += 1;
        }
        let close = |open: Kind| match open {
            Kind::LParen => Some((Kind::RParen, None)),
            Kind::LBrace => Some((Kind::RBrace, None)),
            Kind::LBraceLit => Some((Kind::RBraceLit, None)),
            Kind::LBracket => Some((Kind::RBracket, None)),
            Kind::LOther(k) => Some((Kind::ROther(k), None)),
            Kind::Bar => Some((Kind::Bar, Some(Fun::Abs))),
            Kind::LVert => Some((Kind::RVert, Some(Fun::Abs))),
            Kind::Vert => Some((Kind::Vert, Some(Fun::Abs))),
            Kind::LFloor(k) => Some((Kind::RFloor(k), Some(Fun::Floor))),
            Kind::LCeil(k) => Some((Kind::RCeil(k), Some(Fun::Ceiling))),
            _ => None,
        };
        let open = self.peek();
        if let Some((close, fun)) = close(open) {
            self.pos += 1;
            let mut id = self.expr()?;
            if open == Kind::LBrace && self.eat(Kind::Choose).is_some() {
                let k = self.expr()?;
                id = self.arena.push(Node::Binomial(id, k));
            }
            if let Some(right) = right {
                self.eat(right)?;
            }
            self.eat(close)?;
            return Some(match fun {
                Some(fun) => self.arena.push(Node::Fun(fun, id)),
                None => id,
            });
        }
        if right.is_some() {
            return None;
        }
        match open {
            Kind::Frac => {
                self.pos += 1;
                let top = self.braced()?;
                let bottom = self.braced()?;
                let inverse = self.inverse(bottom);
                Some(self.times(top, inverse))
            }
            Kind::Binom => {
                self.pos += 1;
                let n = self.braced()?;
                let k = self.braced()?;
                Some(self.arena.push(Node::Binomial(n, k)))
            }
            Kind::MatrixStart => self.nested(|p| p.matrix()),
            Kind::Func | Kind::MultiFunc | Kind::Big | Kind::Sqrt | Kind::ExpE if nofunc => None,
            Kind::Func => self.nested(|p| p.function()),
            Kind::Sqrt => {
                self.pos += 1;
                let root = if self.eat(Kind::LBracket).is_some() {
                    let root = self.expr()?;
                    self.eat(Kind::RBracket)?;
                    self.inverse(root)
                } else {
                    self.arena.push(Node::Num(0.5))
                };
                let base = self.braced()?;
                Some(self.arena.push(Node::Pow(base, root)))
            }
            Kind::ExpE => {
                self.pos += 1;
                let exponent = match self.peek() {
                    Kind::Caret => self.attempt(|p| p.script(Kind::Caret)),
                    _ => None,
                };
                let e = self.arena.push(Node::Const(Const::E));
                Some(match exponent {
                    Some(x) => self.arena.push(Node::Fun(Fun::Exp, x)),
                    None => e,
                })
            }
            _ => self.atom(nofunc),
        }
    }

    fn braced(&mut self) -> Option<Id> {
        self.eat(Kind::LBrace)?;
        let id = self.expr()?;
        self.eat(Kind::RBrace)?;
        Some(id)
    }

    fn matrix(&mut self) -> Option<Id> {
        self.pos += 1;
        let mut rows: Vec<Vec<Id>> = Vec::new();
        loop {
            let mut row = vec![self.expr()?];
            while self.eat(Kind::Amp).is_some() {
                row.push(self.expr()?);
            }
            rows.push(row);
            if self.eat(Kind::Row).is_none() || self.peek() == Kind::MatrixEnd {
                break;
            }
        }
        self.eat(Kind::MatrixEnd)?;
        let cols = rows[0].len();
        if rows.iter().any(|r| r.len() != cols) {
            self.bad = true;
            return None;
        }
        let n = rows.len();
        Some(self.make_matrix(n, cols, rows.into_iter().flatten().collect()))
    }

    fn atom(&mut self, nofunc: bool) -> Option<Id> {
        let at = self.pos;
        match self.peek() {
            Kind::Letter if self.text(at) == b"I" => {
                self.pos += 1;
                Some(self.arena.push(Node::Const(Const::I)))
            }
            Kind::Letter | Kind::Greek | Kind::Accent => self.symbol(nofunc),
            Kind::Pi => {
                self.pos += 1;
                Some(self.arena.push(Node::Const(Const::Pi)))
            }
            Kind::Infty => {
                self.pos += 1;
                Some(self.arena.push(Node::Infinity))
            }
            Kind::Number | Kind::ENotation | Kind::Percent => {
                let percent = self.peek() == Kind::Percent;
                let mut text = String::from_utf8_lossy(self.text(at)).replace(',', "");
                text.truncate(text.trim_end_matches("\\%").len());
                self.pos += 1;
                let value: f64 = text.parse().ok()?;
                Some(
                    self.arena
                        .push(Node::Num(if percent { value / 100.0 } else { value })),
                )
            }
            Kind::Differential => {
                let text: Vec<u8> = self
                    .text(at)
                    .iter()
                    .copied()
                    .filter(|b| b.is_ascii_alphabetic())
                    .collect();
                self.pos += 1;
                self.no_symbols = true;
                Some(self.arena.push(Node::Sym(name_hash(&text))))
            }
            Kind::Mathit => {
                self.pos += 1;
                self.eat(Kind::LBrace)?;
                let mut hash = name_hash(b"");
                while matches!(self.peek(), Kind::Letter | Kind::ExpE) {
                    hash = extend_hash(hash, self.text(self.pos));
                    self.pos += 1;
                }
                self.eat(Kind::RBrace)?;
                Some(self.arena.push(Node::Sym(hash)))
            }
            _ => None,
        }
    }

    /// A symbol with its accent and subscript, or an unknown function of arguments.
    fn symbol(&mut self, nofunc: bool) -> Option<Id> {
        if self.no_symbols {
            self.bad = true;
            return None;
        }
        let at = self.pos;
        let mut name = self.text(at).to_vec();
        self.pos += 1;
        if self.tokens[at].kind == Kind::Accent {
            let start = self.pos;
            self.braced()?;
            (start..self.pos).for_each(|t| name.extend_from_slice(self.text(t)));
        } else if name[0] == b'\\' {
            // Greek letters lose their backslash, other symbols keep it.
            name = name.trim_ascii_end()[1..].to_vec();
        }
        if self.peek() == Kind::Underscore {
            let start = self.pos + 1;
            if self.attempt(|p| p.script(Kind::Underscore)).is_some() {
                name.push(b'_');
                for t in start..self.pos {
                    if !matches!(self.tokens[t].kind, Kind::LBrace | Kind::RBrace) {
                        name.extend_from_slice(self.text(t));
                    }
                }
            }
        }
        let hash = name_hash(&name);
        if !nofunc && let Some(call) = self.attempt(|p| p.call(hash)) {
            return Some(call);
        }
        Some(self.arena.push(Node::Sym(hash)))
    }

    fn call(&mut self, name: u64) -> Option<Id> {
        let power = match self.peek() {
            Kind::Caret => Some(self.script(Kind::Caret)?),
            _ => None,
        };
        let left = self.eat(Kind::Left).is_some();
        if !matches!(self.peek(), Kind::LParen | Kind::LBracket) {
            return None;
        }
        self.pos += 1;
        let start = self.pos;
        let mut args = vec![self.expr()?];
        let one_atom = self.pos == start + 1;
        let mut commas = 0;
        while self.eat(Kind::Comma).is_some() {
            commas += 1;
            match self.attempt(|p| p.expr()) {
                Some(arg) => args.push(arg),
                None => break,
            }
        }
        if !matches!(self.peek(), Kind::RParen | Kind::RBracket) || (commas == 0 && !one_atom) {
            return None;
        }
        self.pos += 1;
        if left {
            self.eat(Kind::Right)?;
        }
        let id = self.arena.apply(name, &args);
        Some(match power {
            Some(p) => self.arena.push(Node::Pow(id, p)),
            None => id,
        })
    }

    fn function(&mut self) -> Option<Id> {
        let name = self.text(self.pos)[1..].to_vec();
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
        let parens = self.attempt(|p| {
            let _ = p.eat(Kind::Left).or_else(|| p.eat(Kind::MLeft));
            p.eat(Kind::LParen)?;
            let id = p.expr()?;
            let _ = p.eat(Kind::Right).or_else(|| p.eat(Kind::MRight));
            p.eat(Kind::RParen)?;
            Some(id)
        });
        let arg = match parens {
            Some(id) => id,
            None => self.product(true)?,
        };
        let minus_one = match sup.map(|s| self.arena.nodes[s as usize]) {
            Some(Node::Num(n)) => n == -1.0,
            Some(Node::Mul(a, b)) => matches!(
                (self.arena.nodes[a as usize], self.arena.nodes[b as usize]),
                (Node::Num(-1.0), Node::Num(1.0))
            ),
            _ => false,
        };
        let node = match name.as_slice() {
            b"ln" if sub.is_none() => Node::Fun(Fun::Ln, arg),
            b"log" | b"ln" => {
                let base = match sub {
                    Some(base) => base,
                    None => self.arena.push(Node::Num(10.0)),
                };
                Node::Log(arg, base)
            }
            b"floor" => Node::Fun(Fun::Floor, arg),
            b"ceil" => Node::Fun(Fun::Ceiling, arg),
            b"det" => return None,
            name => {
                let (fun, inverse) = super::latex::function_of(name);
                match inverse {
                    Some(inverse) if minus_one => {
                        return Some(self.arena.push(Node::Fun(inverse, arg)));
                    }
                    _ => Node::Fun(fun, arg),
                }
            }
        };
        let id = self.arena.push(node);
        Some(match sup {
            Some(sup) if !matches!(self.arena.nodes[sup as usize], Node::Num(0.0)) => {
                self.arena.push(Node::Pow(id, sup))
            }
            _ => id,
        })
    }
}
