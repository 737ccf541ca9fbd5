//! Hits of quotas that are all or nothing, which are given back if their call is refused or fails.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::future::join_all;
use mixer_adapter_core::{
    framework::{log_limit::warn_limited, log_text::log_text},
    proto::istio::mixer::adapter::model::v1beta1::quota_result::Limit,
};
use mixer_adapter_engine::dispatch::{Caller, TakenAmount, max_wait};
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;

use crate::{
    Services,
    counters::Counters,
    tenants::{SharedSpace, Space},
};

/// The size in bytes of the pending calls that give hits back. Tenants share it.
const SPACE: usize = 16 << 20;

/// The size in bytes of a task without its hits.
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

/// The hits that were given back, with the states of their limits.
type Returned = Vec<(Hit, Option<Limit>)>;

/// Hits of a descriptor that a quota has granted.
pub(super) struct Hit {
    /// The index of the descriptor.
    pub(super) index: usize,
    pub(super) amount: TakenAmount,
}

/// The hits that a call has taken so far. They are given back when this is dropped, for example if the client cancels the call.
pub(super) struct TakenHits<'c> {
    services: &'c Services,
    domain: &'c str,
    caller: &'c Caller,
    hits: Vec<Hit>,
    tenant: Arc<str>,
}

impl<'c> TakenHits<'c> {
    pub(super) fn new(services: &'c Services, domain: &'c str, caller: &'c Caller) -> Self {
        Self { services, domain, caller, hits: Vec::new(), tenant: Arc::default() }
    }

    /// Adds hits of a descriptor.
    pub(super) fn add(&mut self, index: usize, tenant: &str, amount: TakenAmount) {
        if *self.tenant != *tenant {
            self.tenant = tenant.into();
        }
        self.hits.push(Hit { index, amount });
    }

    /// Commits the hits: they are not given back.
    pub(super) fn commit(mut self) {
        self.hits.clear();
    }

    /// Gives the hits back, and returns them with the states of their limits. Returns nothing after half of the time that the caller
    /// still waits.
    pub(super) async fn give_back(mut self) -> Returned {
        let Some(task) = self.spawn() else { return Vec::new() };
        let returned = timeout(max_wait(self.caller, TIMEOUT), task).await;
        returned.map(Result::unwrap_or_default).unwrap_or_default()
    }

    fn spawn(&mut self) -> Option<JoinHandle<Returned>> {
        let hits = std::mem::take(&mut self.hits);
        if hits.is_empty() {
            return None;
        }
        let Services { counters, ids, give_backs, .. } = self.services;
        let task = GiveBack {
            counters: counters.clone(),
            domain: self.domain.to_owned(),
            caller: Caller {
                deadline: Some(Instant::now() + TIMEOUT),
                request_id: None,
                // The call ends before this, with its share of the memory.
                memory: None,
                ..self.caller.clone()
            },
            hits: hits.into_iter().map(|hit| (hit, ids.next())).collect(),
        };
        match give_backs.space.take(&self.tenant, task.size()) {
            Some(space) => Some(give_backs.tasks.spawn_on(task.run(space), &give_backs.runtime)),
            None => {
                task.hits.iter().for_each(|(hit, _)| task.lose(hit.amount.amount(), &"too many at once"));
                None
            }
        }
    }
}

impl Drop for TakenHits<'_> {
    fn drop(&mut self) {
        self.spawn();
    }
}

struct GiveBack {
    counters: Arc<Counters>,
    domain: String,
    caller: Caller,
    /// With ids for the adapter.
    hits: Vec<(Hit, String)>,
}

impl GiveBack {
    /// The size in memory in bytes.
    fn size(&self) -> usize {
        let contents: usize = self.hits.iter().map(|(hit, id)| hit.amount.size() + id.len()).sum();
        TASK + self.domain.len() + size_of_val(&*self.hits) + contents
    }

    /// Gives all hits back at the same time.
    async fn run(mut self, _space: Space) -> Returned {
        let hits = std::mem::take(&mut self.hits);
        let returned = join_all(hits.into_iter().map(|(hit, id)| {
            let task = &self;
            async move {
                let taken = hit.amount.amount();
                match hit.amount.give_back(&id, &task.caller).await {
                    Ok(returned) => {
                        if returned.amount < taken {
                            let error = format!("only {} of {taken} were taken back", returned.amount);
                            task.lose(taken - returned.amount, &error);
                        }
                        Some((hit, returned.limit))
                    }
                    Err(status) => {
                        task.lose(taken, &format_args!("{}: {}", hit.amount.handler(), status.message()));
                        None
                    }
                }
            }
        }));
        returned.await.into_iter().flatten().collect()
    }

    /// Counts and logs hits that could not be given back.
    fn lose(&self, amount: i64, error: &dyn std::fmt::Display) {
        self.counters.hits_lost.fetch_add(amount.unsigned_abs(), Relaxed);
        let domain = &self.domain;
        warn_limited!(domain = log_text(domain), error = log_text(error), "hits could not be given back");
    }
}
