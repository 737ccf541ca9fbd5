use std::{
    fmt::{self, Debug, Display},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use prost::Message;
use prost_reflect::{DynamicMessage, Value};
use tonic::Status;

use super::{Answer, RecordedCall, answer::grant, call::recorded};
use crate::{answer::Verdict, service::session_config};
use mixer_adapter_core::{
    adapter::{Call, Grant, QuotaRequest},
    framework::{
        CallInfo,
        dynamic::{DescriptorSet, DynamicTemplate},
        frame::FRAME_PREFIX,
    },
    proto::{
        self, Any, CheckResult, QuotaResult, ReportResult,
        istio::mixer::adapter::model::v1beta1::quota_request::{LimitOverride, QuotaParams},
    },
    template::Template,
};
use mixer_adapter_engine::trace::Trace;
use mixer_adapter_host::{
    Host, NewSession,
    handler::{CallError, Caller},
    session::SessionId,
};

/// An adapter with a configuration that is called directly: with the bytes of a Mixer's request, but without rules,
/// attributes, expressions and gRPC. [`Setup::params`](super::Setup::params) makes one.
///
/// Each call carries the configuration, or the id of the [session](Self::session) if there is one. It is made of an instance, or is a
/// [`Call`] with a client, a deadline and headers.
pub struct FakeHandler {
    host: Arc<Host>,
    config: Any,
    session: Option<SessionId>,
    /// The configuration in calls: `config`, or the id of the session.
    adapter_config: Any,
    calls: AtomicU64,
}

/// The name of the handler in recorded calls.
const HANDLER: &str = "the-handler.handler.istio-system";

/// Limit for the closing of a handler.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

impl FakeHandler {
    pub(super) fn new(host: Arc<Host>, config: Any) -> Self {
        Self { host, adapter_config: config.clone(), config, session: None, calls: AtomicU64::new(0) }
    }

    /// Validates the configuration without opening a handler.
    ///
    /// # Errors
    /// If the adapter rejects the configuration.
    pub async fn validate(&self) -> Result<(), CallError> {
        self.host.validate(self.new_session(), &Caller::default()).await
    }

    /// Opens a session with Validate and CreateSession. Calls carry its id, and dropping this handle closes it.
    ///
    /// # Errors
    /// If the adapter rejects the configuration.
    pub async fn session(mut self) -> Result<Self, CallError> {
        self.validate().await?;
        let id = self.host.create_session(self.new_session(), &Caller::default()).await?;
        self.adapter_config = session_config(id.to_string());
        if let Some(former) = self.session.replace(id) {
            self.host.close_session(&former.to_string(), &Caller::default()).await?;
        }
        Ok(self)
    }

    /// Calls a check template. An instance without a name is named `TEMPLATE.instance.istio-system`.
    pub async fn check<T: Template<Response = CheckResult>>(
        &self,
        call: impl Into<Call<T::Instance>>,
    ) -> Answer<Verdict> {
        self.call::<T>(call).await.map(Verdict::from)
    }

    /// Calls a report template with instances.
    pub async fn report<T: Template<Response = ReportResult>>(
        &self,
        call: impl Into<Call<Vec<T::Instance>>>,
    ) -> Answer<()> {
        self.send::<T>(call.into(), None).await.map(drop)
    }

    /// Calls a quota template with an amount, or with all arguments of a call.
    pub async fn quota<T: Template<Response = QuotaResult>>(
        &self,
        call: impl Into<Call<T::Instance>>,
        args: impl Into<QuotaRequest>,
    ) -> Answer<Grant> {
        let answer = self.send::<T>(one(call.into()), Some(args.into())).await;
        answer.map(|result| {
            let granted = result.quotas.into_values().next().unwrap_or_default();
            grant(granted.granted_amount, granted.valid_duration)
        })
    }

    /// Calls a template of any variety except report and quota, and returns the adapter's message.
    pub async fn call<T: Template>(&self, call: impl Into<Call<T::Instance>>) -> Answer<T::Response> {
        self.send::<T>(one(call.into()), None).await
    }

    /// Closes the handler and waits for it, so that a test can check its effects.
    ///
    /// # Panics
    /// If the handler does not close within ten seconds.
    pub async fn close(self) {
        let host = self.host.clone();
        drop(self);
        assert!(host.close(CLOSED_WITHIN).await == 0, "the handler does not close");
    }

    fn new_session(&self) -> NewSession {
        NewSession { adapter_config: Some(self.config.clone()), ..NewSession::default() }
    }

    async fn send<T: Template>(
        &self,
        call: Call<Vec<T::Instance>>,
        quota: Option<QuotaRequest>,
    ) -> Answer<T::Response> {
        let (instances, CallInfo { deadline, peer, request_id, metadata, .. }) = call.into_parts();
        let caller = Caller { deadline, peer, request_id, metadata, ..Caller::default() };
        let send = async {
            let template = DescriptorSet::decode(T::DESCRIPTOR).and_then(|set| DynamicTemplate::new(&set));
            let template = template.map_err(internal)?;
            let named: Result<Vec<(String, DynamicMessage)>, _> =
                instances.iter().map(|instance| named(&template, &instance.encode_to_vec())).collect();
            let (names, instances): (Vec<_>, Vec<_>) = named.map_err(internal)?.into_iter().unzip();
            let dedup_id = match &quota {
                Some(quota) => quota.dedup_id.clone(),
                None => self.calls.fetch_add(1, Relaxed).to_string(),
            };
            let quota = quota.map(|quota| proto::QuotaRequest {
                quotas: [(names.into_iter().next().unwrap_or_default(), params(&quota))].into(),
            });
            let request = template.request(instances, Some(&self.adapter_config), quota.as_ref());
            let request = request.with_dedup_id(&dedup_id);
            let answer = match self.host.call(T::METHOD, request.clone(), caller).await {
                Some(Ok(mut frame)) => Ok(frame.split_off(FRAME_PREFIX)),
                Some(Err(error)) => Err(error.into()),
                None => Err(Status::unimplemented(format!("no adapter here serves {}", T::NAME))),
            };
            RecordedCall::record(HANDLER, Some(&self.config), &template, request, answer.clone());
            T::Response::decode(answer?).map_err(internal)
        };
        let (result, calls) = recorded(send).await;
        Answer { result, calls, trace: Trace::default() }
    }
}

impl Drop for FakeHandler {
    fn drop(&mut self) {
        if let Some(id) = self.session.take() {
            // It may have expired.
            let _ = self.host.close_session(&id.to_string(), &Caller::default()).now_or_never();
        }
    }
}

impl Debug for FakeHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeHandler({})", self.config.message_name())
    }
}

/// The call of a template that takes one instance.
fn one<M>(call: Call<M>) -> Call<Vec<M>> {
    let (instance, info) = call.into_parts();
    Call::with_info(vec![instance], (), info)
}

fn internal(error: impl Display) -> Status {
    Status::internal(error.to_string())
}

fn params(quota: &QuotaRequest) -> QuotaParams {
    QuotaParams {
        amount: quota.amount,
        best_effort: quota.best_effort,
        report_limit: quota.report_limit,
        past_limit: quota.past_limit,
        limit: quota.limit.map(|limit| LimitOverride {
            max_amount: limit.max_amount,
            window: limit.window.try_into().ok(),
        }),
    }
}

/// The instance with a name, and that name.
fn named(
    template: &DynamicTemplate,
    instance: &[u8],
) -> Result<(String, DynamicMessage), prost::DecodeError> {
    let mut message = DynamicMessage::decode(template.instance().clone(), instance)?;
    let name = message.get_field_by_name("name").and_then(|name| name.as_str().map(str::to_owned));
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let name = format!("{}.instance.istio-system", template.name());
        // Templates made without Istio's generator may have no such field.
        let _ = message.try_set_field_by_name("name", Value::String(name.clone()));
        name
    });
    Ok((name, message))
}
