//! How repetitive a text is, as a whole and at its end.
//!
//! score = 2·ΣLCP / (n·(n+1)), with the sum over neighbours in the suffix array of the text's n
//! characters; above 0.2 a text counts as repetitive (robertnward/steering-reasoning, caf560b).
//! 0 for a text without any repeated character, close to 1 for one character repeated.

/// Scores above this count as repetitive.
pub const THRESHOLD: f64 = 0.2;

/// The repetition score of a text, in 0..1.
pub fn score(text: &str) -> f64 {
    let chars: Vec<char> = text.chars().collect();
    let n = chars.len();
    if n == 0 {
        return 0.0;
    }
    let (order, rank) = suffix_array(&chars);
    2.0 * common_prefixes(&chars, &order, &rank) as f64 / (n as f64 * (n as f64 + 1.0))
}

/// A text that ends in a loop says its last words at least so often.
const TIMES: usize = 3;
/// And the loop has at least so many characters, which `000` and `...` have not.
const LOOP: usize = 24;

/// Whether a text ends in a loop: in something said three times or more without a break, over 24
/// characters at least. Space at the very end is overlooked, and the last time may be cut.
pub fn ends_in_loop(text: &str) -> bool {
    let backwards: Vec<char> = text.trim_end().chars().rev().collect();
    // How far the text agrees with itself moved by `period`, read from the end.
    let agreement = agreements(&backwards);
    (1..backwards.len()).any(|period| {
        let length = period + agreement[period];
        length >= LOOP && length >= TIMES * period
    })
}

/// For each place, how many characters from there on are those that the text begins with (the Z
/// function, Gusfield 1997): O(n).
fn agreements(text: &[char]) -> Vec<usize> {
    let mut found = vec![0; text.len()];
    let (mut from, mut to) = (0, 0);
    for at in 1..text.len() {
        let mut length = if at < to { found[at - from].min(to - at) } else { 0 };
        while at + length < text.len() && text[length] == text[at + length] {
            length += 1;
        }
        if at + length > to {
            (from, to) = (at, at + length);
        }
        found[at] = length;
    }
    found
}

/// Suffix array and its inverse by prefix doubling: O(n log² n), also on repetitive texts.
fn suffix_array(chars: &[char]) -> (Vec<usize>, Vec<usize>) {
    let n = chars.len();
    let mut order: Vec<usize> = (0..n).collect();
    let mut rank: Vec<usize> = chars.iter().map(|&c| c as usize).collect();
    let mut next = vec![0; n];
    let mut width = 1;
    loop {
        // Rank of the second half, 0 when the suffix ends before it.
        let key = |i: usize| (rank[i], rank.get(i + width).map_or(0, |r| r + 1));
        order.sort_unstable_by_key(|&i| key(i));
        next[order[0]] = 0;
        for pair in order.windows(2) {
            next[pair[1]] = next[pair[0]] + usize::from(key(pair[0]) != key(pair[1]));
        }
        let distinct = next[order[n - 1]] == n - 1;
        std::mem::swap(&mut rank, &mut next);
        if distinct {
            return (order, rank);
        }
        width *= 2;
    }
}

/// Sum of the longest common prefixes of neighbouring suffixes (Kasai et al. 2001).
fn common_prefixes(chars: &[char], order: &[usize], rank: &[usize]) -> u64 {
    let (mut sum, mut length) = (0u64, 0usize);
    for i in 0..chars.len() {
        if rank[i] == 0 {
            length = 0;
            continue;
        }
        let j = order[rank[i] - 1];
        let (a, b) = (&chars[i..], &chars[j..]);
        while length < a.len().min(b.len()) && a[length] == b[length] {
            length += 1;
        }
        sum += length as u64;
        length = length.saturating_sub(1);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, by sorting whole suffixes.
    fn by_definition(text: &str) -> f64 {
        let chars: Vec<char> = text.chars().collect();
        let mut suffixes: Vec<&[char]> = (0..chars.len()).map(|i| &chars[i..]).collect();
        suffixes.sort();
        let sum: usize = suffixes
            .windows(2)
            .map(|pair| pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b).count())
            .sum();
        let n = chars.len() as f64;
        if n == 0.0 { 0.0 } else { 2.0 * sum as f64 / (n * (n + 1.0)) }
    }

    #[test]
    fn known_scores() {
        assert_eq!(score(""), 0.0);
        assert_eq!(score("abc"), 0.0);
        // Suffixes of "banana": LCPs 1, 3, 0, 0, 2.
        assert_eq!(score("banana"), 2.0 * 6.0 / 42.0);
        assert_eq!(score(&"a".repeat(100)), 99.0 / 101.0);
    }

    #[test]
    fn loops_are_repetitive_and_prose_is_not() {
        let prose = "To solve this, 3 + 4 = 7. Then 7 - 2 = 5. The answer is \\boxed{5}.";
        assert!(score(prose) < THRESHOLD);
        assert!(score(&format!("{prose}{}", " Then 5.".repeat(60))) > THRESHOLD);
    }

    #[test]
    fn loops_at_the_end_are_told_from_ends() {
        for text in [
            "We add. So it is 5. So it is 5. So it is 5. So it is 5.",
            "x is the same as x is the same as x is the same as x is the",
            "0000000000000000000000000000",
            "a b c d a b c d a b c d a b c d  \n",
        ] {
            assert!(ends_in_loop(text), "{text}");
        }
        for text in [
            "",
            "5",
            "It is 1000000000.",
            "and so on...",
            "So it is 5. So it is 5. So it is 5. So it is 5. No: it is 6, since we began with 1.",
            "So it is 5. So it is 5.",
        ] {
            assert!(!ends_in_loop(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_loop_is_found_whatever_stands_before_it(before in "[a-z ]{0,30}", said in "[a-z]{8,12}", times in 3..6usize) {
            let text = before + &said.repeat(times);
            prop_assert!(ends_in_loop(&text));
        }

        #[test]
        fn loops_are_those_of_the_definition(text in "[ab]{0,40}") {
            let chars: Vec<char> = text.chars().collect();
            let loops = (1..=chars.len()).any(|period| {
                let agrees = |from: usize| (from + period..chars.len()).all(|at| chars[at] == chars[at - period]);
                (0..chars.len()).any(|from| {
                    let length = chars.len() - from;
                    length >= LOOP && length >= TIMES * period && agrees(from)
                })
            });
            prop_assert_eq!(ends_in_loop(&text), loops);
        }

        #[test]
        fn equals_its_definition(text in "[ab é]{0,40}") {
            prop_assert_eq!(score(&text), by_definition(&text));
        }
    }
}
