//! Identities of peers.

use super::builder::AttributeBuilder;

/// An identity without the scheme, with its parts if it is in Istio's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Principal<'a> {
    /// The whole name.
    name: &'a str,
    namespace: Option<&'a str>,
    service_account: Option<&'a str>,
}

impl<'a> Principal<'a> {
    /// Reads the name of a certificate; `None` for an empty one. Envoy sends an URI, else a DNS name, else the subject.
    fn parse(name: &'a str) -> Option<Self> {
        let name = name.strip_prefix("spiffe://").unwrap_or(name);
        if name.is_empty() {
            return None;
        }
        // Parts are short: an array is looked for letter by letter, which takes less time than the search for a letter.
        let mut parts = name.split(['/']).skip(1);
        let (namespace, service_account) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("ns"), Some(namespace), Some("sa"), Some(account)) => (Some(namespace), Some(account)),
            _ => (None, None),
        };
        let [namespace, service_account] =
            [namespace, service_account].map(|part| part.filter(|part| !part.is_empty()));
        Some(Self { name, namespace, service_account })
    }
}

/// Sets the attributes of the client's name.
pub(super) fn set_source(attributes: &mut AttributeBuilder, name: &str) {
    let Some(principal) = Principal::parse(name) else { return };
    attributes.set(standard!("source.principal"), principal.name);
    attributes.set(standard!("source.user"), principal.name);
    attributes.set_some(standard!("source.namespace"), principal.namespace);
    attributes.set_some(standard!("source.serviceAccount"), principal.service_account);
}

/// Sets the attributes of the name of Envoy's own certificate.
pub(super) fn set_destination(attributes: &mut AttributeBuilder, name: &str) {
    let Some(principal) = Principal::parse(name) else { return };
    attributes.set(standard!("destination.principal"), principal.name);
    attributes.set_some(standard!("destination.namespace"), principal.namespace);
    attributes.set_some(standard!("destination.serviceAccount"), principal.service_account);
}

/// Sets the client's name from the header `x-forwarded-client-cert`, unless the connection has one.
pub(super) fn set_forwarded_source(attributes: &mut AttributeBuilder, header: Option<&str>) {
    if !attributes.has(standard!("source.principal"))
        && let Some(uri) = header.and_then(forwarded_uri)
    {
        set_source(attributes, uri);
    }
}

/// Returns the URI of the last element of `x-forwarded-client-cert`, which the nearest proxy added.
fn forwarded_uri(header: &str) -> Option<&str> {
    let last = split_quoted(header, ',').last()?;
    split_quoted(last, ';').find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        let value = value.trim_matches('"');
        (key.eq_ignore_ascii_case("uri") && !value.is_empty()).then_some(value)
    })
}

/// Splits at a separator outside of quotes.
fn split_quoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |letter| {
        let splits = letter == separator && !quoted;
        if letter == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = letter == '\\' && !escaped;
        splits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_removed_once_and_names_of_istio_have_parts() {
        for (name, whole, namespace, account) in [
            (
                "spiffe://cluster.local/ns/shop/sa/web",
                "cluster.local/ns/shop/sa/web",
                Some("shop"),
                Some("web"),
            ),
            ("spiffe://td/ns/shop/sa/web/extra", "td/ns/shop/sa/web/extra", Some("shop"), Some("web")),
            ("spiffe://td/ns//sa/web", "td/ns//sa/web", None, Some("web")),
            ("spiffe://td/sa/web/ns/shop", "td/sa/web/ns/shop", None, None),
            ("spiffe://spiffe://x", "spiffe://x", None, None),
            ("client.example.com", "client.example.com", None, None),
            ("O=Acme,CN=plainclient", "O=Acme,CN=plainclient", None, None),
        ] {
            let expected = Principal { name: whole, namespace, service_account: account };
            assert_eq!(Principal::parse(name), Some(expected), "{name}");
        }
        assert_eq!(Principal::parse(""), None);
        assert_eq!(Principal::parse("spiffe://"), None);
    }

    #[test]
    fn the_forwarded_identity_is_that_of_the_nearest_proxy() {
        for (header, uri) in [
            ("By=spiffe://td/a;Hash=ab;URI=spiffe://td/b", Some("spiffe://td/b")),
            ("URI=spiffe://td/first,By=x;URI=spiffe://td/last", Some("spiffe://td/last")),
            (r#"Subject="CN=a;URI=spiffe://td/forged,O=b";URI=spiffe://td/b"#, Some("spiffe://td/b")),
            (r#"Subject="CN=a\",URI=spiffe://td/forged;";Hash=c"#, None),
            ("URI=spiffe://td/first,Hash=ab", None),
            ("URI=", None),
            ("", None),
        ] {
            assert_eq!(forwarded_uri(header), uri, "{header}");
        }
    }
}
