//! Lists and their items: separators, words between formulas, currency signs.

use super::ast::{Expr, Rel, Sep, Unit, hash_name};
use super::commands::Cmd;
use super::lexer::Kind;
use super::parser::{Parser, Res};

impl Parser<'_> {
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
                Some(Kind::Char('\'')) if parts.last().is_none_or(|p| matches!(p, Expr::Word(_))) => {
                    self.i += 1
                }
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
                // `area = 5`
                Some(Kind::Char('=')) if !parts.is_empty() && parts.iter().all(is_word) => {
                    self.i += 1;
                    if self.at_closer() || self.separator().is_some() {
                        break;
                    }
                    let name = super::unit::phrase(std::mem::take(&mut parts));
                    let Some(value) = self.deeper(|p| p.item())? else { return Ok(Some(name)) };
                    return Ok(Some(match value {
                        // `area = x = 5`
                        Expr::Relation(mut sides, mut rels) => {
                            sides.insert(0, name);
                            rels.insert(0, Rel::Eq);
                            Expr::Relation(sides, rels)
                        }
                        value => Expr::Relation(vec![name, value], vec![Rel::Eq]),
                    }));
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

fn is_word(e: &Expr) -> bool {
    matches!(e, Expr::Word(_))
}
