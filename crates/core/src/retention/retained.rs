//! The state of a configuration's handlers.

use std::{
    any::{Any, TypeId},
    fmt,
    ops::Deref,
    sync::Arc,
    time::Instant,
};

use super::{Lease, Retain, Retention};
use crate::framework::digest::Digest;

/// The states of all adapters of a server, by the digest of adapter and configuration.
#[doc(hidden)]
pub type RetainedStates = Retention<(Digest, TypeId), dyn Retain>;

/// The state of a handler. The server retains it when all handlers that use it are closed.
pub struct Retained<T> {
    state: Arc<T>,
    _lease: Option<Lease<(Digest, TypeId), dyn Retain>>,
}

impl<T> Deref for Retained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T: fmt::Debug> fmt::Debug for Retained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl<T: Retain> Retained<T> {
    /// Returns the state of a configuration in a store, or a new one.
    pub(crate) fn acquire(
        retained: Option<&(Arc<RetainedStates>, Digest)>,
        create: impl FnOnce() -> T,
    ) -> Self {
        let Some((states, digest)) = retained else {
            return Self { state: Arc::new(create()), _lease: None };
        };
        let mut new = None;
        let lease = states.acquire((*digest, TypeId::of::<T>()), Instant::now(), || {
            let state = Arc::new(create());
            new = Some(state.clone());
            state
        });
        match new.or_else(|| Arc::<dyn Any + Send + Sync>::downcast(lease.state().clone()).ok()) {
            Some(state) => Self { state, _lease: Some(lease) },
            None => unreachable!("the key has the type of the state"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        time::Duration,
    };

    use super::{super::RetentionLimits, *};

    #[derive(Debug, Default)]
    struct Count(AtomicU64);

    impl Retain for Count {
        fn bytes(&self) -> usize {
            8
        }
    }

    fn count(retained: Option<&(Arc<RetainedStates>, Digest)>) -> u64 {
        Retained::acquire(retained, Count::default).0.fetch_add(1, Relaxed)
    }

    #[test]
    fn handlers_with_equal_configurations_have_one_state_after_another() {
        let states = Arc::new(RetainedStates::new(RetentionLimits::new(1 << 20, Duration::from_secs(60))));
        let open = |config: &[u8]| count(Some(&(states.clone(), Digest::of([config]))));
        assert_eq!([open(b"a"), open(b"a"), open(b"b"), open(b"a")], [0, 1, 0, 2]);
        assert_eq!(states.retained_count(), 2);
    }

    #[test]
    fn without_a_server_every_state_is_new() {
        assert_eq!([count(None), count(None)], [0, 0]);
    }
}
