use std::sync::{Mutex, OnceLock, PoisonError};

use super::entry::Entries;

/// A value that is made of the entries of a state when it is needed: from that of an earlier state, by what changed since.
#[derive(Debug)]
pub(super) struct Derived<T> {
    value: OnceLock<T>,
    /// The entries of an earlier state, and the value that was made of them.
    former: Mutex<Option<(Entries, T)>>,
}

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), former: Mutex::new(None) }
    }
}

impl<T: Clone + Default> Derived<T> {
    /// The value of a state that comes after the one with these entries, which is the state of this one.
    pub(super) fn after(&self, entries: &Entries) -> Self {
        let former = match self.value.get() {
            Some(value) => Some((entries.clone(), value.clone())),
            None => self.former.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        Self { value: OnceLock::new(), former: Mutex::new(former) }
    }

    /// The value. The first time, `update` makes it of that of the entries it is given, of which there may be none.
    pub(super) fn get(&self, update: impl FnOnce(T, &Entries) -> T) -> &T {
        self.value.get_or_init(|| {
            let former = self.former.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (entries, value) = former.unwrap_or_default();
            update(value, &entries)
        })
    }

    /// The value, if it was needed before.
    pub(super) fn known(&self) -> Option<&T> {
        self.value.get()
    }
}
