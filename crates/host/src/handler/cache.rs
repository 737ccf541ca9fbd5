//! The cache of handlers whose configuration came with a call.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use moka::{notification::RemovalCause, sync::Cache};
use prost::bytes::Bytes;

use super::Handler;

/// Handlers by the bytes of their configuration as received: Mixer since 1.1 sends the same bytes every time.
#[derive(Clone)]
pub(super) struct HandlerCache {
    /// Decides which handlers are evicted, and holds them weakly: moka drops evicted values with a delay, which would
    /// delay the closing of handlers.
    order: Cache<CacheKey, Weak<Handler>>,
    handlers: Arc<Mutex<Handlers>>,
}

type Handlers = HashMap<CacheKey, Arc<Handler>>;

/// A configuration as received, not canonical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    pub(super) adapter: usize,
    pub(super) config: Bytes,
}

impl HandlerCache {
    /// Creates a cache of at most `capacity` handlers; each is evicted after `idle` without a call.
    pub(super) fn new(capacity: u64, idle: Option<Duration>) -> Self {
        let handlers: Arc<Mutex<Handlers>> = Arc::default();
        let evicted_from = handlers.clone();
        let mut order = Cache::builder().max_capacity(capacity).eviction_listener(
            move |key: Arc<CacheKey>, evicted: Weak<Handler>, cause| {
                if cause == RemovalCause::Replaced {
                    return;
                }
                let mut handlers = lock(&evicted_from);
                // Another handler may have been inserted under this key since.
                let is_current = handlers
                    .get(&*key)
                    .is_some_and(|cached| std::ptr::eq(Arc::as_ptr(cached), evicted.as_ptr()));
                let handler = if is_current { handlers.remove(&*key) } else { None };
                drop(handlers);
                drop(handler);
            },
        );
        if let Some(idle) = idle {
            order = order.time_to_idle(idle);
        }
        Self { order: order.build(), handlers }
    }

    pub(super) fn get(&self, key: &CacheKey) -> Option<Arc<Handler>> {
        self.order.get(key)?.upgrade()
    }

    pub(super) fn insert(&self, key: CacheKey, handler: &Arc<Handler>) {
        if self.order.policy().max_capacity() == Some(0) {
            // moka never evicts (or notifies) at capacity 0, so skip the insert.
            return;
        }
        let replaced = lock(&self.handlers).insert(key.clone(), handler.clone());
        drop(replaced);
        self.order.insert(key, Arc::downgrade(handler));
        // Evicts now instead of at the next access.
        self.order.run_pending_tasks();
    }

    pub(super) fn count(&self) -> u64 {
        self.order.run_pending_tasks();
        self.order.entry_count()
    }

    /// Evicts idle handlers. moka does nothing by itself while the cache is not used.
    pub(super) fn sweep(&self) {
        self.order.run_pending_tasks();
    }

    pub(super) fn clear(&self) {
        self.order.invalidate_all();
        let handlers = std::mem::take(&mut *lock(&self.handlers));
        drop(handlers);
    }
}

fn lock(handlers: &Mutex<Handlers>) -> MutexGuard<'_, Handlers> {
    handlers.lock().unwrap_or_else(PoisonError::into_inner)
}
