//! The entries of a list, indexed for lookups.

use std::{borrow::Cow, collections::HashSet, fmt, net::IpAddr};

use mixer_adapter_core::value::Value;

use super::{addresses::Networks, error::ListError, pattern_set::PatternSet, printed};

pub(super) use super::params::ListEntryType as EntryType;

/// The entries of a list: those fetched and the overrides, which the original merges.
#[derive(Debug)]
pub(super) enum Entries {
    Strings(Texts),
    /// Folded by [`fold`].
    CaseInsensitive(Texts),
    Addresses(Networks),
    Patterns(Box<PatternSet>),
}

/// A set of texts that are not empty. A search of a few takes as long as a hash, and less memory than a table.
#[derive(Debug)]
pub(super) enum Texts {
    /// Short texts without line breaks, as lines.
    Few(Box<str>),
    #[expect(clippy::box_collection, reason = "a list without a table has no room for one")]
    Many(Box<HashSet<Box<str>>>),
}

/// The maximum number of texts without a table.
const FEW: usize = 8;
/// The maximum length of each in bytes: a search reads all of them.
const SHORT: usize = 128;

/// Memory of a string in a set beyond its length, in bytes.
const STRING_BYTES: usize = 64;
/// Memory of a range of addresses, and of each `:` of one, in bytes: of 50,000 at random, 84 of an IPv4 address and 672 of an IPv6 address.
const NETWORK_BYTES: usize = 128;

/// A value to look up.
#[derive(Clone, Debug)]
pub(super) enum Subject<'a> {
    Text(Cow<'a, str>),
    Address(IpAddr),
}

/// A value that cannot be looked up.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    #[error("{0} is not a valid string or IP address")]
    NeitherTextNorAddress(String),
    #[error("{0} is not a valid IP address")]
    NotAnAddress(String),
}

impl Entries {
    /// Parses a fetched list and adds the overrides. Strings and patterns are lines, which are not trimmed; empty lines are
    /// ignored. Addresses are YAML.
    pub(super) fn parse(entry_type: EntryType, body: &[u8], overrides: &[String]) -> Result<Self, ListError> {
        // A line that is not UTF-8 equals no value, so it is ignored.
        let lines = body.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let strings = lines.chain(overrides.iter().map(String::as_str)).filter(|entry| !entry.is_empty());
        match entry_type {
            EntryType::Strings => Ok(Self::Strings(strings.map(Box::<str>::from).collect())),
            EntryType::CaseInsensitiveStrings => {
                Ok(Self::CaseInsensitive(strings.map(|entry| fold(entry).into_boxed_str()).collect()))
            }
            EntryType::IpAddresses => {
                Networks::parse(std::str::from_utf8(body)?, overrides).map(Self::Addresses)
            }
            EntryType::Regex => {
                let entries = std::str::from_utf8(body)?.split('\n').filter(|line| !line.is_empty());
                let patterns = entries.chain(overrides.iter().map(String::as_str));
                PatternSet::compile(patterns).map(|patterns| Self::Patterns(patterns.into()))
            }
        }
    }

    /// Returns the maximum memory of the entries of a fetched list in bytes, without [compiled](Self::compiled_bytes) expressions.
    pub(super) fn max_bytes(entry_type: EntryType, body: &[u8]) -> usize {
        let (fixed, separators, entry): (_, &[u8], _) = match entry_type {
            EntryType::Strings | EntryType::CaseInsensitiveStrings | EntryType::Regex => {
                (body.len(), b"\n", STRING_BYTES)
            }
            EntryType::IpAddresses => (0, b",\n:", NETWORK_BYTES),
        };
        fixed + (body.iter().filter(|byte| separators.contains(byte)).count() + 1) * entry
    }

    /// Estimates the memory of compiled expressions in bytes.
    pub(super) fn compiled_bytes(&self) -> usize {
        match self {
            Self::Patterns(patterns) => patterns.compiled_bytes,
            Self::Strings(_) | Self::CaseInsensitive(_) | Self::Addresses(_) => 0,
        }
    }

    pub(super) fn contains(&self, subject: &Subject<'_>) -> Result<bool, ValueError> {
        Ok(match self {
            Self::Strings(texts) => texts.contain(&subject.text()),
            Self::CaseInsensitive(texts) => texts.contain(&fold(&subject.text())),
            Self::Addresses(networks) => networks.contain(subject.address()?),
            Self::Patterns(patterns) => patterns.is_match(&subject.text()),
        })
    }
}

impl Texts {
    fn contain(&self, text: &str) -> bool {
        match self {
            Self::Few(lines) => lines.split_terminator('\n').any(|line| line == text),
            Self::Many(texts) => texts.contains(text),
        }
    }
}

impl FromIterator<Box<str>> for Texts {
    fn from_iter<I: IntoIterator<Item = Box<str>>>(texts: I) -> Self {
        let mut texts = texts.into_iter();
        let few: Vec<Box<str>> = texts.by_ref().take(FEW).collect();
        let are_lines = few.iter().all(|text| text.len() <= SHORT && !text.contains('\n'));
        match texts.next() {
            None if are_lines => Self::Few(few.join("\n").into()),
            next => Self::Many(Box::new(few.into_iter().chain(next).chain(texts).collect())),
        }
    }
}

impl<'a> Subject<'a> {
    /// Converts a value. Bytes that are not an address are looked up as Go prints them; values of other types than strings and
    /// addresses cannot be on a list.
    pub(super) fn of(value: &'a Value) -> Result<Self, ValueError> {
        match (value.as_str(), value) {
            (Some(text), _) => Ok(Self::Text(text.into())),
            (None, Value::IpAddress(ip)) => {
                Ok(ip.addr().map_or_else(|| Self::Text(ip.to_string().into()), Self::Address))
            }
            (None, value) => Err(ValueError::NeitherTextNorAddress(printed::print(value))),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Address(address) => Cow::Owned(address.to_string()),
        }
    }

    fn address(&self) -> Result<IpAddr, ValueError> {
        match self {
            Self::Text(text) => text.parse().map_err(|_| ValueError::NotAnAddress(text.to_string())),
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

/// Folds texts that differ only in case to the same text. Each letter becomes one letter, as in Go's `ToUpper`: if the upper
/// case has several (`ß`, `ᾳ`), the lower case is used, so "Straße" does not match "STRASSE".
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

    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn contains(entry_type: EntryType, body: &[u8], overrides: &[&str], text: &str) -> bool {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        Entries::parse(entry_type, body, &overrides).unwrap().contains(&Subject::Text(text.into())).unwrap()
    }

    #[test]
    fn strings_are_lines_neither_trimmed_nor_empty() {
        for (value, listed) in
            [("ABC", true), (" DEF", true), ("DEF", false), ("", false), ("\u{fffd}", false), ("GHI", true)]
        {
            let body = b"ABC\n DEF\n\n\xff\nGHI";
            assert_eq!(contains(EntryType::Strings, body, &[""], value), listed, "{value:?}");
        }
    }

    #[test]
    fn an_override_may_be_long_and_have_line_breaks() {
        let long = "x".repeat(SHORT + 1);
        for overrides in [&["a\nb", "c\r"][..], &["a\nb", "c\r", &long]] {
            for (value, listed) in [("a\nb", true), ("a", false), ("b", false), ("c\r", true), ("c", false)] {
                assert_eq!(contains(EntryType::Strings, b"", overrides, value), listed, "{value:?}");
            }
        }
        assert!(contains(EntryType::Strings, b"", &[&long], &long));
        assert!(!contains(EntryType::Strings, b"", &["a", "b"], "a\nb"));
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
            let found = contains(EntryType::CaseInsensitiveStrings, entry.as_bytes(), &[], value);
            assert_eq!(found, listed, "{entry} {value}");
        }
    }

    #[test]
    fn lists_of_every_length_have_all_their_entries() {
        for length in 0..3 * FEW {
            let entries: Vec<String> = (0..length).map(|n| n.to_string()).collect();
            let list = Entries::parse(EntryType::Strings, b"", &entries).unwrap();
            for n in 0..=length {
                let found = list.contains(&Subject::Text(n.to_string().into())).unwrap();
                assert_eq!(found, n < length, "{n} of {length}");
            }
        }
    }

    #[test]
    fn a_list_takes_no_more_memory_than_it_is_weighed() {
        let lines = |line: &dyn Fn(u32) -> String| (0..50_000).map(line).collect::<String>();
        let strings = lines(&|n| format!("{n}\n"));
        let v4 = format!(
            "whitelist: [{}]",
            lines(&|n| format!("{},", Ipv4Addr::from(n.wrapping_mul(2_654_435_761))))
        );
        let v6 = format!(
            "whitelist: [{}]",
            lines(&|n| format!(
                "'{}',",
                Ipv6Addr::from(u128::from(n).wrapping_mul(0xda94_2042_e4dd_58b5_9e37_79b9_7f4a_7c15))
            ))
        );
        for (entry_type, body) in [
            (EntryType::Strings, &strings),
            (EntryType::CaseInsensitiveStrings, &strings),
            (EntryType::Regex, &lines(&|n| format!("^{n}$\n"))),
            (EntryType::IpAddresses, &v4),
            (EntryType::IpAddresses, &v6),
        ] {
            let mut entries = None;
            let allocated = allocation_counter::measure(|| {
                entries = Some(Entries::parse(entry_type, body.as_bytes(), &[]).unwrap());
            });
            let weighed = Entries::max_bytes(entry_type, body.as_bytes()) + entries.unwrap().compiled_bytes();
            assert!(
                weighed as i64 >= allocated.bytes_current,
                "{entry_type:?}: {weighed} for {}",
                allocated.bytes_current
            );
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
