//! Lists and their items: separators, words between formulas, currency signs.

use super::ast::{Expr, Rel, Sep, Unit, hash_name};
use super::commands::Cmd;
use super::lexer::Kind;
use super::parser::{Parser, Res};

impl Parser<'_> {
    /// Words that only announce the answer: `the answer is`, `about`, `\approx`.
    pub fn skip_lead(&mut self) {
        loop {
            let start = self.i;
            while self.peek() == Some(Kind::Word) {
                let w = self.text(self.i).to_ascii_lowercase();
                let lead = matches!(
                    w.as_str(),
                    "the"
                        | "final"
                        | "answer"
                        | "is"
                        | "about"
                        | "approximately"
                        | "so"
                        | "therefore"
                        | "hence"
                        | "thus"
                        | "roughly"
                        | "exactly"
                        | "ans"
                        | "equals"
                        | "our"
                );
                if !lead {
                    break;
                }
                self.i += 1;
            }
            if self.i > start {
                self.eat(':');
            }
            while matches!(self.peek(), Some(Kind::Cmd(Cmd::Rel(Rel::Approx)) | Kind::Char('=' | '.' | ',')))
            {
                self.i += 1;
            }
            // Nothing but lead words: they are the answer.
            if self.i >= self.toks.len() {
                self.i = 0;
                return;
            }
            if self.i == start {
                return;
            }
        }
    }

    /// The separator at this place and its length in tokens.
    pub fn separator(&self) -> Option<(Sep, usize)> {
        match self.peek()? {
            Kind::Char(',' | ';') => Some((Sep::Comma, 1)),
            Kind::Char('&') => None,
            Kind::Word => match self.text(self.i) {
                "and" | "And" | "AND" => Some((Sep::And, 1)),
                "or" | "Or" | "OR" => Some((Sep::Or, 1)),
                _ => None,
            },
            Kind::Cmd(Cmd::Operator(h)) if h == hash_name(b"lor") => Some((Sep::Or, 1)),
            Kind::Cmd(Cmd::Operator(h)) if h == hash_name(b"land") => Some((Sep::And, 1)),
            _ => None,
        }
    }

    /// Items up to a closing token, and what joins them (`or` before `and` before a comma).
    pub fn list(&mut self) -> Res<(Sep, Vec<Expr>)> {
        let mut sep = Sep::Comma;
        let mut items = Vec::new();
        loop {
            while let Some((s, n)) = self.separator() {
                sep = match (sep, s) {
                    (Sep::Or, _) | (_, Sep::Or) => Sep::Or,
                    (Sep::And, _) | (_, Sep::And) => Sep::And,
                    _ => Sep::Comma,
                };
                self.i += n;
            }
            if self.at_closer() {
                return Ok((sep, items));
            }
            let before = self.i;
            if let Some(e) = self.item()? {
                items.push(e);
            }
            if self.i == before {
                return self.fail("unexpected token");
            }
        }
    }

    /// Formulas and words up to a separator.
    pub fn item(&mut self) -> Res<Option<Expr>> {
        let mut parts: Vec<Expr> = Vec::new();
        let mut currency: Option<&'static str> = None;
        loop {
            if self.at_closer() || self.separator().is_some() {
                break;
            }
            match self.peek() {
                Some(Kind::Char('$')) => {
                    currency = Some("dollar");
                    self.i += 1;
                }
                Some(Kind::Word) if parts.is_empty() && self.currency().is_some() => {
                    currency = self.currency();
                    self.i += 1;
                }
                Some(Kind::Char('-'))
                    if matches!(parts.last(), Some(Expr::Word(_))) && self.at(1) == Some(Kind::Word) =>
                {
                    self.i += 1;
                }
                Some(Kind::Word) if !parts.is_empty() && self.hedge(self.i) => self.i += 1,
                // Punctuation of prose.
                Some(Kind::Char('.' | '?' | '"' | '`' | '#' | '@' | ':')) => self.i += 1,
                Some(Kind::Char('\'')) if parts.is_empty() => self.i += 1,
                Some(Kind::Word) | Some(Kind::Letter(_, _)) if !parts.is_empty() => {
                    if parts.len() == 1
                        && let Some(e) = self.unit_suffix(&parts[0])
                    {
                        parts[0] = e;
                        continue;
                    }
                    if self.peek() == Some(Kind::Word) {
                        parts.push(self.word());
                    } else {
                        parts.push(self.relation()?);
                    }
                }
                Some(Kind::Word) => {
                    let e = self.word();
                    parts.push(e);
                }
                _ => parts.push(self.relation()?),
            }
        }
        if let (Some(name), 1) = (currency, parts.len())
            && !matches!(parts[0], Expr::WithUnit(..))
        {
            let unit = Unit { text: name.into(), ambiguous: None };
            let value = parts.remove(0);
            parts.push(Expr::WithUnit(Box::new(value), unit));
        }
        Ok(match parts.len() {
            0 => None,
            1 if !matches!(parts[0], Expr::Word(_)) => Some(parts.remove(0)),
            _ => Some(super::unit::phrase(parts)),
        })
    }

    /// A word that only says how exact a value is.
    pub fn hedge(&self, i: usize) -> bool {
        matches!(self.text(i), "approximately" | "approx" | "exactly" | "roughly")
    }

    /// A currency's name before a number.
    pub fn currency(&self) -> Option<&'static str> {
        if self.at(1) != Some(Kind::Num) && self.at(1) != Some(Kind::Char('$')) {
            return None;
        }
        match self.text(self.i) {
            "USD" | "usd" | "US" => Some("dollar"),
            "euro" | "EUR" | "euros" => Some("euro"),
            "pound" | "GBP" => Some("pound"),
            "Rs" | "INR" => Some("rupee"),
            _ => None,
        }
    }

    pub fn word(&mut self) -> Expr {
        let e = Expr::Word(self.text(self.i).to_lowercase().into());
        self.i += 1;
        e
    }
}
