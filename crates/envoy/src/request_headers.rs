//! The headers of a request that is checked.
//!
//! HTTP/2 has no white space around values (RFC 9113, section 8.2.1), but Envoy forwards it, and an upstream with HTTP/1 ignores it.

use std::{borrow::Cow, collections::BTreeMap, str::Utf8Error};

use crate::proto::envoy::{
    config::core::v3::HeaderMap,
    service::auth::v3::attribute_context::{HttpRequest, http_request::HeadersEntry},
};

/// Returns a value as upstreams read it.
pub(crate) fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// The headers of a request.
#[derive(Debug)]
pub(crate) enum RequestHeaders<'r> {
    /// The entries of the map `headers`. The last entry of a name counts.
    Sent(Vec<(&'r str, &'r str)>),
    /// Headers that are sent without changes, joined like the others: by commas. Also headers that are not UTF-8, with U+FFFD in place
    /// of other bytes.
    Converted(BTreeMap<Cow<'r, str>, String>),
}

impl<'r> RequestHeaders<'r> {
    pub(crate) fn of(http: &'r HttpRequest) -> Self {
        let Some(HeaderMap { headers }) = http.header_map.as_ref().filter(|map| !map.headers.is_empty())
        else {
            return Self::of_entries(&http.headers);
        };
        let mut joined: BTreeMap<Cow<'_, str>, String> = BTreeMap::new();
        for header in headers {
            let raw = String::from_utf8_lossy(&header.raw_value);
            let value = trimmed(if header.value.is_empty() { &raw } else { &header.value });
            match joined.get_mut(header.key.as_str()) {
                Some(values) => {
                    values.push(',');
                    values.push_str(value);
                }
                None => drop(joined.insert(header.key.as_str().into(), value.to_owned())),
            }
        }
        Self::Converted(joined)
    }

    fn of_entries(entries: &'r [HeadersEntry]) -> Self {
        let texts = entries.iter().map(|HeadersEntry { key, value }| -> Result<_, Utf8Error> {
            Ok((str::from_utf8(key)?, str::from_utf8(value)?))
        });
        match texts.collect() {
            Ok(texts) => Self::Sent(texts),
            Err(_) => {
                let texts = entries.iter().map(|HeadersEntry { key, value }| {
                    (String::from_utf8_lossy(key), String::from_utf8_lossy(value).into_owned())
                });
                Self::Converted(texts.collect())
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = match self {
            Self::Sent(headers) => {
                headers.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
            }
            Self::Converted(headers) => headers.get(name).map(String::as_str),
        };
        value.map(trimmed)
    }

    /// Returns a value unless it is empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Iterates over the headers. Of several with the same name, the last one counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let (sent, converted) = match self {
            Self::Sent(headers) => (Some(headers), None),
            Self::Converted(headers) => (None, Some(headers)),
        };
        let converted = converted.into_iter().flatten().map(|(name, value)| (&**name, value.as_str()));
        sent.into_iter().flatten().copied().chain(converted).map(|(name, value)| (name, trimmed(value)))
    }
}
