//! Notations that need a look at both sides, put into the usual ones token by token:
//! `{a \over b}`, `{n \choose k}`, `\not =`.

use super::ast::{Rel, hash_name};
use super::commands::Cmd;
use super::lexer::{Kind, Token};

/// Most `\over` and `\choose` in one answer.
const MAX_INFIX: usize = 64;

/// Rewrites the tokens in place; what makes no sense stays, and the parser refuses it.
pub(crate) fn rewrite(toks: &mut Vec<Token>) {
    negate_relations(toks);
    for _ in 0..MAX_INFIX {
        let infix = |t: &Token| matches!(t.kind, Kind::Cmd(Cmd::Over | Cmd::Choose));
        let Some(at) = toks.iter().position(infix) else { return };
        infix_to_prefix(toks, at);
    }
}

/// `\not` and the relation after it become one relation.
fn negate_relations(toks: &mut Vec<Token>) {
    let mut k = 0;
    while k + 1 < toks.len() {
        if toks[k].kind == Kind::Cmd(Cmd::Not)
            && let Some(rel) = negated(toks[k + 1].kind)
        {
            toks[k + 1].kind = Kind::Cmd(Cmd::Rel(rel));
            toks.remove(k);
        }
        k += 1;
    }
}

fn negated(kind: Kind) -> Option<Rel> {
    Some(match kind {
        Kind::Char('=') => Rel::Ne,
        Kind::Char('<') => Rel::Ge,
        Kind::Char('>') => Rel::Le,
        Kind::Cmd(Cmd::Rel(rel)) => match rel {
            Rel::In => Rel::NotIn,
            Rel::Lt => Rel::Ge,
            Rel::Gt => Rel::Le,
            Rel::Le => Rel::Gt,
            Rel::Ge => Rel::Lt,
            Rel::Other(h) => Rel::Other(h ^ hash_name(b"not")),
            _ => return None,
        },
        _ => return None,
    })
}

/// The group around `\over` at `at` becomes `\frac{…}{…}`.
fn infix_to_prefix(toks: &mut Vec<Token>, at: usize) {
    let opens = |k: Kind| matches!(k, Kind::Char('{' | '(' | '[') | Kind::Cmd(Cmd::SetOpen | Cmd::Begin(_)));
    let closes = |k: Kind| matches!(k, Kind::Char('}' | ')' | ']') | Kind::Cmd(Cmd::SetClose | Cmd::End));
    let mut depth = 0usize;
    let mut from = 0;
    for k in (0..at).rev() {
        let kind = toks[k].kind;
        if closes(kind) {
            depth += 1;
        } else if opens(kind) {
            if depth == 0 {
                from = k + 1;
                break;
            }
            depth -= 1;
        }
    }
    depth = 0;
    let mut to = toks.len();
    for (k, t) in toks.iter().enumerate().skip(at + 1) {
        if opens(t.kind) {
            depth += 1;
        } else if closes(t.kind) {
            if depth == 0 {
                to = k;
                break;
            }
            depth -= 1;
        }
    }
    let here = toks[at];
    let token = |kind| Token { kind, ..here };
    let name = if here.kind == Kind::Cmd(Cmd::Over) { Cmd::Frac } else { Cmd::Binom };
    toks.insert(to, token(Kind::Char('}')));
    toks[at] = token(Kind::Char('{'));
    toks.insert(at, token(Kind::Char('}')));
    toks.insert(from, token(Kind::Char('{')));
    toks.insert(from, token(Kind::Cmd(name)));
}
