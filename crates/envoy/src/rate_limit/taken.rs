//! Hits of quotas that are all or nothing, which are given back if their call is refused or fails.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_core::framework::{log_limit::LogLimit, log_text::log_text};
use mixer_adapter_engine::{
    Mixer, Snapshot,
    dispatch::{Caller, QuotaGrant},
};
use prost::Message as _;
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;

use super::calls::QuotaCalls;
use crate::{
    Services,
    counters::Counters,
    proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor,
    tenants::{SharedSpace, Space},
};

/// The size in bytes of what is being given back. Tenants share it.
const SPACE: usize = 16 << 20;

/// The size of a task without its descriptors.
const TASK: usize = 4 << 10;

/// The time to give back the hits of a call. The deadline of the call does not apply: it may be the reason.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The tasks that give hits back, which outlive their calls.
#[derive(Debug)]
pub(crate) struct GiveBacks {
    tasks: TaskTracker,
    space: Arc<SharedSpace>,
    runtime: Handle,
}

impl GiveBacks {
    pub(crate) fn new(runtime: &Handle) -> Self {
        Self { tasks: TaskTracker::new(), space: SharedSpace::new(SPACE), runtime: runtime.clone() }
    }

    /// Waits until everything has been given back.
    pub(crate) async fn flush(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

/// The grants that were given back, by the index of their descriptor.
type Returned = Vec<(usize, Vec<QuotaGrant>)>;

/// Hits of a descriptor.
struct Hits {
    index: usize,
    descriptor: RateLimitDescriptor,
    grants: Vec<QuotaGrant>,
}

impl Hits {
    /// The size in bytes of the descriptor and the grants.
    fn size(&self) -> usize {
        self.descriptor.encoded_len() + self.grants.len() * size_of::<QuotaGrant>()
    }
}

/// The hits that a call has taken so far. They are given back when this is dropped, as when the client goes away.
pub(super) struct TakenHits<'c> {
    services: &'c Services,
    snapshot: &'c Arc<Snapshot>,
    domain: &'c str,
    caller: &'c Caller,
    hits: Vec<Hits>,
    tenant: Arc<str>,
}

impl<'c> TakenHits<'c> {
    pub(super) fn new(
        services: &'c Services,
        snapshot: &'c Arc<Snapshot>,
        domain: &'c str,
        caller: &'c Caller,
    ) -> Self {
        Self { services, snapshot, domain, caller, hits: Vec::new(), tenant: Arc::default() }
    }

    /// Adds the hits of a descriptor.
    pub(super) fn add(
        &mut self,
        index: usize,
        descriptor: &RateLimitDescriptor,
        grants: Vec<QuotaGrant>,
        tenant: &str,
    ) {
        if !grants.is_empty() {
            self.tenant = tenant.into();
            self.hits.push(Hits { index, descriptor: descriptor.clone(), grants });
        }
    }

    /// Keeps the hits.
    pub(super) fn keep(mut self) {
        self.hits.clear();
    }

    /// Gives the hits back, and returns the grants with the states of their limits by descriptor. At half the time that the caller still waits, those
    /// are omitted.
    pub(super) async fn give_back(mut self) -> Returned {
        let Some(task) = self.spawn() else { return Vec::new() };
        let remaining = |deadline: Instant| deadline.saturating_duration_since(Instant::now()) / 2;
        let states = timeout(self.caller.deadline.map_or(TIMEOUT, remaining), task).await;
        states.map(Result::unwrap_or_default).unwrap_or_default()
    }

    fn spawn(&mut self) -> Option<JoinHandle<Returned>> {
        let hits = std::mem::take(&mut self.hits);
        if hits.is_empty() {
            return None;
        }
        let Services { mixer, counters, ids, give_backs, .. } = self.services;
        let size = TASK + hits.iter().map(Hits::size).sum::<usize>();
        let Some(space) = give_backs.space.take(&self.tenant, size) else {
            hits.iter().for_each(|hits| lose(counters, &hits.grants, self.domain, &"too many at once"));
            return None;
        };
        let task = GiveBack {
            mixer: mixer.clone(),
            snapshot: self.snapshot.clone(),
            counters: counters.clone(),
            domain: self.domain.to_owned(),
            caller: Caller { deadline: Some(Instant::now() + TIMEOUT), ..self.caller.clone() },
            hits: hits.into_iter().map(|hits| (hits, ids.next())).collect(),
            _space: space,
        };
        Some(give_backs.tasks.spawn_on(task.run(), &give_backs.runtime))
    }
}

impl Drop for TakenHits<'_> {
    fn drop(&mut self) {
        self.spawn();
    }
}

struct GiveBack {
    mixer: Arc<Mixer>,
    snapshot: Arc<Snapshot>,
    counters: Arc<Counters>,
    domain: String,
    caller: Caller,
    /// With ids for the adapter.
    hits: Vec<(Hits, String)>,
    _space: Space,
}

impl GiveBack {
    async fn run(self) -> Returned {
        let mut tenant = String::new();
        let mut calls = QuotaCalls::new(&self.mixer, &self.snapshot, &self.domain, &self.caller, &mut tenant);
        let mut states = Vec::with_capacity(self.hits.len());
        for (Hits { index, descriptor, mut grants }, dedup_id) in self.hits {
            if let Err(error) = calls.give_back(&descriptor, &mut grants, &dedup_id).await {
                lose(&self.counters, &grants, &self.domain, &error);
            }
            states.push((index, grants));
        }
        states
    }
}

/// Counts and logs hits that could not be given back.
fn lose(counters: &Counters, grants: &[QuotaGrant], domain: &str, error: &dyn std::fmt::Display) {
    let amounts = grants.iter().map(|grant| grant.answer.granted.unsigned_abs());
    counters.hits_lost.fetch_add(amounts.fold(0, u64::saturating_add), Relaxed);
    static LIMIT: LogLimit = LogLimit::new();
    if let Some(suppressed) = LIMIT.admit() {
        let (domain, error) = (log_text(domain), log_text(error));
        tracing::warn!(domain, error, suppressed, "hits could not be given back");
    }
}
