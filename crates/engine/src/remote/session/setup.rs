use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::Instant;
use tonic::Code;

use crate::{
    proto::istio::mixer::adapter::model::v1beta1::{
        CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse,
        ValidateRequest, ValidateResponse,
    },
    remote::{Backoff, Options, RemoteAdapter, adapter::CallHead},
};
use mixer_adapter_core::proto::Status;
use mixer_adapter_host::NewSession;

/// Validate, CreateSession and CloseSession, for one configuration.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) remote: RemoteAdapter,
    pub(super) address: String,
    pub(super) backoff: Backoff,
    validate: Bytes,
    create: Bytes,
    timeout: Duration,
    close_timeout: Duration,
}

const VALIDATE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/Validate";
const CREATE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession";
const CLOSE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CloseSession";

/// A method of `InfrastructureBackend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupStep {
    /// Validates the configuration.
    Validate,
    /// Creates the session.
    CreateSession,
}

/// An adapter rejected a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the adapter rejected the configuration: {step:?} returned {}", describe(.status))]
pub(crate) struct RefusedError {
    /// The method that returned the status.
    pub step: SetupStep,
    /// The status with its details.
    pub status: Status,
}

fn describe(status: &Status) -> String {
    let code = match status.code {
        known @ 0..=16 => format!("{:?}", Code::from_i32(known)),
        unknown => format!("code {unknown}"),
    };
    match &status.message[..] {
        "" => code,
        message => format!("{code}: {message}"),
    }
}

/// A session that was not created.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error(transparent)]
    Refused(RefusedError),
    #[error("{}", .0.message())]
    Unreachable(tonic::Status),
}

impl SetupError {
    /// The status of calls without a session.
    pub(super) fn status(&self) -> tonic::Status {
        tonic::Status::unavailable(self.to_string())
    }
}

impl Setup {
    pub(super) fn new(remote: RemoteAdapter, new: NewSession, options: &Options) -> Self {
        let NewSession { adapter_config, inferred_types } = new;
        let validate = ValidateRequest {
            adapter_config: adapter_config.clone(),
            inferred_types: inferred_types.clone(),
        };
        let create = CreateSessionRequest { adapter_config, inferred_types };
        Self {
            address: remote.address(),
            remote,
            backoff: options.setup_backoff,
            validate: validate.encode_to_vec().into(),
            create: create.encode_to_vec().into(),
            timeout: options.setup_timeout,
            close_timeout: options.close_timeout,
        }
    }

    /// Calls Validate and CreateSession; returns the id of the session.
    pub(super) async fn establish(&self) -> Result<String, SetupError> {
        let deadline = Instant::now() + self.timeout;
        let step = SetupStep::Validate;
        let response: ValidateResponse = self.call(step, &self.validate, deadline).await?;
        check_status(step, response.status)?;
        let step = SetupStep::CreateSession;
        let response: CreateSessionResponse = self.call(step, &self.create, deadline).await?;
        check_status(step, response.status)?;
        if response.session_id.is_empty() {
            return Err(refused(step, Code::Internal, "OK without a session_id"));
        }
        Ok(response.session_id)
    }

    /// Calls CloseSession.
    pub(super) async fn close(&self, id: &str) -> Result<(), tonic::Status> {
        let request = CloseSessionRequest { session_id: id.to_owned() }.encode_to_vec();
        let deadline = Some(Instant::now() + self.close_timeout);
        let path = PathAndQuery::from_static(CLOSE);
        let head = CallHead { path: &path, deadline, trace: None };
        let answer = self.remote.call_until(head, &[&request]).await?;
        let response = CloseSessionResponse::decode(answer)
            .map_err(|error| tonic::Status::internal(format!("invalid response: {error}")))?;
        let failed = response.status.filter(|status| status.code != 0);
        failed.map_or(Ok(()), |status| Err(tonic::Status::unknown(describe(&status))))
    }

    async fn call<M: Message + Default>(
        &self,
        step: SetupStep,
        request: &[u8],
        deadline: Instant,
    ) -> Result<M, SetupError> {
        let path = PathAndQuery::from_static(match step {
            SetupStep::Validate => VALIDATE,
            SetupStep::CreateSession => CREATE,
        });
        let head = CallHead { path: &path, deadline: Some(deadline), trace: None };
        let answer = self.remote.call_until(head, &[request]).await;
        let answer = answer.map_err(|status| match status.code() {
            // The call may not have reached the adapter, or not in time.
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted
            | Code::ResourceExhausted => SetupError::Unreachable(status),
            // Adapters in other languages may reject a configuration by an error instead of a response.
            code => refused(step, code, status.message()),
        })?;
        M::decode(answer)
            .map_err(|error| refused(step, Code::Internal, &format!("invalid response: {error}")))
    }
}

/// Checks the status in a response. A missing status means OK, like one with only default values.
fn check_status(step: SetupStep, status: Option<Status>) -> Result<(), SetupError> {
    let failed = status.filter(|status| status.code != 0);
    failed.map_or(Ok(()), |status| Err(SetupError::Refused(RefusedError { step, status })))
}

fn refused(step: SetupStep, code: Code, message: &str) -> SetupError {
    let status = Status { code: code as i32, message: message.to_owned(), details: Vec::new() };
    SetupError::Refused(RefusedError { step, status })
}
