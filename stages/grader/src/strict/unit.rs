//! Units of measure and other words after a value.

use super::ast::{Const, Expr, Unit};
use super::lexer::Kind;
use super::parser::Parser;
use super::words;

/// Most tokens, words and letters of a unit. What is longer is given up at once: a text that begins
/// one at every place would be read to its end as often.
const TOKENS: usize = 40;
const WORDS: usize = 6;
const SYMBOLS: usize = 3;

/// Single letters that name units.
const LETTERS: &[u8] = b"msghLNJWVAKCFl";

impl Parser<'_> {
    /// Whether a letter here begins a unit after a plain value: in roman style, or a lone letter
    /// after a number and a space at the end of the item.
    pub fn unit_starts(&self) -> bool {
        let Some(Kind::Letter(c, roman)) = self.peek() else { return false };
        if matches!(c, 97 | 112 | 65 | 80) && self.at_half_day() {
            return true;
        }
        // °C, °F
        if matches!(c, 67 | 70) && self.i > 0 && self.after_degree() {
            return true;
        }
        if c > 127 || !LETTERS.contains(&(c as u8)) || self.i == 0 {
            return false;
        }
        if self.symbols > 0 {
            // Among variables only a roman letter that ends the answer.
            let last = self.i + 1 == self.toks.len() || self.at(1) == Some(Kind::Char('='));
            return roman && self.toks[self.i].space && last;
        }
        if roman {
            return !matches!(
                self.toks[self.i - 1].kind,
                Kind::Char('(' | '[' | '{' | '+' | '-' | '*' | '=' | '^' | '_')
            );
        }
        let number = self.toks[self.i - 1].kind == Kind::Num;
        let compound =
            self.at(1) == Some(Kind::Char('/')) && matches!(self.at(2), Some(Kind::Letter(..) | Kind::Word));
        number
            && self.toks[self.i].space
            && (self.i + 1 == self.toks.len() || self.at(1) == Some(Kind::Char(',')) || compound)
    }

    /// The value with the unit that follows it up to the end of the item; `None` (and nothing
    /// consumed) where what follows is no unit.
    pub fn unit_suffix(&mut self, value: &Expr) -> Option<Expr> {
        if !matches!(self.peek(), Some(Kind::Word) | Some(Kind::Letter(..))) || !is_value(value) {
            return None;
        }
        let start = self.i;
        let mut text = String::new();
        let mut words: Vec<String> = Vec::new();
        let mut letters = 0;
        let mut ambiguous = None;
        let mut glue = ""; // what joins the next unit word
        if let Some(half) = self.half_day() {
            text.push_str(half);
            words.push(half.to_owned());
        }
        loop {
            if words.len() > WORDS || letters > SYMBOLS || self.i - start > TOKENS {
                self.i = start;
                return None;
            }
            self.looked += 1;
            match self.peek() {
                Some(Kind::Word) => {
                    let w = self.text(self.i).to_owned();
                    let lower = w.to_lowercase();
                    match lower.as_str() {
                        "per" | "a" | "an" if !text.is_empty() => glue = "/",
                        "of" | "the" if !text.is_empty() => {}
                        "and" | "or" => break,
                        "p" => {}
                        _ if words::is_qualifier(&lower) => {
                            self.i = start;
                            return None;
                        }
                        _ => {
                            push_unit(&mut text, &mut glue, &words::canonical_unit(&w));
                            words.push(lower);
                        }
                    }
                    self.i += 1;
                }
                Some(Kind::Letter(c, roman)) if c < 128 => {
                    let name = (c as u8 as char).to_string();
                    if (c == 97 || c == 112) && !text.is_empty() {
                        glue = "/"; // "dollars a day", "a.m." never reaches this
                    } else {
                        push_unit(&mut text, &mut glue, &words::canonical_unit(&name));
                        letters += 1;
                        if !roman || self.symbols > 0 {
                            ambiguous = Some(c);
                        }
                    }
                    self.i += 1;
                }
                Some(Kind::Char('/')) => {
                    glue = "/";
                    self.i += 1;
                }
                Some(Kind::Cmd(super::commands::Cmd::Times)) => self.i += 1,
                Some(Kind::Char('.')) => self.i += 1,
                Some(Kind::Char('-')) if matches!(self.at(1), Some(Kind::Word)) => self.i += 1,
                Some(Kind::Char('^')) => {
                    self.i += 1;
                    let braces = self.eat('{');
                    let minus = self.eat('-');
                    if self.peek() != Some(Kind::Num) {
                        self.i = start;
                        return None;
                    }
                    text.push('^');
                    if minus {
                        text.push('-');
                    }
                    text.push_str(
                        &self.src[self.toks[self.i].start as usize..self.toks[self.i].end as usize],
                    );
                    self.i += 1;
                    if braces && !self.eat('}') {
                        self.i = start;
                        return None;
                    }
                }
                _ => break,
            }
        }
        let ended = self.at_closer()
            || matches!(
                self.peek(),
                Some(Kind::Char(',' | ';' | '$' | '=' | '<' | '>')) | Some(Kind::Cmd(_))
            )
            || (self.peek() == Some(Kind::Word) && matches!(self.text(self.i), "and" | "or"));
        if text.is_empty() || !ended {
            self.i = start;
            return None;
        }
        let text = tidy(&text);
        if matches!(text.as_str(), "percent" | "pct" | "percentage" | "percentage point") {
            return Some(Expr::Percent(Box::new(value.clone())));
        }
        if text == "degree" {
            return Some(Expr::Degree(Box::new(value.clone())));
        }
        let ambiguous = if words.is_empty() && letters == 1 { ambiguous } else { None };
        Some(Expr::WithUnit(Box::new(value.clone()), Unit { text: text.into(), ambiguous }))
    }
}

impl Parser<'_> {
    fn at_half_day(&self) -> bool {
        self.at(1) == Some(Kind::Char('.')) && matches!(self.at(2), Some(Kind::Letter(109 | 77, _)))
    }

    /// Whether `^\circ` or `^{\circ}` stands before this token.
    fn after_degree(&self) -> bool {
        let circ =
            |k: usize| self.i >= k && self.toks[self.i - k].kind == Kind::Cmd(super::commands::Cmd::Circ);
        circ(1) || circ(2) && self.toks[self.i - 1].kind == Kind::Char('}')
    }

    /// `a.m.` or `p.m.` in letters.
    fn half_day(&mut self) -> Option<&'static str> {
        let Some(Kind::Letter(c @ (97 | 112 | 65 | 80), _)) = self.peek() else { return None };
        if !self.at_half_day() {
            return None;
        }
        self.i += 3;
        self.eat('.');
        Some(if c == 97 || c == 65 { "am" } else { "pm" })
    }
}

fn push_unit(text: &mut String, glue: &mut &str, name: &str) {
    if !text.is_empty() {
        text.push_str(if glue.is_empty() { " " } else { glue });
    }
    *glue = "";
    text.push_str(name);
}

/// `square meter` is `meter^2`, `cubic foot` is `foot^3`.
fn tidy(text: &str) -> String {
    for (prefix, power) in [("square ", "^2"), ("cubic ", "^3")] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let cut = rest.find(['/', ' ', '^']).unwrap_or(rest.len());
            return format!("{}{}{}", &rest[..cut], power, &rest[cut..]);
        }
    }
    text.to_owned()
}

/// What a unit may follow: a value without words.
fn is_value(e: &Expr) -> bool {
    !matches!(e, Expr::Word(_) | Expr::Phrase(_) | Expr::WithUnit(..) | Expr::List(..) | Expr::Matrix(..))
        && !matches!(e, Expr::Sym(s) if *s < 128)
}

/// A sequence of words and formulas; number words become the number.
pub(crate) fn phrase(mut parts: Vec<Expr>) -> Expr {
    let words: Option<Vec<&str>> =
        parts.iter().map(|p| if let Expr::Word(w) = p { Some(&**w) } else { None }).collect();
    if let Some(words) = words {
        if let Some(v) = words::number_words(&words) {
            return Expr::int(v);
        }
        if let Some(e) = in_words(&words) {
            return e;
        }
    }
    // `a third`
    if let [Expr::Sym(97), Expr::Word(w)] = &parts[..]
        && let Some(d) = words::part(w)
    {
        return Expr::div(Expr::int(1), Expr::int(d));
    }
    let article = match &parts[..] {
        [Expr::Word(w), _, ..] => matches!(&**w, "the" | "a" | "an"),
        // `a` is read as a letter
        [Expr::Sym(97 | 65), Expr::Word(_), ..] => true,
        _ => false,
    };
    if article {
        parts.remove(0);
    }
    if parts.len() == 1 { parts.remove(0) } else { Expr::Phrase(parts) }
}

/// `two thirds`, `fifty percent`, `twelve apples`, `all real numbers`.
fn in_words(words: &[&str]) -> Option<Expr> {
    let reals = matches!(
        words,
        ["all", "real", "numbers" | "values" | "x"]
            | ["all", "reals"]
            | ["real", "numbers"]
            | ["the", "real", "numbers"]
            | ["any", "real", "number"]
            | ["all", "real", "numbers", "x"]
    );
    if reals {
        return Some(Expr::Const(Const::Reals));
    }
    if let [w] = words {
        return (*w == "half").then(|| Expr::div(Expr::int(1), Expr::int(2)));
    }
    let last = words.len() - 1;
    if let Some(d) = words::part(words[last])
        && let Some(n) = words::number_words(&words[..last]).or((words[..last] == ["a"]).then_some(1))
    {
        return Some(Expr::div(Expr::int(n), Expr::int(d)));
    }
    // The longest number in front, then a unit.
    let (k, v) = (1..=last).rev().find_map(|k| Some((k, words::number_words(&words[..k])?)))?;
    let rest = &words[k..];
    // `twenty first` is no twenty of anything.
    let ordinal = |w: &str| matches!(w, "first" | "second") || words::part(w).is_some();
    let counts = |w: &str| words::is_qualifier(w) || words::number_words(&[w]).is_some() || ordinal(w);
    if rest.len() > 4 || rest.iter().any(|w| counts(w)) {
        return None;
    }
    let value = Expr::int(v);
    if matches!(rest, ["percent"] | ["pct"]) {
        return Some(Expr::Percent(Box::new(value)));
    }
    if matches!(rest, ["degrees"] | ["degree"]) {
        return Some(Expr::Degree(Box::new(value)));
    }
    let unit: Vec<String> = rest.iter().map(|w| words::canonical_unit(w)).collect();
    let text = tidy(&unit.join(" ")).into();
    Some(Expr::WithUnit(Box::new(value), Unit { text, ambiguous: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::lexer;
    use crate::strict::number::Reading;

    /// Texts that begin a unit at every place are read in time linear in their length.
    #[test]
    fn looking_for_units_is_bounded() {
        for part in [
            "x y tails ",
            "m y tails a ",
            "x y of the ",
            "x y per p ",
            "p/p 5",
            "5 of the ",
            "of p . - x",
            "5 a/a",
            "km^2 per ",
        ] {
            for repeat in [10, 100, 500] {
                let text = format!("5 {}", part.repeat(repeat));
                let tokens = lexer::lex(&text, Reading::Usual).unwrap();
                let count = tokens.len();
                let mut parser = Parser::new(&text, tokens, Reading::Usual);
                let _ = parser.list();
                assert!(parser.looked <= 120 * count, "{part}: {} of {count}", parser.looked);
                assert!(count > repeat);
            }
        }
    }
}
