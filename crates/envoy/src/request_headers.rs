//! The headers of a request that is checked.
//!
//! HTTP/2 has no white space around values (RFC 9113, section 8.2.1), but Envoy forwards it, and an upstream with HTTP/1 ignores it.

use std::collections::BTreeMap;

use crate::proto::envoy::{config::core::v3::HeaderMap, service::auth::v3::attribute_context::HttpRequest};

/// Returns a value as upstreams read it.
pub(crate) fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// The headers of a request, each once.
#[derive(Debug)]
pub(crate) enum RequestHeaders<'r> {
    Joined(&'r BTreeMap<String, String>),
    /// Headers that are sent without changes, joined like the others: by commas.
    Raw(BTreeMap<&'r str, String>),
}

impl<'r> RequestHeaders<'r> {
    pub(crate) fn of(http: &'r HttpRequest) -> Self {
        let Some(HeaderMap { headers }) = http.header_map.as_ref().filter(|map| !map.headers.is_empty())
        else {
            return Self::Joined(&http.headers);
        };
        let mut joined: BTreeMap<&str, String> = BTreeMap::new();
        for header in headers {
            let raw = String::from_utf8_lossy(&header.raw_value);
            let value = trimmed(if header.value.is_empty() { &raw } else { &header.value });
            match joined.get_mut(header.key.as_str()) {
                Some(values) => {
                    values.push(',');
                    values.push_str(value);
                }
                None => drop(joined.insert(&header.key, value.to_owned())),
            }
        }
        Self::Raw(joined)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        match self {
            Self::Joined(headers) => headers.get(name),
            Self::Raw(headers) => headers.get(name),
        }
        .map(|value| trimmed(value))
    }

    /// Returns a value unless it is empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let (joined, raw) = match self {
            Self::Joined(headers) => (Some(headers), None),
            Self::Raw(headers) => (None, Some(headers)),
        };
        let joined = joined.into_iter().flat_map(|headers| headers.iter());
        let joined = joined.map(|(name, value)| (name.as_str(), value.as_str()));
        let raw = raw.into_iter().flatten().map(|(name, value)| (*name, value.as_str()));
        joined.chain(raw).map(|(name, value)| (name, trimmed(value)))
    }
}
