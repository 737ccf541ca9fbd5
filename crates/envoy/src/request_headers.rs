//! The headers of a request that is checked.
//!
//! HTTP/2 has no white space around values (RFC 9113, section 8.2.1), but Envoy forwards it, and an upstream with HTTP/1 ignores it.

use std::{borrow::Cow, collections::BTreeMap};

use mixer_adapter_engine::attribute::StringMap;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::proto::envoy::{config::core::v3::HeaderMap, service::auth::v3::attribute_context::HttpRequest};

/// Returns a value as upstreams read it.
pub(crate) fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// The headers of a request, with U+FFFD in place of bytes that are not UTF-8.
#[derive(Debug)]
pub(crate) enum RequestHeaders<'r> {
    /// The entries of the map `headers`. The last entry of a name counts.
    Sent(Vec<(&'r [u8], &'r [u8])>),
    /// Headers that are sent without changes, joined like the others: by commas.
    Joined(BTreeMap<&'r str, String>),
}

impl<'r> RequestHeaders<'r> {
    /// Reads the headers.
    ///
    /// # Errors
    /// An entry of the map cannot be decoded.
    pub(crate) fn of(http: &'r HttpRequest) -> Result<Self, EntryError> {
        let Some(HeaderMap { headers }) = http.header_map.as_ref().filter(|map| !map.headers.is_empty())
        else {
            let entries = http.headers.iter().map(|entry| read_entry(entry));
            return entries.collect::<Result<_, _>>().map(Self::Sent);
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
        Ok(Self::Joined(joined))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        match self {
            Self::Sent(headers) => headers
                .iter()
                .rev()
                .find(|(known, _)| *known == name.as_bytes())
                .map(|(_, value)| text(value)),
            Self::Joined(headers) => headers.get(name).map(|value| trimmed(value).into()),
        }
    }

    /// Returns a value unless it is empty.
    pub(crate) fn filled(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Returns all headers.
    pub(crate) fn to_map(&self) -> StringMap {
        match self {
            Self::Sent(headers) => headers.iter().map(|(name, value)| (text(name), text(value))).collect(),
            Self::Joined(headers) => headers.iter().map(|(name, value)| (*name, trimmed(value))).collect(),
        }
    }
}

/// Returns a name or a value as upstreams read it.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => trimmed(text).into(),
        Err(_) => trimmed(&String::from_utf8_lossy(bytes)).to_owned().into(),
    }
}

/// An entry of the headers that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of the headers is not valid")]
pub(crate) struct EntryError;

/// Reads the name and the value of an encoded entry without a copy.
fn read_entry(mut encoded: &[u8]) -> Result<(&[u8], &[u8]), EntryError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    while !encoded.is_empty() {
        let (number, wire_type) = decode_key(&mut encoded).map_err(|_| EntryError)?;
        let field = match (number, wire_type) {
            (1, WireType::LengthDelimited) => &mut name,
            (2, WireType::LengthDelimited) => &mut value,
            _ => {
                skip_field(wire_type, number, &mut encoded, DecodeContext::default())
                    .map_err(|_| EntryError)?;
                continue;
            }
        };
        let length = decode_varint(&mut encoded).ok().and_then(|length| usize::try_from(length).ok());
        (*field, encoded) = length.and_then(|length| encoded.split_at_checked(length)).ok_or(EntryError)?;
    }
    Ok((name, value))
}
