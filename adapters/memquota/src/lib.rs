//! Grants quota from counters in memory: rate limits over rolling windows, and allocations that last until they are released.

#[cfg(test)]
mixer_adapter::testing::compliance!(
    MemQuota,
    config("quotas: [{name: example.instance.istio-system, max_amount: 10, valid_duration: 60s}]"),
    refuses("quotas[0].max_amount", "quotas: [{name: a, max_amount: -1}]")
);

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use mixer_adapter_core::{
    Adapter, AdapterError, Call, Code, Context, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
    metrics::Metrics,
    retention::{Retain, Retained},
};
use mixer_adapter_quota::{
    Capacity, Counters, Dedup, Fingerprinter, FullError, Limit, Limits, OverrideParams, QuotaParams, Span,
};
use mixer_adapter_templates::{Quota, quota};

mixer_adapter_core::include_proto!("adapter.memquota.config");

/// The quotas of a valid configuration.
#[derive(Debug)]
pub struct MemQuotaSettings(Limits);

impl Settings for MemQuotaSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let quotas = params.quotas.iter().map(|quota| QuotaParams {
            name: &quota.name,
            max_amount: quota.max_amount,
            valid_duration: quota.valid_duration,
            overrides: quota.overrides.iter().map(OverrideParams::from).collect(),
            extra: (),
        });
        Some(Self(Limits::parse(quotas.collect(), params.min_deduplication_duration, faults)))
    }
}

impl<'p> From<&'p params::Override> for OverrideParams<'p> {
    fn from(given: &'p params::Override) -> Self {
        Self {
            dimensions: &given.dimensions,
            max_amount: given.max_amount,
            valid_duration: given.valid_duration,
        }
    }
}

/// The handler: its limits and counters.
#[derive(Debug)]
pub struct MemQuota {
    limits: Limits,
    state: Retained<State>,
}

/// The counters and the answers of recent calls, which outlive a handler.
#[derive(Debug)]
struct State {
    fingerprinter: Fingerprinter,
    counters: Counters,
    dedup: Dedup,
    created: Instant,
}

impl State {
    fn new(deduplication: Duration, metrics: &Metrics) -> Self {
        Self {
            fingerprinter: Fingerprinter::default(),
            counters: Counters::new(Capacity::default(), metrics.events("calls_without_room")),
            dedup: Dedup::new(deduplication, metrics.events("answers_forgotten")),
            created: Instant::now(),
        }
    }
}

impl Retain for State {
    /// Without an amount in use there is nothing to lose.
    fn bytes(&self) -> usize {
        match self.counters.compact(self.created.elapsed()) {
            0 => 0,
            counters => size_of::<Self>() + counters + self.dedup.bytes(),
        }
    }
}

impl MemQuota {
    fn new(limits: Limits, context: &Context) -> Self {
        let state = context.retained(|| State::new(limits.deduplication, context.metrics()));
        Self { limits, state }
    }

    /// Answers a call; `now` is the time since the state was created.
    fn answer(
        &self,
        instance: &quota::InstanceMsg,
        request: &QuotaRequest,
        now: Duration,
    ) -> Result<Grant, AdapterError> {
        let quota = self.limits.of_call(&instance.name)?;
        if request.amount == 0 && !request.report_limit {
            return Ok(Grant::nothing());
        }
        let given = request.limit.and_then(Limit::given);
        let configured = quota.limit(&instance.dimensions);
        let limit = given.unwrap_or(configured);
        let window = limit.valid.filter(|valid| configured.valid.map(Span::of) != Some(Span::of(*valid)));
        let counter = self.state.fingerprinter.counter(&instance.name, &instance.dimensions, window);
        let grant = match request.amount {
            0 => Grant::nothing(),
            _ => {
                let State { counters, dedup, .. } = &*self.state;
                let granted =
                    dedup.once(&instance.name, request, now, || counters.apply(counter, limit, request, now));
                granted.map_err(|FullError| {
                    let reason = format!("nothing is granted for `{}`: {FullError}", instance.name);
                    AdapterError::new(Code::ResourceExhausted, reason)
                })?
            }
        };
        if !request.report_limit {
            return Ok(grant);
        }
        Ok(grant.with_limit(self.state.counters.state(counter, limit, request.amount, grant.granted(), now)))
    }
}

impl Adapter for MemQuota {
    const NAME: &str = "memquota";
    const DESCRIPTION: &str = "Keeps quotas in memory: rate limits over rolling windows, and allocations.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = MemQuotaSettings;
    type Templates = (Quota,);

    async fn open(
        MemQuotaSettings(limits): MemQuotaSettings,
        context: Context,
    ) -> Result<Self, AdapterError> {
        Ok(Self::new(limits, &context))
    }
}

impl Handle<Quota> for MemQuota {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        self.answer(&call, call.quota(), self.state.created.elapsed())
    }
}
