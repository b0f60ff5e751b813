//! `parse_expr` of sympy 1.12: a Python expression with automatic symbols and exact integers.
//!
//! It is reached only where `parse_latex` fails: tuples, lists, sets, quoted text, comments.

mod names;

use super::expr::{Arena, Const, Fun, Id, Node, Object, Op, name_hash};
use crate::qwen::pystr;
use names::{function, is_reserved, is_sympy_name};

const MAX_DEPTH: u32 = 60;

/// Evaluates `src` as `parse_expr` does; `None` where that raises an exception.
pub fn parse_expr(src: &str, arena: &mut Arena) -> Option<Object> {
    parse(src, arena, false)
}

/// Evaluates `src` as `sympify` does: `^` is a power.
pub fn sympify(src: &str, arena: &mut Arena) -> Option<Object> {
    parse(&src.replace('\n', ""), arena, true)
}

fn parse(src: &str, arena: &mut Arena, caret_is_power: bool) -> Option<Object> {
    let src = pystr::strip(src);
    // Backslashes end every Python expression; most texts that come here hold one.
    if src.is_empty() || (src.contains(['\\', '\n']) && !src.contains(['"', '\''])) {
        return None;
    }
    let mut p = Parser { src: src.as_bytes(), text: src, pos: 0, arena, depth: 0, caret_is_power };
    let object = p.tuple()?;
    p.spaces();
    (p.pos == src.len()).then_some(object)
}

struct Parser<'a> {
    text: &'a str,
    src: &'a [u8],
    pos: usize,
    arena: &'a mut Arena,
    depth: u32,
    caret_is_power: bool,
}

impl Parser<'_> {
    fn spaces(&mut self) {
        while self.src.get(self.pos).is_some_and(|b| b" \t\x0c".contains(b)) {
            self.pos += 1;
        }
        if self.src.get(self.pos) == Some(&b'#') {
            self.pos = self.src.len();
        }
    }

    /// Whether `sign` comes next; a longer operator that starts with it does not count.
    fn at(&mut self, sign: &str) -> bool {
        self.spaces();
        let rest = &self.src[self.pos..];
        if !rest.starts_with(sign.as_bytes()) {
            return false;
        }
        let after = rest.get(sign.len());
        match sign {
            "*" => !matches!(after, Some(b'*' | b'=')),
            "/" => !matches!(after, Some(b'/' | b'=')),
            "<" => !matches!(after, Some(b'<' | b'=' | b'>')),
            ">" => !matches!(after, Some(b'>' | b'=')),
            "!" | "+" | "-" | "^" => after != Some(&b'='),
            _ => true,
        }
    }

    fn eat(&mut self, sign: &str) -> bool {
        let here = self.at(sign);
        if here {
            self.pos += sign.len();
        }
        here
    }

    fn tuple(&mut self) -> Option<Object> {
        let first = self.test()?;
        if !self.at(",") {
            return Some(first);
        }
        let mut items = vec![first];
        while self.eat(",") {
            self.spaces();
            if self.pos == self.src.len() || self.at(")") {
                break;
            }
            items.push(self.test()?);
        }
        Some(Object::Tuple(items))
    }

    /// Items up to the closing bracket.
    fn items(&mut self, close: &str) -> Option<Vec<Object>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.test()?);
            if !self.eat(",") {
                if !self.eat(close) {
                    return None;
                }
                break;
            }
        }
        Some(items)
    }

    /// Comparisons joined by `or` and `and`, which give one of their sides.
    fn test(&mut self) -> Option<Object> {
        let mut left = self.conjunction()?;
        while self.word("or") {
            let right = self.conjunction()?;
            if !self.truth(&left)? {
                left = right;
            }
        }
        Some(left)
    }

    fn conjunction(&mut self) -> Option<Object> {
        let mut left = self.comparison()?;
        while self.word("and") {
            let right = self.comparison()?;
            if self.truth(&left)? {
                left = right;
            }
        }
        Some(left)
    }

    fn word(&mut self, word: &str) -> bool {
        self.spaces();
        let rest = &self.text[self.pos..];
        let ends = |r: &str| !r.starts_with(pystr::is_word);
        let here = rest.strip_prefix(word).is_some_and(ends);
        if here {
            self.pos += word.len();
        }
        here
    }

    fn truth(&self, object: &Object) -> Option<bool> {
        match object {
            Object::Expr(_) => Some(self.integer(object) != Some(0)),
            Object::Bool(b) => Some(*b),
            Object::Tuple(v) | Object::List(v) | Object::Set(v) => Some(!v.is_empty()),
            Object::Text(t) => Some(!t.is_empty()),
            _ => None,
        }
    }

    fn comparison(&mut self) -> Option<Object> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let left = self.xor();
        self.depth -= 1;
        let left = left?;
        const SIGNS: [(&str, Op); 6] =
            [("<=", Op::Le), (">=", Op::Ge), ("==", Op::Eq), ("!=", Op::Ne), ("<", Op::Lt), (">", Op::Gt)];
        for (sign, op) in SIGNS {
            if !self.eat(sign) {
                continue;
            }
            let (Object::Expr(l), Object::Expr(r)) = (left, self.xor()?) else {
                return None;
            };
            if SIGNS.iter().any(|(s, _)| self.at(s)) {
                return None;
            }
            return match op {
                // Python's == compares structure; only its truth is known here.
                Op::Eq | Op::Ne => {
                    let same = matches!(super::relation::build(self.arena, Op::Eq, l, r), Object::Bool(true));
                    Some(Object::Bool(same == (op == Op::Eq)))
                }
                op => Some(super::relation::build(self.arena, op, l, r)),
            };
        }
        Some(left)
    }

    /// `^` is exclusive or, of whole numbers.
    fn xor(&mut self) -> Option<Object> {
        let mut left = self.sum()?;
        while self.eat("^") {
            let right = self.sum()?;
            let value = self.integer(&left)? ^ self.integer(&right)?;
            left = Object::Expr(self.arena.push(Node::Num(value as f64)));
        }
        Some(left)
    }

    fn integer(&self, object: &Object) -> Option<i64> {
        fn of(arena: &Arena, id: Id, depth: u32) -> Option<f64> {
            if depth > 20 {
                return None;
            }
            Some(match arena.nodes[id as usize] {
                Node::Num(n) => n,
                Node::Neg(a) => -of(arena, a, depth + 1)?,
                Node::Add(a, b) => of(arena, a, depth + 1)? + of(arena, b, depth + 1)?,
                Node::Mul(a, b) => of(arena, a, depth + 1)? * of(arena, b, depth + 1)?,
                _ => return None,
            })
        }
        let &Object::Expr(id) = object else {
            return None;
        };
        let n = of(self.arena, id, 0)?;
        (n == n.trunc() && n.abs() < 9e15).then_some(n as i64)
    }

    fn expr_of(object: Object) -> Option<Id> {
        match object {
            Object::Expr(id) => Some(id),
            _ => None,
        }
    }

    fn sum(&mut self) -> Option<Object> {
        let mut left = self.term()?;
        loop {
            let minus = match (self.at("+"), self.at("-")) {
                (true, _) => false,
                (_, true) => true,
                _ => return Some(left),
            };
            self.pos += 1;
            let right = Self::expr_of(self.term()?)?;
            let right = if minus { self.arena.push(Node::Neg(right)) } else { right };
            let sum = Node::Add(Self::expr_of(left)?, right);
            left = Object::Expr(self.arena.push(sum));
        }
    }

    fn term(&mut self) -> Option<Object> {
        let mut left = self.factor()?;
        loop {
            let divide = match (self.at("*"), self.at("/")) {
                (true, _) => false,
                (_, true) => true,
                _ => return Some(left),
            };
            self.pos += 1;
            let mut right = Self::expr_of(self.factor()?)?;
            if divide {
                let minus_one = self.arena.push(Node::Num(-1.0));
                right = self.arena.push(Node::Pow(right, minus_one));
            }
            let product = Node::Mul(Self::expr_of(left)?, right);
            left = Object::Expr(self.arena.push(product));
        }
    }

    fn factor(&mut self) -> Option<Object> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let out = if self.eat("+") {
            self.factor().and_then(Self::expr_of).map(Object::Expr)
        } else if self.eat("-") {
            let id = self.factor().and_then(Self::expr_of)?;
            Some(Object::Expr(self.arena.push(Node::Neg(id))))
        } else if self.eat("~") {
            let inner = self.factor()?;
            let value = -self.integer(&inner)? - 1;
            Some(Object::Expr(self.arena.push(Node::Num(value as f64))))
        } else {
            self.power()
        };
        self.depth -= 1;
        out
    }

    fn power(&mut self) -> Option<Object> {
        let mut base = self.atom()?;
        while self.at("!") {
            self.pos += 1;
            let id = Self::expr_of(base)?;
            base = Object::Expr(self.arena.push(Node::Fun(Fun::Factorial, id)));
        }
        if !(self.eat("**") || (self.caret_is_power && self.eat("^"))) {
            return Some(base);
        }
        let base = Self::expr_of(base)?;
        let exponent = Self::expr_of(self.factor()?)?;
        Some(Object::Expr(self.arena.push(Node::Pow(base, exponent))))
    }

    fn atom(&mut self) -> Option<Object> {
        self.spaces();
        let first = *self.src.get(self.pos)?;
        match first {
            b'(' => {
                self.pos += 1;
                if self.eat(")") {
                    return Some(Object::Tuple(Vec::new()));
                }
                let inner = self.tuple()?;
                self.eat(")").then_some(inner)
            }
            b'[' => {
                self.pos += 1;
                self.items("]").map(Object::List)
            }
            b'{' => {
                self.pos += 1;
                let items = self.items("}")?;
                let hashable = |o: &Object| !matches!(o, Object::List(_) | Object::Set(_));
                items.iter().all(hashable).then_some(Object::Set(items))
            }
            b'"' | b'\'' => {
                let rest = &self.text[self.pos + 1..];
                let end = rest.find(first as char)?;
                self.pos += end + 2;
                Some(Object::Text(rest[..end].to_string()))
            }
            b'0'..=b'9' | b'.' => self.number(),
            _ => self.name(),
        }
    }

    fn number(&mut self) -> Option<Object> {
        let digits = |p: &mut Self| {
            let start = p.pos;
            while p.src.get(p.pos).is_some_and(u8::is_ascii_digit) {
                p.pos += 1;
            }
            p.pos - start
        };
        let start = self.pos;
        let whole = digits(self);
        let mut float = false;
        if self.src.get(self.pos) == Some(&b'.') {
            self.pos += 1;
            float = true;
            if digits(self) + whole == 0 {
                return None;
            }
        }
        if matches!(self.src.get(self.pos), Some(b'e' | b'E')) {
            let back = self.pos;
            self.pos += 1;
            if matches!(self.src.get(self.pos), Some(b'+' | b'-')) {
                self.pos += 1;
            }
            if digits(self) == 0 {
                self.pos = back;
            } else {
                float = true;
            }
        }
        let text = &self.text[start..self.pos];
        if !float && text.len() > 1 && text.starts_with('0') && text.bytes().any(|b| b != b'0') {
            return None;
        }
        let value: f64 = text.parse().ok()?;
        let id = self.arena.push(if float { Node::Float(value) } else { Node::Num(value) });
        if matches!(self.src.get(self.pos), Some(b'j' | b'J')) {
            self.pos += 1;
            let i = self.arena.push(Node::Const(Const::I));
            return Some(Object::Expr(self.arena.push(Node::Mul(id, i))));
        }
        Some(Object::Expr(id))
    }

    fn name(&mut self) -> Option<Object> {
        let rest = &self.text[self.pos..];
        let len = rest.find(|c: char| !pystr::is_word(c)).unwrap_or(rest.len());
        let name = &rest[..len];
        let letter = |c: char| c.is_alphabetic() || c == '_';
        if !name.starts_with(letter) || is_reserved(name) {
            return None;
        }
        self.pos += len;
        let call = self.eat("(");
        if !call {
            let node = match name {
                "pi" => Node::Const(Const::Pi),
                "E" => Node::Const(Const::E),
                "I" => Node::Const(Const::I),
                "oo" => Node::Infinity,
                name if function(name).is_some() || is_sympy_name(name) => return None,
                name => Node::Sym(name_hash(name.as_bytes())),
            };
            return Some(Object::Expr(self.arena.push(node)));
        }
        let args: Option<Vec<Id>> = self.items(")")?.into_iter().map(Self::expr_of).collect();
        let args = args?;
        let id = match (name, args.as_slice()) {
            ("sqrt", &[x]) => {
                let half = self.arena.push(Node::Num(0.5));
                self.arena.push(Node::Pow(x, half))
            }
            ("log", &[x, base]) => self.arena.push(Node::Log(x, base)),
            ("binomial", &[n, k]) => self.arena.push(Node::Binomial(n, k)),
            ("Rational", &[p, q]) => {
                let minus_one = self.arena.push(Node::Num(-1.0));
                let inverse = self.arena.push(Node::Pow(q, minus_one));
                self.arena.push(Node::Mul(p, inverse))
            }
            (name, &[x]) if function(name).is_some() => self.arena.push(Node::Fun(function(name)?, x)),
            (name, _) if function(name).is_some() || is_sympy_name(name) => return None,
            ("pi" | "E" | "I" | "oo", _) => return None,
            (name, args) => self.arena.apply(name_hash(name.as_bytes()), args),
        };
        Some(Object::Expr(id))
    }
}
