//! Hosts, and the namespaces of hosts.

use std::{fmt, net::Ipv6Addr, str::FromStr};

/// A host of a request that is not written as a host with an optional port. Upstreams may read it as any host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host \"{0:.100}\" is not valid; write HOST or HOST:PORT")]
pub(crate) struct HostError(String);

/// Returns a host in lower case, without port and without the dot of a fully qualified name, so that all spellings of a name that
/// are routed alike are one value; empty if there is no host.
///
/// # Errors
/// A text that is not a host with an optional port.
pub(super) fn service_host(authority: &str) -> Result<String, HostError> {
    let end = match authority.strip_prefix('[') {
        Some(_) => authority.find(']').map_or(authority.len(), |end| end + 1),
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    match canonical_host(host) {
        Some(host) if is_port => Ok(host),
        None if authority.is_empty() => Ok(String::new()),
        _ => Err(HostError(authority.to_owned())),
    }
}

/// Returns a name or an address without a port in one spelling; `None` if it is neither.
fn canonical_host(text: &str) -> Option<String> {
    if let Some(address) = text.strip_prefix('[') {
        return Some(address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    is_name(name).then(|| name.to_ascii_lowercase())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains([':', '@', ',', '/']) && !text.contains(char::is_whitespace)
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
#[error("write a host without a port, *.DOMAIN or *")]
pub struct HostPatternError;

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let parsed = match text.strip_prefix('*') {
            None => match text.parse::<Ipv6Addr>() {
                Ok(address) => Some((address.to_string(), false)),
                Err(_) => canonical_host(text).map(|host| (host, false)),
            },
            Some("") => Some((String::new(), true)),
            Some(end) => {
                end.strip_prefix('.').and_then(canonical_host).map(|host| (format!(".{host}"), true))
            }
        };
        match parsed {
            Some((text, is_suffix)) if !text.contains('*') => Ok(Self { text, is_suffix }),
            _ => Err(HostPatternError),
        }
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
        let mut entries = self.0.iter();
        let entry = entries
            .find(|(pattern, _)| host == pattern.text || pattern.is_suffix && host.ends_with(&pattern.text));
        entry.map(|(_, namespace)| &**namespace)
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
            ("shop.example.com:", "shop.example.com"),
            ("shop.example.com.:", "shop.example.com"),
            ("[::1]:8080", "::1"),
            ("[::1]:", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("[FE80::A]", "fe80::a"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("", ""),
        ] {
            assert_eq!(service_host(authority).unwrap(), host, "{authority}");
        }
    }

    #[test]
    fn other_texts_are_not_hosts() {
        for authority in [
            "closed.example:x",
            "closed.example:80:80",
            "closed.example:80:",
            "closed.example::",
            "closed.example: 80",
            "closed.example:+80",
            "closed.example:-1",
            "closed.example:\u{0661}",
            "closed.example ",
            " closed.example",
            "closed.\texample",
            "closed.example\u{a0}",
            "a@closed.example",
            "closed.example,other.example",
            "closed.example/",
            "http://closed.example",
            ".",
            ":80",
            ".:80",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[::1].",
            "[::1]:80:80",
            "[closed.example]",
            "[fe80::1%eth0]",
            "[]",
            "[",
        ] {
            assert_eq!(service_host(authority), Err(HostError(authority.to_owned())), "{authority}");
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
        let written_with_more =
            ["a.example:80", "a.example:", "a@b.example", "a/b", "*.a.example:80", "[::1]:80"];
        for text in
            ["", "*example.com", "a.*.com", "*.", "*..", ".", "a b"].into_iter().chain(written_with_more)
        {
            assert_eq!(text.parse::<HostPattern>(), Err(HostPatternError), "{text}");
        }
        for (text, pattern) in [
            ("*.Example.com.", "*.example.com"),
            ("Example.com.", "example.com"),
            ("*", "*"),
            ("[0::1]", "::1"),
            ("::1", "::1"),
        ] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), pattern);
        }
    }
}
