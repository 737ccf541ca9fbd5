//! The index of open handlers.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::Handler;
use mixer_adapter_core::framework::digest::Digest;

/// The handler of a configuration. The lock is held while the handler is opened, so that it is opened once.
pub(super) type Entry = tokio::sync::Mutex<Weak<Handler>>;

/// An entry while its handler is opened.
pub(super) type LockedEntry<'e> = tokio::sync::MutexGuard<'e, Weak<Handler>>;

/// Handlers that are open or being opened, by the digest of adapter and canonical configuration.
#[derive(Debug, Default)]
pub(super) struct HandlerIndex {
    entries: HashMap<Digest, Arc<Entry>>,
    /// The number of entries after the last sweep.
    swept: usize,
}

/// Sweep when the map has doubled and grown by this many entries since the last sweep.
const SLACK: usize = 1024;

impl HandlerIndex {
    /// Returns the entry of a configuration, after creating it if necessary.
    pub(super) fn entry(&mut self, digest: Digest) -> Arc<Entry> {
        if self.entries.len() >= 2 * self.swept + SLACK {
            self.sweep();
        }
        self.entries.entry(digest).or_default().clone()
    }

    /// Returns the number of open handlers.
    pub(super) fn count(&self) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| entry.try_lock().is_ok_and(|handler| handler.strong_count() > 0)).count()
    }

    /// Removes the entries of handlers that are closed or were refused.
    pub(super) fn sweep(&mut self) {
        self.entries.retain(|_, entry| {
            // A caller waits for it, or it is open or being opened.
            Arc::strong_count(entry) > 1
                || entry.try_lock().map_or(true, |handler| handler.strong_count() > 0)
        });
        self.swept = self.entries.len();
        if self.entries.capacity() > 4 * self.swept + SLACK {
            self.entries.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_closed_handlers_are_removed() {
        let mut open = HandlerIndex::default();
        let awaited = open.entry(Digest::of([&b"awaited"[..]]));
        for seq in 0..10_000_u32 {
            open.entry(Digest::of([&seq.to_le_bytes()[..]]));
            assert!(open.entries.len() <= SLACK + 2);
        }
        assert!(Arc::ptr_eq(&awaited, &open.entry(Digest::of([&b"awaited"[..]]))));
    }
}
