//! Adapters and handlers without their types.

use std::{any::Any, fmt, marker::PhantomData, pin::Pin, sync::Arc};

use prost::{Message as _, bytes::Bytes};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;

use super::{
    AdapterInfo, Closing,
    blocking::{BlockingThreads, FreeThread, OpeningThreads, SHUTTING_DOWN},
    http::Transport,
    panics::{PanicError, contain, contain_future},
};
use mixer_adapter_core::{
    adapter::{Access, Adapter, AdapterError, Code, Context, Faults, InferredTypes, Settings, Violation},
    framework::{Environment, RetainedStates, Shared, Tasks, Warnings, digest::Digest},
    metrics::Metrics,
};
use mixer_adapter_net::tls::SystemClient;

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open handler: an adapter with one configuration. It is closed when no session, cache entry or call holds it.
pub struct Handler {
    adapter: Arc<dyn AnyAdapter>,
    object: Option<Box<dyn Any + Send + Sync>>,
    parts: Option<Box<OwnedParts>>,
    closing: Closing,
    bytes: usize,
    // Dropped after the closing task is spawned, so that the count of open handlers is never zero in between.
    _open: TaskTrackerToken,
}

impl Handler {
    /// Returns the adapter.
    pub fn adapter(&self) -> &Arc<AdapterInfo> {
        self.adapter.info()
    }

    /// Returns the threads on which it is called and closed, if its adapter blocks.
    pub(crate) fn threads(&self) -> Option<&BlockingThreads> {
        self.adapter.threads()
    }

    /// Returns an estimate of the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn object<A: 'static>(&self) -> Option<&A> {
        self.object.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handler({})", self.adapter().name)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        let (adapter, parts) = (self.adapter.clone(), self.parts.take());
        self.closing.spawn(async move {
            let span = tracing::info_span!("close", adapter = adapter.info().name);
            let closer = adapter.clone();
            let closing = contain_future(async move { closer.close(object).await }).instrument(span);
            let closed = match adapter.threads() {
                None => Some(closing.await),
                Some(threads) => threads.run(closing).await,
            };
            drop(parts);
            // A panic in `close` is a defect of the adapter; the handler is closed nevertheless.
            if let Some(Err(panic)) = closed {
                panic.report(adapter.info(), "close");
            }
        });
    }
}

/// An adapter without its type.
pub(crate) trait AnyAdapter: Send + Sync {
    fn info(&self) -> &Arc<AdapterInfo>;
    /// The threads on which its handlers are called and closed, if it blocks.
    fn threads(&self) -> Option<&BlockingThreads>;
    /// Decodes and encodes a configuration: maps become sorted, and unknown fields are dropped.
    fn canonical(&self, config: Bytes) -> Result<Bytes, prost::DecodeError>;
    /// Validates on the thread of the caller, which may block.
    fn validate_blocking(
        &self,
        config: &Bytes,
        types: &InferredTypes,
        access: &Access,
    ) -> Result<(), AdapterError>;
    /// Returns the probable mistakes of a valid configuration.
    fn warnings(&self, config: &Bytes, types: &InferredTypes) -> Vec<Violation>;
    /// The threads on which its handlers are opened and configurations validated.
    fn opening(&self) -> &OpeningThreads;
    /// Opens a handler on a thread that may block.
    fn open(
        self: Arc<Self>,
        thread: FreeThread,
        new: NewHandler,
    ) -> BoxFuture<'static, Result<Handler, AdapterError>>;
    /// Closes a handler, on the thread of the caller.
    fn close(&self, handler: Box<dyn Any + Send + Sync>) -> BoxFuture<'static, ()>;
}

/// A handler to open. It takes its state from `states`, by the digest.
pub(crate) struct NewHandler {
    pub(crate) config: Bytes,
    pub(crate) access: Access,
    pub(crate) purpose: Purpose,
    pub(crate) states: Arc<RetainedStates>,
    pub(crate) digest: Digest,
    pub(crate) closing: Closing,
}

/// The purpose for which a handler is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Purpose {
    /// The full name of the configured handler; `None` for calls and sessions.
    pub handler: Option<Arc<str>>,
    /// The types of the instances that will be sent, if they are known.
    pub types: InferredTypes,
    /// Whether nothing that counts may share the handler and its state.
    pub is_apart: bool,
}

impl Purpose {
    /// Opens a handler for a configured one.
    pub fn configured(handler: impl Into<Arc<str>>, types: InferredTypes) -> Self {
        Self { handler: Some(handler.into()), types, is_apart: false }
    }

    /// Sets whether nothing that counts may share the handler and its state.
    #[must_use]
    pub fn apart(self, is_apart: bool) -> Self {
        Self { is_apart, ..self }
    }
}

/// The tasks and metrics of a handler, which end when this is dropped.
struct OwnedParts {
    tasks: Arc<Tasks>,
    metrics: Metrics,
}

impl OwnedParts {
    /// Returns whether the handler uses them or can, because it keeps its context.
    fn are_used(&mut self) -> bool {
        Arc::get_mut(&mut self.tasks).is_none_or(|tasks| !tasks.is_empty()) || self.metrics.is_shared()
    }
}

impl Drop for OwnedParts {
    fn drop(&mut self) {
        self.tasks.end();
        self.metrics.end();
    }
}

/// An estimate of the memory of a handler with an empty configuration, in bytes.
const HANDLER_BYTES: usize = 512;

pub(crate) struct Typed<A, S> {
    pub(crate) info: Arc<AdapterInfo>,
    pub(crate) threads: Option<BlockingThreads>,
    pub(crate) opening: OpeningThreads,
    pub(crate) state: Arc<S>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) warnings: Arc<Warnings>,
    pub(crate) tls: Arc<SystemClient>,
    pub(crate) adapter: PhantomData<fn() -> A>,
}

impl<A: Adapter<S>, S> Typed<A, S> {
    fn decode(config: Bytes) -> Result<<A::Config as Settings>::Params, prost::DecodeError> {
        <A::Config as Settings>::Params::decode(config)
    }

    /// Parses a configuration, and returns its probable mistakes, too.
    fn parse(
        info: &AdapterInfo,
        config: Bytes,
        types: &InferredTypes,
        access: &Access,
    ) -> (Result<A::Config, AdapterError>, Vec<Violation>) {
        let params = match Self::decode(config) {
            Ok(params) => params,
            Err(error) => return (Err(AdapterError::invalid(error.to_string())), Vec::new()),
        };
        let _span = tracing::info_span!("parse", adapter = info.name).entered();
        let mut faults = Faults::new(types, access);
        let parsed = contain(|| faults.settings::<A::Config>(params));
        let parsed = parsed.map_err(|panic| panicked(info, &panic, "parse"));
        (parsed.and_then(|parsed| Ok(parsed?)), faults.into_warnings())
    }
}

fn shutting_down() -> AdapterError {
    AdapterError::unavailable(SHUTTING_DOWN)
}

fn panicked(info: &AdapterInfo, panic: &PanicError, method: &'static str) -> AdapterError {
    panic.report(info, method);
    AdapterError::new(Code::Internal, format!("it panicked: {}", panic.message))
}

impl<A: Adapter<S>, S: Send + Sync + 'static> AnyAdapter for Typed<A, S> {
    fn info(&self) -> &Arc<AdapterInfo> {
        &self.info
    }

    fn threads(&self) -> Option<&BlockingThreads> {
        self.threads.as_ref()
    }

    fn canonical(&self, config: Bytes) -> Result<Bytes, prost::DecodeError> {
        Self::decode(config).map(|config| config.encode_to_vec().into())
    }

    fn validate_blocking(
        &self,
        config: &Bytes,
        types: &InferredTypes,
        access: &Access,
    ) -> Result<(), AdapterError> {
        Self::parse(&self.info, config.clone(), types, access).0.map(drop)
    }

    fn warnings(&self, config: &Bytes, types: &InferredTypes) -> Vec<Violation> {
        Self::parse(&self.info, config.clone(), types, &Access::unrestricted()).1
    }

    fn opening(&self) -> &OpeningThreads {
        &self.opening
    }

    fn open(
        self: Arc<Self>,
        thread: FreeThread,
        new: NewHandler,
    ) -> BoxFuture<'static, Result<Handler, AdapterError>> {
        let NewHandler { config, access, purpose, states, digest, closing } = new;
        Box::pin(async move {
            let estimated = HANDLER_BYTES + A::BYTES_PER_CONFIG_BYTE.saturating_mul(config.len());
            let info = self.info.clone();
            let mut parts = OwnedParts {
                tasks: Arc::new(Tasks::new(Some(closing.runtime().clone()))),
                metrics: info.metrics.of_handler(purpose.handler.clone()),
            };
            let http = Transport::new(self.tls.clone(), access.clone(), closing.runtime().clone());
            let environment = Environment {
                adapter: info.name,
                handler: purpose.handler,
                types: purpose.types,
                access,
                tasks: parts.tasks.clone(),
                retained: Some((states, digest)),
                shared: self.shared.clone(),
                warnings: self.warnings.clone(),
                metrics: parts.metrics.clone(),
                http: Some(Arc::new(http)),
            };
            let program = self.state.clone();
            let opening = async move {
                // Types were validated with their session; handlers are shared by sessions with other types.
                let no_types = InferredTypes::default();
                let config = Self::parse(&info, config, &no_types, &environment.access).0?;
                let context = Context::new(program, environment);
                let opening = contain_future(async { A::open(config, context).await });
                opening.await.unwrap_or_else(|panic| Err(panicked(&info, &panic, "open")))
            };
            let span = tracing::info_span!("open", adapter = self.info.name);
            let object = thread.run(opening.instrument(span)).await.ok_or_else(shutting_down)??;
            let bytes = estimated.saturating_add(object.additional_bytes());
            Ok(Handler {
                adapter: self,
                object: Some(Box::new(object)),
                parts: parts.are_used().then(|| Box::new(parts)),
                bytes,
                _open: closing.opened(),
                closing,
            })
        })
    }

    fn close(&self, handler: Box<dyn Any + Send + Sync>) -> BoxFuture<'static, ()> {
        match handler.downcast::<A>() {
            Ok(handler) => Box::pin(handler.close()),
            Err(_) => Box::pin(std::future::ready(())),
        }
    }
}
