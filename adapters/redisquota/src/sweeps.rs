//! The exchanges with Redis apart from calls: leases that are returned, and reports of grants that were made without Redis.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::stream::{self, StreamExt as _};
use mixer_adapter_quota::SharedFingerprint;
use mixer_adapter_redis::ClientError;
use parking_lot::Mutex;

use super::{
    clock::Clock,
    fallback::Fallback,
    lease::{Held, Leased, Leases, Return, Trip},
    metrics::LeaseGauges,
    store::{CounterCall, Store},
};

/// Interval of returning expired and idle leases, and of reporting grants that were made without Redis.
const SWEEP: Duration = Duration::from_secs(1);
/// The number of counters that are reported at the same time.
const MOST_REPORTS: usize = 64;

/// What calls and the other exchanges use.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) fallback: Arc<Fallback>,
    /// The longest time of an exchange.
    pub(super) timeout: Duration,
    pub(super) opened: Clock,
}

impl Shared {
    /// Returns expired and idle leases, and shows the others.
    pub(super) async fn sweep(self, leases: Arc<Mutex<Leases>>, gauges: LeaseGauges) {
        let mut before = BTreeMap::<Arc<str>, Held>::new();
        let mut swept = self.opened.elapsed();
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = self.opened.elapsed();
            let passed = now.saturating_sub(swept);
            swept = now;
            let (returns, mut held) = {
                let mut leases = leases.lock();
                (leases.sweep(now), leases.held(now))
            };
            for (quota, last) in before {
                let held = held.entry(quota).or_default();
                held.store = held.store.or(last.store.map(|(remaining, age)| (remaining, age + passed)));
            }
            held.iter().for_each(|(quota, held)| gauges.show(quota, *held));
            before = held;
            self.give_back(returns, |counter, returned| leases.lock().returned(counter, returned)).await;
        }
    }

    /// Returns leases to the store, and calls `done` with each that the store has received.
    pub(super) async fn give_back(
        &self,
        returns: Vec<(Leased, Vec<Return>)>,
        done: impl Fn(SharedFingerprint, &[Return]),
    ) {
        for (leased, returned) in returns {
            let call = CounterCall::of_trip(leased, Trip { returned, ..Trip::default() });
            match self.store.call(&call, self.timeout).await {
                Ok(_) => done(leased.counter, &call.trip.returned),
                Err(error) => tracing::debug!(%error, "a lease was not returned"),
            }
        }
    }

    /// Has Redis count the amounts of a counter that this server granted without it.
    pub(super) async fn report(&self, leased: Leased, wait: Duration) -> Result<(), ClientError> {
        let begin = Instant::now();
        while self.store.client.is_connected()
            && let Some(report) = self.fallback.next_report(leased.counter, self.opened.elapsed())
        {
            let call = CounterCall::of_report(leased, report);
            self.store.call(&call, wait.saturating_sub(begin.elapsed())).await?;
            self.fallback.reported(leased.counter, report);
        }
        Ok(())
    }

    /// Reports all counters, as long as there is a connection.
    pub(super) async fn report_all(&self) {
        let reports = stream::iter(self.fallback.sweep(self.opened.elapsed()));
        let sent = reports.for_each_concurrent(MOST_REPORTS, |leased| async move {
            if let Err(error) = self.report(leased, self.timeout).await {
                tracing::debug!(%error, "Redis did not count what was granted without it");
            }
        });
        sent.await;
    }

    /// Reports all counters from time to time.
    pub(super) async fn keep_reporting(self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.report_all().await;
        }
    }
}
