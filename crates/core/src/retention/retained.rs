//! The state of a configuration's handlers.

use std::{
    any::{Any, TypeId},
    cell::RefCell,
    fmt,
    ops::Deref,
    sync::Arc,
    time::Instant,
};

use super::{Lease, Retain, Retention};
use crate::{framework::digest::Digest, scoped::scoped};

/// The states of all adapters of a server, by the digest of adapter and configuration.
#[doc(hidden)]
pub type RetainedStates = Retention<(Digest, TypeId), dyn Retain>;

thread_local! {
    /// The states of the server that opens a handler on this thread, and the digest of the handler's configuration.
    static OPENING: RefCell<Option<(Arc<RetainedStates>, Digest)>> = const { RefCell::new(None) };
}

/// Returns the retained state of the last handler with the configuration that is being opened, or a new state from `create`.
///
/// Called in [`Adapter::open`](crate::Adapter::open). The server retains the state of a closed handler for `--state-retention`, within a share of `--memory-limit`. A handler with
/// another configuration has another state. Without a server, and in tasks that `open` spawned, the state is always new.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use mixer_adapter_core::retention::{Retain, Retained, retained};
///
/// #[derive(Default)]
/// struct Seen(AtomicU64);
///
/// impl Retain for Seen {
///     fn bytes(&self) -> usize {
///         if self.0.load(Relaxed) == 0 { 0 } else { size_of::<Self>() }
///     }
/// }
///
/// // In `open`:
/// let seen: Retained<Seen> = retained(Seen::default);
/// seen.0.fetch_add(1, Relaxed);
/// ```
pub fn retained<T: Retain>(create: impl FnOnce() -> T) -> Retained<T> {
    let Some((states, digest)) = OPENING.with_borrow(Clone::clone) else {
        return Retained { state: Arc::new(create()), _lease: None };
    };
    let mut new = None;
    let lease = states.acquire((digest, TypeId::of::<T>()), Instant::now(), || {
        let state = Arc::new(create());
        new = Some(state.clone());
        state
    });
    match new.or_else(|| Arc::<dyn Any + Send + Sync>::downcast(lease.state().clone()).ok()) {
        Some(state) => Retained { state, _lease: Some(lease) },
        None => unreachable!("the key has the type of the state"),
    }
}

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

/// Opens a handler whose state is in `states` under a digest.
#[doc(hidden)]
pub async fn with_retained_states<F: Future>(
    states: Arc<RetainedStates>,
    digest: Digest,
    open: F,
) -> F::Output {
    scoped(&OPENING, Some((states, digest)), open).await
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

    fn count() -> u64 {
        retained(Count::default).0.fetch_add(1, Relaxed)
    }

    #[tokio::test]
    async fn handlers_with_equal_configurations_have_one_state_after_another() {
        let states = Arc::new(RetainedStates::new(RetentionLimits::new(1 << 20, Duration::from_secs(60))));
        let open = async |config: &[u8]| {
            let digest = Digest::of([config]);
            with_retained_states(states.clone(), digest, async { count() }).await
        };
        assert_eq!([open(b"a").await, open(b"a").await, open(b"b").await, open(b"a").await], [0, 1, 0, 2]);
        assert_eq!(states.retained_count(), 2);
    }

    #[test]
    fn without_a_server_every_state_is_new() {
        assert_eq!([count(), count()], [0, 0]);
    }
}
