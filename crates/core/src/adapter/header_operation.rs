use prost::{Message, Name};

const REPLACE: i32 = 0;
const REMOVE: i32 = 1;
const APPEND: i32 = 2;

/// A change of a header by an answer that allows, for [`Check::with_header_operations`](super::Check::with_header_operations);
/// `istio.mixer.v1.HeaderOperation`.
///
/// In the request to the upstream, a name that begins with `?` names a parameter of the query.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HeaderOperation {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(int32, tag = "3")]
    operation: i32,
}

impl HeaderOperation {
    /// Sets a header to one value.
    pub fn replace(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), operation: REPLACE }
    }

    /// Appends a value to a header.
    pub fn append(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), operation: APPEND }
    }

    /// Removes a header.
    pub fn remove(name: impl Into<String>) -> Self {
        Self { name: name.into(), value: String::new(), operation: REMOVE }
    }
}

/// `istio.mixer.v1.RouteDirective`, without the response of a denial.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RouteDirective {
    #[prost(message, repeated, tag = "1")]
    pub(super) request: Vec<HeaderOperation>,
    #[prost(message, repeated, tag = "2")]
    pub(super) response: Vec<HeaderOperation>,
}

impl Name for RouteDirective {
    const NAME: &str = "RouteDirective";
    const PACKAGE: &str = "istio.mixer.v1";
}
