//! What a number looks like: thousands separators, decimals, scientific notation.

/// How to read numbers that can be read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// `1,234` is one number, `2e-3` is 0.002, `3 e -2` is a formula.
    Usual,
    /// `1,234` is two numbers, `2e-3` a formula with Euler's number.
    Apart,
    /// `1234,567` is one number (a separator was left out), `3 e -2` is 0.03, `0.8(3)` is 5/6.
    Joined,
    /// `a/bc` is `a/(bc)`.
    Tight,
}

impl Reading {
    /// Whether `text` may read differently this way than in the usual way.
    pub fn differs(self, text: &str) -> bool {
        let b = text.as_bytes();
        let digit = |i: usize| b.get(i).is_some_and(u8::is_ascii_digit);
        (1..b.len()).any(|i| match (self, b[i]) {
            (Reading::Apart, b',') => digit(i - 1) && digit(i + 1) && digit(i + 2) && digit(i + 3),
            (Reading::Apart, b'e') => {
                digit(i - 1) && (digit(i + 1) || matches!(b.get(i + 1), Some(b'-' | b'+')))
            }
            (Reading::Joined, b',') => {
                digit(i - 1) && i >= 4 && (b[i - 4..i].iter().all(u8::is_ascii_digit) || digit(i + 4))
            }
            (Reading::Joined, b'e') => {
                b[i - 1] == b' ' && i >= 2 && digit(i - 2) || digit(i - 1) && b.get(i + 1) == Some(&b' ')
            }
            (Reading::Joined, b'(') => (digit(i - 1) || b[i - 1] == b'.') && digit(i + 1),
            (Reading::Tight, b'/') => product_follows(&b[i + 1..]),
            _ => false,
        })
    }
}

/// Whether a factor follows the first one of `b` without an operator.
fn product_follows(b: &[u8]) -> bool {
    let b = b.trim_ascii_start();
    let first = match b.first() {
        Some(c) if c.is_ascii_digit() => b.iter().take_while(|c| c.is_ascii_digit() || **c == b'.').count(),
        Some(b'\\') => 1 + b[1..].iter().take_while(|c| c.is_ascii_alphabetic()).count(),
        Some(_) => 1,
        None => return false,
    };
    let braced = matches!(b[0], b'{' | b'\\');
    let next = b[first..].trim_ascii_start().first();
    braced || next.is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, b'\\' | b'(' | b'^' | b'{'))
}

/// Length of the number at the start of `b`: digits with thousands separators (`1,234`,
/// `1{,}234`, `1\,234`, `1,\!234`, `1 234`), a decimal part, and `e`-notation.
pub(crate) fn number_len(b: &[u8], commas: bool, reading: Reading) -> usize {
    let digits = |i: usize| b[i.min(b.len())..].iter().take_while(|c| c.is_ascii_digit()).count();
    let mut i = digits(0);
    let whole = digits(0);
    if reading == Reading::Joined && whole > 3 {
        // A number whose first separator is missing.
        while let Some(sep) = separator(&b[i..], commas) {
            let d = digits(i + sep);
            if d == 0 || d % 3 != 0 {
                break;
            }
            i += sep + d;
        }
    }
    if (1..=3).contains(&i) && (b[0] != b'0') {
        while let Some(sep) = separator(&b[i..], commas) {
            if digits(i + sep) != 3 {
                break;
            }
            i += sep + 3;
        }
        // `21 022`: spaces group only when nothing follows that makes a mixed number of it.
        let mut j = i;
        while b.get(j) == Some(&b' ') && digits(j + 1) == 3 {
            j += 4;
        }
        let rest = b[j..].trim_ascii_start();
        let next = rest.first();
        let fraction = [&b"\\frac"[..], b"\\dfrac", b"\\tfrac"].iter().any(|f| rest.starts_with(f));
        if j > i && !matches!(next, Some(b'/' | b'^' | b'0'..=b'9' | b',')) && !fraction {
            i = j;
        }
    }
    if b.get(i) == Some(&b'.') && !b[i..].starts_with(b"..") {
        let d = digits(i + 1);
        // "198." is a number only when nothing that could go on follows.
        if d > 0 || !b.get(i + 1).is_some_and(u8::is_ascii_alphabetic) {
            i += 1 + d;
        }
    }
    if reading == Reading::Joined {
        return i + spaced_exponent(&b[i..]);
    }
    if matches!(b.get(i), Some(b'e' | b'E')) && reading != Reading::Apart {
        let sign = matches!(b.get(i + 1), Some(b'+' | b'-')) as usize;
        let d = digits(i + 1 + sign);
        let next = b.get(i + 1 + sign + d);
        if d > 0 && d <= 6 && !next.is_some_and(|c| c.is_ascii_alphabetic()) {
            i += 1 + sign + d;
        }
    }
    i
}

/// Length of a thousands separator at the start of `b`.
fn separator(b: &[u8], commas: bool) -> Option<usize> {
    const FORMS: [&[u8]; 14] = [
        b",\\! ", b"{,}\\!", b"{,}", b"{ ,}", b"{, }", b",\\!", b"\\!,", b"\\!{,}", b"\\, ", b"\\;", b"\\,",
        b",\\,", b"\\!", b",",
    ];
    FORMS.iter().take(if commas { 14 } else { 13 }).find(|f| b.starts_with(f)).map(|f| f.len())
}

/// Length of an exponent with spaces (` e -10`, ` e -10.0`) at the start of `b`.
fn spaced_exponent(b: &[u8]) -> usize {
    let spaces = |i: usize| b[i.min(b.len())..].iter().take_while(|c| **c == b' ').count();
    let mut i = spaces(0);
    if b.get(i) != Some(&b'e') {
        return 0;
    }
    i += 1;
    i += spaces(i);
    if matches!(b.get(i), Some(b'+' | b'-')) {
        i += 1;
    }
    i += spaces(i);
    let d = b[i.min(b.len())..].iter().take_while(|c| c.is_ascii_digit()).count();
    if d == 0 || d > 3 {
        return 0;
    }
    i += d;
    if b[i..].starts_with(b".0") && !b.get(i + 2).is_some_and(u8::is_ascii_digit) {
        i += 2;
    }
    i
}
