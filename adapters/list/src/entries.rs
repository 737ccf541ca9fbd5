//! What is on the list, in the form in which it is looked up.

use std::{borrow::Cow, collections::HashSet, fmt, net::IpAddr};

use mixer_adapter_core::value::Value;
use regex::RegexSet;

use super::{addresses::Networks, patterns, printed};

pub(super) use super::params::ListEntryType as Kind;

/// All entries of a list, fetched ones and overrides alike: the original merges them.
#[derive(Debug)]
pub(super) enum Entries {
    Strings(HashSet<Box<str>>),
    /// In the case of [`fold`].
    CaseInsensitive(HashSet<Box<str>>),
    Addresses(Networks),
    Patterns(RegexSet),
}

/// What is looked up.
#[derive(Clone, Debug)]
pub(super) enum Subject<'a> {
    Text(Cow<'a, str>),
    Address(IpAddr),
}

/// A value that cannot be looked up.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadValue {
    #[error("{0} is not a valid string or IP address")]
    NeitherTextNorAddress(String),
    #[error("{0} is not a valid IP address")]
    NoAddress(String),
}

impl Entries {
    /// Reads a fetched list and adds the overrides. Strings and patterns stand one a line, neither trimmed nor empty;
    /// addresses stand in YAML. The error says which entry is wrong and why.
    pub(super) fn parse(kind: Kind, body: &[u8], overrides: &[String]) -> Result<Self, String> {
        // A line that is no UTF-8 equals no value, so that it is as good as absent.
        let lines = || body.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let strings =
            || lines().chain(overrides.iter().map(String::as_str)).filter(|entry| !entry.is_empty());
        match kind {
            Kind::Strings => Ok(Self::Strings(strings().map(Box::from).collect())),
            Kind::CaseInsensitiveStrings => {
                Ok(Self::CaseInsensitive(strings().map(|entry| fold(entry).into()).collect()))
            }
            Kind::IpAddresses => Networks::parse(utf8(body)?, overrides).map(Self::Addresses),
            Kind::Regex => {
                let entries = utf8(body)?.split('\n').filter(|line| !line.is_empty());
                patterns::compile(entries.chain(overrides.iter().map(String::as_str))).map(Self::Patterns)
            }
        }
    }

    pub(super) fn contains(&self, subject: &Subject<'_>) -> Result<bool, BadValue> {
        Ok(match self {
            Self::Strings(strings) => strings.contains(&*subject.text()),
            Self::CaseInsensitive(strings) => strings.contains(fold(&subject.text()).as_str()),
            Self::Addresses(networks) => networks.contain(subject.address()?),
            Self::Patterns(patterns) => patterns.is_match(&subject.text()),
        })
    }
}

impl<'a> Subject<'a> {
    /// The text or address of a value; bytes that are no address are looked up as Go prints them. The other kinds cannot be on a
    /// list.
    pub(super) fn of(value: &'a Value) -> Result<Self, BadValue> {
        match (value.as_str(), value) {
            (Some(text), _) => Ok(Self::Text(text.into())),
            (None, Value::IpAddress(ip)) => {
                Ok(ip.addr().map_or_else(|| Self::Text(ip.to_string().into()), Self::Address))
            }
            (None, value) => Err(BadValue::NeitherTextNorAddress(printed::print(value))),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Address(address) => Cow::Owned(address.to_string()),
        }
    }

    fn address(&self) -> Result<IpAddr, BadValue> {
        match self {
            Self::Text(text) => text.parse().map_err(|_| BadValue::NoAddress(text.to_string())),
            Self::Address(address) => Ok(*address),
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn utf8(body: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(body).map_err(|error| format!("the list is not UTF-8: {error}"))
}

/// Texts that differ in case only are folded to the same text. One letter stays one letter, as in Go's `ToUpper`: where
/// the upper case takes several (`ß`, `ᾳ`), the lower case stands for both, so that "Straße" does not match "STRASSE".
fn fold(text: &str) -> String {
    text.chars().map(fold_char).collect()
}

fn fold_char(c: char) -> char {
    fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
        let first = chars.next()?;
        chars.next().is_none().then_some(first)
    }
    single(c.to_uppercase()).or_else(|| single(c.to_lowercase())).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn contains(kind: Kind, body: &[u8], overrides: &[&str], text: &str) -> bool {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        Entries::parse(kind, body, &overrides).unwrap().contains(&Subject::Text(text.into())).unwrap()
    }

    #[test]
    fn strings_are_lines_neither_trimmed_nor_empty() {
        for (value, listed) in
            [("ABC", true), (" DEF", true), ("DEF", false), ("", false), ("\u{fffd}", false), ("GHI", true)]
        {
            let body = b"ABC\n DEF\n\n\xff\nGHI";
            assert_eq!(contains(Kind::Strings, body, &[""], value), listed, "{value:?}");
        }
    }

    // Observed on Go and Rust: docs/behaviour/adapters.md#letter-case-and-patterns; iota subscripts follow from Go's simple
    // mapping.
    #[test]
    fn case_is_folded_letter_by_letter() {
        for (entry, value, listed) in [
            ("Straße", "STRAßE", true),
            ("Straße", "STRASSE", false),
            ("ǆ", "ǅ", true),
            ("ᾳ", "ᾼ", true),
            ("ı", "I", true),
            ("µ", "Μ", true),
            ("ﬁ", "FI", false),
        ] {
            let found = contains(Kind::CaseInsensitiveStrings, entry.as_bytes(), &[], value);
            assert_eq!(found, listed, "{entry} {value}");
        }
    }

    #[test]
    fn only_texts_and_addresses_can_be_looked_up() {
        let text = |value: Value| Subject::of(&value).unwrap().to_string();
        assert_eq!(text("".into()), "");
        assert_eq!(text(Value::Uri("u".into())), "u");
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(text(mapped.into()), "10.0.0.1");
        let odd = mixer_adapter_core::value::IpAddress { value: vec![10, 0, 0].into() };
        assert_eq!(text(odd.into()), "?0a0000");
        let error = Subject::of(&Value::from(7)).unwrap_err();
        assert_eq!(error.to_string(), "7 is not a valid string or IP address");
        let error = Subject::of(&Value::Unspecified).unwrap_err();
        assert_eq!(error.to_string(), "<nil> is not a valid string or IP address");
    }
}
