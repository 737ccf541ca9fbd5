//! Headers that adapters and rules set.
//!
//! Envoy does not validate all of them: it writes a line break in a denied response's header as it is, which forges further
//! headers, and passes a content-length to the upstream, which forges a further request
//! (docs/behaviour/envoy.md#headers-of-an-answer).

use std::str::FromStr;

use http::HeaderName;
use mixer_adapter_core::framework::is_framing_header;

use crate::proto::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};

/// A header that must not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("{0:?} is not a valid name of a header")]
    Name(String),
    #[error("the value of header {0} has a control character")]
    Value(String),
    #[error("header {0} determines how the message is framed and cannot be set")]
    Framing(String),
    #[error("pseudo header {0} cannot be set in a response")]
    Pseudo(String),
    #[error("header {0} cannot be removed")]
    Removal(String),
}

/// Pseudo headers of a request that Envoy lets a rule change.
const PSEUDO: [&str; 3] = [":authority", ":method", ":path"];

/// Validates a header of a request and returns its name in lower case.
pub(crate) fn request_header(name: &str, value: &str) -> Result<String, HeaderError> {
    let name = match PSEUDO.iter().find(|pseudo| pseudo.eq_ignore_ascii_case(name)) {
        Some(pseudo) => (*pseudo).to_owned(),
        None => header_name(name)?,
    };
    check_value(&name, value)?;
    Ok(name)
}

/// Validates a header of a response and returns its name in lower case.
pub(crate) fn response_header(name: &str, value: &str) -> Result<String, HeaderError> {
    if name.starts_with(':') {
        return Err(HeaderError::Pseudo(name.to_owned()));
    }
    let name = header_name(name)?;
    check_value(&name, value)?;
    Ok(name)
}

/// Validates the removal of a header from a request and returns its name in lower case. Envoy ignores the removal of the host.
pub(crate) fn removed_header(name: &str) -> Result<String, HeaderError> {
    if name.starts_with(':') || name.eq_ignore_ascii_case("host") {
        return Err(HeaderError::Removal(name.to_owned()));
    }
    header_name(name)
}

fn header_name(name: &str) -> Result<String, HeaderError> {
    let valid = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderError::Name(name.to_owned()))?;
    let name = valid.as_str().to_owned();
    if is_framing_header(&valid) { Err(HeaderError::Framing(name)) } else { Ok(name) }
}

fn check_value(name: &str, value: &str) -> Result<(), HeaderError> {
    let has_control = value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
    if has_control { Err(HeaderError::Value(name.to_owned())) } else { Ok(()) }
}

/// A header that replaces others of its name. Both fields are set, because it depends on the release of Envoy which one applies to
/// a header.
pub(crate) fn replace(name: String, value: &str) -> HeaderValueOption {
    option(name, value, false, HeaderAppendAction::OverwriteIfExistsOrAdd)
}

/// A header in addition to others of its name.
pub(crate) fn append(name: String, value: &str) -> HeaderValueOption {
    option(name, value, true, HeaderAppendAction::AppendIfExistsOrAdd)
}

fn option(name: String, value: &str, append: bool, action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(header_value(name, value)),
        append: Some(append),
        append_action: action.into(),
    }
}

/// A header as it is.
pub(crate) fn header_value(name: String, value: &str) -> HeaderValue {
    HeaderValue { key: name, value: value.to_owned(), ..HeaderValue::default() }
}

/// The name of a header that is added to requests and responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedHeader(String);

impl AddedHeader {
    /// Returns the name in lower case.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name that an added header cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write the name of a header that does not determine how a message is framed, such as x-decision-id")]
pub struct AddedHeaderError;

impl FromStr for AddedHeader {
    type Err = AddedHeaderError;

    fn from_str(name: &str) -> Result<Self, AddedHeaderError> {
        match header_name(name) {
            Ok(name) if name != "host" => Ok(Self(name)),
            _ => Err(AddedHeaderError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_added_frames_no_message() {
        assert_eq!("X-Decision-Id".parse().map(|name: AddedHeader| name.0).as_deref(), Ok("x-decision-id"));
        for name in ["", "a b", ":path", "Host", "content-length", "Connection"] {
            assert_eq!(name.parse::<AddedHeader>(), Err(AddedHeaderError), "{name}");
        }
    }
}
