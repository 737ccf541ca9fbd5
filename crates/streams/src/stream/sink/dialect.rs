use std::time::Duration;

use super::Mode;
use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::shorthand::Summarize,
};

/// One stream in another protocol than MCP: translates the requests of the sink into its requests, and its responses
/// into pushes. It ends with the stream.
pub trait Dialect: Send {
    /// The type of requests to the server.
    type Request: Summarize + Send + 'static;
    /// The type of its responses.
    type Response: Summarize;

    /// Translates a request of the sink, a subscription or an answer to a push.
    fn on_request(&mut self, request: RequestResources) -> Vec<Self::Request>;

    /// Translates a response of the server.
    fn on_response(&mut self, response: Self::Response) -> Received<Self::Request>;
}

/// The translation of a response.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Received<Request> {
    /// The push for the sink to decide on.
    pub push: Option<Resources>,
    /// Requests to send at once, without a decision of the sink.
    pub replies: Vec<Request>,
    /// The times to live of resources of a collection. They follow the push, or are sent alone as heartbeats.
    pub lifetimes: Option<(String, Vec<(String, Duration)>)>,
}

impl<Request> Received<Request> {
    /// Creates a translation with a push only.
    pub fn push(push: Resources) -> Self {
        Self { push: Some(push), replies: Vec::new(), lifetimes: None }
    }

    /// Creates a translation with replies only.
    pub fn replies(replies: Vec<Request>) -> Self {
        Self { push: None, replies, lifetimes: None }
    }
}

/// Whether pushes contain whole sets or changes. The sink needs the same [mode](Self::mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// State of the world: every push contains all resources.
    Sotw,
    /// Incremental: pushes contain changes.
    Delta,
}

impl Variant {
    /// Returns the subscription mode of this variant.
    pub fn mode(self) -> Mode {
        match self {
            Self::Sotw => Mode::Full,
            Self::Delta => Mode::Delta,
        }
    }
}
