//! "Did you mean".

/// The known name closest to `wrong`, if one is close enough to be a slip.
pub(crate) fn closest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = wrong.to_lowercase();
    let limit = (wrong.chars().count() / 3).max(1);
    known
        .into_iter()
        .filter_map(|name| {
            let distance = strsim::osa_distance(&folded, &name.to_lowercase());
            let close = distance <= limit || (folded.len() >= 3 && name.to_lowercase().starts_with(&folded));
            close.then_some((distance, name))
        })
        .min()
        .map(|(_, name)| name)
}

/// A remedy for an unknown name: the closest known one, or all of them.
pub(crate) fn remedy<'a>(wrong: &str, what: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match closest(wrong, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => listed(what, known),
    }
}

/// A remedy that lists what there is.
pub(crate) fn listed<'a>(what: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const LISTED: usize = 20;
    let mut known = known.into_iter();
    let mut list: Vec<String> = known.by_ref().take(LISTED).map(|name| format!("`{name}`")).collect();
    match known.count() {
        0 if list.is_empty() => return format!("there are no {what}"),
        0 => {}
        more => list.push(format!("{more} more")),
    }
    format!("{what}: {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["rollouts", "steps", "lr", "max_new_tokens", "seed"];
        let closest = |wrong| closest(wrong, known);
        assert_eq!(closest("rolouts"), Some("rollouts"));
        assert_eq!(closest("Seed"), Some("seed"));
        assert_eq!(closest("sede"), Some("seed"));
        assert_eq!(closest("rl"), Some("lr"));
        assert_eq!(closest("max_new"), Some("max_new_tokens"));
        assert_eq!(closest("temperature"), None);
        assert_eq!(closest(""), None);
    }
}
