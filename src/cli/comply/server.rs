//! The adapter under test behind a gRPC server.

use std::time::Duration;

use anyhow::{anyhow, bail};
use futures_util::future::join_all;
use prost::bytes::Bytes;
use prost_reflect::{MessageDescriptor, ReflectMessage as _};
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::{
    cli::rpc_client::RpcClient,
    service::{CLOSE_SESSION, CREATE_SESSION, VALIDATE},
    testing::compliance::{
        common::{
            self, Answer, Asked, Failure, FailureKind, MAX_AWAITS, Options, Repeats, Subject, With, call,
            read_yaml, repeated,
        },
        run::{Outcome, Run, Skipped, Tested},
        survey::survey,
    },
};
use mixer_adapter_core::{
    framework::{
        dynamic::DynamicTemplate,
        json::{JsonError, read_params},
    },
    proto::{self, Any},
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse, ValidateRequest,
    ValidateResponse,
};
use mixer_adapter_host::handler::quoted_list;

/// The number of rules that are tested.
pub(super) const RULES: usize = 11;

pub(super) struct Server<'a> {
    pub(super) client: RpcClient,
    pub(super) templates: Vec<DynamicTemplate>,
    /// Whether the templates were chosen, and must all be served.
    pub(super) is_chosen: bool,
    /// The message of the configuration; `None` for a Struct.
    pub(super) config: Option<MessageDescriptor>,
    pub(super) options: &'a Options,
}

/// Tests the rules that a client can test, in their order.
pub(super) async fn test(mut server: Server<'_>, mut run: Run<'_>) -> Vec<Tested> {
    run.essential("descriptors", server.find_templates()).await;
    let server = &server;
    run.essential("takes-its-configuration", takes_its_configuration(server)).await;
    run.rule("refusals-name-the-field", async {
        server.has_sessions().await?;
        common::refusals_name_the_field(server).await
    })
    .await;
    run.rule("sessions-are-counted", sessions_are_counted(server)).await;
    run.rule("unknown-session", async {
        server.has_sessions().await?;
        common::unknown_session(server).await
    })
    .await;
    let share = run.share();
    let mut surveys = Vec::new();
    run.rule("every-instance-is-answered", async {
        surveys = survey(server, share).await?;
        common::every_instance_is_answered(&surveys)
    })
    .await;
    let surveys = &surveys[..];
    run.rule("denials-are-answers", async { common::denials_are_answers(surveys) }).await;
    run.rule("answers-hold", common::answers_hold(surveys, survey(server, share))).await;
    run.rule("checks-have-an-opinion", async { common::checks_have_an_opinion(surveys) }).await;
    run.rule("quota-grants", async { common::quota_grants(surveys) }).await;
    run.rule("cancelled-calls-leave-nothing", common::cancelled_calls_leave_nothing(server, surveys)).await;
    run.tested
}

impl Server<'_> {
    /// Drops the templates that are not served, unless they were chosen.
    async fn find_templates(&mut self) -> Outcome {
        let config = self.config()?;
        let mut served = Vec::new();
        for template in &self.templates {
            let answer = call(self, template, With::Config(config.as_ref())).await;
            if answer.err().is_none_or(|failure| failure.code != Code::Unimplemented) {
                served.push(template.clone());
            } else if self.is_chosen {
                bail!("the server does not serve {}", template.method());
            }
        }
        if served.is_empty() {
            let known = quoted_list(self.templates.iter().map(DynamicTemplate::name));
            bail!("the server serves none of {known}; --descriptor is for other templates");
        }
        self.templates = served;
        Ok(())
    }

    /// Skips a rule about sessions if the server has none.
    async fn has_sessions(&self) -> Outcome {
        match self.close_session("").await {
            Err(failure) if failure.code == Code::Unimplemented => {
                Err(Skipped("the server has no sessions (InfrastructureBackend)".to_owned()).into())
            }
            _ => Ok(()),
        }
    }
}

impl Subject for Server<'_> {
    fn options(&self) -> &Options {
        self.options
    }

    fn templates(&self) -> &[DynamicTemplate] {
        &self.templates
    }

    fn read(&self, text: &str) -> Result<Any, JsonError> {
        let message = match &self.config {
            Some(message) => message.clone(),
            None => prost_types::Struct::default().descriptor(),
        };
        let value = read_params(&message, read_yaml(text)?)?;
        Ok(Any { type_url: format!("type.googleapis.com/{}", message.full_name()), value })
    }

    async fn create_session(&self, config: Option<&Any>) -> Result<String, Failure> {
        let request =
            CreateSessionRequest { adapter_config: config.cloned(), ..CreateSessionRequest::default() };
        let answer: CreateSessionResponse = self.client.rpc(CREATE_SESSION, &request).await?;
        accepted(answer.status.unwrap_or_default())?;
        Ok(answer.session_id)
    }

    async fn close_session(&self, id: &str) -> Result<(), Failure> {
        let request = CloseSessionRequest { session_id: id.to_owned() };
        let answer: CloseSessionResponse = self.client.rpc(CLOSE_SESSION, &request).await?;
        accepted(answer.status.unwrap_or_default())
    }

    async fn send(&self, template: &DynamicTemplate, request: Bytes) -> Result<Answer, Failure> {
        Answer::decode(template, &self.client.call(template.path(), request).await?)
    }

    async fn send_all(&self, template: &DynamicTemplate, requests: Vec<Bytes>, times: Repeats) -> Vec<Asked> {
        let mut asked: Vec<Asked> = Vec::new();
        for request in requests {
            if times.end_after(asked.len()) {
                break;
            }
            let answers = repeated(times, || self.send(template, request.clone())).await;
            asked.push(Asked { answers, awaits: MAX_AWAITS, longest: Duration::ZERO });
        }
        asked
    }

    /// Cancels calls after a time that doubles with `at`.
    async fn cancel(&self, template: &DynamicTemplate, request: Bytes, at: usize) -> usize {
        let time = Duration::from_millis(1 << at);
        let calls = (0..64).map(|_| timeout(time, self.client.call(template.path(), request.clone())));
        join_all(calls).await.iter().filter(|call| call.is_err()).count()
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let kind = match status.code() {
            Code::DeadlineExceeded => FailureKind::Silent,
            Code::InvalidArgument => FailureKind::Refused,
            _ => FailureKind::Failed,
        };
        Self { fields: None, ..Self::new(kind, status.code(), status.message()) }
    }
}

fn accepted(status: proto::Status) -> Result<(), Failure> {
    match status.code {
        0 => Ok(()),
        code => Err(Status::new(Code::from(code), status.message).into()),
    }
}

async fn takes_its_configuration(server: &Server<'_>) -> Outcome {
    server.has_sessions().await?;
    let config = server.config()?;
    let refused = |failure: Failure| {
        let text = server.options.config.as_deref().unwrap_or("no configuration");
        anyhow!("{text} is rejected: {failure}")
    };
    let request = ValidateRequest { adapter_config: config.clone(), ..ValidateRequest::default() };
    let answer = server.client.rpc::<ValidateResponse>(VALIDATE, &request).await;
    let Some(status) = answer.map_err(|status| refused(status.into()))?.status else {
        bail!("the answer of Validate has no status, on which a real Mixer crashes");
    };
    accepted(status).map_err(refused)?;
    let id = server.create_session(config.as_ref()).await.map_err(refused)?;
    if id.is_empty() {
        bail!("the answer of CreateSession has no session_id");
    }
    server.close_session(&id).await.map_err(|failure| anyhow!("CloseSession {}", failure.described()))
}

/// Creates two sessions, and expects that the second one is usable after the first one was closed.
async fn sessions_are_counted(server: &Server<'_>) -> Outcome {
    server.has_sessions().await?;
    let config = server.config()?;
    let create = async || {
        let created = server.create_session(config.as_ref()).await;
        created.map_err(|failure| anyhow!("CreateSession {}", failure.described()))
    };
    let close = async |id: &str| {
        let closed = server.close_session(id).await;
        closed.map_err(|failure| anyhow!("CloseSession {}", failure.described()))
    };
    let (first, second) = (create().await?, create().await?);
    close(&first).await?;
    for template in server.templates() {
        if let Err(failure) = call(server, template, With::Session(&second)).await
            && failure.code == Code::NotFound
        {
            bail!("a session ends before its last CloseSession: {failure}");
        }
    }
    close(&second).await
}
