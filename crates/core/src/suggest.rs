//! "Did you mean": the known name that a mistyped one was probably meant to be.

/// The nearest of the known names, if one is near enough to be a slip: a changed letter in three, swaps count once, case does not.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .into_iter()
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= word.len().min(name.len()).div_ceil(3))
        .min()
        .map(|(_, name)| name)
}

/// The known names as a clause: `did you mean "actions"?`, or all of them where none is near.
pub fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("known are: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_and_another_word_does_not() {
        let known = ["actions", "match", "sampling"];
        assert_eq!(nearest("actoins", known), Some("actions"));
        assert_eq!(nearest("Match", known), Some("match"));
        assert_eq!(nearest("quota", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn without_a_near_name_all_are_listed() {
        assert_eq!(suggestion("zzz", &["a", "b"]), "known are: a, b");
        assert_eq!(suggestion("zzz", &[]), "there are none");
    }
}
