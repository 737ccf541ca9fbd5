//! Errors of calls.

use std::sync::Arc;

use super::status_details::grpc_error;
use crate::limits::Limit;
use mixer_adapter_core::{
    adapter::{AdapterError, Code},
    framework::{json::JsonError, status::limit_details},
    proto::{Any, Status},
    template::{InvalidAnswerError, MalformedRequestError},
};

/// A call without an answer. Each error becomes a gRPC status; a denial is not an error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request's bytes are not its message.
    #[error("the request is not a `{message}`: {source}")]
    Undecodable {
        /// The message expected.
        message: &'static str,
        /// Where decoding stopped.
        source: prost::DecodeError,
    },
    /// The request lacks what its template requires.
    #[error("{0}")]
    MalformedRequest(#[from] MalformedRequestError),
    /// The call has no configuration, and none was found for it.
    #[error(
        "no configuration for template `{template}`: the request has no adapter_config (no session id, no configuration), \
         {sessions} names {instances}, and {adapters}; open a session or send adapter_config"
    )]
    NoConfiguration {
        /// The template called.
        template: &'static str,
        /// The sessions that were searched.
        sessions: &'static str,
        /// The request's instances.
        instances: String,
        /// Why no adapter could be called without configuration.
        adapters: String,
    },
    /// The configuration message belongs to no adapter.
    #[error("no adapter is configured by `{type_url}`; expected one of: {known}")]
    UnknownConfig {
        /// The type of the configuration.
        type_url: String,
        /// The configuration messages known.
        known: String,
    },
    /// The configuration does not determine the adapter.
    #[error("the configuration names no adapter: {reason}")]
    Unassigned {
        /// The adapters that were considered, and why none was selected.
        reason: String,
    },
    /// The configuration's adapter does not serve the template.
    #[error("adapter `{adapter}` does not serve template `{template}`; it serves {served}")]
    NotServed {
        /// The adapter.
        adapter: &'static str,
        /// The template called.
        template: String,
        /// The templates that it serves.
        served: String,
    },
    /// The configuration does not decode.
    #[error("configuration of adapter `{adapter}`: {source}")]
    Unreadable {
        /// The adapter.
        adapter: &'static str,
        /// The fault.
        source: JsonError,
    },
    /// The inferred type of an instance belongs to no template, or does not decode.
    #[error("inferred type of instance `{instance}`: {reason}")]
    InferredType {
        /// The instance's full name.
        instance: String,
        /// The fault.
        reason: String,
    },
    /// No session has this id.
    #[error(
        "session `{id}` does not exist: it was closed, it expired, or this server never had it; create it with CreateSession"
    )]
    UnknownSession {
        /// The id in the request, or the start of an id in the store that servers share.
        id: String,
    },
    /// All claims on the session belong to others.
    #[error(
        "session `{id}` can be closed only by the peers or on the connections that created it; its claims here are all closed, \
         or it was created by others"
    )]
    NotClaimed {
        /// The id in the request.
        id: String,
    },
    /// The store that servers share does not answer, and this server does not know the session.
    #[error(
        "{session} is not known to this server, and --sessions, where it may be, does not answer: {reason}; try again"
    )]
    StoreAway {
        /// The session, by the start of its id or an instance in the request.
        session: String,
        /// The reason for the missing answer.
        reason: String,
    },
    /// Calls and sessions may not configure the adapter.
    #[error("adapter `{adapter}` may not be configured by calls and sessions (--adapters-in-calls)")]
    NotInCalls {
        /// The adapter.
        adapter: &'static str,
    },
    /// A configuration or a session exceeds a limit.
    #[error("{reason} ({})", .limit.name())]
    LimitExceeded {
        /// The limit.
        limit: Limit,
        /// The data that exceeds it.
        reason: String,
    },
    /// The adapter refused its configuration, or could not open a handler with it.
    #[error("adapter `{adapter}` refuses its configuration: {source}")]
    Refused {
        /// The adapter.
        adapter: &'static str,
        /// The error of the adapter.
        source: Arc<AdapterError>,
    },
    /// The handler failed.
    #[error("adapter `{adapter}`: {source}")]
    Failed {
        /// The adapter.
        adapter: &'static str,
        /// The error of the adapter.
        source: Arc<AdapterError>,
    },
    /// The handler panicked.
    #[error("adapter `{adapter}` panicked: {message}")]
    Panicked {
        /// The adapter.
        adapter: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// The handler's answer violates the template's contract.
    #[error("adapter `{adapter}` {source}")]
    InvalidAnswer {
        /// The adapter.
        adapter: &'static str,
        /// The violation.
        source: InvalidAnswerError,
    },
    /// The caller's deadline passed.
    #[error("the deadline passed before `{template}` answered")]
    DeadlineExceeded {
        /// The template called.
        template: &'static str,
    },
}

impl CallError {
    /// Returns the adapter that failed or that a configuration is for, if it is known.
    pub(crate) fn adapter(&self) -> Option<&'static str> {
        match self {
            Self::NotServed { adapter, .. }
            | Self::Unreadable { adapter, .. }
            | Self::NotInCalls { adapter }
            | Self::Refused { adapter, .. }
            | Self::Failed { adapter, .. }
            | Self::Panicked { adapter, .. }
            | Self::InvalidAnswer { adapter, .. } => Some(adapter),
            _ => None,
        }
    }

    /// Returns the gRPC code of the response.
    pub fn code(&self) -> Code {
        match self {
            Self::Undecodable { .. }
            | Self::MalformedRequest(_)
            | Self::UnknownConfig { .. }
            | Self::Unassigned { .. }
            | Self::NotServed { .. }
            | Self::Unreadable { .. }
            | Self::InferredType { .. } => Code::InvalidArgument,
            Self::NoConfiguration { .. } => Code::FailedPrecondition,
            Self::UnknownSession { .. } => Code::NotFound,
            Self::NotClaimed { .. } | Self::NotInCalls { .. } => Code::PermissionDenied,
            Self::StoreAway { .. } => Code::Unavailable,
            Self::LimitExceeded { .. } => Code::ResourceExhausted,
            Self::Refused { source, .. } | Self::Failed { source, .. } => source.code(),
            Self::Panicked { .. } | Self::InvalidAnswer { .. } => Code::Internal,
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
        }
    }
}

impl CallError {
    /// Returns the details of the adapter's error that fit into a header. The server counts the others as events `details_omitted` of the
    /// adapter.
    pub fn details(&self) -> Vec<Any> {
        let (Self::Refused { source, .. } | Self::Failed { source, .. }) = self else {
            return Vec::new();
        };
        let mut details = source.details().to_vec();
        limit_details(&mut details);
        details
    }
}

impl From<CallError> for tonic::Status {
    fn from(error: CallError) -> Self {
        let (code, details) = (error.code(), error.details());
        grpc_error(Status { code: code as i32, message: error.to_string(), details })
    }
}
