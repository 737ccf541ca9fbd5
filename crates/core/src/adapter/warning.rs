use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{framework::log_text::log_text, locked::locked};

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
    /// Adds the first KiB of a text.
    pub(super) fn add(self: &Arc<Self>, text: impl fmt::Display) -> Warning {
        let id = self.last_id.fetch_add(1, Relaxed);
        locked(&self.texts).insert(id, log_text(text));
        Warning { id, warnings: self.clone() }
    }

    /// Returns the oldest warnings, and the number of the others.
    pub fn all(&self) -> Vec<String> {
        let texts = locked(&self.texts);
        let more = texts.len().saturating_sub(MAX_SHOWN);
        let more = (more > 0).then(|| format!("{more} more warnings of handlers"));
        texts.values().take(MAX_SHOWN).cloned().chain(more).collect()
    }
}

impl Drop for Warning {
    fn drop(&mut self) {
        locked(&self.warnings.texts).remove(&self.id);
    }
}

impl fmt::Debug for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Warning").field(&locked(&self.warnings.texts).get(&self.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_short_and_those_beyond_the_maximum_are_counted() {
        let warnings = Arc::<Warnings>::default();
        let first = warnings.add("x".repeat(1 << 20));
        let others: Vec<Warning> = (0..MAX_SHOWN + 1).map(|index| warnings.add(index)).collect();
        let shown = warnings.all();
        assert!(shown[0].len() < 2_000);
        assert_eq!((shown.len(), shown[MAX_SHOWN].as_str()), (MAX_SHOWN + 1, "2 more warnings of handlers"));
        drop((first, others));
        assert_eq!(warnings.all(), [""; 0]);
    }
}
