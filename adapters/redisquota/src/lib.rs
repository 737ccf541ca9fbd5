//! Grants quota from counters in Redis, which any number of servers share: rate limits over fixed or rolling windows, and allocations.

mod clock;
mod fallback;
mod lease;
mod metrics;
mod settings;
mod share;
mod store;
mod sweeps;
#[cfg(test)]
mod tests;
mod window;

#[cfg(test)]
mixer_adapter::testing::compliance!(
    RedisQuota,
    config(
        "{redis_server_url: '127.0.0.1:9', quotas: [{name: example.instance.istio-system, max_amount: 10, valid_duration: 60s}]}"
    ),
    refuses("quotas[0].max_amount", "quotas: [{name: a, max_amount: -1}]")
);

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use mixer_adapter_core::{Adapter, AdapterError, Call, Context, Grant, Handle, QuotaRequest};
use mixer_adapter_quota::{Dedup, Limit, Limits, SharedFingerprint};
use mixer_adapter_redis::{CLOCK, Client, ClientError, Connector};
use mixer_adapter_templates::{Quota, quota};
use parking_lot::Mutex;

use self::{
    clock::Clock,
    fallback::{Fallback, Reserved, Undecided},
    lease::{Given, Leased, LeasedGrant, Leases, SMALLEST_LIMIT, Served, Trip},
    metrics::{Counts, LeaseGauges, on_change},
    params::OnError,
    share::Divided,
    store::{Counted, CounterCall, Store},
    sweeps::Shared,
    window::{Algorithm, Window},
};

mixer_adapter_core::include_proto!("adapter.redisquota.config");

pub use settings::RedisQuotaSettings;

/// Time in which opening a handler waits for Redis. Without a connection the handler serves calls, too.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// Time in which a closing handler returns leases and reports grants that were made without Redis.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The handler: its limits, and the counters in Redis.
#[derive(Debug)]
pub struct RedisQuota {
    limits: Limits<Algorithm>,
    allocation: Duration,
    shared: Shared,
    /// The answers of this server about limits of which it grants leases or shares.
    repeated: Dedup,
    leases: Option<Arc<Mutex<Leases>>>,
    counts: Counts,
}

/// The name of this process among the servers of a Redis.
struct ServerId(String);

impl RedisQuota {
    async fn new(settings: RedisQuotaSettings, context: &Context, clock: &str) -> Result<Self, AdapterError> {
        let RedisQuotaSettings { limits, servers, key_prefix, timeout, on_error, allocation, lease } =
            settings;
        let connector = Connector::open(servers, context).await?;
        let id = context.shared(|| {
            ServerId(format!(
                "{:016x}{:016x}",
                RandomState::new().hash_one(0),
                RandomState::new().hash_one(1)
            ))
        });
        let metrics = context.metrics();
        let client = Client::new(connector, key_prefix, id.0.clone(), on_change(context.clone()));
        let store = Arc::new(Store::new(Arc::new(client), clock));
        context.spawn(store.client.clone().maintain());
        // A server starts without Redis.
        let _ = tokio::time::timeout(OPEN_TIMEOUT, store.client.attempted()).await;
        let first_id = RandomState::new().hash_one(id.0.as_str()) >> 1;
        let leases = lease.then(|| Arc::new(Mutex::new(Leases::new(first_id))));
        let fallback = Arc::new(Fallback::new(on_error, metrics, first_id));
        let shared = Shared { store, fallback, timeout, opened: Clock::start() };
        if on_error == OnError::Local {
            context.spawn(shared.clone().keep_reporting());
        }
        if let Some(leases) = leases.clone() {
            context.spawn(shared.clone().sweep(leases, LeaseGauges::new(metrics)));
        }
        Ok(Self {
            repeated: Dedup::new(limits.deduplication, metrics.events("answers_forgotten")),
            limits,
            allocation,
            shared,
            leases,
            counts: Counts::new(metrics),
        })
    }

    async fn answer(
        &self,
        instance: &quota::InstanceMsg,
        request: &QuotaRequest,
        wait: Duration,
    ) -> Result<Grant, AdapterError> {
        let quota = self.limits.of_call(&instance.name)?;
        if request.amount == 0 && !request.report_limit {
            return Ok(Grant::nothing());
        }
        let given = request.limit.and_then(Limit::given);
        let limit = given.unwrap_or_else(|| quota.limit(&instance.dimensions));
        let window = Window::new(quota.extra, limit.valid, self.allocation);
        let counter = SharedFingerprint::counter(&instance.name, &instance.dimensions, &window.id());
        let now = self.shared.opened.elapsed();
        let leased = Leased { counter, window, max: limit.max };
        let undecided = Undecided { instance: &instance.name, request, leased, limit, now };
        let is_repeatable = !request.dedup_id.is_empty() && request.amount != 0;
        let mut call = CounterCall {
            amount: request.amount,
            best_effort: request.best_effort,
            past_limit: request.past_limit,
            valid: limit.valid.unwrap_or(self.allocation),
            repeatable: is_repeatable
                .then(|| (SharedFingerprint::call(&instance.name, request), self.limits.deduplication)),
            ..CounterCall::of_trip(leased, Trip::default())
        };
        let is_leasable = limit.valid.is_some() && limit.max >= SMALLEST_LIMIT && !request.past_limit;
        let leases = self.leases.as_ref().filter(|_| is_leasable && request.amount != 0);
        // Redis does not know what leases and shares grant.
        let has_answers = leases.is_some() || request.amount != 0 && self.shared.fallback.has_shares(limit);
        let mut known = None;
        if has_answers {
            let mut leases = leases.map(|leases| leases.lock());
            known = self.repeated.find(&instance.name, request, now);
            match (known, &mut leases) {
                (Some(grant), _) if !request.report_limit => return Ok(grant),
                // Only the state of the limit is missing.
                (Some(_), _) => (call.amount, call.repeatable) = (0, None),
                (None, Some(leases)) => match take(leases, &instance.name, &call, now) {
                    Ok(leased) => return Ok(self.grant_leased(leased, undecided)),
                    Err(trip) => call.trip = trip,
                },
                (None, None) => {}
            }
        }
        let was_away = self.shared.store.client.was_away();
        let Some(counted) = self.trip(call, undecided, leases, was_away, wait).await else {
            let leases = leases.map(|leases| leases.lock());
            let divided = self.divided(leases.as_deref(), counter);
            return Ok(
                known.unwrap_or_else(|| self.shared.fallback.decide(undecided, divided, &self.repeated))
            );
        };
        let grant = grant(counted, undecided);
        if let Some(known) = known {
            return Ok(grant.limit().map_or(known, |state| known.with_limit(state)));
        }
        if has_answers {
            self.repeated.store(&instance.name, request, grant, now);
        }
        Ok(grant)
    }

    /// Has Redis count a call, and notes what it grants and the lease that it gives. Returns `None` if the call is to be decided
    /// without Redis. After Redis was away, shares bound its grants, too, until all servers have reported.
    async fn trip(
        &self,
        mut call: CounterCall,
        undecided: Undecided<'_>,
        leases: Option<&Arc<Mutex<Leases>>>,
        was_away: bool,
        wait: Duration,
    ) -> Option<Counted> {
        let Undecided { instance, leased, now, .. } = undecided;
        // Dropped with the call when its deadline passes.
        let mut taking = leases.filter(|_| call.trip.wanted > 0).map(|leases| Taking {
            leases,
            counter: leased.counter,
            id: call.trip.id,
            was_sent: false,
        });
        if was_away && !self.shared.store.client.is_connected() {
            return None;
        }
        // Dropped after the grant is noted.
        let reserved = if was_away { self.reserve(&call, undecided, leases) } else { None };
        if let Some(reserved) = &reserved {
            if reserved.amount == 0 {
                return None;
            }
            call.amount = call.amount.min(reserved.amount);
            call.trip.wanted = call.trip.wanted.min(reserved.amount - call.amount);
        }
        if let Some(taking) = &mut taking {
            taking.was_sent = true;
        }
        let begin = Instant::now();
        let counted = self.count(&call, undecided, wait).await;
        match &counted {
            Ok(counted) => {
                self.counts.trip_seconds.with([instance]).observe(begin.elapsed().as_secs_f64());
                if let Some(taking) = &taking {
                    taking.leases.lock().taken(leased.counter, &call.trip, given_lease(counted, &call), now);
                }
                self.note_counted(counted, call.amount, undecided, was_away);
            }
            Err(error) => {
                if let Some(taking) = &mut taking {
                    taking.was_sent = !matches!(error, ClientError::Away);
                }
                tracing::debug!(%error, quota = instance, "a quota is decided without Redis");
            }
        }
        counted.ok()
    }

    /// Reserves an amount of the share of this server for a trip: the requested one and a lease, or less. Returns `None` if no share
    /// bounds the call.
    fn reserve(
        &self,
        call: &CounterCall,
        undecided: Undecided<'_>,
        leases: Option<&Arc<Mutex<Leases>>>,
    ) -> Option<Reserved<'_>> {
        if call.amount <= 0 || call.past_limit {
            return None;
        }
        let least = if call.best_effort { 1 } else { call.amount };
        // A lease is at most a hundredth of the limit.
        let most = call.amount.saturating_add(call.trip.wanted.min(call.leased.max / 100));
        // Until the amount is reserved, so that no other trip takes a lease.
        let leases = leases.map(|leases| leases.lock());
        let divided = self.divided(leases.as_deref(), call.leased.counter);
        self.shared.fallback.reserve(undecided, least..=most, divided)
    }

    /// Notes the state of a counter after a call for `amount`, for refusals because of leases and for the share of this server.
    fn note_counted(&self, counted: &Counted, amount: i64, undecided: Undecided<'_>, was_away: bool) {
        let Undecided { instance, limit, .. } = undecided;
        let in_use = counted.used - counted.leased;
        let is_refused = !counted.is_repeated && amount > 0 && counted.granted == 0;
        if is_refused && in_use.saturating_add(amount) <= limit.max {
            self.counts.early_refusals.with([instance]).inc();
        }
        // Redis may have counted just now, and the amount is in use for a window.
        let undecided = Undecided { now: self.shared.opened.elapsed(), ..undecided };
        if !counted.is_repeated {
            self.shared.fallback.note_granted(undecided, counted.granted);
        }
        if !was_away {
            self.shared.fallback.note_used(undecided, counted.used);
        }
    }

    /// Has Redis count a call, after the reports of the counter.
    async fn count(
        &self,
        call: &CounterCall,
        undecided: Undecided<'_>,
        wait: Duration,
    ) -> Result<Counted, ClientError> {
        let begin = Instant::now();
        self.shared.report(undecided.leased, wait).await?;
        self.shared.store.call(call, wait.saturating_sub(begin.elapsed())).await
    }

    /// Returns the number of servers and the leased amount; `None` if Redis was never reached.
    fn divided(&self, leases: Option<&Leases>, counter: SharedFingerprint) -> Option<Divided> {
        let servers = self.shared.store.client.servers()?;
        let leased = leases.map_or(0, |leases| leases.left(counter, self.shared.opened.elapsed()));
        Some(Divided { servers, leased })
    }

    /// Returns the answer to a request that a lease covers.
    fn grant_leased(&self, leased: LeasedGrant, undecided: Undecided<'_>) -> Grant {
        let Undecided { instance, request, limit, now, .. } = undecided;
        self.counts.from_leases.with([instance]).inc();
        self.shared.fallback.note_granted(undecided, request.amount.abs());
        let valid = leased.valid.or(limit.valid).unwrap_or_default();
        let valid = if request.amount > 0 { valid } else { Duration::ZERO };
        let grant = Grant::amount(request.amount.abs()).valid_for(valid);
        self.repeated.store(instance, request, grant, now);
        undecided.with_limit(grant, leased.remaining, Some(leased.reset_after))
    }
}

/// A trip that takes a lease. Without an answer it has failed when this is dropped.
struct Taking<'l> {
    leases: &'l Mutex<Leases>,
    counter: SharedFingerprint,
    id: u64,
    was_sent: bool,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.leases.lock().failed(self.counter, self.id, self.was_sent);
    }
}

/// Grants a call from a lease or gives it back to one, or returns the trip that is necessary.
fn take(leases: &mut Leases, quota: &str, call: &CounterCall, now: Duration) -> Served {
    if call.amount > 0 {
        leases.request(call.leased, quota, call.amount, now)
    } else {
        leases.release(call.leased, call.amount.saturating_neg(), now)
    }
}

fn given_lease(counted: &Counted, call: &CounterCall) -> Given {
    let (amount, life) = counted.lease;
    Given {
        amount,
        life,
        window_end: matches!(call.leased.window, Window::Fixed(_)).then_some(counted.valid),
        remaining: (call.leased.max - counted.used).max(0),
        reset_after: counted.reset_after,
    }
}

/// Returns the answer to a call that Redis counted.
fn grant(counted: Counted, undecided: Undecided<'_>) -> Grant {
    let Undecided { request, limit, .. } = undecided;
    // Past the limit the whole amount is granted, although Redis reduces amounts that are too large to count.
    let granted = if request.past_limit && request.amount > 0 { request.amount } else { counted.granted };
    let grant = Grant::amount(granted).valid_for(counted.valid);
    undecided.with_limit(grant, (limit.max - counted.used).max(0), Some(counted.reset_after))
}

impl Adapter for RedisQuota {
    const NAME: &str = "redisquota";
    const DESCRIPTION: &str =
        "Keeps quotas in Redis for any number of servers: rate limits, and allocations.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = RedisQuotaSettings;
    type Templates = (Quota,);

    async fn open(settings: RedisQuotaSettings, context: Context) -> Result<Self, AdapterError> {
        Self::new(settings, &context, CLOCK).await
    }

    async fn close(self) {
        let returns = self.leases.as_ref().map(|leases| leases.lock().close()).unwrap_or_default();
        let end = async {
            self.shared.report_all().await;
            self.shared.give_back(returns, |_, _| {}).await;
        };
        // Leases that are not returned in time count as used until they leave the window.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, end).await;
    }
}

impl Handle<Quota> for RedisQuota {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        self.answer(&call, call.quota(), call.time_left(self.shared.timeout)).await
    }
}
