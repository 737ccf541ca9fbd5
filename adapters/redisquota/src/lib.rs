//! Grants quota from counters in Redis, which any number of servers share: rate limits over fixed or rolling windows, and allocations.

mod connector;
mod fallback;
mod settings;
mod store;
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
    time::Duration,
};

use mixer_adapter_core::{Adapter, AdapterError, Call, Context, Grant, Handle, LimitState, QuotaRequest};
use mixer_adapter_quota::{Limit, Limits, SharedFingerprint};
use mixer_adapter_templates::{Quota, quota};

use self::{
    connector::Connector,
    fallback::{Fallback, Undecided},
    store::{CLOCK, Counted, CounterCall, Store},
    window::{Algorithm, Window},
};

mod config {
    #![allow(missing_docs, unreachable_pub)]
    mixer_adapter_core::include_proto!("adapter.redisquota.config");
}

pub use config::{Params, params};
pub use settings::RedisQuotaSettings;

/// How long a handler waits for Redis when it is opened. It serves calls without.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The handler: its limits, and the counters in Redis.
#[derive(Debug)]
pub struct RedisQuota {
    limits: Limits<Algorithm>,
    allocation: Duration,
    timeout: Duration,
    store: Arc<Store>,
    fallback: Fallback,
}

/// The name of this process among the servers of a Redis.
struct ServerId(String);

impl RedisQuota {
    async fn new(settings: RedisQuotaSettings, context: &Context, clock: &str) -> Result<Self, AdapterError> {
        let RedisQuotaSettings { limits, servers, key_prefix, timeout, on_error, allocation } = settings;
        let connector = Connector::open(servers, context).await?;
        let id = context.shared(|| {
            ServerId(format!(
                "{:016x}{:016x}",
                RandomState::new().hash_one(0),
                RandomState::new().hash_one(1)
            ))
        });
        let store = Store::new(connector, key_prefix, id.0.clone(), clock, context.metrics());
        let store = Arc::new(store);
        context.spawn(store.clone().maintain());
        // A server starts without Redis.
        let _ = tokio::time::timeout(OPEN_TIMEOUT, store.attempted()).await;
        let fallback = Fallback::new(on_error, limits.deduplication, context.metrics());
        Ok(Self { limits, allocation, timeout, store, fallback })
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
        let undecided = Undecided { instance: &instance.name, request, counter, limit };
        let is_repeatable = !request.dedup_id.is_empty() && request.amount != 0;
        let call = CounterCall {
            counter,
            window,
            max: limit.max,
            amount: request.amount,
            best_effort: request.best_effort,
            past_limit: request.past_limit,
            valid: limit.valid.unwrap_or(self.allocation),
            repeatable: is_repeatable
                .then(|| (SharedFingerprint::call(&instance.name, request), self.limits.deduplication)),
        };
        match self.store.call(&call, wait).await {
            Ok(counted) => {
                if !counted.is_repeated {
                    self.fallback.note(undecided, counted.granted);
                }
                Ok(grant(counted, request, limit))
            }
            Err(error) => {
                tracing::debug!(%error, quota = instance.name, "a quota is decided without Redis");
                Ok(self.fallback.decide(undecided, self.store.servers()))
            }
        }
    }
}

/// Returns the answer to a call that Redis counted.
fn grant(counted: Counted, request: &QuotaRequest, limit: Limit) -> Grant {
    // Past the limit any amount is granted, of which Redis counts what a number holds.
    let granted = if request.past_limit && request.amount > 0 { request.amount } else { counted.granted };
    let grant = Grant::amount(granted).valid_for(counted.valid);
    if !request.report_limit {
        return grant;
    }
    grant.with_limit(LimitState {
        max_amount: limit.max,
        remaining: (limit.max - counted.used).max(0),
        window: limit.valid,
        reset_after: Some(counted.reset_after),
    })
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
}

impl Handle<Quota> for RedisQuota {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        self.answer(&call, call.quota(), call.time_left(self.timeout)).await
    }
}
