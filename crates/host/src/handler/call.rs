//! The call of a handler: decodes a request, finds its handler, calls it within the deadline and encodes the answer.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    time::Instant,
};

use prost::{DecodeError, Message, bytes::Bytes};
use prost_reflect::MessageDescriptor;
use tracing::{Instrument as _, Span, field};

use super::{
    CallError, Handler,
    blocking::{BlockingThreads, SHUTTING_DOWN},
    erased::BoxFuture,
    panics::{PanicError, contain_future},
};
use crate::metrics::CallMetrics;
use mixer_adapter_core::{
    adapter::{AdapterError, Handle},
    framework::{
        CallInfo,
        dynamic::{DescriptorSet, DynamicTemplate},
        frame::frame,
        log_limit::FailureLogLimit,
        log_text::log_text,
        lossy_text,
        status::status_name,
    },
    proto::Any as AnyMessage,
    template::{Template, Variety},
};
use mixer_adapter_net::grpc::Caller;

/// The parts of a call that determine its handler.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallContext<'a> {
    /// The template called.
    pub template: &'static str,
    /// The configuration or session id in the request.
    pub adapter_config: Option<AnyMessage>,
    /// The full names of the request's instances.
    pub instances: Vec<&'a str>,
    /// The caller.
    pub caller: &'a Caller,
}

/// Finds the handler of a call.
pub trait Resolver: Send + Sync {
    /// Returns the handler if it is already open and found without waiting.
    fn open(&self, call: &CallContext<'_>) -> Option<Arc<Handler>>;
    /// Returns the handler, and opens it if necessary. Called after [`open`](Self::open) found none.
    fn resolve<'a>(&'a self, call: CallContext<'a>) -> BoxFuture<'a, Result<Arc<Handler>, CallError>>;
    /// Returns the full name of the handler, for logs, if it has one before the call.
    fn handler_name(&self) -> Option<&Arc<str>> {
        None
    }
}

/// The gRPC method of a template, without its types.
pub trait Method: Send + Sync {
    /// Serves one request. The response is a gRPC frame: a prefix of five bytes and the message.
    fn call<'a>(
        &'a self,
        request: Bytes,
        resolver: &'a dyn Resolver,
        caller: Caller,
    ) -> BoxFuture<'a, Result<Bytes, CallError>>;

    /// Decodes and encodes the template's `Type` message, which makes its bytes canonical.
    fn canonical_type(&self, encoded: Bytes) -> Result<Bytes, prost::DecodeError>;

    /// Returns the metrics of its calls by adapter; the name is empty for calls that reached none.
    fn metrics(&self) -> Vec<(&'static str, Arc<CallMetrics>)>;

    /// Returns the name and the variety of its template.
    fn template(&self) -> (&'static str, Variety);
}

/// Calls handlers of one adapter with one template.
trait Serve<T: Template>: Send + Sync {
    fn serve(
        &self,
        handler: Arc<Handler>,
        input: T::Input,
        span: Span,
    ) -> BoxFuture<'static, Result<T::Answer, HandlerError>>;
}

enum HandlerError {
    Failed(AdapterError),
    Panicked(PanicError),
}

pub(crate) struct HandlerCaller<A> {
    threads: Option<BlockingThreads>,
    adapter: PhantomData<fn() -> A>,
}

impl<A> HandlerCaller<A> {
    pub(crate) fn new(threads: Option<BlockingThreads>) -> Self {
        Self { threads, adapter: PhantomData }
    }
}

impl<A: Handle<T>, T: Template> Serve<T> for HandlerCaller<A> {
    fn serve(
        &self,
        handler: Arc<Handler>,
        input: T::Input,
        span: Span,
    ) -> BoxFuture<'static, Result<T::Answer, HandlerError>> {
        let call = async move {
            // The call holds the handler, which is therefore not closed meanwhile.
            let Some(adapter) = handler.object::<A>() else {
                return Err(HandlerError::Failed(AdapterError::unavailable("the handler is closed")));
            };
            match contain_future(async { adapter.handle(input).await }).await {
                Ok(answer) => answer.map_err(HandlerError::Failed),
                Err(panic) => {
                    panic.report(handler.adapter(), "handle");
                    Err(HandlerError::Panicked(panic))
                }
            }
        };
        let call = call.instrument(span);
        match self.threads.clone() {
            None => Box::pin(call),
            Some(threads) => Box::pin(async move {
                threads
                    .run(call)
                    .await
                    .unwrap_or_else(|| Err(HandlerError::Failed(AdapterError::unavailable(SHUTTING_DOWN))))
            }),
        }
    }
}

/// The method of one template: the adapters that serve it, by their index.
pub(crate) struct TemplateMethod<T: Template> {
    by_adapter: Vec<Option<ServingAdapter<T>>>,
    unresolved: Arc<CallMetrics>,
    /// The descriptor of requests, for those with text that is not UTF-8.
    request: Arc<OnceLock<Option<MessageDescriptor>>>,
}

struct ServingAdapter<T: Template> {
    adapter: &'static str,
    serve: Arc<dyn Serve<T>>,
    metrics: Arc<CallMetrics>,
}

impl<T: Template> Clone for ServingAdapter<T> {
    fn clone(&self) -> Self {
        Self { adapter: self.adapter, serve: self.serve.clone(), metrics: self.metrics.clone() }
    }
}

impl<T: Template> Clone for TemplateMethod<T> {
    fn clone(&self) -> Self {
        Self {
            by_adapter: self.by_adapter.clone(),
            unresolved: self.unresolved.clone(),
            request: self.request.clone(),
        }
    }
}

impl<T: Template> Default for TemplateMethod<T> {
    fn default() -> Self {
        Self { by_adapter: Vec::new(), unresolved: Arc::default(), request: Arc::default() }
    }
}

impl<T: Template> TemplateMethod<T> {
    pub(crate) fn add<A: Handle<T>>(
        &mut self,
        index: usize,
        adapter: &'static str,
        caller: Arc<HandlerCaller<A>>,
    ) {
        self.by_adapter.resize_with(index, || None);
        self.by_adapter.push(Some(ServingAdapter { adapter, serve: caller, metrics: Arc::default() }));
    }

    /// Decodes a request, whose text need not be UTF-8.
    fn decode(&self, request: Bytes) -> Result<T::Request, DecodeError> {
        lossy_text::decode(request, || {
            let request = self.request.get_or_init(|| {
                let template = DynamicTemplate::new(&DescriptorSet::decode(T::DESCRIPTOR).ok()?).ok()?;
                Some(template.request_message().clone())
            });
            request.clone()
        })
    }

    async fn serve(
        &self,
        mut request: T::Request,
        resolver: &dyn Resolver,
        caller: &Caller,
        record: &mut CallRecord,
    ) -> Result<T::Response, CallError> {
        let adapter_config = T::take_adapter_config(&mut request);
        let handler = {
            // Instance names select a session only if the call carries no configuration.
            let instances = match adapter_config {
                Some(_) => Vec::new(),
                None => T::instance_names(&request).collect(),
            };
            let call = CallContext { template: T::NAME, adapter_config, instances, caller };
            match resolver.open(&call) {
                Some(handler) => handler,
                None => resolver.resolve(call).await?,
            }
        };
        let adapter = handler.adapter().clone();
        let Some(Some(server)) = self.by_adapter.get(adapter.index) else {
            return Err(CallError::NotServed {
                adapter: adapter.name,
                template: T::NAME.to_owned(),
                served: adapter.template_names(),
            });
        };
        record.metrics = server.metrics.clone();
        record.adapter = Some(adapter.name);
        let span = call_span::<T>(adapter.name, &request, resolver, caller);
        let (input, context) = T::split(request, call_info(resolver, caller))?;
        let answer = server.serve.serve(handler, input, span).await.map_err(|error| match error {
            HandlerError::Failed(error) => {
                adapter.count_omitted_details(&error);
                CallError::Failed { adapter: adapter.name, source: Arc::new(error) }
            }
            HandlerError::Panicked(panic) => {
                CallError::Panicked { adapter: adapter.name, message: panic.message }
            }
        })?;
        T::respond(context, answer)
            .map_err(|source| CallError::InvalidAnswer { adapter: adapter.name, source })
    }
}

impl<T: Template> Method for TemplateMethod<T> {
    fn call<'a>(
        &'a self,
        request: Bytes,
        resolver: &'a dyn Resolver,
        caller: Caller,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        Box::pin(async move {
            let mut record = CallRecord {
                metrics: self.unresolved.clone(),
                adapter: None,
                start: Instant::now(),
                code: tonic::Code::Cancelled,
            };
            let decoded = self
                .decode(request.clone())
                .map_err(|source| CallError::Undecodable { message: T::METHOD, source });
            let answer = match decoded {
                Err(error) => Err(error),
                Ok(request) => {
                    let served = self.serve(request, resolver, &caller, &mut record);
                    match caller.deadline {
                        None => served.await,
                        Some(deadline) => match tokio::time::timeout_at(deadline, served).await {
                            Ok(answer) => answer,
                            Err(_) => Err(CallError::DeadlineExceeded { template: T::NAME }),
                        },
                    }
                }
            };
            record.code = match &answer {
                Ok(_) => tonic::Code::Ok,
                Err(error) => {
                    let code = tonic::Code::from(error.code() as i32);
                    record.metrics.set_last_failure(code, error);
                    record.log_failure::<T>(error, request, resolver, &caller);
                    code
                }
            };
            answer.map(|answer| frame(&answer))
        })
    }

    fn canonical_type(&self, encoded: Bytes) -> Result<Bytes, prost::DecodeError> {
        T::Type::decode(encoded).map(|message| message.encode_to_vec().into())
    }

    fn metrics(&self) -> Vec<(&'static str, Arc<CallMetrics>)> {
        let served = self.by_adapter.iter().flatten().map(|server| (server.adapter, server.metrics.clone()));
        served.chain([("", self.unresolved.clone())]).collect()
    }

    fn template(&self) -> (&'static str, Variety) {
        (T::NAME, T::VARIETY)
    }
}

/// The names of a failed call in the log, if known.
#[derive(Debug, Default)]
pub struct FailedCall<'a> {
    /// The adapter.
    pub adapter: Option<&'a str>,
    /// The template.
    pub template: Option<&'a str>,
    /// The full name of the handler.
    pub handler: Option<&'a str>,
    /// The full names of the instances.
    pub instance: Option<String>,
}

/// Logs a failure with a gRPC code as `event`, at most ten of each code in ten seconds; `names` is called for those.
pub fn log_failure<'a>(
    limit: &FailureLogLimit,
    event: &'static str,
    caller: &Caller,
    (code, error): (i32, &dyn fmt::Display),
    names: impl FnOnce() -> FailedCall<'a>,
) {
    let Some(suppressed) = limit.admit(code) else { return };
    let FailedCall { adapter, template, handler, instance } = names();
    tracing::warn!(
        adapter,
        template,
        handler,
        instance = instance.map(log_text),
        peer = log_text(caller.peer_name()),
        trace_id = caller.trace.map(|trace| field::display(trace.trace_id())),
        code = &*status_name(code),
        error = log_text(error),
        suppressed,
        "{event}"
    );
}

/// Records a call when it ends, including when it is cancelled.
struct CallRecord {
    metrics: Arc<CallMetrics>,
    adapter: Option<&'static str>,
    start: Instant,
    code: tonic::Code,
}

impl CallRecord {
    /// Logs a failed call, at most ten lines of each code in ten seconds.
    fn log_failure<T: Template>(
        &self,
        error: &CallError,
        request: Bytes,
        resolver: &dyn Resolver,
        caller: &Caller,
    ) {
        let failure: (i32, &dyn fmt::Display) = (error.code() as i32, error);
        log_failure(&self.metrics.failure_log, "call failed", caller, failure, || {
            let request = T::Request::decode(request).ok();
            FailedCall {
                adapter: self.adapter.or_else(|| error.adapter()),
                template: Some(T::NAME),
                handler: resolver.handler_name().map(|name| &**name),
                instance: request.map(|request| instance_list(T::instance_names(&request))),
            }
        });
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        self.metrics.record(self.code, self.start.elapsed());
    }
}

/// Returns the information about a call that the handler receives.
fn call_info(resolver: &dyn Resolver, caller: &Caller) -> CallInfo {
    let Caller { deadline, peer, request_id, metadata, .. } = caller;
    CallInfo {
        deadline: *deadline,
        dedup_id: String::new(),
        peer: peer.clone(),
        request_id: request_id.clone(),
        metadata: metadata.clone(),
        handler: resolver.handler_name().cloned(),
    }
}

/// Makes the span in which a handler is called. It is of level DEBUG, because making one costs as much as a fifth of a call; one
/// that is not enabled costs nothing.
fn call_span<T: Template>(
    adapter: &'static str,
    request: &T::Request,
    resolver: &dyn Resolver,
    caller: &Caller,
) -> Span {
    tracing::debug_span!(
        target: "mixer_adapter::call",
        "call",
        adapter,
        template = T::NAME,
        handler = resolver.handler_name().map(|name| &**name),
        instance = log_text(instance_list(T::instance_names(request))),
        peer = log_text(caller.peer_name()),
        trace_id = caller.trace.map(|trace| field::display(trace.trace_id())),
        parent_id = caller.trace.map(|trace| field::display(trace.parent_id())),
    )
}

/// The maximum number of names in a list of instances.
const LISTED_INSTANCES: usize = 5;

/// Lists the names of a call's instances for logs: `a.instance.ns, b.instance.ns and 3 more`.
pub fn instance_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.dedup();
    let listed = &names[..names.len().min(LISTED_INSTANCES)];
    match names.len() - listed.len() {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::instance_list;

    #[test]
    fn a_list_of_instances_has_each_name_once_and_counts_those_beyond_five() {
        assert_eq!(instance_list(["a", "a", "b"]), "a, b");
        assert_eq!(instance_list(["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
        assert_eq!(instance_list([]), "");
    }
}
