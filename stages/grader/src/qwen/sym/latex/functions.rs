//! Functions: named ones with or without parentheses, integrals, sums, limits.

use super::Parser;
use super::lexer::Kind;
use crate::qwen::sym::expr::{Fun, Id, Node, extend_hash, name_hash};

impl Parser<'_> {
    pub(super) fn named_function(&mut self) -> Option<Id> {
        let name = &self.src[self.tokens[self.pos].start as usize + 1..self.tokens[self.pos].end as usize];
        self.pos += 1;
        let (mut sub, mut sup) = (None, None);
        for _ in 0..2 {
            match self.peek() {
                Kind::Underscore if sub.is_none() => sub = self.attempt(|p| p.script(Kind::Underscore)),
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
        let run = self.tokens[..last].iter().rev().take_while(|t| t.kind == Kind::Digit).count();
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
    pub(super) fn integral(&mut self) -> Option<Id> {
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

    pub(super) fn big_operator(&mut self) -> Option<Id> {
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

    pub(super) fn limit(&mut self) -> Option<Id> {
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
pub fn function_of(name: &[u8]) -> (Fun, Option<Fun>) {
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
