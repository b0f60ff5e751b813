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
        None if known.is_empty() => format!("there are no {what}"),
        None => {
            const LISTED: usize = 20;
            let mut list: Vec<String> = known.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
            if known.len() > LISTED {
                list.push(format!("{} more", known.len() - LISTED));
            }
            format!("{what}: {}", list.join(", "))
        }
    }
}
