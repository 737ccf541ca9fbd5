use std::time::Duration;

use super::Mode;
use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::Summarize,
};

/// One stream in another protocol than MCP: what the sink says is translated into its requests, and its responses into pushes. It
/// dies with the stream.
pub trait Dialect: Send {
    /// What goes to the server.
    type Request: Summarize + Send + 'static;
    /// What comes from it.
    type Response: Summarize;

    /// What the sink says, a question or an answer to a push.
    fn on_request(&mut self, request: RequestResources) -> Vec<Self::Request>;

    /// What the server says.
    fn on_response(&mut self, response: Self::Response) -> Received<Self::Request>;
}

/// What a response means.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Received<Request> {
    /// What the sink is to decide on.
    pub push: Option<Resources>,
    /// Requests to send at once, without asking the sink.
    pub replies: Vec<Request>,
    /// How long resources of a collection may be used without the server. They come after the push, or alone as heartbeats.
    pub lifetimes: Option<(String, Vec<(String, Duration)>)>,
}

impl<Request> Received<Request> {
    /// Only a push.
    pub fn push(push: Resources) -> Self {
        Self { push: Some(push), replies: Vec::new(), lifetimes: None }
    }

    /// Only replies.
    pub fn replies(replies: Vec<Request>) -> Self {
        Self { push: None, replies, lifetimes: None }
    }
}

/// Whether pushes hold whole sets or changes. The sink needs the same [mode](Self::mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// State of the world: every push holds all resources.
    Sotw,
    /// Incremental: pushes hold changes.
    Delta,
}

impl Variant {
    /// The subscription mode that this variant uses.
    pub fn mode(self) -> Mode {
        match self {
            Self::Sotw => Mode::Full,
            Self::Delta => Mode::Delta,
        }
    }
}
