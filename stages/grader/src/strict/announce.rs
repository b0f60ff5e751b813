//! Words around the answer that only announce it: `the answer is`, `the value of x is`, `about`.

use super::ast::Rel;
use super::commands::Cmd;
use super::lexer::Kind;
use super::parser::Parser;

/// Longest announcement in tokens.
const MAX_LEN: usize = 24;

impl Parser<'_> {
    /// Skips what only announces the answer.
    pub fn skip_lead(&mut self) {
        self.skip_sentence();
        loop {
            let start = self.i;
            while self.peek() == Some(Kind::Word) && self.lead_word(self.i) {
                self.i += 1;
            }
            // `the value 5`, but not `the value added`.
            let mut k = self.i;
            while self.toks.get(k).is_some_and(|t| t.kind == Kind::Word)
                && (self.lead_word(k) || self.weak_lead_word(k))
            {
                k += 1;
            }
            if k > self.i && self.formula_at(k) {
                self.i = k;
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

    /// Drops what follows the answer: punctuation, `(approximately)`, `is the answer`.
    pub fn drop_tail(&mut self) {
        loop {
            let n = self.toks.len();
            let last = |k: usize| n.checked_sub(k).filter(|i| *i > self.i).map(|i| self.toks[i].kind);
            let drop = match (last(3), last(2), last(1)) {
                (Some(Kind::Char('(')), Some(Kind::Word), Some(Kind::Char(')'))) if self.hedge(n - 2) => 3,
                (_, _, Some(Kind::Char('.' | ',' | ';' | ':' | '/' | '?'))) => 1,
                (Some(Kind::Word), Some(Kind::Word), Some(Kind::Word)) if self.is_the_answer(n - 3) => 3,
                _ => return,
            };
            self.toks.truncate(n - drop);
        }
    }

    fn is_the_answer(&self, from: usize) -> bool {
        ["is", "the", "answer"].iter().enumerate().all(|(k, w)| self.text(from + k) == *w)
    }

    fn lead_word(&self, i: usize) -> bool {
        matches!(
            self.text(i).to_ascii_lowercase().as_str(),
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
        )
    }

    fn weak_lead_word(&self, i: usize) -> bool {
        matches!(
            self.text(i).to_ascii_lowercase().as_str(),
            "value"
                | "values"
                | "solution"
                | "solutions"
                | "result"
                | "point"
                | "points"
                | "set"
                | "interval"
                | "vector"
                | "matrix"
                | "are"
                | "equal"
                | "to"
                | "we"
                | "get"
                | "find"
                | "have"
                | "which"
                | "by"
        )
    }

    /// Whether a formula begins at token `i` that is no single letter.
    fn formula_at(&self, i: usize) -> bool {
        match self.toks.get(i).map(|t| t.kind) {
            Some(Kind::Num | Kind::Char('(' | '[' | '{' | '-' | '$')) => true,
            Some(Kind::Cmd(c)) => !matches!(c, Cmd::Rel(_) | Cmd::Operator(_)),
            Some(Kind::Letter(..)) => self.toks.get(i + 1).is_some_and(|t| !matches!(t.kind, Kind::Word)),
            _ => false,
        }
    }

    /// `The value of x is 5`: words and names up to a last `is`, and no more words after it.
    fn skip_sentence(&mut self) {
        let end = self.toks.len().min(self.i + MAX_LEN);
        let verb = |k: &usize| {
            self.toks[*k].kind == Kind::Word
                && matches!(self.text(*k).to_ascii_lowercase().as_str(), "is" | "are" | "equals" | "be")
        };
        let Some(at) = (self.i..end).rev().find(verb) else { return };
        let announces = (self.i..at).all(|k| match self.toks[k].kind {
            Kind::Word => !denies(&self.text(k).to_ascii_lowercase()),
            Kind::Letter(..) => true,
            Kind::Char(c) => matches!(c, ',' | ':' | '{' | '}' | '-' | '\''),
            Kind::Cmd(c) => matches!(c, Cmd::Symbol(_) | Cmd::Prime),
            _ => false,
        });
        let plain = (at + 1..self.toks.len())
            .all(|k| self.toks[k].kind != Kind::Word || matches!(self.text(k), "and" | "or") && k > at + 1);
        if announces && at > self.i && plain && self.formula_at(at + 1) {
            self.i = at + 1;
        }
    }
}

/// Words that turn a statement round or make it one of several.
fn denies(word: &str) -> bool {
    matches!(
        word,
        "no" | "not"
            | "none"
            | "neither"
            | "nor"
            | "never"
            | "without"
            | "except"
            | "if"
            | "unless"
            | "false"
            | "wrong"
            | "cannot"
            | "or"
            | "t"
    )
}
