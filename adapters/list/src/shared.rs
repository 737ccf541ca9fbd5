//! What handlers of configurations that may not reach every host share: the memory of their lists, and the requests to each host.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use mixer_adapter_net::{
    Bucket, Rate,
    grpc::{CallMemory, StreamMemory},
};
use tokio::{sync::Semaphore, time::Instant};

/// Requests to one host: ten in each second.
const RATE: Rate = Rate { burst: 1, every: Duration::from_millis(100) };

/// The limits that handlers share.
#[derive(Debug)]
pub(super) struct Shared {
    memory: StreamMemory,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    /// Reading a list takes a multiple of it for a moment: one at a time.
    pub(super) reading: Semaphore,
}

/// The queue of requests to a host. Whoever stops waiting has taken nothing.
#[derive(Debug)]
struct Host {
    bucket: tokio::sync::Mutex<Bucket>,
    /// Held by the refresh that is next, so that a handler that opens waits for no more than one.
    refreshing: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(super) fn new(bytes: usize) -> Self {
        Self { memory: StreamMemory::new(bytes), hosts: Mutex::default(), reading: Semaphore::new(1) }
    }

    /// Returns the memory for one list, which is released with its last clone.
    pub(super) fn memory(&self) -> CallMemory {
        self.memory.for_message()
    }

    /// Waits until a host may be asked, after requests that wait already.
    pub(super) async fn turn(&self, host: &str) {
        self.host(host).turn().await;
    }

    /// Waits until a list of a host may be refreshed, after other requests.
    pub(super) async fn refresh_turn(&self, host: &str) {
        let host = self.host(host);
        let _refreshing = host.refreshing.lock().await;
        host.turn().await;
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut hosts = self.hosts.lock();
        hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.is_limited());
        hosts.entry(name).or_default().clone()
    }
}

impl Default for Host {
    fn default() -> Self {
        Self { bucket: Bucket::new(RATE).into(), refreshing: ().into() }
    }
}

impl Host {
    async fn turn(&self) {
        let mut bucket = self.bucket.lock().await;
        if let Some(next) = bucket.wait(Instant::now().into_std()) {
            tokio::time::sleep_until(next.into()).await;
        }
        bucket.take(Instant::now().into_std());
    }

    /// Returns whether the next request has to wait.
    fn is_limited(&self) -> bool {
        self.bucket.try_lock().is_ok_and(|bucket| bucket.wait(Instant::now().into_std()).is_some())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_host_are_spread_and_those_to_others_do_not_wait() {
        let shared = Arc::new(Shared::new(0));
        let start = Instant::now();
        let turn = |host: &'static str| {
            let shared = shared.clone();
            tokio::spawn(async move {
                shared.turn(host).await;
                start.elapsed()
            })
        };
        let waiting: Vec<_> = (0..30).map(|_| turn("a.example")).collect();
        assert!(turn("b.example").await.unwrap() < RATE.every);
        for (index, waiting) in (0..).zip(waiting) {
            let waited = waiting.await.unwrap();
            assert!(waited >= RATE.every * index && waited < RATE.every * (index + 1), "{index}: {waited:?}");
        }
        assert!(turn("A.example.").await.unwrap() >= RATE.every * 30, "the same host");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_opens_waits_for_one_refresh_at_most() {
        let shared = Arc::new(Shared::new(0));
        let start = Instant::now();
        for _ in 0..100 {
            let shared = shared.clone();
            tokio::spawn(async move { shared.refresh_turn("a").await });
        }
        tokio::task::yield_now().await;
        shared.turn("a").await;
        assert!(start.elapsed() <= RATE.every * 3, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_takes_no_turn_and_hosts_at_rest_are_forgotten() {
        let shared = Shared::new(0);
        let start = Instant::now();
        shared.turn("a").await;
        for _ in 0..100 {
            tokio::time::timeout(Duration::ZERO, shared.turn("a")).await.unwrap_err();
        }
        shared.turn("a").await;
        assert!(start.elapsed() < RATE.every * 2, "{:?}", start.elapsed());
        tokio::time::advance(RATE.every).await;
        for n in 0..10 {
            shared.turn(&n.to_string()).await;
            tokio::time::advance(RATE.every).await;
        }
        assert_eq!(shared.hosts.lock().len(), 1);
    }
}
