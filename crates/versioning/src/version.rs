//! Versions: of packages, which are major versions, and of files and releases, which are semantic versions.

use mixer_adapter_core::framework::version::version_number;
pub use mixer_adapter_core::framework::version::{SemanticVersion, SemanticVersionError, Stage};

/// How stable a package is, by the version it ends in. Less stable ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
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
#[non_exhaustive]
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
}

/// Reads `v1`, `v1beta1`, `v2alpha`.
pub(crate) fn version_segment(segment: &str) -> Option<(u32, Stability)> {
    let version = segment.strip_prefix('v')?;
    let digits = version.bytes().take_while(u8::is_ascii_digit).count();
    let (major, rest) = version.split_at(digits);
    let major = version_number(major).filter(|major| *major > 0)?;
    fn minor(minor: &str) -> bool {
        minor.is_empty() || version_number(minor).is_some()
    }
    match rest {
        "" => Some((major, Stability::Stable)),
        _ => match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
            (Some(rest), _) if minor(rest) => Some((major, Stability::Alpha)),
            (_, Some(rest)) if minor(rest) => Some((major, Stability::Beta)),
            _ => None,
        },
    }
}

/// Returns the first version of a major version.
pub(crate) const fn first(major: u32) -> SemanticVersion {
    SemanticVersion { major, minor: 0, patch: 0 }
}

#[cfg(test)]
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
}
