//! The gRPC method of each template: decodes a request, finds the handler it is for, calls it and encodes the answer.

use std::{any::Any, marker::PhantomData, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use futures_util::FutureExt as _;
use prost::{Message, bytes::Bytes};

use super::{
    CallError, Handler,
    blocking::BlockingThreads,
    entry::{BoxFuture, SHUTTING_DOWN, panic_message},
};
use crate::metrics::CallMetrics;
use mixer_adapter_core::{
    adapter::{AdapterError, Handle},
    framework::frame::frame,
    proto::Any as AnyMessage,
    template::{Template, Variety},
};

/// What a call brings along to find the handler it runs with.
#[derive(Debug)]
pub struct Claim<'a> {
    /// The template called.
    pub template: &'static str,
    /// The configuration or session id in the request.
    pub adapter_config: Option<AnyMessage>,
    /// The full names of the request's instances.
    pub instances: Vec<&'a str>,
    /// The connection it came on; 0 for calls from within the process.
    pub connection: u64,
}

/// Finds the handler that a call runs with.
pub trait Resolver: Send + Sync {
    /// The handler, if it is open already and found without waiting. Takes nothing from the claim.
    fn open(&self, claim: &Claim<'_>) -> Option<Arc<Handler>>;
    /// The handler, opened if need be.
    fn resolve<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Arc<Handler>, CallError>>;
}

/// Where and when a call came in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// The connection; 0 for calls from within the process.
    pub connection: u64,
    /// When its caller stops waiting.
    pub deadline: Option<tokio::time::Instant>,
}

/// A gRPC method without its types.
pub trait Method: Send + Sync {
    /// Serves one request. The answer is a whole gRPC frame: five bytes of prefix, then the message.
    fn call<'a>(
        &'a self,
        request: Bytes,
        resolver: &'a dyn Resolver,
        caller: Caller,
    ) -> BoxFuture<'a, Result<Bytes, CallError>>;

    /// Its template's `Type` message, decoded and encoded again.
    fn canonical_type(&self, encoded: Bytes) -> Result<Bytes, prost::DecodeError>;

    /// The metrics of its calls, each with the adapter called; empty for calls that reached none.
    fn metrics(&self) -> Vec<(&'static str, Arc<CallMetrics>)>;

    /// The name of its template.
    fn template(&self) -> (&'static str, Variety);
}

/// Serves one template for one adapter.
trait Serve<T: Template>: Send + Sync {
    fn serve(&self, handler: Arc<Handler>, input: T::Input)
    -> BoxFuture<'static, Result<T::Answer, Failure>>;
}

enum Failure {
    Error(AdapterError),
    Panic(Box<dyn Any + Send>),
}

pub(crate) struct TypedServer<A> {
    threads: Option<BlockingThreads>,
    adapter: PhantomData<fn() -> A>,
}

impl<A> TypedServer<A> {
    pub(crate) fn new(threads: Option<BlockingThreads>) -> Self {
        Self { threads, adapter: PhantomData }
    }
}

impl<A: Handle<T>, T: Template> Serve<T> for TypedServer<A> {
    fn serve(
        &self,
        handler: Arc<Handler>,
        input: T::Input,
    ) -> BoxFuture<'static, Result<T::Answer, Failure>> {
        let call = async move {
            // The call holds the handler, so that it is not closed under it.
            let Some(adapter) = handler.object::<A>() else {
                return Err(Failure::Error(AdapterError::unavailable("the handler is closed")));
            };
            match AssertUnwindSafe(async { adapter.handle(input).await }).catch_unwind().await {
                Ok(answer) => answer.map_err(Failure::Error),
                Err(panic) => Err(Failure::Panic(panic)),
            }
        };
        match self.threads.clone() {
            None => Box::pin(call),
            Some(threads) => Box::pin(async move {
                threads
                    .run(call)
                    .await
                    .unwrap_or_else(|| Err(Failure::Error(AdapterError::unavailable(SHUTTING_DOWN))))
            }),
        }
    }
}

/// The adapters that serve one template, by their index.
pub(crate) struct Servers<T: Template> {
    by_adapter: Vec<Option<Server<T>>>,
    unresolved: Arc<CallMetrics>,
}

struct Server<T: Template> {
    adapter: &'static str,
    serve: Arc<dyn Serve<T>>,
    metrics: Arc<CallMetrics>,
}

impl<T: Template> Clone for Server<T> {
    fn clone(&self) -> Self {
        Self { adapter: self.adapter, serve: self.serve.clone(), metrics: self.metrics.clone() }
    }
}

impl<T: Template> Clone for Servers<T> {
    fn clone(&self) -> Self {
        Self { by_adapter: self.by_adapter.clone(), unresolved: self.unresolved.clone() }
    }
}

impl<T: Template> Default for Servers<T> {
    fn default() -> Self {
        Self { by_adapter: Vec::new(), unresolved: Arc::default() }
    }
}

impl<T: Template> Servers<T> {
    pub(crate) fn add<A: Handle<T>>(&mut self, index: usize, server: Arc<TypedServer<A>>) {
        self.by_adapter.resize_with(index, || None);
        self.by_adapter.push(Some(Server { adapter: A::NAME, serve: server, metrics: Arc::default() }));
    }

    async fn serve(
        &self,
        mut request: T::Request,
        resolver: &dyn Resolver,
        caller: Caller,
        timed: &mut Timed,
    ) -> Result<T::Response, CallError> {
        let adapter_config = T::take_adapter_config(&mut request);
        let handler = {
            // The names only matter where nothing else tells whose configuration is meant.
            let instances = match adapter_config {
                Some(_) => Vec::new(),
                None => T::instance_names(&request).collect(),
            };
            let claim = Claim { template: T::NAME, adapter_config, instances, connection: caller.connection };
            match resolver.open(&claim) {
                Some(handler) => handler,
                None => resolver.resolve(claim).await?,
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
        timed.metrics = server.metrics.clone();
        let (input, asked) = T::split(request)?;
        let answer = server.serve.serve(handler, input).await.map_err(|failure| match failure {
            Failure::Error(error) => CallError::Failed { adapter: adapter.name, source: Arc::new(error) },
            Failure::Panic(panic) => {
                adapter.panics.inc();
                CallError::Panicked { adapter: adapter.name, message: panic_message(&*panic).to_owned() }
            }
        })?;
        T::respond(asked, answer).map_err(|source| CallError::InvalidAnswer { adapter: adapter.name, source })
    }
}

impl<T: Template> Method for Servers<T> {
    fn call<'a>(
        &'a self,
        request: Bytes,
        resolver: &'a dyn Resolver,
        caller: Caller,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        Box::pin(async move {
            let mut timed = Timed {
                metrics: self.unresolved.clone(),
                start: Instant::now(),
                code: tonic::Code::Cancelled,
            };
            let request = T::Request::decode(request)
                .map_err(|source| CallError::Undecodable { message: T::METHOD, source });
            let answer = match request {
                Err(error) => Err(error),
                Ok(request) => {
                    let served = self.serve(request, resolver, caller, &mut timed);
                    match caller.deadline {
                        None => served.await,
                        Some(deadline) => match tokio::time::timeout_at(deadline, served).await {
                            Ok(answer) => answer,
                            Err(_) => Err(CallError::DeadlineExceeded { stage: T::NAME }),
                        },
                    }
                }
            };
            timed.code = match &answer {
                Ok(_) => tonic::Code::Ok,
                Err(error) => tonic::Code::from(error.code() as i32),
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

/// Records a call when it ends, also when it ends by its caller going away.
struct Timed {
    metrics: Arc<CallMetrics>,
    start: Instant,
    code: tonic::Code,
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.metrics.record(self.code, self.start.elapsed());
    }
}
