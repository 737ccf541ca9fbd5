use futures_util::{FutureExt as _, future::Shared};
use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

use mixer_adapter_host::handler::BoxFuture;

/// A value that is made on first use and refreshed when it is old, once for all concurrent users. Refreshing continues if they are
/// cancelled.
pub(super) struct Refreshing<T> {
    state: Arc<Mutex<State<T>>>,
    runtime: Handle,
    /// How long a failure is answered before the next attempt.
    backoff: Duration,
}

/// A value with its lifetime.
#[derive(Clone, Debug)]
pub(super) struct Cached<T> {
    pub(super) value: T,
    /// When refreshing in the background begins.
    pub(super) refresh_at: Instant,
    /// When users begin to wait for a refreshed value.
    pub(super) wait_at: Instant,
    /// When it expires, even if refreshing fails; `None` if it never does.
    pub(super) good_until: Option<Instant>,
}

struct State<T> {
    last: Option<Cached<T>>,
    failed: Option<(Status, Instant)>,
    making: Option<Making<T>>,
}

type Making<T> = Shared<BoxFuture<'static, Result<T, Status>>>;

impl<T: Clone + Send + Sync + 'static> Refreshing<T> {
    /// Creates a value, which is `first` at first.
    pub(super) fn new(runtime: Handle, backoff: Duration, first: Option<Cached<T>>) -> Self {
        let state = State { last: first, failed: None, making: None };
        Self { state: Arc::new(Mutex::new(state)), runtime, backoff }
    }

    /// Returns the value, made by `make` if necessary.
    pub(super) async fn get<F>(&self, make: impl FnOnce() -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Cached<T>, Status>> + Send + 'static,
    {
        let (old, making) = {
            let mut state = self.state.lock();
            let now = Instant::now();
            let mut wait = true;
            let mut old = None;
            if let Some(cached) = &state.last {
                if now < cached.refresh_at {
                    return Ok(cached.value.clone());
                }
                wait = now >= cached.wait_at;
                old = cached.good_until.is_none_or(|until| now < until).then(|| cached.value.clone());
            }
            if let Some((why, until)) = &state.failed
                && now < *until
            {
                return old.ok_or_else(|| why.clone());
            }
            let making = match &state.making {
                Some(making) => making.clone(),
                None => state.making.insert(self.begin(make())).clone(),
            };
            match old {
                Some(old) if !wait => return Ok(old),
                old => (old, making),
            }
        };
        making.await.or_else(|why| old.ok_or(why))
    }

    fn begin(&self, work: impl Future<Output = Result<Cached<T>, Status>> + Send + 'static) -> Making<T> {
        let (state, backoff) = (self.state.clone(), self.backoff);
        let task = self.runtime.spawn(async move {
            let made = work.await;
            let mut state = state.lock();
            state.making = None;
            match made {
                Ok(cached) => {
                    state.failed = None;
                    Ok(state.last.insert(cached).value.clone())
                }
                Err(why) => {
                    tracing::warn!(why = why.message(), "refreshing a token failed");
                    state.failed = Some((why.clone(), Instant::now() + backoff));
                    Err(why)
                }
            }
        });
        let made =
            async move { task.await.unwrap_or_else(|_| Err(Status::unavailable("the program is ending"))) };
        (Box::pin(made) as BoxFuture<'static, _>).shared()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    /// Numbers that are refreshed after 10 s, waited for after 20 s and expire after 30 s; each takes 1 s to make.
    struct Numbers {
        refreshing: Refreshing<u32>,
        made: Arc<AtomicU32>,
        failing: bool,
    }

    impl Numbers {
        fn new() -> Self {
            let refreshing = Refreshing::new(Handle::current(), Duration::from_secs(2), None);
            Self { refreshing, made: Arc::default(), failing: false }
        }

        async fn get(&self) -> Option<u32> {
            let (made, failing) = (self.made.clone(), self.failing);
            let made = self.refreshing.get(|| async move {
                let now = Instant::now();
                tokio::time::sleep(Duration::from_secs(1)).await;
                let value = made.fetch_add(1, SeqCst) + 1;
                let at = |seconds| now + Duration::from_secs(seconds);
                let cached = Cached { value, refresh_at: at(10), wait_at: at(20), good_until: Some(at(30)) };
                if failing { Err(Status::unavailable("no")) } else { Ok(cached) }
            });
            made.await.ok()
        }
    }

    async fn after(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_made_once_and_refreshed_in_the_background() {
        let numbers = Numbers::new();
        let started = Instant::now();
        assert_eq!(tokio::join!(numbers.get(), numbers.get()), (Some(1), Some(1)));
        after(8).await;
        assert_eq!(numbers.get().await, Some(1));
        after(2).await;
        assert_eq!(numbers.get().await, Some(1), "served while the next is made");
        assert_eq!(started.elapsed(), Duration::from_secs(11), "only the first was waited for");
        after(2).await;
        assert_eq!(numbers.get().await, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_value_is_refreshed_before_it_is_used() {
        let numbers = Numbers::new();
        numbers.get().await;
        after(20).await;
        assert_eq!(numbers.get().await, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_cannot_be_refreshed_is_used_until_it_expires_and_failures_are_cached() {
        let mut numbers = Numbers::new();
        numbers.get().await;
        numbers.failing = true;
        after(24).await;
        assert_eq!(numbers.get().await, Some(1), "still good");
        after(5).await;
        assert_eq!(numbers.get().await, None, "expired");
        let before = (Instant::now(), numbers.made.load(SeqCst));
        assert_eq!(numbers.get().await, None);
        assert_eq!((Instant::now(), numbers.made.load(SeqCst)), before, "not tried again at once");
        numbers.failing = false;
        after(2).await;
        assert!(numbers.get().await.is_some());
    }
}
