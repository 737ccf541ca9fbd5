use std::fmt;

/// The texts of failures. A report can have many, of any length, but a status is sent in a header: the total length is bounded, and
/// further texts are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureTexts {
    texts: Vec<String>,
    /// The bytes of `texts`.
    length: usize,
    omitted: usize,
}

/// Maximum length of all texts in bytes.
const MAX_LENGTH: usize = 2 << 10;

impl FailureTexts {
    /// Adds a failure. A text over the limit is cut or omitted.
    pub fn push(&mut self, mut text: String) {
        let room = MAX_LENGTH.saturating_sub(self.length);
        if text.len() > room {
            if !self.texts.is_empty() {
                self.omitted += 1;
                return;
            }
            text.truncate(text.floor_char_boundary(room));
            text.push('…');
        }
        self.length += text.len();
        self.texts.push(text);
    }

    /// Adds the failures of a part.
    pub fn append(&mut self, part: Self) {
        self.extend(part.texts);
        self.omitted += part.omitted;
    }

    /// Returns whether there are no failures.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

impl Extend<String> for FailureTexts {
    fn extend<T: IntoIterator<Item = String>>(&mut self, texts: T) {
        texts.into_iter().for_each(|text| self.push(text));
    }
}

impl FromIterator<String> for FailureTexts {
    fn from_iter<T: IntoIterator<Item = String>>(texts: T) -> Self {
        let mut failures = Self::default();
        failures.extend(texts);
        failures
    }
}

impl fmt::Display for FailureTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts.join("; "))?;
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "; and {omitted} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beyond_two_kilobytes_are_counted() {
        let failures: FailureTexts = (0..1_000).map(|_| "x".repeat(100)).collect();
        let text = failures.to_string();
        assert!(text.len() < 2_200 && text.ends_with("x; and 980 more"), "{text}");
    }

    #[test]
    fn a_single_long_text_is_cut_between_characters() {
        let failures: FailureTexts = ["ü".repeat(5_000)].into_iter().collect();
        assert_eq!(failures.to_string(), "ü".repeat(1_024) + "…");
    }
}
