//! Commands that take a name in braces: environments, `\operatorname`, `\mathbb`.

use super::ast::hash_name;
use super::commands::{self, Cmd};
use super::lexer::{Kind, Lexer, ParseError};

impl Lexer<'_> {
    /// `{R}` or `R` after `\mathbb`.
    pub(super) fn blackboard(&mut self) {
        let rest = &self.src[self.i..];
        let name = rest.trim_start_matches([' ', '{']);
        let reals = name.starts_with('R');
        let lead = rest.len() - name.len();
        let mut len = lead + name.chars().next().map_or(0, char::len_utf8);
        len += (rest[..lead].contains('{') && rest[len..].starts_with('}')) as usize;
        let cmd = match reals {
            true => Cmd::Const(super::ast::Const::Reals),
            false => Cmd::Symbol(hash_name(&rest.as_bytes()[..len])),
        };
        self.push(Kind::Cmd(cmd), len);
    }

    /// `{name}` after `\\operatorname`: a function we know, else a symbol.
    pub(super) fn operator_name(&mut self) {
        let rest = &self.src[self.i..];
        let name = rest
            .trim_start_matches(['*', ' '])
            .strip_prefix('{')
            .and_then(|t| t.split_once('}'))
            .map(|t| t.0);
        let Some(name) = name else { return };
        let len = rest.find('}').map_or(rest.len(), |k| k + 1);
        if name.contains([',', ' ', '{']) {
            self.i += rest.find('{').unwrap_or(0); // a group of its own
            return;
        }
        let bare = name.trim_matches(|c: char| !c.is_ascii_alphabetic());
        let known = commands::plain_name(bare).or_else(|| commands::lookup(bare));
        let cmd = known.unwrap_or(Cmd::Symbol(hash_name(bare.as_bytes())));
        self.push(Kind::Cmd(cmd), len);
    }

    /// `{name}` after `\\begin` or `\\end`, with the column specification of an array.
    pub(super) fn environment(&mut self, begin: bool) -> Result<(), ParseError> {
        let rest = &self.src[self.i..];
        let trimmed = rest.trim_start();
        let gap = rest.len() - trimmed.len();
        let bad = ParseError { at: self.i, what: "unknown environment" };
        let close = trimmed.find('}').ok_or(bad.clone())?;
        let name = trimmed.strip_prefix('{').and_then(|t| t.get(..close - 1)).ok_or(bad.clone())?;
        let (env, columns) = commands::environment(name).ok_or(bad)?;
        let mut len = gap + close + 1;
        if begin && columns {
            let tail = rest[len..].trim_start();
            if tail.starts_with('{') {
                let end = tail.find('}').ok_or(ParseError { at: self.i, what: "unclosed brace" })?;
                len = rest.len() - tail.len() + end + 1;
            }
        }
        self.push(Kind::Cmd(if begin { Cmd::Begin(env) } else { Cmd::End }), len);
        Ok(())
    }
}
