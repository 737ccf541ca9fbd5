//! The call of a handler: decodes a request, finds its handler, calls it within the deadline and encodes the answer.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use prost::{DecodeError, Message, bytes::Bytes};
use prost_reflect::MessageDescriptor;
use tokio::time::Instant as Deadline;
use tracing::{Instrument as _, Span, field};

use super::{
    AdapterInfo, BuiltInstance, CallError, Handler, LocalInstance, blocking::SHUTTING_DOWN,
    erased::BoxFuture, panics::contain_future,
};
use crate::metrics::CallMetrics;
use mixer_adapter_core::{
    adapter::{AdapterError, Handle},
    framework::{
        CallInfo,
        dynamic::{DescriptorSet, DynamicTemplate},
        log_limit::FailureLogLimit,
        log_text::log_text,
        lossy_text,
        status::status_name,
    },
    proto::{Any as Config, QuotaRequest},
    template::{Response, Template, Variety},
};
use mixer_adapter_net::grpc::Caller;

/// The parts of a call that determine its handler.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallContext<'a> {
    /// The template called.
    pub template: &'static str,
    /// The configuration or session id in the request.
    pub adapter_config: Option<Config>,
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

/// A call of an adapter.
type Served = BoxFuture<'static, Result<Response, CallError>>;

/// The method of a template, without its types.
pub trait Method: Send + Sync {
    /// Serves one request. The response is a gRPC frame: a prefix of five bytes and the message.
    fn call<'a>(
        &'a self,
        request: Bytes,
        resolver: &'a dyn Resolver,
        caller: Caller,
    ) -> BoxFuture<'a, Result<Bytes, CallError>>;

    /// Begins a call of an open handler.
    fn begin<'a>(&self, call: LocalCall<'a>) -> BegunCall<'a>;

    /// Decodes an instance, to be completed for calls of this process.
    fn local_instance(&self, encoded: &[u8]) -> Result<Box<dyn LocalInstance>, DecodeError>;

    /// Decodes and encodes the template's `Type` message, which makes its bytes canonical.
    fn canonical_type(&self, encoded: Bytes) -> Result<Bytes, prost::DecodeError>;

    /// Returns the metrics of its calls by adapter; the name is empty for calls that reached none.
    fn metrics(&self) -> Vec<(&'static str, Arc<CallMetrics>)>;

    /// Returns the name and the variety of its template.
    fn template(&self) -> (&'static str, Variety);
}

/// A call of an open handler by this process.
#[derive(Debug)]
pub struct LocalCall<'a> {
    /// The time at which it began.
    pub start: Instant,
    /// The handler.
    pub handler: Arc<Handler>,
    /// Its full name.
    pub name: &'a Arc<str>,
    /// The instances. Messages are taken.
    pub instances: &'a mut [BuiltInstance],
    /// Their full names, for the log.
    pub instance_names: &'a [&'a str],
    /// The id that all attempts share.
    pub dedup_id: String,
    /// The amount that is requested.
    pub quota_request: Option<QuotaRequest>,
    /// The caller.
    pub caller: &'a Caller,
}

/// A call that has begun. If it is dropped, it is recorded as cancelled.
pub struct BegunCall<'a> {
    template: &'static str,
    name: &'a Arc<str>,
    instance_names: &'a [&'a str],
    caller: &'a Caller,
    record: CallRecord,
    served: Result<Served, CallError>,
}

impl BegunCall<'_> {
    /// Waits for the response, until the deadline of the caller. Returns it, and how long the call took.
    pub async fn response(self) -> (Result<Response, CallError>, Duration) {
        let Self { template, name, instance_names, caller, mut record, served } = self;
        let response = match served {
            Ok(served) => within(caller.deadline, template, served).await,
            Err(error) => Err(error),
        };
        let instances = || Some(instance_list(instance_names.iter().copied()));
        let took = record.end(&response, template, Some(name), caller, instances);
        (response, took)
    }
}

impl fmt::Debug for BegunCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BegunCall({} of {})", self.template, self.name)
    }
}

/// Waits for a response until a deadline.
async fn within(
    deadline: Option<Deadline>,
    template: &'static str,
    served: impl Future<Output = Result<Response, CallError>>,
) -> Result<Response, CallError> {
    let Some(deadline) = deadline else { return served.await };
    let answer = tokio::time::timeout_at(deadline, served).await;
    answer.unwrap_or(Err(CallError::DeadlineExceeded { template }))
}

/// Calls handlers of one adapter with one template.
trait Serve<T: Template>: Send + Sync {
    fn serve(&self, handler: Arc<Handler>, input: T::Input, context: T::Context, span: Span) -> Served;
}

struct HandlerCaller<A>(PhantomData<fn() -> A>);

impl<A: Handle<T>, T: Template> Serve<T> for HandlerCaller<A> {
    fn serve(&self, handler: Arc<Handler>, input: T::Input, context: T::Context, span: Span) -> Served {
        let (info, threads) = (handler.adapter().clone(), handler.threads().cloned());
        let call = async move {
            // The call holds the handler, which is therefore not closed meanwhile.
            let Some(adapter) = handler.object::<A>() else {
                return Err(failed(handler.adapter(), AdapterError::unavailable("the handler is closed")));
            };
            let name = handler.adapter().name;
            match contain_future(async { adapter.handle(input).await }).await {
                Ok(Ok(answer)) => T::respond(context, answer)
                    .map_err(|source| CallError::InvalidAnswer { adapter: name, source }),
                Ok(Err(error)) => Err(failed(handler.adapter(), error)),
                Err(panic) => {
                    panic.report(handler.adapter(), "handle");
                    Err(CallError::Panicked { adapter: name, message: panic.message })
                }
            }
        };
        let call = call.instrument(span);
        match threads {
            None => Box::pin(call),
            Some(threads) => Box::pin(async move {
                let stopped = || Err(failed(&info, AdapterError::unavailable(SHUTTING_DOWN)));
                threads.run(call).await.unwrap_or_else(stopped)
            }),
        }
    }
}

/// Returns the failure of a handler.
fn failed(adapter: &AdapterInfo, error: AdapterError) -> CallError {
    adapter.count_omitted_details(&error);
    CallError::Failed { adapter: adapter.name, source: Arc::new(error) }
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
    pub(crate) fn add<A: Handle<T>>(&mut self, index: usize, adapter: &'static str) {
        let serve = Arc::new(HandlerCaller::<A>(PhantomData));
        self.by_adapter.resize_with(index, || None);
        self.by_adapter.push(Some(ServingAdapter { adapter, serve, metrics: Arc::default() }));
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

    /// Finds the handler of a request.
    async fn handler(
        request: &mut T::Request,
        resolver: &dyn Resolver,
        caller: &Caller,
    ) -> Result<Arc<Handler>, CallError> {
        let adapter_config = T::take_adapter_config(request);
        // Instance names select a session only if the call carries no configuration.
        let instances = match adapter_config {
            Some(_) => Vec::new(),
            None => T::instance_names(request).collect(),
        };
        let call = CallContext { template: T::NAME, adapter_config, instances, caller };
        match resolver.open(&call) {
            Some(handler) => Ok(handler),
            None => resolver.resolve(call).await,
        }
    }

    /// Calls a handler, whose full name may be known.
    fn serve(
        &self,
        handler: Arc<Handler>,
        name: Option<&Arc<str>>,
        request: T::Request,
        caller: &Caller,
        record: &mut CallRecord,
    ) -> Result<Served, CallError> {
        let adapter = handler.adapter();
        let Some(Some(server)) = self.by_adapter.get(adapter.index) else {
            return Err(CallError::NotServed {
                adapter: adapter.name,
                template: T::NAME.to_owned(),
                served: adapter.template_names(),
            });
        };
        record.metrics = server.metrics.clone();
        record.adapter = Some(adapter.name);
        let span = call_span::<T>(adapter.name, &request, name, caller);
        let (input, context) = T::split(request, call_info(name, caller))?;
        Ok(server.serve.serve(handler, input, context, span))
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
            let mut record = CallRecord::new(self.unresolved.clone(), Instant::now());
            let name = resolver.handler_name();
            let served = async {
                let decoded = self.decode(request.clone());
                let mut request =
                    decoded.map_err(|source| CallError::Undecodable { message: T::METHOD, source })?;
                let handler = Self::handler(&mut request, resolver, &caller).await?;
                self.serve(handler, name, request, &caller, &mut record)?.await
            };
            let response = within(caller.deadline, T::NAME, served).await;
            record.end(&response, T::NAME, name, &caller, || {
                let request = T::Request::decode(request).ok()?;
                Some(instance_list(T::instance_names(&request)))
            });
            response.map(Response::framed)
        })
    }

    fn begin<'a>(&self, call: LocalCall<'a>) -> BegunCall<'a> {
        let LocalCall { start, handler, name, instances, instance_names, dedup_id, quota_request, caller } =
            call;
        let mut record = CallRecord::new(self.unresolved.clone(), start);
        let mut undecodable = None;
        let instances = instances
            .iter_mut()
            .map_while(|instance| instance.take().map_err(|source| undecodable = Some(source)).ok());
        let request = T::request(instances, dedup_id, quota_request);
        let served = match undecodable {
            Some(source) => Err(CallError::Undecodable { message: T::METHOD, source }),
            None => self.serve(handler, Some(name), request, caller, &mut record),
        };
        BegunCall { template: T::NAME, name, instance_names, caller, record, served }
    }

    fn local_instance(&self, encoded: &[u8]) -> Result<Box<dyn LocalInstance>, DecodeError> {
        Ok(Box::new(T::Instance::decode(encoded)?))
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
    took: Option<Duration>,
    code: tonic::Code,
}

impl CallRecord {
    fn new(metrics: Arc<CallMetrics>, start: Instant) -> Self {
        Self { metrics, adapter: None, start, took: None, code: tonic::Code::Cancelled }
    }

    /// Ends the record, and returns how long the call took. Logs a failed call, at most ten lines of each code in ten seconds.
    fn end(
        &mut self,
        response: &Result<Response, CallError>,
        template: &'static str,
        handler: Option<&Arc<str>>,
        caller: &Caller,
        instances: impl FnOnce() -> Option<String>,
    ) -> Duration {
        let took = *self.took.insert(self.start.elapsed());
        let Err(error) = response else {
            self.code = tonic::Code::Ok;
            return took;
        };
        self.code = tonic::Code::from(error.code() as i32);
        self.metrics.set_last_failure(self.code, error);
        let failure: (i32, &dyn fmt::Display) = (error.code() as i32, error);
        log_failure(&self.metrics.failure_log, "call failed", caller, failure, || FailedCall {
            adapter: self.adapter.or_else(|| error.adapter()),
            template: Some(template),
            handler: handler.map(|name| &**name),
            instance: instances(),
        });
        took
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        self.metrics.record(self.code, self.took.unwrap_or_else(|| self.start.elapsed()));
    }
}

/// Returns the information about a call that the handler receives.
fn call_info(handler: Option<&Arc<str>>, caller: &Caller) -> CallInfo {
    let Caller { deadline, peer, request_id, metadata, .. } = caller;
    CallInfo {
        deadline: *deadline,
        dedup_id: String::new(),
        peer: peer.clone(),
        request_id: request_id.clone(),
        metadata: metadata.clone(),
        handler: handler.cloned(),
    }
}

/// Makes the span in which a handler is called. It is of level DEBUG, because making one costs as much as a fifth of a call; one
/// that is not enabled costs nothing.
fn call_span<T: Template>(
    adapter: &'static str,
    request: &T::Request,
    handler: Option<&Arc<str>>,
    caller: &Caller,
) -> Span {
    tracing::debug_span!(
        target: "mixer_adapter::call",
        "call",
        adapter,
        template = T::NAME,
        handler = handler.map(|name| &**name),
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
