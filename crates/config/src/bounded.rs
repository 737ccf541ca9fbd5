//! Texts of limited length for peers, logs and status pages.

use std::fmt;

/// The longest text in a NACK or a status, in bytes: far below what peers accept in one message or header.
pub const MAX_TEXT: usize = 2_000;
/// The longest name or version that a status shows, in bytes.
pub const MAX_NAME: usize = 256;

/// Cuts a text to at most `max` bytes, and marks the cut.
pub fn truncate(text: &str, max: usize) -> String {
    const MARK: &str = "...";
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max.saturating_sub(MARK.len()));
    format!("{}{MARK}", &text[..end])
}

/// Joins texts to at most 2,000 bytes, and counts the omitted ones. The first text is never omitted, but may be cut.
pub fn join_texts(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    /// The space for the number of omitted texts.
    const SPARE: usize = 40;
    let mut texts = texts.into_iter();
    let mut joined = String::new();
    while let Some(text) = texts.next() {
        let text = text.as_ref();
        if joined.is_empty() {
            joined = truncate(text, MAX_TEXT - SPARE);
        } else if joined.len() + text.len() <= MAX_TEXT - SPARE {
            joined.push_str("; ");
            joined.push_str(text);
        } else {
            joined.push_str(&format!("; and {} more", texts.count() + 1));
            break;
        }
    }
    joined
}

/// Returns at most `max` texts of at most 2,000 bytes each; a last text has the number of the others.
pub fn limit_texts(texts: impl IntoIterator<Item = impl fmt::Display>, max: usize) -> Vec<String> {
    let mut texts = texts.into_iter();
    let mut limited: Vec<String> =
        texts.by_ref().take(max).map(|text| truncate(&text.to_string(), MAX_TEXT)).collect();
    match texts.count() {
        0 => {}
        more => limited.push(format!("and {more} more")),
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(truncate("short", 5), "short");
        assert_eq!(truncate("longer", 5), "lo...");
        assert_eq!(truncate("äöüäöü", 8), "äö...");
    }

    #[test]
    fn joined_texts_have_a_limit_and_count_the_rest() {
        assert_eq!(join_texts(["a", "b"]), "a; b");
        assert_eq!(join_texts([""; 0]), "");
        let long = "x".repeat(900);
        assert_eq!(join_texts([&long, &long, &long, &long]), format!("{long}; {long}; and 2 more"));
        let longest = join_texts([&"y".repeat(1 << 20), &long]);
        assert!(longest.len() <= MAX_TEXT && longest.ends_with("...; and 1 more"), "{longest}");
    }

    #[test]
    fn a_list_has_a_limit_and_counts_the_rest() {
        assert_eq!(limit_texts(["a", "b", "c"], 2), ["a", "b", "and 1 more"]);
        assert_eq!(limit_texts(["a", "b"], 2), ["a", "b"]);
    }
}
