//! Handlers and their backends, in this process or out of process.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::encoding::message;
use tonic::{Code, Status};

use super::{
    dispatch::{AllocationMode, QuotaRequest},
    instance::{Instance, LocalForm},
    remote::{RemoteAdapter, Session},
    resource_counts::HandlerCounts,
    wire,
};
use mixer_adapter_core::{
    framework::{digest::Digest, dynamic::DynamicTemplate, frame::FRAME_PREFIX, log_limit::FailureLogLimit},
    proto::{self, istio::mixer::adapter::model::v1beta1::quota_request},
    template::Response,
};
use mixer_adapter_host::{
    Host,
    handler::{
        BoxFuture, BuiltInstance, CallContext, CallError, Caller, FailedCall, Handler, LocalCall, Method,
        Resolver, instance_list, log_failure,
    },
};

/// A call of a backend; its result is the encoded response.
pub type Called<'a> = BoxFuture<'a, Result<Bytes, Status>>;

/// The backend of a handler.
pub trait HandlerBackend: Send + Sync {
    /// Sends a request of a template; returns the encoded response.
    fn call<'a>(&'a self, template: &'a DynamicTemplate, request: Bytes, caller: &'a Caller) -> Called<'a>;

    /// The configuration that is part of each request, an encoded `google.protobuf.Any`.
    fn adapter_config(&self) -> Option<Bytes> {
        None
    }

    /// Returns whether calls of a template are made. If not, a trace shows the call, and the request proceeds as if
    /// there were no handler.
    fn is_called(&self, _: &DynamicTemplate) -> bool {
        true
    }

    /// Returns whether checks are answered from memory, within microseconds.
    fn answers_from_memory(&self) -> bool {
        false
    }

    /// Returns the backend if it is an adapter in this process, which is then called without [`call`](Self::call).
    fn local(&self) -> Option<&LocalBackend> {
        None
    }

    /// Returns whether failed calls are logged by the adapter's host, in this process.
    fn logs_failures(&self) -> bool {
        false
    }
}

/// An open handler. Equal handlers are shared by successive snapshots.
pub(crate) struct RuntimeHandler {
    /// The full name, such as `h1.handler.istio-system`.
    pub(crate) name: Arc<str>,
    /// The name in messages of denials, by default the full name.
    pub(crate) denial_name: Arc<str>,
    /// Identifies adapter, configuration and connection, and for sessions the types of instances. A handler with an
    /// equal signature is carried over to the next snapshot.
    pub(crate) signature: Digest,
    pub(crate) target: Box<dyn HandlerBackend>,
    calls: AtomicU64,
    failure_log: FailureLogLimit,
    /// The counters.
    pub(crate) counts: Arc<HandlerCounts>,
}

impl RuntimeHandler {
    /// Creates a handler.
    pub(crate) fn new(name: Arc<str>, signature: Digest, target: Box<dyn HandlerBackend>) -> Self {
        Self {
            denial_name: name.clone(),
            name,
            signature,
            target,
            calls: AtomicU64::new(0),
            failure_log: FailureLogLimit::new(),
            counts: Arc::default(),
        }
    }

    /// Returns whether checks are answered from memory, within microseconds.
    pub(crate) fn answers_from_memory(&self) -> bool {
        self.target.answers_from_memory()
    }

    /// Returns the form of an instance for calls of an adapter in this process; `None` if the adapter is not.
    pub(crate) fn local_form(&self, instance: &Instance) -> Option<Arc<LocalForm>> {
        let backend = self.target.local()?;
        instance.local_form(|constants| backend.method(&instance.template)?.local_instance(constants).ok())
    }

    /// Calls the adapter with one or more instances, whose names are for logs. An adapter in this process takes them. Returns its answer,
    /// and how long the call took.
    pub(crate) async fn call(
        &self,
        template: &DynamicTemplate,
        instances: &mut [BuiltInstance],
        names: &[&str],
        quota: Option<QuotaParams<'_>>,
        caller: &Caller,
    ) -> (Result<Response, Status>, Duration) {
        let start = Instant::now();
        let local = self.target.local().and_then(|local| Some((local, local.method(template)?)));
        let (answer, took) = match local {
            Some((LocalBackend { name, handler, .. }, method)) => {
                let fields = template.fields();
                let call = LocalCall {
                    start,
                    handler: handler.clone(),
                    name,
                    instances,
                    instance_names: names,
                    dedup_id: fields.dedup_id.map_or_else(String::new, |_| self.dedup_id(quota)),
                    quota_request: fields.quota_request.and(quota).map(|quota| quota.message()),
                    caller,
                };
                let (answer, took) = method.begin(call).response().await;
                (answer.map_err(Status::from), took)
            }
            None => {
                let request = self.request(template, instances, quota);
                let answer = self.target.call(template, request, caller).await;
                (answer.map(Response::Encoded), start.elapsed())
            }
        };
        self.counts.calls.record(answer.as_ref().map_or_else(Status::code, |_| Code::Ok), took);
        if let Err(status) = &answer {
            self.counts.calls.set_last_failure(status.code(), status.message());
            if !self.target.logs_failures() {
                self.log_failure(template, names, caller, status);
            }
        }
        (answer, took)
    }

    /// Logs a failed call, at most ten of each code in ten seconds.
    fn log_failure(&self, template: &DynamicTemplate, names: &[&str], caller: &Caller, status: &Status) {
        let failure = (status.code() as i32, &status.message() as &dyn fmt::Display);
        log_failure(&self.failure_log, "call failed", caller, failure, || FailedCall {
            adapter: None,
            template: Some(template.name()),
            handler: Some(&self.name),
            instance: Some(instance_list(names.iter().copied())),
        });
    }

    fn request(
        &self,
        template: &DynamicTemplate,
        instances: &[BuiltInstance],
        quota: Option<QuotaParams<'_>>,
    ) -> Bytes {
        let config = self.target.adapter_config();
        let length: usize = instances.iter().map(|instance| instance.encoded_len() + 8).sum();
        let mut request = Vec::with_capacity(length + config.as_ref().map_or(0, Bytes::len) + 64);
        for instance in instances {
            wire::bytes(template.fields().instance, &instance.encoded(), &mut request);
        }
        if let (Some(number), Some(config)) = (template.fields().adapter_config, config) {
            wire::bytes(number, &config, &mut request);
        }
        if let Some(number) = template.fields().dedup_id {
            wire::bytes(number, self.dedup_id(quota).as_bytes(), &mut request);
        }
        if let (Some(number), Some(quota)) = (template.fields().quota_request, quota) {
            message::encode(number, &quota.message(), &mut request);
        }
        request.into()
    }

    /// Returns the id of the next call.
    fn dedup_id(&self, quota: Option<QuotaParams<'_>>) -> String {
        let count = self.calls.fetch_add(1, Relaxed);
        match quota {
            Some(QuotaParams { request, .. }) => [request.dedup_id, request.name].concat(),
            None => unique_id(count),
        }
    }
}

/// Creates an id from a counter. It includes the start of the process, so that the ids of two engines differ.
fn unique_id(count: u64) -> String {
    static START: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64)
    });
    START.wrapping_add(count).to_string()
}

mixer_adapter_core::framework::debug_fields!(RuntimeHandler { name });

/// The parameters of a quota call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaParams<'a> {
    /// The request to the engine. Its deduplication id is identical for all attempts.
    pub(crate) request: QuotaRequest<'a>,
    /// How the quota is requested.
    pub(crate) mode: AllocationMode,
    /// The full name of the instance.
    pub(crate) instance: &'a str,
}

impl QuotaParams<'_> {
    /// Returns the `QuotaRequest`, a map of the instance name to the parameters. The state of the limit, amounts past it and its
    /// replacement are extensions of this project, which only requests of Envoy have.
    fn message(&self) -> proto::QuotaRequest {
        let params = quota_request::QuotaParams {
            amount: self.request.amount,
            best_effort: self.request.best_effort,
            report_limit: self.mode.report_limit,
            past_limit: self.mode.past_limit,
            limit: self.mode.limit.map(|limit| quota_request::LimitOverride {
                max_amount: limit.max_amount,
                window: Some(prost_types::Duration::try_from(limit.window).unwrap_or_default()),
            }),
        };
        proto::QuotaRequest { quotas: [(self.instance.to_owned(), params)].into() }
    }
}

/// The backend of `compiledAdapter`: an adapter in this process with its configuration.
pub struct LocalBackend {
    name: Arc<str>,
    handler: Arc<Handler>,
    /// By path.
    methods: Vec<(&'static str, Arc<dyn Method>)>,
}

impl LocalBackend {
    /// Creates a backend that calls a handler of the host; `name` is the handler's full name.
    pub(crate) fn new(name: Arc<str>, host: &Host, handler: Arc<Handler>) -> Self {
        let templates = handler.adapter().templates.iter();
        let methods = templates.filter_map(|template| host.adapters().method_at(template.method));
        let methods = methods.map(|(path, method)| (path, method.clone())).collect();
        Self { name, methods, handler }
    }

    /// Returns the method of a template.
    fn method(&self, template: &DynamicTemplate) -> Option<&dyn Method> {
        let mut methods = self.methods.iter();
        methods.find(|(path, _)| *path == template.method()).map(|(_, method)| &**method)
    }
}

mixer_adapter_core::framework::debug_fields!(LocalBackend { name });

impl HandlerBackend for LocalBackend {
    fn call<'a>(&'a self, template: &'a DynamicTemplate, request: Bytes, caller: &'a Caller) -> Called<'a> {
        match self.method(template) {
            Some(method) => {
                let answer = method.call(request, self, caller.clone());
                Box::pin(async move { Ok(answer.await?.split_off(FRAME_PREFIX)) })
            }
            None => Box::pin(std::future::ready(Err(Status::unimplemented(format!(
                "adapter `{}` does not serve {}",
                self.handler.adapter().name,
                template.method()
            ))))),
        }
    }

    fn answers_from_memory(&self) -> bool {
        self.handler.adapter().answers_from_memory
    }

    fn local(&self) -> Option<&LocalBackend> {
        Some(self)
    }

    fn logs_failures(&self) -> bool {
        true
    }
}

/// The backend of an out-of-process adapter that receives its configuration with each call.
pub(crate) struct RemoteBackend {
    pub(crate) adapter: RemoteAdapter,
    /// An encoded `google.protobuf.Any`.
    pub(crate) adapter_config: Option<Bytes>,
}

impl HandlerBackend for RemoteBackend {
    fn call<'a>(&'a self, template: &'a DynamicTemplate, request: Bytes, caller: &'a Caller) -> Called<'a> {
        Box::pin(self.adapter.call_for(caller, template.path(), request))
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.adapter_config.clone()
    }
}

/// The backend of an adapter with a session, whose id is part of each call.
impl HandlerBackend for Session {
    fn call<'a>(&'a self, template: &'a DynamicTemplate, request: Bytes, caller: &'a Caller) -> Called<'a> {
        match template.fields().adapter_config {
            Some(number) => Box::pin(Session::call(self, template.path(), number, request, caller)),
            None => Box::pin(std::future::ready(Err(Status::internal(format!(
                "{} has no adapter_config to carry a session",
                template.method()
            ))))),
        }
    }
}

/// Resolves a call within the process to its handler.
impl Resolver for LocalBackend {
    fn open(&self, _: &CallContext<'_>) -> Option<Arc<Handler>> {
        Some(self.handler.clone())
    }

    fn resolve<'a>(&'a self, _: CallContext<'a>) -> BoxFuture<'a, Result<Arc<Handler>, CallError>> {
        Box::pin(std::future::ready(Ok(self.handler.clone())))
    }

    fn handler_name(&self) -> Option<&Arc<str>> {
        Some(&self.name)
    }
}

#[cfg(test)]
mod tests;
