//! Versions of releases, and the schedule of deprecations.

use std::{fmt, str::FromStr};

/// A semantic version, `1.2.0`; `1.2` is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SemanticVersion {
    /// Raised by incompatible changes.
    pub major: u32,
    /// Raised by additions.
    pub minor: u32,
    /// Raised by other changes.
    pub patch: u32,
}

/// A text that is not a semantic version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version; write it like \"1.4\" or \"1.4.0\"")]
pub struct SemanticVersionError(String);

impl SemanticVersion {
    /// Returns the number of releases since `mark`: 0 for the release of the mark itself. A new major version ends every schedule.
    pub fn releases_since(self, mark: Self) -> u32 {
        match self.major.cmp(&mark.major) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => self.minor.saturating_sub(mark.minor),
            std::cmp::Ordering::Greater => u32::MAX,
        }
    }
}

impl fmt::Display for SemanticVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for SemanticVersion {
    type Err = SemanticVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.split('.').map(version_number);
        let read = match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(major)), Some(Some(minor)), None, None) => Some(Self { major, minor, patch: 0 }),
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Some(Self { major, minor, patch })
            }
            _ => None,
        };
        read.ok_or_else(|| SemanticVersionError(text.to_owned()))
    }
}

/// Reads a number as versions have them: without sign and leading zeros.
pub fn version_number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

/// The effect of using a deprecated element in a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The first release with the mark: a warning, and a count.
    Warns,
    /// The second: a failure, unless the element is allowed by name.
    Fails,
    /// The third and later releases: the element no longer exists.
    Gone,
}

impl Stage {
    /// Returns the stage of a release, by the number of releases since the mark.
    pub const fn of(releases: u32) -> Self {
        match releases {
            0 => Self::Warns,
            1 => Self::Fails,
            _ => Self::Gone,
        }
    }

    /// Returns the release in which the stage begins.
    pub const fn begins(self, mark: SemanticVersion) -> SemanticVersion {
        let minor = match self {
            Self::Warns => mark.minor,
            Self::Fails => mark.minor.saturating_add(1),
            Self::Gone => mark.minor.saturating_add(2),
        };
        SemanticVersion { major: mark.major, minor, patch: 0 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_counted_by_the_minor_version() {
        let version = |text: &str| text.parse::<SemanticVersion>().unwrap();
        assert_eq!(version("1.4.7").releases_since(version("1.4")), 0);
        assert_eq!(version("1.5.0").releases_since(version("1.4")), 1);
        assert_eq!(version("1.6").releases_since(version("1.4.0")), 2);
        assert_eq!(version("1.3").releases_since(version("1.4.0")), 0);
        assert!(version("2.0").releases_since(version("1.4.0")) > 2);
        for wrong in ["", "1", "1.", "1.x", "1.2.3.4", "01.2", "-1.2", "1.2.3-rc1"] {
            assert!(wrong.parse::<SemanticVersion>().is_err(), "{wrong}");
        }
    }
}
