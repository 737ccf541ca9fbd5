//! "Did you mean" hints for unknown names.

/// Returns the known name closest to `word`, if they differ in at most a third of the letters. A swap of two letters
/// counts once; case is ignored.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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

/// Returns a clause for an error: `did you mean actions?`, or the list of known names if none is similar.
pub fn suggestion(word: &str, known: &[&str]) -> String {
    match suggest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None if known.is_empty() => "none is defined".to_owned(),
        None => format!("expected one of: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_the_name_and_another_word_does_not() {
        let known = ["actions", "match", "sampling"];
        assert_eq!(suggest("actoins", known), Some("actions"));
        assert_eq!(suggest("Match", known), Some("match"));
        assert_eq!(suggest("quota", known), None);
        assert_eq!(suggest("", known), None);
    }

    #[test]
    fn without_a_similar_name_all_are_listed() {
        assert_eq!(suggestion("zzz", &["a", "b"]), "expected one of: a, b");
        assert_eq!(suggestion("zzz", &[]), "none is defined");
    }
}
