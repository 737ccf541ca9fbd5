//! The table of handlers: opens each configuration once, and shares the handler.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use moka::sync::Cache;
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    AdapterInfo, Adapters, CallError, Closing, Handler,
    blocking::{FreeThread, Opener, SHUTTING_DOWN},
    cache::{Capacity, HandlerCache},
    erased::{AnyAdapter, NewHandler, Purpose},
    handler_index::{Entry, HandlerIndex, LockedEntry},
};
use crate::access_policy::{AccessPolicy, Origin};
use mixer_adapter_core::framework::{debug_fields, settings};
use mixer_adapter_core::{
    adapter::{Access, AdapterError, InferredTypes, Violation},
    framework::{RetainedStates, digest::Digest, json::JsonError},
    retention::RetentionLimits,
};

settings! {
    /// Limits of the handler table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct TableLimits {
        /// The maximum number of handlers cached for configurations that came with calls.
        cached_handlers: usize = 10_000,
        /// The maximum memory of these handlers in bytes, as estimated from their configurations
        /// ([`Adapter::BYTES_PER_CONFIG_BYTE`](mixer_adapter_core::Adapter::BYTES_PER_CONFIG_BYTE)).
        cached_bytes: usize = 64 << 20,
        /// The maximum size in bytes of the configuration of a call or a session.
        max_config_size: usize = 2 << 20,
        /// Evicts a cached handler after this time without a call; `None` disables eviction by time.
        idle: Option<Duration> = Some(Duration::from_secs(24 * 60 * 60)),
        /// Evicts a cached handler after this time without a call if another one of its adapter was opened since: its configuration was
        /// probably replaced.
        superseded: Duration = Duration::from_secs(60),
        /// How long the [state](mixer_adapter_core::retention) of closed handlers is retained.
        state_retention: Duration = Duration::from_secs(60 * 60),
        /// The maximum memory of this state in bytes.
        state_bytes: usize = 64 << 20,
        /// How long a refusal is returned before the configuration is tried again.
        remember_refusals: Duration = Duration::from_secs(5),
        /// How long an adapter may take to open a handler; then it is refused as UNAVAILABLE.
        open_timeout: Duration = Duration::from_secs(60),
    }
}

/// Opens each configuration once, and caches handlers of configurations that come with calls.
///
/// A handler is open as long as a session, the cache or a call holds it. Equal configurations share the open handler,
/// with or without a session.
pub struct HandlerTable {
    adapters: Arc<Adapters>,
    cache: Arc<HandlerCache>,
    open: Mutex<HandlerIndex>,
    refusals: Refusals,
    states: Arc<RetainedStates>,
    state_limits: RetentionLimits,
    open_timeout: Duration,
    /// The maximum size of the configuration of a call or a session.
    pub(crate) max_config_size: usize,
    pub(crate) access: AccessPolicy,
    closing: Closing,
}

/// Recently refused configurations with the refusal.
type Refusals = Cache<Digest, CallError>;

/// The maximum number of remembered refusals.
const REFUSALS: u64 = 1_000;

debug_fields!(HandlerTable { adapters });

impl HandlerTable {
    /// Creates an empty table.
    pub fn new(adapters: Arc<Adapters>, limits: TableLimits, closing: Closing) -> Self {
        let capacity = Capacity { handlers: limits.cached_handlers, bytes: limits.cached_bytes };
        let cache =
            Arc::new(HandlerCache::new(adapters.iter().count(), capacity, limits.idle, limits.superseded));
        let refusals = Cache::builder().max_capacity(REFUSALS).time_to_live(limits.remember_refusals).build();
        let state_limits = RetentionLimits::new(limits.state_bytes, limits.state_retention);
        let states = RetainedStates::new(state_limits);
        let open_timeout = limits.open_timeout;
        Self {
            adapters,
            cache,
            open: Mutex::default(),
            refusals,
            states: Arc::new(states),
            state_limits,
            open_timeout,
            max_config_size: limits.max_config_size,
            access: AccessPolicy::default(),
            closing,
        }
    }

    /// Returns what configurations of an origin may reach.
    pub fn access(&self, origin: Origin) -> Access {
        self.access.of(origin)
    }

    /// Checks that a call or a session may configure an adapter.
    pub(crate) fn check_configurable(&self, adapter: &AdapterInfo) -> Result<(), CallError> {
        let names = self.access.adapters_in_calls.as_ref();
        if names.is_none_or(|names| names.contains(adapter.name)) {
            Ok(())
        } else {
            Err(CallError::NotInCalls { adapter: adapter.name })
        }
    }

    /// Returns the handler cached for exactly these bytes of configuration.
    pub(crate) fn cached(&self, adapter: &AdapterInfo, config: &Bytes) -> Option<Arc<Handler>> {
        self.cache.get(adapter.index, config)
    }

    /// Caches a handler for exactly these bytes of configuration.
    pub(crate) fn cache(&self, handler: &Arc<Handler>, config: &Bytes) {
        // Copied, because the bytes of a request share its receive buffer.
        self.cache.insert(handler.adapter().index, Bytes::copy_from_slice(config), handler);
    }

    /// Returns the number of cached handlers.
    pub fn cached_count(&self) -> usize {
        self.cache.count()
    }

    /// Returns how many handlers were evicted from the cache, by adapter.
    pub fn evicted_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.adapters.iter().map(|adapter| (adapter.name, self.cache.evicted(adapter.index)))
    }

    /// Returns the state of closed handlers.
    pub fn states(&self) -> &RetainedStates {
        &self.states
    }

    /// Returns the number of open handlers.
    pub fn live_count(&self) -> usize {
        self.open.lock().count()
    }

    /// Evicts idle handlers. Called periodically, because an idle cache does not evict by itself.
    pub fn sweep(&self) {
        self.cache.sweep();
        self.open.lock().sweep();
        self.states.sweep(Instant::now());
    }

    /// Empties the cache. Handlers that nothing else holds are closed.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// Decodes and encodes a configuration with the adapter's types, which makes its bytes canonical.
    ///
    /// # Errors
    /// [`CallError::Unreadable`] if it does not decode.
    pub fn canonical(&self, adapter: &AdapterInfo, config: Bytes) -> Result<Bytes, CallError> {
        self.adapters.entry(adapter).canonical(config).map_err(|error| CallError::Unreadable {
            adapter: adapter.name,
            source: JsonError::whole(error.to_string()),
        })
    }

    /// Validates a canonical configuration with the adapter, on the thread of the caller, which may block.
    ///
    /// # Errors
    /// [`CallError::Refused`] with the faults that the adapter finds.
    pub fn validate_blocking(
        &self,
        adapter: &AdapterInfo,
        config: &Bytes,
        types: &InferredTypes,
        origin: Origin,
    ) -> Result<(), CallError> {
        let access = self.access(origin);
        self.adapters
            .entry(adapter)
            .validate_blocking(config, types, &access)
            .map_err(|error| refused(adapter, error))
    }

    /// Returns the probable mistakes that the adapter finds in a valid canonical configuration.
    pub fn warnings(&self, adapter: &AdapterInfo, config: &Bytes, types: &InferredTypes) -> Vec<Violation> {
        self.adapters.entry(adapter).warnings(config, types)
    }

    /// Validates the canonical configuration of a call or a session on a connection with the adapter, on a thread that may block.
    ///
    /// # Errors
    /// [`CallError::Refused`] with the faults that the adapter finds.
    pub(crate) async fn validate(
        &self,
        adapter: &AdapterInfo,
        config: &Bytes,
        types: &InferredTypes,
        connection: u64,
    ) -> Result<(), CallError> {
        let (access, entry) = (self.access(Origin::Call), self.adapters.entry(adapter).clone());
        let (config, types) = (config.clone(), types.clone());
        let validating = async {
            let stopped = || AdapterError::unavailable(SHUTTING_DOWN);
            let thread = entry.opening().wait(Opener::Connection(connection)).await.ok_or_else(stopped)?;
            let validated = thread.run(async move { entry.validate_blocking(&config, &types, &access) });
            validated.await.ok_or_else(stopped)?
        };
        let validated = tokio::time::timeout(self.open_timeout, validating).await.unwrap_or_else(|_| {
            let text = format!("its configuration was not validated after {:?}", self.open_timeout);
            Err(AdapterError::unavailable(text))
        });
        validated.map_err(|error| refused(adapter, error))
    }

    /// Returns the open handler of a canonical configuration of the server, or opens one. Concurrent callers share one opening.
    ///
    /// # Errors
    /// [`CallError::Refused`] if the adapter refuses the configuration, or did so in the last seconds.
    pub async fn open(
        &self,
        adapter: &AdapterInfo,
        config: Bytes,
        origin: Origin,
        purpose: Purpose,
    ) -> Result<Arc<Handler>, CallError> {
        self.open_for(Opener::Configuration, adapter, config, origin, purpose).await
    }

    /// Like [`open`](Self::open), for a call or a session on a connection.
    ///
    /// A handler is opened on threads that may block and outlive calls. If the deadline of a call passes while it is opened, the
    /// handler is cached for the next call.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub(crate) async fn open_in_call(
        &self,
        adapter: &AdapterInfo,
        config: Bytes,
        types: &InferredTypes,
        connection: u64,
    ) -> Result<Arc<Handler>, CallError> {
        let purpose = Purpose { types: types.clone(), ..Purpose::default() };
        self.open_for(Opener::Connection(connection), adapter, config, Origin::Call, purpose).await
    }

    async fn open_for(
        &self,
        opener: Opener,
        adapter: &AdapterInfo,
        config: Bytes,
        origin: Origin,
        purpose: Purpose,
    ) -> Result<Arc<Handler>, CallError> {
        let access = self.access(origin);
        // Handlers with different rights are not shared.
        let rights: &[u8] = if access.is_limited() { b"limited" } else { b"" };
        let sharing: &[u8] = if purpose.is_apart { b"apart" } else { b"" };
        let digest = Digest::of([adapter.name.as_bytes(), &config, rights, sharing]);
        let entry = self.open.lock().entry(digest);
        // Without retention, a handler does not even continue the state of a handler that is being closed.
        let states = if self.state_limits.time.is_zero() {
            Arc::new(RetainedStates::new(self.state_limits))
        } else {
            self.states.clone()
        };
        let closing = self.closing.clone();
        let opening = Opening {
            opener,
            adapter: self.adapters.entry(adapter).clone(),
            new: NewHandler { config: config.clone(), access, purpose, states, digest, closing },
            refusals: self.refusals.clone(),
            timeout: self.open_timeout,
        };
        let (mut answer, opened) = oneshot::channel();
        let (cache, index) = (self.cache.clone(), adapter.index);
        self.closing.runtime().spawn(async move {
            let begun = tokio::select! {
                biased;
                // Nobody waits for it any more.
                () = answer.closed() => return,
                begun = opening.begin(&entry) => begun,
            };
            let outcome = match begun {
                Ok(Begun::Opened(handler)) => Ok(handler),
                Ok(Begun::Opening(entry, thread)) => opening.finish(entry, thread).await,
                Err(refusal) => Err(refusal),
            };
            // Calls find cached handlers, so those with the rights of others are not cached.
            if let Err(Ok(unclaimed)) = answer.send(outcome)
                && origin == Origin::Call
            {
                cache.insert(index, config, &unclaimed);
            }
        });
        opened.await.unwrap_or_else(|_| Err(refused(adapter, AdapterError::unavailable(SHUTTING_DOWN))))
    }
}

/// The opening of one configuration.
struct Opening {
    opener: Opener,
    adapter: Arc<dyn AnyAdapter>,
    new: NewHandler,
    refusals: Refusals,
    timeout: Duration,
}

/// The outcome of [`Opening::begin`].
enum Begun<'e> {
    /// Another caller has opened the handler.
    Opened(Arc<Handler>),
    /// The handler can be opened on this thread.
    Opening(LockedEntry<'e>, FreeThread),
}

impl Opening {
    /// Waits until nobody else opens the handler, and for a thread.
    async fn begin<'e>(&self, entry: &'e Entry) -> Result<Begun<'e>, CallError> {
        let handler = entry.lock().await;
        if let Some(handler) = handler.upgrade() {
            return Ok(Begun::Opened(handler));
        }
        if let Some(refusal) = self.refusals.get(&self.new.digest) {
            return Err(refusal);
        }
        let thread = tokio::time::timeout(self.timeout, self.adapter.opening().wait(self.opener)).await;
        let late =
            |_| AdapterError::unavailable(format!("no thread was free to open it after {:?}", self.timeout));
        let thread = thread
            .map_err(late)
            .and_then(|thread| thread.ok_or_else(|| AdapterError::unavailable(SHUTTING_DOWN)));
        Ok(Begun::Opening(handler, thread.map_err(|error| refused(self.adapter.info(), error))?))
    }

    /// Opens the handler.
    async fn finish(
        self,
        mut handler: LockedEntry<'_>,
        thread: FreeThread,
    ) -> Result<Arc<Handler>, CallError> {
        let digest = self.new.digest;
        let opening = self.adapter.clone().open(thread, self.new);
        let not_open =
            |_| Err(AdapterError::unavailable(format!("it was not open after {:?}", self.timeout)));
        match tokio::time::timeout(self.timeout, opening).await.unwrap_or_else(not_open) {
            Ok(opened) => {
                let opened = Arc::new(opened);
                *handler = Arc::downgrade(&opened);
                Ok(opened)
            }
            Err(error) => {
                let refusal = refused(self.adapter.info(), error);
                self.refusals.insert(digest, refusal.clone());
                Err(refusal)
            }
        }
    }
}

fn refused(adapter: &AdapterInfo, error: AdapterError) -> CallError {
    adapter.count_omitted_details(&error);
    CallError::Refused { adapter: adapter.name, source: Arc::new(error) }
}
