//! Groups, atoms, matrices and functions.

use super::Parser;
use super::lexer::Kind;
use crate::qwen::sym::expr::{Const, Fun, Id, Node, extend_hash, name_hash};
use crate::qwen::sym::latex::function_of;

impl Parser<'_> {
    pub(super) fn component(&mut self, nofunc: bool) -> Option<Id> {
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
                self.times(top, inverse)
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
            return self.raise();
        }
        let n = rows.len();
        Some(self.make_matrix(n, cols, rows.into_iter().flatten().collect(), true))
    }

    pub(super) fn atom(&mut self, nofunc: bool) -> Option<Id> {
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
                Some(self.arena.push(Node::Num(if percent { value / 100.0 } else { value })))
            }
            Kind::Differential => {
                let text: Vec<u8> =
                    self.text(at).iter().copied().filter(|b| b.is_ascii_alphabetic()).collect();
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
                Kind::Underscore if sub.is_none() => sub = self.attempt(|p| p.script(Kind::Underscore)),
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
                let (fun, inverse) = function_of(name);
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
