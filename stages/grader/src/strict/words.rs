//! Words in answers: what is a word and what a product of letters, units of measure, number
//! words.

/// Words of two or three letters that are no products of variables.
const SHORT: &[&str] = &[
    "all", "am", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "day", "dog", "cat", "far",
    "few", "for", "has", "her", "him", "his", "how", "if", "in", "is", "it", "its", "job", "lie", "low",
    "man", "may", "men", "new", "no", "non", "nor", "not", "odd", "of", "off", "old", "on", "one", "or",
    "our", "out", "pm", "per", "pct", "red", "set", "she", "six", "so", "sum", "sun", "ten", "the", "to",
    "top", "two", "up", "use", "was", "way", "we", "who", "why", "yes", "you", "May", "Jan", "Feb", "Mar",
    "Apr", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun",
    "usd", "pts", "mph",
];

/// Whether a run of letters outside text style is a word.
pub(crate) fn is_word(run: &str) -> bool {
    let first_upper = run.as_bytes()[0].is_ascii_uppercase();
    let tail_lower = run.bytes().skip(1).all(|c| c.is_ascii_lowercase());
    let all_upper = run.bytes().all(|c| c.is_ascii_uppercase());
    if run.len() <= 3 {
        if SHORT.contains(&run) {
            return true;
        }
        let lower = run.to_ascii_lowercase();
        return (first_upper && tail_lower || all_upper) && SHORT.contains(&lower.as_str());
    }
    if !(tail_lower || all_upper) {
        return false;
    }
    let lower = run.to_ascii_lowercase();
    let b = lower.as_bytes();
    if !b.iter().any(|c| b"aeiouy".contains(c)) || b.windows(2).all(|w| w[0] < w[1] && w[1] - w[0] <= 2) {
        return false;
    }
    // `sinx`, `xlnx`, `tant`: a function of a letter.
    !function_of_letters(b)
}

fn function_of_letters(b: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [b"sqrt", b"sin", b"cos", b"tan", b"cot", b"csc", b"log", b"exp", b"ln"];
    if b.len() > 6 {
        return false;
    }
    NAMES.iter().any(|n| {
        (0..=b.len().saturating_sub(n.len())).any(|at| b[at..].starts_with(n))
            && b.len() - n.len() <= 2
            && !matches!(
                b,
                b"logs" | b"since" | b"sing" | b"sins" | b"tank" | b"tans" | b"cost" | b"costs" | b"slogan"
            )
    })
}

/// Abbreviations of units, with the canonical name.
const SYMBOLS: &[(&str, &str)] = &[
    ("m", "meter"),
    ("cm", "centimeter"),
    ("mm", "millimeter"),
    ("km", "kilometer"),
    ("nm", "nanometer"),
    ("dm", "decimeter"),
    ("in", "inch"),
    ("ft", "foot"),
    ("yd", "yard"),
    ("mi", "mile"),
    ("g", "gram"),
    ("kg", "kilogram"),
    ("kgs", "kilogram"),
    ("mg", "milligram"),
    ("lb", "pound"),
    ("lbs", "pound"),
    ("oz", "ounce"),
    ("s", "second"),
    ("sec", "second"),
    ("min", "minute"),
    ("h", "hour"),
    ("hr", "hour"),
    ("hrs", "hour"),
    ("ms", "millisecond"),
    ("L", "liter"),
    ("l", "liter"),
    ("mL", "milliliter"),
    ("ml", "milliliter"),
    ("N", "newton"),
    ("J", "joule"),
    ("kJ", "kilojoule"),
    ("W", "watt"),
    ("kW", "kilowatt"),
    ("V", "volt"),
    ("A", "ampere"),
    ("K", "kelvin"),
    ("C", "celsius"),
    ("F", "fahrenheit"),
    ("Pa", "pascal"),
    ("kPa", "kilopascal"),
    ("Hz", "hertz"),
    ("mol", "mole"),
    ("mph", "mile/hour"),
    ("rad", "radian"),
    ("deg", "degree"),
    ("rpm", "rpm"),
    ("atm", "atmosphere"),
    ("eV", "electronvolt"),
    ("erg", "erg"),
    ("ergs", "erg"),
    ("cc", "centimeter^3"),
    ("sq", "square"),
    ("cu", "cubic"),
    ("th", "th"),
    ("st", "th"),
    ("nd", "th"),
    ("rd", "th"),
    ("pm", "pm"),
    ("am", "am"),
    ("USD", "dollar"),
    ("usd", "dollar"),
    ("AU", "au"),
    ("pc", "parsec"),
    ("Mpc", "megaparsec"),
    ("kpc", "kiloparsec"),
    ("rev", "revolution"),
    ("yr", "year"),
    ("yrs", "year"),
];

/// Whether a run of letters after a number is a unit's symbol.
pub(crate) fn is_unit_symbol(run: &str) -> bool {
    SYMBOLS.iter().any(|(s, _)| *s == run)
}

/// A unit word in one form: abbreviations spelt out, plurals and British spellings undone.
pub(crate) fn canonical_unit(word: &str) -> String {
    if let Some((_, name)) = SYMBOLS.iter().find(|(s, _)| *s == word) {
        return (*name).to_owned();
    }
    let mut w = word.to_ascii_lowercase();
    if w == "feet" {
        return "foot".into();
    }
    if w == "people" || w == "persons" {
        return "person".into();
    }
    if w == "inches" {
        return "inch".into();
    }
    if w.ends_with("ies") && w.len() > 4 {
        w.truncate(w.len() - 3);
        w.push('y');
    } else if w.ends_with("ches") || w.ends_with("shes") || w.ends_with("xes") || w.ends_with("sses") {
        w.truncate(w.len() - 2);
    } else if w.ends_with('s') && !w.ends_with("ss") && !w.ends_with("us") && w.len() > 3 {
        w.pop();
    }
    if w.ends_with("metre") || w.ends_with("litre") {
        w.truncate(w.len() - 2);
        w.push_str("er");
    }
    w
}

/// In alphabetical order.
const QUALIFIERS: [&str; 86] = [
    "additional",
    "and",
    "are",
    "below",
    "between",
    "billion",
    "but",
    "by",
    "cubed",
    "divided",
    "doubled",
    "dozen",
    "eighths",
    "except",
    "excluded",
    "exclusive",
    "extra",
    "factorial",
    "false",
    "fewer",
    "fifths",
    "for",
    "fourths",
    "fraction",
    "from",
    "greater",
    "gross",
    "half",
    "halved",
    "halves",
    "hundred",
    "hundreds",
    "hundredths",
    "if",
    "imaginary",
    "impossible",
    "inverse",
    "is",
    "least",
    "less",
    "mille",
    "million",
    "millions",
    "minus",
    "mod",
    "modulo",
    "more",
    "most",
    "negative",
    "never",
    "ninths",
    "no",
    "not",
    "older",
    "one",
    "only",
    "or",
    "over",
    "plus",
    "quarter",
    "reciprocal",
    "sevenths",
    "sixths",
    "squared",
    "tens",
    "tenths",
    "than",
    "third",
    "thirds",
    "thousand",
    "thousands",
    "thousandths",
    "three",
    "times",
    "to",
    "trillion",
    "tripled",
    "two",
    "under",
    "was",
    "when",
    "where",
    "with",
    "without",
    "wrong",
    "younger",
];

/// Words that change what a number says; what contains one is no unit.
pub(crate) fn is_qualifier(word: &str) -> bool {
    QUALIFIERS.binary_search(&word).is_ok()
}

/// The value of a number in words (`one hundred and forty-four`); `None` if it is none.
pub(crate) fn number_words(words: &[&str]) -> Option<u64> {
    if words.is_empty() || words.len() > 20 {
        return None;
    }
    let mut total: u64 = 0;
    let mut part: u64 = 0;
    let mut seen = false;
    for w in words {
        let lower = w.to_ascii_lowercase();
        if lower == "and" && seen {
            continue;
        }
        let v = small(&lower)?;
        seen = true;
        match v {
            100 => part = part.max(1).checked_mul(100)?,
            1_000 | 1_000_000 | 1_000_000_000 => {
                total = total.checked_add(part.max(1).checked_mul(v)?)?;
                part = 0;
            }
            _ if !part.is_multiple_of(10)
                || (!part.is_multiple_of(100) && v >= 10)
                || (v == 0 && words.len() > 1) =>
            {
                return None;
            }
            _ => part = part.checked_add(v)?,
        }
    }
    total.checked_add(part)
}

/// The denominator that a word names (`half`, `thirds`, `quarter`).
pub(crate) fn part(word: &str) -> Option<u64> {
    const NAMES: [(&str, u64); 13] = [
        ("half", 2),
        ("halve", 2),
        ("third", 3),
        ("fourth", 4),
        ("quarter", 4),
        ("fifth", 5),
        ("sixth", 6),
        ("seventh", 7),
        ("eighth", 8),
        ("ninth", 9),
        ("tenth", 10),
        ("twelfth", 12),
        ("hundredth", 100),
    ];
    let word = word.strip_suffix('s').unwrap_or(word);
    NAMES.iter().find(|(n, _)| *n == word).map(|(_, v)| *v)
}

/// The power of ten that a word after a number stands for.
pub(crate) fn scale(word: &str) -> Option<i32> {
    Some(match word {
        "thousand" => 3,
        "million" => 6,
        "billion" => 9,
        "trillion" => 12,
        _ => return None,
    })
}

fn small(w: &str) -> Option<u64> {
    const NAMES: [(&str, u64); 32] = [
        ("zero", 0),
        ("one", 1),
        ("two", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("seven", 7),
        ("eight", 8),
        ("nine", 9),
        ("ten", 10),
        ("eleven", 11),
        ("twelve", 12),
        ("thirteen", 13),
        ("fourteen", 14),
        ("fifteen", 15),
        ("sixteen", 16),
        ("seventeen", 17),
        ("eighteen", 18),
        ("nineteen", 19),
        ("twenty", 20),
        ("thirty", 30),
        ("forty", 40),
        ("fifty", 50),
        ("sixty", 60),
        ("seventy", 70),
        ("eighty", 80),
        ("ninety", 90),
        ("hundred", 100),
        ("thousand", 1_000),
        ("million", 1_000_000),
        ("billion", 1_000_000_000),
    ];
    NAMES.iter().find(|(n, _)| *n == w).map(|(_, v)| *v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words() {
        assert_eq!(number_words(&["One", "hundred", "and", "forty", "four"]), Some(144));
        assert_eq!(number_words(&["twelve"]), Some(12));
        assert_eq!(number_words(&["two", "thousand", "five"]), Some(2005));
        assert_eq!(number_words(&["two", "three"]), None);
        assert_eq!(number_words(&["apple"]), None);
    }

    #[test]
    fn qualifiers_are_in_order() {
        assert!(QUALIFIERS.is_sorted());
        assert!(is_qualifier("thirds") && is_qualifier("not") && !is_qualifier("apples"));
    }

    #[test]
    fn words_and_products() {
        for w in ["even", "Saturday", "NONE", "and", "parabola"] {
            assert!(is_word(w), "{w}");
        }
        for p in ["ab", "xyz", "sinx", "xlnx", "abcd", "mnp", "RCs"] {
            assert!(!is_word(p), "{p}");
        }
    }
}
