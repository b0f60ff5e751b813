//! The grammar below products: powers, brackets, functions, numbers, matrices.

use super::ast::{Const, Delim, Digits, Expr, Func, MAX_DIGITS, Num, Sym, hash_name};
use super::commands::Cmd;
use super::field::mix;
use super::lexer::Kind;
use super::parser::{MAX_CHAIN, Parser, Res};

impl Parser<'_> {
    /// A postfix expression with its exponents.
    pub fn power(&mut self) -> Res<Expr> {
        let mut base = self.postfix()?;
        let mut chain = 0;
        while self.is_char('^') {
            chain += 1;
            if chain > MAX_CHAIN {
                return self.fail("too many exponents");
            }
            self.i += 1;
            if matches!(self.peek(), Some(Kind::Cmd(Cmd::Circ))) {
                self.i += 1;
                base = Expr::Degree(Box::new(base));
                continue;
            }
            let braced = self.is_char('{');
            if braced
                && matches!(self.at(1), Some(Kind::Cmd(Cmd::Circ)))
                && self.at(2) == Some(Kind::Char('}'))
            {
                self.i += 3;
                base = Expr::Degree(Box::new(base));
                continue;
            }
            if self.primes() > 0 {
                base = Expr::Opaque(hash_name(b"prime"), vec![base]);
                continue;
            }
            // Ordinals: `5^{\text{th}}`, `5^\text{th}`.
            let word_at = self.i + braced as usize;
            if self.toks.get(word_at).is_some_and(|t| t.kind == Kind::Word)
                && matches!(self.text(word_at), "th" | "st" | "nd" | "rd")
            {
                self.i = word_at + 1;
                if braced && !self.eat('}') {
                    return self.fail("unclosed brace");
                }
                continue;
            }
            let e = self.deeper(|p| p.exponent())?;
            base = Expr::pow(base, e);
        }
        Ok(base)
    }

    fn exponent(&mut self) -> Res<Expr> {
        if self.eat('-') {
            return Ok(Expr::neg(self.deeper(|p| p.exponent())?));
        }
        if self.eat('+') {
            return self.deeper(|p| p.exponent());
        }
        if let Some(Kind::Char('*')) = self.peek() {
            self.i += 1;
            return Ok(Expr::Sym(hash_name(b"*")));
        }
        self.power()
    }

    /// Counts and skips prime marks.
    fn primes(&mut self) -> usize {
        let start = self.i;
        let braced =
            self.is_char('{') && matches!(self.at(1), Some(Kind::Cmd(Cmd::Prime)) | Some(Kind::Char('\'')));
        self.i += braced as usize;
        while matches!(self.peek(), Some(Kind::Cmd(Cmd::Prime)) | Some(Kind::Char('\''))) {
            self.i += 1;
        }
        let n = self.i - start - braced as usize;
        if braced && !self.eat('}') {
            self.i = start;
            return 0;
        }
        n
    }

    fn postfix(&mut self) -> Res<Expr> {
        let mut e = self.deeper(|p| p.primary())?;
        let mut chain = 0;
        loop {
            chain += 1;
            if chain > MAX_CHAIN {
                return self.fail("too many signs after a value");
            }
            match self.peek() {
                Some(Kind::Char('!')) => {
                    self.i += 1;
                    // `n!!` is not `(n!)!`.
                    let double = self.is_char('!') && !self.toks[self.i].space;
                    self.i += double as usize;
                    let f = if double { Func::DoubleFactorial } else { Func::Factorial };
                    e = Expr::Func(f, vec![e]);
                }
                Some(Kind::Char('%')) => {
                    self.i += 1;
                    e = Expr::Percent(Box::new(e));
                }
                Some(Kind::Char('\'')) | Some(Kind::Cmd(Cmd::Prime)) => {
                    self.i += 1;
                    e = Expr::Opaque(hash_name(b"prime"), vec![e]);
                }
                Some(Kind::Cmd(Cmd::Circ)) => {
                    self.i += 1;
                    e = Expr::Degree(Box::new(e));
                }
                Some(Kind::Char('_')) => {
                    if let Expr::Num(n) = &e
                        && !n.decimal
                    {
                        let text = self.num_text(n);
                        e = self.based(text)?;
                        continue;
                    }
                    let h = self.subscript()?;
                    e = match e {
                        Expr::Sym(s) => Expr::Sym(mix(s ^ h) | 1 << 63),
                        e => Expr::Opaque(h, vec![e]),
                    };
                }
                _ => return Ok(e),
            }
        }
    }

    /// A hash of the subscript's tokens, brackets and spaces apart.
    fn subscript(&mut self) -> Res<Sym> {
        self.i += 1;
        let mut h = hash_name(b"_");
        let end = self.group_end()?;
        while self.i < end {
            if !matches!(self.toks[self.i].kind, Kind::Char('{' | '}' | '(' | ')')) {
                h = mix(h ^ match self.toks[self.i].kind {
                    Kind::Cmd(c) => hash_name(format!("{c:?}").as_bytes()),
                    _ => hash_name(self.text(self.i).as_bytes()),
                });
            }
            self.i += 1;
        }
        Ok(h)
    }

    /// The token after the group or single token that starts here.
    fn group_end(&self) -> Res<usize> {
        if !self.is_char('{') {
            return if self.i < self.toks.len() { Ok(self.i + 1) } else { self.fail("nothing after '_'") };
        }
        let mut open = 0usize;
        for (k, t) in self.toks.iter().enumerate().skip(self.i) {
            match t.kind {
                Kind::Char('{') => open += 1,
                Kind::Char('}') => {
                    open -= 1;
                    if open == 0 {
                        return Ok(k + 1);
                    }
                }
                _ => {}
            }
        }
        self.fail("unclosed brace")
    }

    pub fn primary(&mut self) -> Res<Expr> {
        let Some(kind) = self.peek() else { return self.fail("something is missing at the end") };
        match kind {
            Kind::Num => self.number(),
            Kind::Letter(c, _) => {
                self.i += 1;
                self.letter(c)
            }
            Kind::Word => {
                let e = Expr::Word(self.text(self.i).to_lowercase().into());
                self.i += 1;
                self.symbols += 1;
                Ok(e)
            }
            // A currency sign inside a formula.
            Kind::Char('$') => {
                self.i += 1;
                self.deeper(|p| p.primary())
            }
            Kind::Char('(') => self.bracket(Delim::Paren),
            Kind::Char('[') => self.bracket(Delim::Square),
            Kind::Char('{') => self.brace(),
            Kind::Char('|') | Kind::Cmd(Cmd::Mid) => {
                self.i += 1;
                self.absolute(Kind::Char('|'))
            }
            Kind::Cmd(Cmd::Norm) => {
                self.i += 1;
                self.absolute(Kind::Cmd(Cmd::Norm))
            }
            Kind::Char('<') => {
                self.i += 1;
                let angles = self.angles;
                self.angles += 1;
                let (_, items) = self.list()?;
                self.angles = angles;
                if !self.eat('>') {
                    return self.fail("unclosed '<'");
                }
                Ok(Expr::Group(Delim::Angle, Delim::Angle, items))
            }
            Kind::Cmd(cmd) => {
                self.i += 1;
                self.command(cmd)
            }
            _ => self.fail("unexpected token"),
        }
    }

    /// A letter: a constant, a function applied (`f(x)`), or a variable.
    fn letter(&mut self, c: u64) -> Res<Expr> {
        let subscripted = self.is_char('_');
        match c as u8 {
            b'e' if !subscripted => return Ok(Expr::Const(Const::E)),
            b'i' if !subscripted => return Ok(Expr::Const(Const::I)),
            b'f' | b'g' | b'h' if self.is_char('(') && !self.toks[self.i].space => {
                self.symbols += 1;
                let arg = self.bracket(Delim::Paren)?;
                return Ok(Expr::Opaque(mix(c), vec![arg]));
            }
            _ => {}
        }
        self.symbols += 1;
        Ok(Expr::Sym(c))
    }

    pub fn num_text(&self, n: &Num) -> String {
        match &n.digits {
            Digits::Small(v) => v.to_string(),
            Digits::Big(s) => s.to_string(),
        }
    }

    fn absolute(&mut self, close: Kind) -> Res<Expr> {
        // A bracket that failed inside may have left the count at its own.
        let bars = self.bars;
        self.bars += 1;
        let e = self.deeper(|p| p.sum());
        self.bars = bars;
        let e = e?;
        if self.peek() != Some(close)
            && !(close == Kind::Char('|') && self.peek() == Some(Kind::Cmd(Cmd::Mid)))
        {
            return self.fail("unclosed bar");
        }
        self.i += 1;
        Ok(match e {
            Expr::Matrix(columns, v) if columns * columns == v.len() => {
                super::matrix::determinant(columns, v)
            }
            e => Expr::Func(if matches!(e, Expr::Matrix(..)) { Func::Det } else { Func::Abs }, vec![e]),
        })
    }

    fn command(&mut self, cmd: Cmd) -> Res<Expr> {
        match cmd {
            Cmd::Func(f) => self.function(f),
            Cmd::Const(c) => Ok(Expr::Const(c)),
            Cmd::Symbol(h) => {
                self.symbols += 1;
                Ok(Expr::Sym(h))
            }
            Cmd::Frac => {
                let (n, d) = self.two_arguments()?;
                Ok(Expr::div(n, d))
            }
            Cmd::Binom => {
                let (n, k) = self.two_arguments()?;
                Ok(Expr::Func(Func::Binom, vec![n, k]))
            }
            Cmd::Sqrt => {
                if self.is_char('[') {
                    self.i += 1;
                    let (_, mut items) = self.list()?;
                    if !self.eat(']') || items.len() != 1 {
                        return self.fail("bad root index");
                    }
                    let index = items.remove(0);
                    let x = self.root_argument()?;
                    return Ok(Expr::Func(Func::Root, vec![index, x]));
                }
                let x = self.root_argument()?;
                Ok(Expr::Func(Func::Sqrt, vec![x]))
            }
            Cmd::Cbrt => {
                let x = self.root_argument()?;
                Ok(Expr::Func(Func::Root, vec![Expr::int(3), x]))
            }
            Cmd::SetOpen => self.set(),
            Cmd::AngleOpen => {
                let items = self.enclosed(Cmd::AngleClose)?;
                Ok(Expr::Group(Delim::Angle, Delim::Angle, items))
            }
            Cmd::FloorOpen | Cmd::CeilOpen => {
                let (close, f) = if cmd == Cmd::FloorOpen {
                    (Cmd::FloorClose, Func::Floor)
                } else {
                    (Cmd::CeilClose, Func::Ceil)
                };
                let items = self.enclosed(close)?;
                if items.len() != 1 {
                    return self.fail("one value expected");
                }
                Ok(Expr::Func(f, items))
            }
            Cmd::Dots => Ok(Expr::Opaque(hash_name(b"dots"), vec![])),
            Cmd::Begin(env) => self.environment(env),
            Cmd::Repeat(h) | Cmd::Accent(h) => {
                let x = self.argument()?;
                self.symbols += 1;
                Ok(match x {
                    Expr::Sym(s) => Expr::Sym(mix(s ^ h) | 1 << 63),
                    x => Expr::Opaque(h, vec![x]),
                })
            }
            Cmd::Big(h) => self.big(h),
            Cmd::Cup => self.big(hash_name(b"bigcup")),
            Cmd::Cap => self.big(hash_name(b"bigcap")),
            Cmd::Circ => Ok(Expr::Degree(Box::new(Expr::int(1)))),
            _ => {
                self.i -= 1;
                self.fail("unexpected token")
            }
        }
    }

    /// A literal's value.
    pub fn literal(&self, text: &str) -> Res<Num> {
        let (mantissa, exp) = match text.find(['e', 'E']) {
            Some(k) => {
                let e: String = text[k + 1..].chars().filter(|c| *c != ' ').collect();
                (&text[..k], e.trim_end_matches(".0").parse::<i32>().unwrap_or(0))
            }
            None => (text, 0),
        };
        let decimal = mantissa.contains('.') || mantissa.len() < text.len();
        let point = mantissa.find('.');
        let fraction = point.map_or(0, |p| mantissa[p + 1..].bytes().filter(u8::is_ascii_digit).count());
        let digits = mantissa.bytes().filter(u8::is_ascii_digit);
        let exp10 = exp - fraction as i32;
        if mantissa.len() <= 19 {
            let v = digits.fold(0u64, |v, d| v * 10 + (d - b'0') as u64);
            return Ok(Num { digits: Digits::Small(v), exp10, decimal });
        }
        let all: String = digits.map(char::from).collect();
        let trimmed = all.trim_start_matches('0');
        if trimmed.len() > MAX_DIGITS {
            return self.fail("number too long");
        }
        let digits = match trimmed.parse::<u64>() {
            Ok(v) if trimmed.len() <= 19 => Digits::Small(v),
            _ if trimmed.is_empty() => Digits::Small(0),
            _ => Digits::Big(trimmed.into()),
        };
        Ok(Num { digits, exp10, decimal })
    }
}
