//! Brackets of every kind, sets with conditions, matrices.

use super::ast::{Const, Delim, Expr, Sep};
use super::commands::{Cmd, Env};
use super::lexer::Kind;
use super::parser::{Parser, Res, mul};

impl Parser<'_> {
    /// `( … )`, `[ … ]` and half-open mixtures of both.
    pub fn bracket(&mut self, open: Delim) -> Res<Expr> {
        self.i += 1;
        let (bars, angles, builder) = (self.bars, self.angles, self.builder);
        (self.bars, self.angles, self.builder) = (0, 0, false);
        let outer = std::mem::replace(&mut self.square, open == Delim::Square);
        let row = outer && open == Delim::Square;
        let (sep, mut items) = self.list()?;
        self.square = outer;
        (self.bars, self.angles, self.builder) = (bars, angles, builder);
        let close = match self.peek() {
            Some(Kind::Char(')')) => Delim::Paren,
            Some(Kind::Char(']')) => Delim::Square,
            _ => return self.fail("unclosed bracket"),
        };
        self.i += 1;
        if items.len() == 1 && open == close && !row {
            return Ok(items.remove(0));
        }
        if items.is_empty() {
            return self.fail("empty brackets");
        }
        if sep != Sep::Comma {
            return Ok(Expr::List(sep, items));
        }
        Ok(Expr::Group(open, close, items))
    }

    /// `{ … }`: a group, or a set when it holds a list.
    pub fn brace(&mut self) -> Res<Expr> {
        self.i += 1;
        let (bars, angles, builder) = (self.bars, self.angles, self.builder);
        (self.bars, self.angles, self.builder) = (0, 0, false);
        let (_, mut items) = self.list()?;
        (self.bars, self.angles, self.builder) = (bars, angles, builder);
        if !self.eat('}') {
            return self.fail("unclosed brace");
        }
        Ok(match items.len() {
            0 => Expr::Const(Const::Empty),
            1 => {
                let e = items.remove(0);
                // `{3121}_4`
                match &e {
                    Expr::Num(n) if self.is_char('_') && !n.decimal => {
                        let text = self.num_text(n);
                        return self.based(text);
                    }
                    _ => e,
                }
            }
            _ => Expr::Group(Delim::Brace, Delim::Brace, items),
        })
    }

    /// What stands between an opening command and its closing one.
    pub fn enclosed(&mut self, close: Cmd) -> Res<Vec<Expr>> {
        let (bars, angles, builder) = (self.bars, self.angles, self.builder);
        (self.bars, self.angles, self.builder) = (0, 0, false);
        let (_, items) = self.list()?;
        (self.bars, self.angles, self.builder) = (bars, angles, builder);
        if !self.eat_cmd(close) {
            return self.fail("unclosed bracket");
        }
        Ok(items)
    }

    /// `\{ … \}`, with `|`, `\mid` or `:` as a set builder.
    pub fn set(&mut self) -> Res<Expr> {
        let (bars, angles, builder) = (self.bars, self.angles, self.builder);
        (self.bars, self.angles, self.builder) = (0, 0, self.has_builder_bar());
        let (_, mut items) = self.list()?;
        let bar =
            self.builder && matches!(self.peek(), Some(Kind::Char('|' | ':')) | Some(Kind::Cmd(Cmd::Mid)));
        self.builder = false;
        let result = if bar {
            self.i += 1;
            let (sep, mut conditions) = self.list()?;
            let var = if items.len() == 1 {
                items.remove(0)
            } else {
                Expr::Group(Delim::Paren, Delim::Paren, items)
            };
            let condition = match conditions.len() {
                0 => return self.fail("no condition"),
                1 => conditions.remove(0),
                _ => Expr::List(sep, conditions),
            };
            Expr::SetBuilder(Box::new((var, condition)))
        } else if items.is_empty() {
            Expr::Const(Const::Empty)
        } else {
            Expr::Group(Delim::Brace, Delim::Brace, items)
        };
        (self.bars, self.angles, self.builder) = (bars, angles, builder);
        if self.at_closer() && matches!(&result, Expr::Group(_, _, v) if matches!(v[..], [Expr::Matrix(..)]))
        {
            return Ok(result); // `\left\{ cases \right.`
        }
        if !self.eat_cmd(Cmd::SetClose) {
            return self.fail("unclosed set");
        }
        Ok(result)
    }

    /// Whether a single bar or a colon stands inside the set that begins here.
    pub fn has_builder_bar(&self) -> bool {
        let mut bars = 0;
        let mut depth = 0;
        for t in &self.toks[self.i..] {
            match t.kind {
                Kind::Cmd(Cmd::SetClose) if depth == 0 => break,
                Kind::Cmd(Cmd::SetClose) => depth -= 1,
                Kind::Cmd(Cmd::SetOpen) => depth += 1,
                Kind::Cmd(Cmd::Mid) | Kind::Char(':') if depth == 0 => return true,
                Kind::Char('|') if depth == 0 => bars += 1,
                _ => {}
            }
        }
        bars % 2 == 1
    }

    /// Rows and columns up to `\end`.
    pub fn environment(&mut self, env: Env) -> Res<Expr> {
        let mut rows: Vec<Vec<Expr>> = vec![vec![]];
        loop {
            let (sep, mut items) = self.list()?;
            let cell = match items.len() {
                0 => None,
                1 => Some(items.remove(0)),
                _ => Some(Expr::List(sep, items)),
            };
            let next = self.peek();
            if let Some(c) = cell
                && let Some(row) = rows.last_mut()
            {
                row.push(c);
            }
            self.i += 1;
            match next {
                Some(Kind::Char('&')) => {}
                Some(Kind::Row) => rows.push(vec![]),
                Some(Kind::Cmd(Cmd::End)) => break,
                _ => {
                    self.i -= 1;
                    return self.fail("unclosed environment");
                }
            }
        }
        rows.retain(|r| !r.is_empty());
        if rows.is_empty() {
            return self.fail("empty matrix");
        }
        let columns = rows[0].len();
        if env == Env::Rows {
            let mut items: Vec<Expr> = rows.into_iter().map(mul).collect();
            return Ok(if items.len() == 1 { items.remove(0) } else { Expr::List(Sep::Comma, items) });
        }
        if rows.iter().any(|r| r.len() != columns) {
            return self.fail("ragged matrix");
        }
        let square = rows.len() == columns;
        let entries = rows.into_iter().flatten().collect();
        // Bars around what is no square are only brackets.
        Ok(match env == Env::Det && square {
            true => super::matrix::determinant(columns, entries),
            false => Expr::Matrix(columns, entries),
        })
    }
}
