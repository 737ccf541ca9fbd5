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
    remote::{Backoff, Options, RemoteAdapter},
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
pub enum Step {
    /// Looking at the configuration.
    Validate,
    /// Beginning the session.
    CreateSession,
}

/// An adapter refused a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the adapter refuses the configuration: {step:?} answered {}", describe(.status))]
pub struct Refused {
    /// What it was asked.
    pub step: Step,
    /// Its answer, with whatever details it gave.
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

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Failure {
    Refused(Refused),
    Unreachable(tonic::Status),
}

impl Failure {
    /// What calls are answered because of it.
    pub(super) fn status(&self) -> tonic::Status {
        tonic::Status::unavailable(match self {
            Self::Refused(refused) => refused.to_string(),
            Self::Unreachable(why) => why.message().to_owned(),
        })
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

    /// Validate, then CreateSession. Returns the session's id.
    pub(super) async fn establish(&self) -> Result<String, Failure> {
        let deadline = Instant::now() + self.timeout;
        let step = Step::Validate;
        let response: ValidateResponse = self.ask(step, &self.validate, deadline).await?;
        unless_refused(step, response.status)?;
        let step = Step::CreateSession;
        let response: CreateSessionResponse = self.ask(step, &self.create, deadline).await?;
        unless_refused(step, response.status)?;
        if response.session_id.is_empty() {
            return Err(refused(step, Code::Internal, "OK without a session_id"));
        }
        Ok(response.session_id)
    }

    /// Gives a session back. The error says why that may not have worked.
    pub(super) async fn close(&self, id: &str) -> Result<(), String> {
        let request = CloseSessionRequest { session_id: id.to_owned() }.encode_to_vec();
        let deadline = Some(Instant::now() + self.close_timeout);
        let path = PathAndQuery::from_static(CLOSE);
        let answer = self.remote.call_until(&path, &[&request], deadline).await;
        let answer = answer.map_err(|status| status.message().to_owned())?;
        let response = CloseSessionResponse::decode(answer).map_err(|error| error.to_string())?;
        match response.status.filter(|status| status.code != 0) {
            Some(status) => Err(describe(&status)),
            None => Ok(()),
        }
    }

    async fn ask<M: Message + Default>(
        &self,
        step: Step,
        request: &[u8],
        deadline: Instant,
    ) -> Result<M, Failure> {
        let path = PathAndQuery::from_static(match step {
            Step::Validate => VALIDATE,
            Step::CreateSession => CREATE,
        });
        let answer = self.remote.call_until(&path, &[request], Some(deadline)).await;
        let answer = answer.map_err(|status| match status.code() {
            // Where nobody answered, or nobody had the time to.
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted
            | Code::ResourceExhausted => Failure::Unreachable(status),
            // Adapters made with other languages' libraries refuse with an error in place of an answer.
            code => refused(step, code, status.message()),
        })?;
        M::decode(answer).map_err(|error| {
            refused(step, Code::Internal, &format!("with something that is no answer to it: {error}"))
        })
    }
}

/// No status is OK: so is a message of which everything is zero.
fn unless_refused(step: Step, status: Option<Status>) -> Result<(), Failure> {
    match status.filter(|status| status.code != 0) {
        Some(status) => Err(Failure::Refused(Refused { step, status })),
        None => Ok(()),
    }
}

fn refused(step: Step, code: Code, message: &str) -> Failure {
    let status = Status { code: code as i32, message: message.to_owned(), details: Vec::new() };
    Failure::Refused(Refused { step, status })
}
