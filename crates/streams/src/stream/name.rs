//! Names of resources: `namespace/name`, or `name` alone.

use std::{borrow::Cow, collections::BTreeMap};

use super::xdstp::{self, XdstpError};

use mixer_adapter_config::ResourceName;

/// The maximum length of a segment, as in a Kubernetes name.
const SEGMENT: usize = 253;

/// The reason why a name is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    #[error("it has no name")]
    Missing,
    #[error("the name {0:?} has control characters")]
    ControlCharacter(String),
    #[error("the name {0:?} has an empty segment")]
    EmptySegment(String),
    #[error("the name {0:?} has a segment longer than {SEGMENT} characters")]
    LongSegment(String),
    #[error(
        "{label:?} in the name {name:?} is not valid; use letters, digits, hyphens and underscores, with dots between them"
    )]
    Label { name: String, label: String },
    #[error("the name {0}")]
    Xdstp(#[from] XdstpError),
}

/// Returns the normal form of a name of a resource of that collection: one leading slash, as in old documents, is
/// dropped (docs/behaviour/mcp.md#resource-names). Names of Envoy's resources are any text and unchanged, except for
/// the order of the context parameters of `xdstp://`.
pub(crate) fn normal<'a>(collection: &str, name: &'a str) -> Cow<'a, str> {
    if collection.contains('/') {
        name.strip_prefix('/').unwrap_or(name).into()
    } else {
        xdstp::canonical(name)
    }
}

/// Returns names with their versions, in normal form.
pub(crate) fn normal_versions(
    collection: &str,
    versions: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    versions.into_iter().map(|(name, version)| (normal(collection, &name).into_owned(), version)).collect()
}

/// Returns about how many bytes names with their versions take.
pub(crate) fn versions_size(versions: &BTreeMap<String, String>) -> usize {
    // The texts have headers of their allocations.
    versions.iter().map(|(name, version)| name.len() + version.len() + 4 * size_of::<String>()).sum()
}

/// Checks the name of a resource of that collection.
///
/// Collections that are named by the message of their resources are Envoy's, whose names are any text. Elsewhere the
/// segments are DNS labels joined by dots, as in Kubernetes and Nacos. Sources other than Kubernetes may also send the
/// other characters of names in files. [`lint`](crate::lint) warns of those.
pub(super) fn check(collection: &str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Missing);
    }
    if !collection.contains('/') {
        let control = name.chars().any(char::is_control);
        if control {
            return Err(NameError::ControlCharacter(name.to_owned()));
        }
        return Ok(xdstp::check(collection, name)?);
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return Err(NameError::EmptySegment(name.to_owned()));
        }
        if segment.len() > SEGMENT {
            return Err(NameError::LongSegment(name.to_owned()));
        }
        if let Some(label) = segment.split('.').find(|label| !is_label(label)) {
            return Err(NameError::Label { name: name.to_owned(), label: label.to_owned() });
        }
    }
    Ok(())
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
}

/// Returns the name in messages: `namespace/name`, or `name` alone.
pub(super) fn full_name(name: &ResourceName) -> String {
    match name.namespace() {
        "" => name.name().to_owned(),
        namespace => format!("{namespace}/{}", name.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_labels_which_dots_may_join() {
        for name in [
            "tally",
            "istio-system/tally",
            "a/b/c/d",
            "shop/reviews.v2.prod",
            "nacos/Svc.DEFAULT-GROUP.public",
            "1/2",
            "ns/my_rule",
            "-a-",
        ] {
            assert_eq!(check("a/b", name), Ok(()), "{name}");
        }
        for name in ["", "/", "a//b", "a/", "a b", "a/.", "a..b", "ä", "ns/name\n"] {
            assert!(check("a/b", name).is_err(), "{name:?}");
        }
        assert!(check("a/b", &"a".repeat(253)).is_ok());
        assert!(check("a/b", &vec!["a".repeat(60); 5].join(".")).is_err());
    }

    #[test]
    fn envoy_names_its_resources_as_it_likes() {
        let clusters = "envoy.config.cluster.v3.Cluster";
        assert_eq!(check(clusters, "outbound|80||httpbin.default.svc.cluster.local"), Ok(()));
        assert!(check(clusters, "").is_err());
        assert!(check(clusters, "a\nb").is_err());
    }

    #[test]
    fn one_slash_in_front_is_dropped() {
        assert_eq!(normal("istio/policy/v1beta1/rules", "/ns/name"), "ns/name");
        assert_eq!(normal("istio/policy/v1beta1/rules", "ns/name"), "ns/name");
        assert_eq!(normal("istio/policy/v1beta1/rules", "//name"), "/name", "which is then refused");
    }
}
