use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::Handler;
use mixer_adapter_core::framework::digest::Digest;

/// One configuration's handler; the lock is held while it is opened, so that it is opened once.
pub(super) type Slot = tokio::sync::Mutex<Weak<Handler>>;

/// The slots of handlers that are open or being opened, by the digest of adapter and canonical configuration.
#[derive(Debug, Default)]
pub(super) struct Live {
    slots: HashMap<Digest, Arc<Slot>>,
    /// How many there were after the last sweep.
    swept: usize,
}

/// So many more slots than there were after the last sweep make the next one due.
const SLACK: usize = 1024;

impl Live {
    /// The slot of a configuration; a new one if there is none.
    pub(super) fn slot(&mut self, digest: Digest) -> Arc<Slot> {
        if self.slots.len() >= 2 * self.swept + SLACK {
            self.sweep();
        }
        self.slots.entry(digest).or_default().clone()
    }

    /// How many handlers are open.
    pub(super) fn count(&self) -> usize {
        let slots = self.slots.values();
        slots.filter(|slot| slot.try_lock().is_ok_and(|handler| handler.strong_count() > 0)).count()
    }

    /// Forgets the slots of handlers that are closed, or were refused.
    pub(super) fn sweep(&mut self) {
        // One that somebody waits on is held by more than this map.
        let is_dead = |slot: &Arc<Slot>| {
            Arc::strong_count(slot) == 1 && slot.try_lock().is_ok_and(|handler| handler.strong_count() == 0)
        };
        self.slots.retain(|_, slot| !is_dead(slot));
        self.swept = self.slots.len();
        if self.slots.capacity() > 4 * self.swept + SLACK {
            self.slots.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_closed_handlers_do_not_pile_up() {
        let mut live = Live::default();
        let waited_on = live.slot(Digest::of([&b"waited on"[..]]));
        for seq in 0..10_000_u32 {
            live.slot(Digest::of([&seq.to_le_bytes()[..]]));
            assert!(live.slots.len() <= SLACK + 2);
        }
        assert!(Arc::ptr_eq(&waited_on, &live.slot(Digest::of([&b"waited on"[..]]))));
    }
}
