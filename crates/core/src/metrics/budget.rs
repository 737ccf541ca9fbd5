use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The maximum number of series of all handlers.
const MAX_ALL_SERIES: usize = 20_000;

/// The series that a handler has created, as a part of all.
#[derive(Debug, Default)]
pub(super) struct Budget {
    all: Arc<AtomicUsize>,
    taken: AtomicUsize,
}

impl Budget {
    /// Returns the budget of a handler; `all` counts the series of all handlers.
    pub(super) fn of(all: Arc<AtomicUsize>) -> Self {
        Self { all, taken: AtomicUsize::new(0) }
    }

    /// Takes one series, if there is one left.
    pub(super) fn take(&self) -> bool {
        let is_free = self.all.fetch_add(1, Relaxed) < MAX_ALL_SERIES;
        if is_free {
            self.taken.fetch_add(1, Relaxed);
        } else {
            self.all.fetch_sub(1, Relaxed);
        }
        is_free
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.all.fetch_sub(*self.taken.get_mut(), Relaxed);
    }
}
