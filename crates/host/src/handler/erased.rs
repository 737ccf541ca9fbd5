//! Adapters and handlers without their types.

use std::{any::Any, fmt, marker::PhantomData, pin::Pin, sync::Arc};

use prost::{Message as _, bytes::Bytes};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;

use super::{
    AdapterInfo, Closing,
    blocking::{BlockingThreads, FreeThread, OpeningThreads, SHUTTING_DOWN},
    panics::{PanicError, contain, contain_future},
};
use mixer_adapter_core::{
    adapter::{Access, Adapter, AdapterError, Code, InferredTypes, Violation},
    framework::{RetainedStates, digest::Digest, with_retained_states},
};

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open handler: an adapter with one configuration. It is closed when no session, cache entry or call holds it.
pub struct Handler {
    adapter: Arc<AdapterInfo>,
    object: Option<Box<dyn Any + Send + Sync>>,
    close: fn(Box<dyn Any + Send + Sync>) -> BoxFuture<'static, ()>,
    threads: Option<BlockingThreads>,
    closing: Closing,
    bytes: usize,
    // Dropped after the closing task is spawned, so that the count of open handlers is never zero in between.
    _open: TaskTrackerToken,
}

impl Handler {
    /// Returns the adapter.
    pub fn adapter(&self) -> &Arc<AdapterInfo> {
        &self.adapter
    }

    /// Returns an estimate of the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn object<A: Adapter>(&self) -> Option<&A> {
        self.object.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handler({})", self.adapter.name)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        let (close, adapter, threads) = (self.close, self.adapter.clone(), self.threads.clone());
        self.closing.spawn(async move {
            let span = tracing::info_span!("close", adapter = adapter.name);
            let closing = contain_future(async move { close(object).await }).instrument(span);
            let closed = match threads {
                None => Some(closing.await),
                Some(threads) => threads.run(closing).await,
            };
            // A panic in `close` is a defect of the adapter; the handler is closed nevertheless.
            if let Some(Err(panic)) = closed {
                panic.report(&adapter, "close");
            }
        });
    }
}

/// An adapter without its type.
pub(crate) trait AnyAdapter: Send + Sync {
    fn info(&self) -> &Arc<AdapterInfo>;
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
    /// Validates on a thread that may block.
    fn validate(
        &self,
        thread: FreeThread,
        config: Bytes,
        types: InferredTypes,
        access: Access,
    ) -> BoxFuture<'_, Result<(), AdapterError>>;
    /// Opens a handler on a thread that may block.
    fn open(
        &self,
        thread: FreeThread,
        config: Bytes,
        access: Access,
        state: OpeningState,
        closing: Closing,
    ) -> BoxFuture<'_, Result<Handler, AdapterError>>;
}

/// Where a handler takes its retained state from.
#[derive(Clone)]
pub(crate) struct OpeningState {
    pub(crate) states: Arc<RetainedStates>,
    pub(crate) digest: Digest,
}

/// An estimate of the memory of a handler with an empty configuration, in bytes.
const HANDLER_BYTES: usize = 512;

pub(crate) struct Typed<A> {
    pub(crate) info: Arc<AdapterInfo>,
    pub(crate) threads: Option<BlockingThreads>,
    pub(crate) opening: OpeningThreads,
    pub(crate) adapter: PhantomData<fn() -> A>,
}

impl<A: Adapter> Typed<A> {
    fn decode(config: Bytes) -> Result<A::Config, AdapterError> {
        A::Config::decode(config).map_err(|error| AdapterError::invalid(error.to_string()))
    }

    fn validate_config(
        info: &AdapterInfo,
        config: Bytes,
        types: &InferredTypes,
        access: &Access,
    ) -> Result<(), AdapterError> {
        let config = Self::decode(config)?;
        let _span = tracing::info_span!("validate", adapter = info.name).entered();
        let validated = contain(|| A::validate_within(&config, types, access));
        validated.map_err(|panic| panicked(info, &panic, "validate"))?.map_err(AdapterError::from)
    }
}

fn shutting_down() -> AdapterError {
    AdapterError::unavailable(SHUTTING_DOWN)
}

fn panicked(info: &AdapterInfo, panic: &PanicError, method: &'static str) -> AdapterError {
    panic.report(info, method);
    AdapterError::new(Code::Internal, format!("it panicked: {}", panic.message))
}

impl<A: Adapter> AnyAdapter for Typed<A> {
    fn info(&self) -> &Arc<AdapterInfo> {
        &self.info
    }

    fn canonical(&self, config: Bytes) -> Result<Bytes, prost::DecodeError> {
        A::Config::decode(config).map(|config| config.encode_to_vec().into())
    }

    fn validate_blocking(
        &self,
        config: &Bytes,
        types: &InferredTypes,
        access: &Access,
    ) -> Result<(), AdapterError> {
        Self::validate_config(&self.info, config.clone(), types, access)
    }

    fn warnings(&self, config: &Bytes, types: &InferredTypes) -> Vec<Violation> {
        let Ok(config) = Self::decode(config.clone()) else { return Vec::new() };
        contain(|| A::warnings(&config, types)).unwrap_or_else(|panic| {
            panic.report(&self.info, "warnings");
            Vec::new()
        })
    }

    fn opening(&self) -> &OpeningThreads {
        &self.opening
    }

    fn validate(
        &self,
        thread: FreeThread,
        config: Bytes,
        types: InferredTypes,
        access: Access,
    ) -> BoxFuture<'_, Result<(), AdapterError>> {
        let info = self.info.clone();
        let validated = thread.run(async move { Self::validate_config(&info, config, &types, &access) });
        Box::pin(async { validated.await.ok_or_else(shutting_down)? })
    }

    fn open(
        &self,
        thread: FreeThread,
        config: Bytes,
        access: Access,
        state: OpeningState,
        closing: Closing,
    ) -> BoxFuture<'_, Result<Handler, AdapterError>> {
        Box::pin(async move {
            let estimated = HANDLER_BYTES + A::BYTES_PER_CONFIG_BYTE.saturating_mul(config.len());
            let info = self.info.clone();
            let opening = async move {
                let config = Self::decode(config)?;
                let opening = contain_future(async { A::open_within(config, access).await });
                opening.await.unwrap_or_else(|panic| Err(panicked(&info, &panic, "open")))
            };
            let opening = with_retained_states(state.states, state.digest, opening);
            let span = tracing::info_span!("open", adapter = self.info.name);
            let object = thread.run(opening.instrument(span)).await.ok_or_else(shutting_down)??;
            let bytes = estimated.saturating_add(object.additional_bytes());
            Ok(Handler {
                adapter: self.info.clone(),
                object: Some(Box::new(object)),
                close: |object| match object.downcast::<A>() {
                    Ok(adapter) => Box::pin(adapter.close()),
                    Err(_) => Box::pin(std::future::ready(())),
                },
                threads: self.threads.clone(),
                bytes,
                _open: closing.opened(),
                closing,
            })
        })
    }
}
