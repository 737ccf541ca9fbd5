//! Names of resources that are URLs: `xdstp://AUTHORITY/TYPE/ID?CONTEXT` (docs/behaviour/xds.md#xdstp-names).

use std::borrow::Cow;

const SCHEME: &str = "xdstp:";
/// The last segment of the id of a collection.
const ALL: &str = "*";

/// The reason why a name with the scheme does not name a resource.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum XdstpError {
    #[error("{0:?} is not an xdstp name; write it like xdstp://AUTHORITY/TYPE/ID")]
    Malformed(String),
    #[error("{0:?} has directives after #, which are for references only")]
    Directives(String),
    #[error("{0:?} is a collection, not a resource: its id ends in *")]
    Collection(String),
    #[error("{0:?} has its context parameters in another order than clients compare them in; write {1}")]
    Order(String, String),
    #[error("{name:?} is of the type {given}, and the resource is a {message}")]
    Type { name: String, given: String, message: String },
}

/// The parts of a name, with their escapes.
struct Parts<'a> {
    /// `xdstp://AUTHORITY/TYPE`
    head: &'a str,
    resource_type: &'a str,
    id: &'a str,
    /// `KEY=VALUE`
    context: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let authority_and_path = name.strip_prefix(SCHEME)?.strip_prefix("//")?;
        let (path, context) = name.split_once('?').unwrap_or((name, ""));
        let slash = authority_and_path.find('/')? + name.len() - authority_and_path.len();
        let (resource_type, id) = path.get(slash + 1..)?.split_once('/')?;
        let is_complete = !resource_type.is_empty() && !id.is_empty();
        let head = &name[..=slash + resource_type.len()];
        let context = context.split('&').filter(|parameter| !parameter.is_empty()).collect();
        is_complete.then_some(Self { head, resource_type, id, context })
    }

    /// Returns the name with another id. Parameters are sorted: they are a set.
    fn with_id(mut self, id: &str) -> String {
        self.context.sort_unstable();
        let query = if self.context.is_empty() { "" } else { "?" };
        format!("{}/{id}{query}{}", self.head, self.context.join("&"))
    }
}

fn has_scheme(name: &str) -> bool {
    name.starts_with(SCHEME)
}

/// Returns the form of a name for comparisons: its context parameters are sorted. Other names are unchanged.
pub(super) fn canonical(name: &str) -> Cow<'_, str> {
    match Parts::of(name) {
        Some(parts) if parts.context.len() > 1 => {
            let id = parts.id;
            parts.with_id(id).into()
        }
        _ => name.into(),
    }
}

/// Returns the collection of a name, by its canonical name: `xdstp://AUTHORITY/TYPE/ID/*` of all resources whose ids
/// have one segment more, and the same context.
pub(crate) fn collection(name: &str) -> Option<String> {
    if !has_scheme(name) {
        return None;
    }
    let parts = Parts::of(name)?;
    let id = match parts.id.rsplit_once('/') {
        Some((directory, _)) => format!("{directory}/{ALL}"),
        None => ALL.to_owned(),
    };
    Some(parts.with_id(&id))
}

/// Checks the name of a resource that is a message of this type. Only names with the scheme can be invalid.
pub(super) fn check(message: &str, name: &str) -> Result<(), XdstpError> {
    if !has_scheme(name) {
        return Ok(());
    }
    let parts = Parts::of(name).ok_or_else(|| XdstpError::Malformed(name.to_owned()))?;
    if name.contains('#') {
        return Err(XdstpError::Directives(name.to_owned()));
    }
    if parts.id.rsplit('/').next() == Some(ALL) {
        return Err(XdstpError::Collection(name.to_owned()));
    }
    if parts.resource_type != message {
        let (given, message) = (parts.resource_type.to_owned(), message.to_owned());
        return Err(XdstpError::Type { name: name.to_owned(), given, message });
    }
    // Clients remove a resource by the name in its body.
    match canonical(name) {
        ordered if ordered != name => Err(XdstpError::Order(name.to_owned(), ordered.into_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

    #[test]
    fn context_parameters_are_in_one_order() {
        for (name, expected) in [
            ("xdstp://a/t.T/x?b=2&a=1", "xdstp://a/t.T/x?a=1&b=2"),
            ("xdstp://a/t.T/x?a=1&b=2", "xdstp://a/t.T/x?a=1&b=2"),
            ("xdstp://a/t.T/x/y", "xdstp://a/t.T/x/y"),
            ("outbound|80||a?b=2&a=1", "outbound|80||a?b=2&a=1"),
        ] {
            assert_eq!(canonical(name), expected);
        }
    }

    #[test]
    fn a_collection_has_the_names_with_one_more_segment_and_the_same_context() {
        for (name, expected) in [
            ("xdstp://a/t.T/x", Some("xdstp://a/t.T/*")),
            ("xdstp:///t.T/x/y", Some("xdstp:///t.T/x/*")),
            ("xdstp://a/t.T/x/y?b=2&a=1", Some("xdstp://a/t.T/x/*?a=1&b=2")),
            ("xdstp://a/t.T/x/*", Some("xdstp://a/t.T/x/*")),
            ("xdstp://a/t.T", None),
            ("other/x", None),
        ] {
            assert_eq!(collection(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_name_has_an_authority_the_type_of_the_resource_and_an_id() {
        for name in [
            "xdstp://a/envoy.config.cluster.v3.Cluster/x/y?k=v",
            "xdstp:///envoy.config.cluster.v3.Cluster/x",
        ] {
            assert_eq!(check(CLUSTER, name), Ok(()));
        }
        for (name, reason) in [
            ("xdstp:a", "is not an xdstp name; write it like xdstp://AUTHORITY/TYPE/ID"),
            ("xdstp://a", "is not an xdstp name"),
            ("xdstp://a?b=/c/d", "is not an xdstp name"),
            ("xdstp://a/envoy.config.cluster.v3.Cluster", "is not an xdstp name"),
            ("xdstp://a/envoy.config.cluster.v3.Cluster/", "is not an xdstp name"),
            (
                "xdstp://a/envoy.config.cluster.v3.Cluster/x/*",
                "is a collection, not a resource: its id ends in *",
            ),
            ("xdstp://a/envoy.config.cluster.v3.Cluster/x#alt=y", "has directives after #"),
            (
                "xdstp://a/envoy.config.cluster.v3.Cluster/x?b=2&a=1",
                "in another order than clients compare them in; write xdstp://a/envoy.config.cluster.v3.Cluster/x?a=1&b=2",
            ),
            ("xdstp://a/t.T/x", "is of the type t.T, and the resource is a envoy.config.cluster.v3.Cluster"),
        ] {
            let error = check(CLUSTER, name).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
