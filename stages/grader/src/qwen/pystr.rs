//! Python's notion of spaces, digits and word characters, where it differs from Rust's.

/// First code points of the runs of ten decimal digits (Unicode category Nd).
const ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50,
    0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066,
    0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950,
    0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// `str.isdecimal` of one character; also what `\d` matches.
pub fn is_decimal(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && decimal_value(c).is_some())
}

/// The value of a decimal digit.
pub fn decimal_value(c: char) -> Option<u32> {
    if c.is_ascii() {
        return c.to_digit(10);
    }
    let c = c as u32;
    let i = ZEROS.partition_point(|&z| z <= c);
    let d = c - ZEROS[i.checked_sub(1)?];
    (d < 10).then_some(d)
}

/// `str.isspace` of one character; also what `\s` matches.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// What `\w` matches.
pub fn is_word(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() || c == '_' } else { c.is_alphanumeric() }
}

/// `str.strip()`.
pub fn strip(s: &str) -> &str {
    s.trim_matches(is_space)
}

/// `repr` of a float: the shortest digits that read back, with an exponent outside 1e-4…1e16.
pub fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let size = x.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let s = format!("{x:e}");
        let (digits, exp) = s.split_once('e').unwrap_or((&s, "0"));
        let (sign, exp) = exp.strip_prefix('-').map_or(('+', exp), |e| ('-', e));
        return format!("{digits}e{sign}{exp:0>2}");
    }
    let s = format!("{x}");
    if s.contains('.') { s } else { s + ".0" }
}

/// `float(s)`: surrounding spaces, `_` between digits, "nan", "inf" and "infinity", and decimal
/// digits of any script are read.
pub fn parse_float(s: &str) -> Option<f64> {
    let s = strip(s);
    let first = s.bytes().next()?;
    if s.is_ascii() && !s.contains('_') {
        // Rust reads what Python reads, but for a bare "infinity" and "nan" with a sign, which
        // both read.
        return if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.' | b'i' | b'I' | b'n' | b'N') {
            s.parse().ok()
        } else {
            None
        };
    }
    let mut plain = String::with_capacity(s.len());
    let mut before = ' ';
    let mut chars = s.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '_' {
            let after = chars.peek().is_some_and(|&n| is_decimal(n));
            if !(is_decimal(before) && after) {
                return None;
            }
        } else if let Some(d) = decimal_value(c) {
            plain.extend(char::from_digit(d, 10));
        } else if c.is_ascii() {
            plain.push(c);
        } else {
            return None;
        }
        before = c;
    }
    plain.parse().ok()
}
