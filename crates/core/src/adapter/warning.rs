use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A warning about a handler, which the server shows until this is dropped: [`Context::warn`](super::Context::warn).
#[must_use = "the warning ends when it is dropped"]
pub struct Warning {
    id: u64,
    warnings: Arc<Warnings>,
}

/// The warnings of all handlers of a server.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Warnings {
    /// By order.
    texts: Mutex<BTreeMap<u64, String>>,
    last_id: AtomicU64,
}

/// The maximum number of warnings that are shown.
const MAX_SHOWN: usize = 100;

impl Warnings {
    pub(super) fn add(self: &Arc<Self>, text: String) -> Warning {
        let id = self.last_id.fetch_add(1, Relaxed);
        self.texts().insert(id, text);
        Warning { id, warnings: self.clone() }
    }

    /// Returns the oldest warnings, up to a limit.
    pub fn all(&self) -> Vec<String> {
        self.texts().values().take(MAX_SHOWN).cloned().collect()
    }

    fn texts(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Warning {
    fn drop(&mut self) {
        self.warnings.texts().remove(&self.id);
    }
}

impl fmt::Debug for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Warning").field(&self.warnings.texts().get(&self.id)).finish()
    }
}
