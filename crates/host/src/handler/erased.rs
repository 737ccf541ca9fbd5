//! Adapters and handlers without their types.

use std::{any::Any, fmt, marker::PhantomData, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use futures_util::FutureExt as _;
use prost::{Message as _, bytes::Bytes};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    AdapterInfo, Closing,
    blocking::{BlockingThreads, OpeningThreads},
};
use mixer_adapter_core::adapter::{Access, Adapter, AdapterError, Code, InferredTypes};

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
            let closing = AssertUnwindSafe(async move { close(object).await }).catch_unwind();
            let closed = match threads {
                None => Some(closing.await),
                Some(threads) => threads.run(closing).await,
            };
            // A panic in `close` is a defect of the adapter; the handler is closed nevertheless.
            if closed.is_some_and(|closed| closed.is_err()) {
                adapter.panics.inc();
                tracing::error!(adapter = adapter.name, "handler panicked in close");
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
    fn validate_blocking(&self, config: &Bytes, types: &InferredTypes) -> Result<(), AdapterError>;
    /// Validates on a thread that may block.
    fn validate(&self, config: Bytes, types: InferredTypes) -> BoxFuture<'_, Result<(), AdapterError>>;
    /// Opens a handler on a thread that may block.
    fn open(
        &self,
        config: Bytes,
        access: Access,
        closing: Closing,
    ) -> BoxFuture<'_, Result<Handler, AdapterError>>;
}

/// An estimate of the memory of a handler with an empty configuration, in bytes.
const HANDLER_BYTES: usize = 512;

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "without a message"
    }
}

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

    fn validate_config(info: &AdapterInfo, config: Bytes, types: &InferredTypes) -> Result<(), AdapterError> {
        let config = Self::decode(config)?;
        let validating = AssertUnwindSafe(|| A::validate(&config, types));
        std::panic::catch_unwind(validating)
            .map_err(|panic| panicked(info, &*panic))?
            .map_err(AdapterError::from)
    }
}

fn panicked(info: &AdapterInfo, panic: &(dyn Any + Send)) -> AdapterError {
    info.panics.inc();
    AdapterError::new(Code::Internal, format!("it panicked: {}", panic_message(panic)))
}

impl<A: Adapter> AnyAdapter for Typed<A> {
    fn info(&self) -> &Arc<AdapterInfo> {
        &self.info
    }

    fn canonical(&self, config: Bytes) -> Result<Bytes, prost::DecodeError> {
        A::Config::decode(config).map(|config| config.encode_to_vec().into())
    }

    fn validate_blocking(&self, config: &Bytes, types: &InferredTypes) -> Result<(), AdapterError> {
        Self::validate_config(&self.info, config.clone(), types)
    }

    fn validate(&self, config: Bytes, types: InferredTypes) -> BoxFuture<'_, Result<(), AdapterError>> {
        let info = self.info.clone();
        Box::pin(async move {
            self.opening.run(async move { Self::validate_config(&info, config, &types) }).await?
        })
    }

    fn open(
        &self,
        config: Bytes,
        access: Access,
        closing: Closing,
    ) -> BoxFuture<'_, Result<Handler, AdapterError>> {
        Box::pin(async move {
            let bytes = HANDLER_BYTES + A::BYTES_PER_CONFIG_BYTE.saturating_mul(config.len());
            let info = self.info.clone();
            let opening = async move {
                let config = Self::decode(config)?;
                let opening = AssertUnwindSafe(async { A::open_within(config, access).await });
                opening.catch_unwind().await.unwrap_or_else(|panic| Err(panicked(&info, &*panic)))
            };
            let object = self.opening.run(opening).await??;
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
