use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use moka::sync::Cache;
use prost::bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    AdapterInfo, Adapters, CallError, Closing, Handler,
    entry::{AnyAdapter, SHUTTING_DOWN},
    kept::{Kept, Sent},
    live::{Live, Slot},
};
use mixer_adapter_core::adapter::{AdapterError, InferredTypes};
use mixer_adapter_core::framework::digest::Digest;

/// How large and how long-lived the table's caches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// How many configurations that came with calls are kept open.
    pub cached_handlers: u64,
    /// A configuration that no call brought for that long is let go; `None` keeps it until it is evicted.
    pub idle: Option<Duration>,
    /// How long a configuration that was refused is answered with that refusal before it is tried again.
    pub remember_refusals: Duration,
    /// How long an adapter may take to open a handler; after that it is refused as UNAVAILABLE.
    pub open_timeout: Duration,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            cached_handlers: 10_000,
            idle: Some(Duration::from_secs(24 * 60 * 60)),
            remember_refusals: Duration::from_secs(5),
            open_timeout: Duration::from_secs(60),
        }
    }
}

/// Opens handlers, each configuration once, and keeps those that calls bring their configuration for.
///
/// A handler lives while somebody holds it: sessions, this table's cache, calls. Equal configurations find the live
/// handler, so sessions and calls without one share it.
pub struct HandlerTable {
    adapters: Arc<Adapters>,
    kept: Kept,
    live: Mutex<Live>,
    refusals: Refusals,
    open_timeout: Duration,
    closing: Closing,
}

/// The configurations that were refused a moment ago, with the refusal.
type Refusals = Cache<Digest, CallError>;

/// How many refused configurations are remembered.
const REFUSALS: u64 = 1_000;

impl HandlerTable {
    /// An empty table.
    pub fn new(adapters: Arc<Adapters>, limits: TableLimits, closing: Closing) -> Self {
        let kept = Kept::new(limits.cached_handlers, limits.idle);
        let refusals = Cache::builder().max_capacity(REFUSALS).time_to_live(limits.remember_refusals).build();
        Self { adapters, kept, live: Mutex::default(), refusals, open_timeout: limits.open_timeout, closing }
    }

    /// The handler kept for a configuration with exactly these bytes.
    pub(crate) fn cached(&self, adapter: &AdapterInfo, config: &Bytes) -> Option<Arc<Handler>> {
        self.kept.find(&Sent { adapter: adapter.index, config: config.clone() })
    }

    /// Keeps a handler for configurations with exactly these bytes.
    pub(crate) fn keep(&self, handler: &Arc<Handler>, config: &Bytes) {
        // A copy: the bytes of a request share the buffer they were received in.
        let config = Bytes::copy_from_slice(config);
        self.kept.keep(Sent { adapter: handler.adapter().index, config }, handler);
    }

    /// How many configurations that came with calls are kept.
    pub fn cached_count(&self) -> u64 {
        self.kept.count()
    }

    /// How many handlers are open.
    pub fn live_count(&self) -> usize {
        self.live().count()
    }

    /// Lets go of what expired; called now and then, since an idle cache does nothing by itself.
    pub fn sweep(&self) {
        self.kept.sweep();
        self.live().sweep();
    }

    /// Lets go of every handler that only the cache holds.
    pub fn clear(&self) {
        self.kept.clear();
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adapter's view of a configuration: its canonical bytes.
    pub fn canonical(&self, adapter: &AdapterInfo, config: Bytes) -> Result<Bytes, CallError> {
        self.adapters.entry(adapter).canonical(config).map_err(|error| CallError::Unreadable {
            adapter: adapter.name,
            source: mixer_adapter_core::framework::json::ParamsError::whole(error.to_string()),
        })
    }

    /// Asks the adapter whether it would take this canonical configuration.
    pub fn validate(
        &self,
        adapter: &AdapterInfo,
        config: &Bytes,
        types: &InferredTypes,
    ) -> Result<(), CallError> {
        self.adapters.entry(adapter).validate(config, types).map_err(|error| refused(adapter, error))
    }

    /// The live handler of a canonical configuration, opened if there is none. However many ask at once, it is opened
    /// once; a refusal is remembered briefly.
    ///
    /// It is opened apart from its caller, on the runtime that outlives calls: one whose deadline is shorter than opening
    /// takes finds it open the next time, kept like the handlers of calls.
    pub async fn open(&self, adapter: &AdapterInfo, config: Bytes) -> Result<Arc<Handler>, CallError> {
        let digest = Digest::of([adapter.name.as_bytes(), &config]);
        let slot = self.live().slot(digest);
        let opening = Opening {
            adapter: self.adapters.entry(adapter).clone(),
            config: config.clone(),
            digest,
            refusals: self.refusals.clone(),
            closing: self.closing.clone(),
            timeout: self.open_timeout,
        };
        let (answer, opened) = oneshot::channel();
        let (kept, unwanted_as) = (self.kept.clone(), Sent { adapter: adapter.index, config });
        self.closing.runtime().spawn(async move {
            let outcome = opening.run(slot).await;
            if let Err(Ok(unwanted)) = answer.send(outcome) {
                kept.keep(unwanted_as, &unwanted);
            }
        });
        opened.await.unwrap_or_else(|_| Err(refused(adapter, AdapterError::unavailable(SHUTTING_DOWN))))
    }
}

/// What it takes to open one configuration.
struct Opening {
    adapter: Arc<dyn AnyAdapter>,
    config: Bytes,
    digest: Digest,
    refusals: Refusals,
    closing: Closing,
    timeout: Duration,
}

impl Opening {
    /// Opens it, unless somebody else did while this waited for the slot.
    async fn run(self, slot: Arc<Slot>) -> Result<Arc<Handler>, CallError> {
        let mut handler = slot.lock().await;
        if let Some(handler) = handler.upgrade() {
            return Ok(handler);
        }
        if let Some(refusal) = self.refusals.get(&self.digest) {
            return Err(refusal);
        }
        let opening = self.adapter.open(self.config, self.closing);
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
                self.refusals.insert(self.digest, refusal.clone());
                Err(refusal)
            }
        }
    }
}

fn refused(adapter: &AdapterInfo, error: AdapterError) -> CallError {
    CallError::Refused { adapter: adapter.name, source: Arc::new(error) }
}
