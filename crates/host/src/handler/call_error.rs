use std::sync::Arc;

use mixer_adapter_core::{
    adapter::{AdapterError, Code},
    framework::json::ParamsError,
    template::{InvalidAnswerError, MalformedRequestError},
};

/// Why a call of a handler got no answer. Each becomes a gRPC status; a denial is none of these.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The request's bytes are not its message.
    #[error("the request is not a `{message}`: {source}")]
    Undecodable {
        /// The message expected.
        message: &'static str,
        /// Where decoding stopped.
        source: prost::DecodeError,
    },
    /// The request lacks what its template demands.
    #[error("{0}")]
    MalformedRequest(#[from] MalformedRequestError),
    /// No configuration was found in any of the four ways.
    #[error(
        "no configuration for template `{template}`: the request has no adapter_config (no session id, no configuration), \
         no live session names {instances}, and {adapters}; open a session or send adapter_config"
    )]
    NoConfiguration {
        /// The template called.
        template: &'static str,
        /// The request's instances.
        instances: String,
        /// Why no adapter could be called without configuration.
        adapters: String,
    },
    /// The configuration is of no adapter here.
    #[error("no adapter here is configured by `{type_url}`; known are {known}")]
    UnknownConfig {
        /// The type of the configuration.
        type_url: String,
        /// The configuration messages known.
        known: String,
    },
    /// The configuration names no adapter and could be for several, or for none.
    #[error("the configuration names no adapter: {why}")]
    Unassigned {
        /// Which adapters were considered and why none was chosen.
        why: String,
    },
    /// The configuration's adapter does not serve the template.
    #[error("adapter `{adapter}` does not serve template `{template}`; it serves {served}")]
    NotServed {
        /// The adapter.
        adapter: &'static str,
        /// The template called.
        template: String,
        /// What it serves.
        served: String,
    },
    /// The configuration cannot be read.
    #[error("configuration of adapter `{adapter}`: {source}")]
    Unreadable {
        /// The adapter.
        adapter: &'static str,
        /// What is wrong with it.
        source: ParamsError,
    },
    /// An instance's inferred type is not one the adapter can serve.
    #[error("inferred type of instance `{instance}`: {why}")]
    InferredType {
        /// The instance's full name.
        instance: String,
        /// What is wrong with it.
        why: String,
    },
    /// No live session has this id.
    #[error(
        "there is no session `{id}`: it was closed, expired, or never made here; make it again with CreateSession"
    )]
    UnknownSession {
        /// The id in the request.
        id: String,
    },
    /// The adapter refused its configuration, or could not be opened with it.
    #[error("adapter `{adapter}` refuses its configuration: {source}")]
    Refused {
        /// The adapter.
        adapter: &'static str,
        /// Its reason.
        source: Arc<AdapterError>,
    },
    /// The handler failed.
    #[error("adapter `{adapter}`: {source}")]
    Failed {
        /// The adapter.
        adapter: &'static str,
        /// Its reason.
        source: Arc<AdapterError>,
    },
    /// The handler panicked; the process lives on.
    #[error("adapter `{adapter}` panicked: {message}")]
    Panicked {
        /// The adapter.
        adapter: &'static str,
        /// What the panic said.
        message: String,
    },
    /// The handler's answer breaks the template's contract.
    #[error("adapter `{adapter}` {source}")]
    InvalidAnswer {
        /// The adapter.
        adapter: &'static str,
        /// How.
        source: InvalidAnswerError,
    },
    /// The caller's deadline passed.
    #[error("the deadline passed before `{stage}` was done")]
    DeadlineExceeded {
        /// What was being done.
        stage: &'static str,
    },
}

impl CallError {
    /// The gRPC code it travels as.
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
            Self::Refused { source, .. } | Self::Failed { source, .. } => source.code(),
            Self::Panicked { .. } | Self::InvalidAnswer { .. } => Code::Internal,
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
        }
    }
}

impl From<CallError> for tonic::Status {
    fn from(error: CallError) -> Self {
        tonic::Status::new(tonic::Code::from(error.code() as i32), error.to_string())
    }
}
