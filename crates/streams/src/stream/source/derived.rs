use std::sync::OnceLock;

use parking_lot::Mutex;

use super::entry::Entries;

/// A value that is derived from the entries of a state on first use: from the value of an earlier state and the changes
/// since.
#[derive(Debug)]
pub(super) struct Derived<T> {
    value: OnceLock<T>,
    /// The entries of an earlier state, and the value that was derived from them.
    former: Mutex<Option<(Entries, T)>>,
}

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), former: Mutex::new(None) }
    }
}

impl<T: Clone + Default> Derived<T> {
    /// Returns the value of the state that follows the one with these entries, which is the state of this one.
    pub(super) fn after(&self, entries: &Entries) -> Self {
        let former = match self.value.get() {
            Some(value) => Some((entries.clone(), value.clone())),
            None => self.former.lock().clone(),
        };
        Self { value: OnceLock::new(), former: Mutex::new(former) }
    }

    /// Returns the value. On first use, `update` derives it from the value of the former entries, if any.
    pub(super) fn get(&self, update: impl FnOnce(T, &Entries) -> T) -> &T {
        self.value.get_or_init(|| {
            let former = self.former.lock().take();
            let (entries, value) = former.unwrap_or_default();
            update(value, &entries)
        })
    }

    /// Returns the value if it was used before.
    pub(super) fn known(&self) -> Option<&T> {
        self.value.get()
    }
}
