//! Versions: of packages, which are major versions, and of files and releases, which are semantic versions.

use std::{fmt, str::FromStr};

/// How stable a package is, by the version it ends in. Less stable ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// `v1alpha`, `v1alpha1`: may change in any way.
    Alpha,
    /// `v1beta1`: does not change incompatibly.
    Beta,
    /// `v1`: does not change incompatibly.
    Stable,
}

/// The version that a package's name ends in, and the API that it is a version of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageVersion {
    /// The package without its version, `istio.policy`.
    pub api: String,
    /// The major version, 1 in `v1beta1`.
    pub major: u32,
    /// How stable it is.
    pub stability: Stability,
}

impl PackageVersion {
    /// Returns the version of a package, `None` if its name does not end in one.
    pub fn of(package: &str) -> Option<Self> {
        let (api, version) = package.rsplit_once('.')?;
        let (major, stability) = version_segment(version)?;
        Some(Self { api: api.to_owned(), major, stability })
    }

    /// Whether this is a later version of the same API.
    pub fn follows(&self, other: &Self) -> bool {
        self.api == other.api && (self.major, self.stability) > (other.major, other.stability)
    }
}

/// Reads `v1`, `v1beta1`, `v2alpha`.
pub(crate) fn version_segment(segment: &str) -> Option<(u32, Stability)> {
    let version = segment.strip_prefix('v')?;
    let digits = version.bytes().take_while(u8::is_ascii_digit).count();
    let (major, rest) = version.split_at(digits);
    let major = number(major).filter(|major| *major > 0)?;
    let minor = |minor: &str| minor.is_empty() || number(minor).is_some();
    match rest {
        "" => Some((major, Stability::Stable)),
        _ => match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
            (Some(rest), _) if minor(rest) => Some((major, Stability::Alpha)),
            (_, Some(rest)) if minor(rest) => Some((major, Stability::Beta)),
            _ => None,
        },
    }
}

/// Reads a number as versions have them: without sign and leading zeros.
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

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
    /// Returns the first version of a major version.
    pub const fn first(major: u32) -> Self {
        Self { major, minor: 0, patch: 0 }
    }

    /// Returns the version after a change.
    #[must_use]
    pub(crate) const fn raised(self, by: Raise) -> Self {
        match by {
            Raise::Patch => Self { patch: self.patch + 1, ..self },
            Raise::Minor => Self { minor: self.minor + 1, patch: 0, ..self },
        }
    }

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
        let mut numbers = text.split('.').map(number);
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

/// What a compatible change raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Raise {
    Patch,
    Minor,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_package_ends_in_its_version() {
        let of = |package| PackageVersion::of(package).map(|version| (version.major, version.stability));
        assert_eq!(of("mixer_adapter.v1"), Some((1, Stability::Stable)));
        assert_eq!(of("istio.policy.v1beta1"), Some((1, Stability::Beta)));
        assert_eq!(of("istio.mcp.v1alpha1"), Some((1, Stability::Alpha)));
        assert_eq!(of("envoy.data.tap.v2alpha"), Some((2, Stability::Alpha)));
        for unversioned in ["listentry", "a.v", "a.valpha1", "a.v1gamma1", "a.1", "a.v01", "a.v0", "v1"] {
            assert_eq!(of(unversioned), None, "{unversioned}");
        }
    }

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
