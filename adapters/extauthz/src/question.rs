//! The question to the service.

use std::collections::BTreeMap;

use mixer_adapter_core::{Call, http::HeaderName, value::Value};
use mixer_adapter_templates::authorization::InstanceMsg;

use super::error::AskError;

/// The header with the number of servers that have asked each other about the request.
pub(super) const DEPTH: HeaderName = HeaderName::from_static("x-mixer-adapter-depth");

/// The property of the action with the body of the request, which no header can have.
const BODY: &str = ":body";

/// The longest body that is sent, in bytes.
const MAX_BODY: usize = 1 << 20;

/// The number of servers that may ask each other.
const MAX_DEPTH: u32 = 3;

/// A request to authorize, with the values of its instance.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) user: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) host: String,
    /// The headers, by their names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
    pub(super) extensions: BTreeMap<String, String>,
    /// The number of servers that have asked each other, this one included.
    pub(super) depth: u32,
}

impl Question {
    /// Asks about the instance of a call.
    ///
    /// # Errors
    ///
    /// Fails if the body is too long.
    pub(super) fn new(call: &Call<InstanceMsg>, depth: u32) -> Result<Self, AskError> {
        let subject = call.subject.clone().unwrap_or_default();
        let action = call.action.clone().unwrap_or_default();
        let headers = texts(action.properties).map(|(name, value)| (name.to_ascii_lowercase(), value));
        let mut headers: BTreeMap<_, _> = headers.collect();
        headers.remove(DEPTH.as_str());
        let body = headers.remove(BODY).unwrap_or_default();
        if body.len() > MAX_BODY {
            return Err(AskError::Body("is longer than 1 MiB"));
        }
        let mut extensions: BTreeMap<_, _> = texts(subject.properties).collect();
        for (name, text) in [("groups", subject.groups), ("namespace", action.namespace)] {
            if !text.is_empty() {
                extensions.insert(name.to_owned(), text);
            }
        }
        let (method, path, host) = (action.method, action.path, action.service);
        Ok(Self { user: subject.user, method, path, host, headers, body, extensions, depth })
    }
}

/// Returns the depth of the question about a call.
///
/// # Errors
///
/// Fails if the call comes from a service that was asked by too many servers.
pub(super) fn next_depth(call: &Call<InstanceMsg>) -> Result<u32, AskError> {
    // HTTP services pass the depth on as a header; it arrives here as a property of the action.
    let properties = call.action.iter().flat_map(|action| &action.properties);
    let named = properties.filter(|(name, _)| name.eq_ignore_ascii_case(DEPTH.as_str()));
    let given = named.filter_map(|(_, value)| text(value));
    let depths = given.chain(call.metadata(DEPTH.as_str()).map(str::to_owned));
    let depth = depths.map(|depth| depth.parse().unwrap_or(MAX_DEPTH)).max().unwrap_or(0);
    if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(AskError::Loop) }
}

/// Returns properties as text. Those without a value, and empty texts, are absent.
fn texts(properties: BTreeMap<String, Value>) -> impl Iterator<Item = (String, String)> {
    properties.into_iter().filter_map(|(name, value)| Some((name, text(&value)?)))
}

fn text(value: &Value) -> Option<String> {
    let text = (*value != Value::Unspecified).then(|| value.to_string());
    text.filter(|text| !text.is_empty())
}
