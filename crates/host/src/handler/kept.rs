use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use moka::{notification::RemovalCause, sync::Cache};
use prost::bytes::Bytes;

use super::Handler;

/// The handlers of configurations that came with calls, found by the bytes of the configuration as they came: Mixer from
/// 1.1 on sends the same bytes every time.
#[derive(Clone)]
pub(super) struct Kept {
    /// Says which are kept. A cache frees what it removed at some later time, which would be too late to close handlers:
    /// so it only knows where they are.
    order: Cache<Sent, Weak<Handler>>,
    handlers: Arc<Mutex<Handlers>>,
}

type Handlers = HashMap<Sent, Arc<Handler>>;

/// A configuration as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) adapter: usize,
    pub(super) config: Bytes,
}

impl Kept {
    /// Keeps so many, each for that long after its last call.
    pub(super) fn new(at_most: u64, idle: Option<Duration>) -> Self {
        let handlers: Arc<Mutex<Handlers>> = Arc::default();
        let evicted_from = handlers.clone();
        let mut order = Cache::builder().max_capacity(at_most).eviction_listener(
            move |sent: Arc<Sent>, evicted: Weak<Handler>, cause| {
                if cause == RemovalCause::Replaced {
                    return;
                }
                let mut handlers = lock(&evicted_from);
                // Another handler may have come in its place meanwhile.
                let is_there = handlers
                    .get(&*sent)
                    .is_some_and(|kept| std::ptr::eq(Arc::as_ptr(kept), evicted.as_ptr()));
                let handler = if is_there { handlers.remove(&*sent) } else { None };
                drop(handlers);
                drop(handler);
            },
        );
        if let Some(idle) = idle {
            order = order.time_to_idle(idle);
        }
        Self { order: order.build(), handlers }
    }

    pub(super) fn find(&self, sent: &Sent) -> Option<Arc<Handler>> {
        self.order.get(sent)?.upgrade()
    }

    pub(super) fn keep(&self, sent: Sent, handler: &Arc<Handler>) {
        if self.order.policy().max_capacity() == Some(0) {
            // A cache for nothing takes nothing in, and would never say that it let go of it.
            return;
        }
        let replaced = lock(&self.handlers).insert(sent.clone(), handler.clone());
        drop(replaced);
        self.order.insert(sent, Arc::downgrade(handler));
        // What must make room for it closes now, not with the next call.
        self.order.run_pending_tasks();
    }

    pub(super) fn count(&self) -> u64 {
        self.order.run_pending_tasks();
        self.order.entry_count()
    }

    /// Lets go of what is idle for too long.
    pub(super) fn sweep(&self) {
        self.order.run_pending_tasks();
    }

    /// Lets go of all.
    pub(super) fn clear(&self) {
        self.order.invalidate_all();
        let handlers = std::mem::take(&mut *lock(&self.handlers));
        drop(handlers);
    }
}

fn lock(handlers: &Mutex<Handlers>) -> MutexGuard<'_, Handlers> {
    handlers.lock().unwrap_or_else(PoisonError::into_inner)
}
