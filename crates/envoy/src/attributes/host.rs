//! Hosts, and the namespaces of hosts.

use std::{fmt, str::FromStr};

/// Returns a host in lower case, without port and without the dot of a fully qualified name, so that all spellings of a name
/// that Envoy routes alike are one value.
pub(super) fn service_host(authority: &str) -> String {
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        },
    };
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Returns the name and the namespace of a service by its host. A host in the namespace of the destination, or of a Kubernetes
/// service, has both; any other host is the name.
pub(super) fn service_name<'h>(
    host: &'h str,
    destination_namespace: Option<&str>,
) -> (&'h str, Option<&'h str>) {
    let mut labels = host.split('.');
    if let (Some(name), Some(namespace)) = (labels.next(), labels.next())
        && !name.is_empty()
        && !namespace.is_empty()
        && (Some(namespace) == destination_namespace
            || destination_namespace.is_none() && labels.next() == Some("svc"))
    {
        return (name, Some(namespace));
    }
    (host, None)
}

/// A host, or all hosts below a domain: `shop.example.com`, `*.example.com` or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The host, or the end of it after `*`.
    text: String,
    is_suffix: bool,
}

/// A text that is not a host pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a host, *.DOMAIN or *")]
pub struct HostPatternError;

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let (rest, is_suffix) = match text.strip_prefix('*') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let is_valid = match is_suffix {
            true => rest.is_empty() || rest.len() > 1 && rest.starts_with('.'),
            false => !rest.is_empty(),
        };
        if !is_valid || rest.contains(['*', '/', ' ']) {
            return Err(HostPatternError);
        }
        Ok(Self { text: rest.trim_end_matches('.').to_ascii_lowercase(), is_suffix })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_suffix { "*" } else { "" }, self.text)
    }
}

/// The namespaces of hosts. An exact host takes precedence over a domain, and a longer domain over a shorter one.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceMap(Vec<(HostPattern, String)>);

impl NamespaceMap {
    pub(crate) fn new(mut entries: Vec<(HostPattern, String)>) -> Self {
        entries.sort_by_key(|(pattern, _)| (pattern.is_suffix, std::cmp::Reverse(pattern.text.len())));
        Self(entries)
    }

    /// Returns the namespace of a host in lower case.
    pub(crate) fn find(&self, host: &str) -> Option<&str> {
        let matches = |pattern: &HostPattern| match pattern.is_suffix {
            true => host.ends_with(&pattern.text),
            false => host == pattern.text,
        };
        self.0.iter().find(|(pattern, _)| matches(pattern)).map(|(_, namespace)| &**namespace)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_host_are_one_value() {
        for (authority, host) in [
            ("Shop.Example.com:8080", "shop.example.com"),
            ("shop.example.com.", "shop.example.com"),
            ("shop.example.com.:443", "shop.example.com"),
            ("[::1]:8080", "::1"),
            ("[::1]", "::1"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("host:name", "host:name"),
            ("", ""),
        ] {
            assert_eq!(service_host(authority), host, "{authority}");
        }
    }

    #[test]
    fn a_service_has_a_short_name_in_the_namespace_of_the_destination() {
        for (host, destination, name, namespace) in [
            ("web.shop", Some("shop"), "web", Some("shop")),
            ("web.shop.svc.cluster.local", Some("shop"), "web", Some("shop")),
            ("web.shop.svc.cluster.local", Some("other"), "web.shop.svc.cluster.local", None),
            ("web.shop.svc.cluster.local", None, "web", Some("shop")),
            ("web.example", None, "web.example", None),
            ("shop.example.com", Some("shop"), "shop.example.com", None),
            ("localhost", None, "localhost", None),
            (".shop", Some("shop"), ".shop", None),
        ] {
            assert_eq!(service_name(host, destination), (name, namespace), "{host}");
        }
    }

    #[test]
    fn the_most_specific_pattern_of_a_host_applies() {
        let entries = [
            ("*", "rest"),
            ("*.example.com", "domain"),
            ("*.shop.example.com", "shop"),
            ("A.example.com", "a"),
        ];
        let entries = entries.map(|(pattern, namespace)| (pattern.parse().unwrap(), namespace.to_owned()));
        let map = NamespaceMap::new(entries.into());
        for (host, namespace) in [
            ("a.example.com", "a"),
            ("b.example.com", "domain"),
            ("b.shop.example.com", "shop"),
            ("example.com", "rest"),
            ("", "rest"),
        ] {
            assert_eq!(map.find(host), Some(namespace), "{host}");
        }
        assert_eq!(NamespaceMap::default().find("a"), None);
    }

    #[test]
    fn a_pattern_has_a_wildcard_for_whole_labels_only() {
        for text in ["", "*example.com", "a.*.com", "*.", "a b"] {
            assert_eq!(text.parse::<HostPattern>(), Err(HostPatternError), "{text}");
        }
        assert_eq!("*.Example.com".parse::<HostPattern>().unwrap().to_string(), "*.example.com");
    }
}
