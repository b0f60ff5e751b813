//! The unit words that `strip_string` deletes.

use std::sync::LazyLock;

use super::pystr;

/// Words in the order in which they are deleted; a `.` stands for any character. The whole list
/// is followed by itself with an "s" after each word. From Qwen2.5-Math's `parser.py`, where it
/// is said to come "mainly from MathQA", spelling included.
const UNITS: [&str; 132] = [
    "east",
    "degree",
    "mph",
    "kmph",
    "ft",
    "m sqaure",
    " m east",
    "sq m",
    "deg",
    "mile",
    "q .",
    "monkey",
    "prime",
    "ratio",
    "profit of rs",
    "rd",
    "o",
    "gm",
    "p . m",
    "lb",
    "tile",
    "per",
    "dm",
    "lt",
    "gain",
    "ab",
    "way",
    "west",
    "a .",
    "b .",
    "c .",
    "d .",
    "e .",
    "f .",
    "g .",
    "h .",
    "t",
    "a",
    "h",
    "no change",
    "men",
    "soldier",
    "pie",
    "bc",
    "excess",
    "st",
    "inches",
    "noon",
    "percent",
    "by",
    "gal",
    "kmh",
    "c",
    "acre",
    "rise",
    "a . m",
    "th",
    "π r 2",
    "sq",
    "mark",
    "l",
    "toy",
    "coin",
    "sq . m",
    "gallon",
    "° f",
    "profit",
    "minw",
    "yr",
    "women",
    "feet",
    "am",
    "pm",
    "hr",
    "cu cm",
    "square",
    "v â € ™",
    "are",
    "rupee",
    "rounds",
    "cubic",
    "cc",
    "mtr",
    "s",
    "ohm",
    "number",
    "kmph",
    "day",
    "hour",
    "minute",
    "min",
    "second",
    "man",
    "woman",
    "sec",
    "cube",
    "mt",
    "sq inch",
    "mp",
    "∏ cm ³",
    "hectare",
    "more",
    "sec",
    "unit",
    "cu . m",
    "cm 2",
    "rs .",
    "rs",
    "kg",
    "g",
    "month",
    "km",
    "m",
    "cm",
    "mm",
    "apple",
    "liter",
    "loss",
    "yard",
    "pure",
    "year",
    "increase",
    "decrease",
    "d",
    "less",
    "Surface",
    "litre",
    "pi sq m",
    "s .",
    "metre",
    "meter",
    "inch",
];

/// A unit as a pattern.
struct Unit {
    /// Characters to match; `.` matches anything.
    pattern: Vec<char>,
    /// First run of word characters: text without it as a whole word cannot hold the unit.
    key: String,
}

struct Table {
    units: Vec<Unit>,
    /// Lengths (as bits) of the keys that start with each ASCII letter.
    lengths: [u32; 128],
    /// Keys with the units they may start, sorted by key.
    by_key: Vec<(String, Vec<usize>)>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let plurals = UNITS.iter().map(|u| format!("{u}s"));
    let units: Vec<Unit> = UNITS
        .iter()
        .map(|u| u.to_string())
        .chain(plurals)
        .map(|u| {
            let key = u.split(|c| !pystr::is_word(c)).find(|w| !w.is_empty()).unwrap_or_default();
            Unit { key: key.to_string(), pattern: u.chars().collect() }
        })
        .collect();
    let mut keys: Vec<String> = units.iter().map(|u| u.key.clone()).collect();
    keys.sort();
    keys.dedup();
    let by_key = keys
        .into_iter()
        .map(|k| {
            let ids = (0..units.len()).filter(|&i| units[i].key == k).collect();
            (k, ids)
        })
        .collect();
    let mut lengths = [0; 128];
    for key in units.iter().map(|u| u.key.as_bytes()) {
        if let Some(&b) = key.first().filter(|b| b.is_ascii()) {
            lengths[usize::from(b)] |= 1 << key.len().min(31);
        }
    }
    Table { units, lengths, by_key }
});

/// Deletes units that stand between non-word characters, in two passes over the list, unless
/// nothing would remain.
pub fn drop_units(text: &mut String) {
    let table = &*TABLE;
    let mut wanted: Vec<usize> = Vec::new();
    let known = |word: &&str| match word.as_bytes().first() {
        None => false,
        Some(&b) if b.is_ascii() => table.lengths[usize::from(b)] >> word.len().min(31) & 1 == 1,
        Some(_) => true,
    };
    let mut look = |word: &str| {
        // "a .s" and its like end in a wildcard and a letter, so the first word decides.
        if known(&word)
            && let Ok(i) = table.by_key.binary_search_by(|(k, _)| k.as_str().cmp(word))
        {
            wanted.extend(&table.by_key[i].1);
        }
    };
    if text.is_ascii() {
        let mut start = 0;
        for (end, b) in text.bytes().enumerate() {
            if !(b.is_ascii_alphanumeric() || b == b'_') {
                look(&text[start..end]);
                start = end + 1;
            }
        }
        look(&text[start..]);
    } else {
        text.split(|c| !pystr::is_word(c)).for_each(&mut look);
    }
    if wanted.is_empty() {
        return;
    }
    wanted.sort_unstable();
    wanted.dedup();
    let mut chars: Vec<char> = text.chars().collect();
    let mut changed = false;
    // Deleting a unit leaves its neighbours apart, so no new word arises and the list is complete.
    for _ in 0..2 {
        for &i in &wanted {
            if let Some(rest) = without(&chars, &table.units[i].pattern) {
                chars = rest;
                changed = true;
            }
        }
    }
    if changed {
        *text = chars.into_iter().collect();
    }
}

/// `re.sub(r"(^|\W)UNIT($|\W)", r"\1\2", text)`, or `None` where nothing or everything goes.
fn without(text: &[char], unit: &[char]) -> Option<Vec<char>> {
    let mut out = Vec::new();
    // Up to where the text is copied; a match may not start before it.
    let mut done = 0;
    let mut at = 0;
    while at < text.len() {
        let start = if at == 0 && ends(text, 0, unit).is_some() {
            0
        } else if !pystr::is_word(text[at]) {
            at + 1
        } else {
            at += 1;
            continue;
        };
        match ends(text, start, unit) {
            Some(end) => {
                out.extend_from_slice(&text[done..start]);
                let stop = (end + 1).min(text.len());
                out.extend_from_slice(&text[end..stop]);
                done = stop;
                at = stop;
            }
            None => at += 1,
        }
    }
    if done == 0 {
        return None;
    }
    out.extend_from_slice(&text[done..]);
    (!out.is_empty()).then_some(out)
}

/// Where the unit that starts at `start` ends, if a non-word character or the end follows.
fn ends(text: &[char], start: usize, unit: &[char]) -> Option<usize> {
    let end = start + unit.len();
    let here = text.get(start..end)?;
    let same = here.iter().zip(unit).all(|(t, u)| t == u || (*u == '.' && *t != '\n'));
    (same && text.get(end).is_none_or(|&c| !pystr::is_word(c))).then_some(end)
}
