//! Keeps quotas in memory: rate limits over rolling windows, and allocations that last until they are released.

mod counter;
mod counters;
mod dedup;
mod digest;
mod limits;
mod literal;
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
    Adapter, AdapterError, Code, Grant, Handle, QuotaRequest,
    adapter::{ConfigErrors, InferredTypes},
    template::{Quota, quota},
};

use self::{
    counters::{Counters, Full, Room},
    dedup::Dedup,
    digest::Digester,
    limits::Limits,
};

mod config {
    #![allow(missing_docs, unreachable_pub)]
    mixer_adapter_core::include_proto!("adapter.memquota.config");
}

pub use config::{Params, params};

/// The handler: its limits, what is in use, and the answers of the latest calls.
#[derive(Debug)]
pub struct MemQuota {
    limits: Limits,
    digester: Digester,
    counters: Counters,
    dedup: Dedup,
    opened: Instant,
}

impl MemQuota {
    fn new(limits: Limits) -> Self {
        Self {
            dedup: Dedup::new(limits.deduplication),
            limits,
            digester: Digester::default(),
            counters: Counters::new(Room::default()),
            opened: Instant::now(),
        }
    }

    /// How many calls were denied because there was no room for another counter.
    pub fn refused(&self) -> u64 {
        self.counters.refused()
    }

    /// How many answers were forgotten before `min_deduplication_duration`, because there were too many.
    pub fn forgotten(&self) -> u64 {
        self.dedup.forgotten()
    }

    /// Answers a call; `now` is the time since the handler was opened.
    fn answer(
        &self,
        instance: &quota::InstanceMsg,
        args: &QuotaRequest,
        now: Duration,
    ) -> Result<Grant, AdapterError> {
        let quota = self.limits.find(&instance.name).ok_or_else(|| {
            AdapterError::invalid(format!("quotas: {}", self.limits.missing(&instance.name)))
        })?;
        if args.amount == 0 {
            return Ok(Grant::nothing());
        }
        let limit = quota.limit(&instance.dimensions);
        let counter = self.digester.counter(&instance.name, &instance.dimensions);
        self.dedup.once(&instance.name, args, now, || self.counters.apply(counter, limit, args, now)).map_err(
            |Full| {
                AdapterError::new(
                    Code::ResourceExhausted,
                    format!("no room to count what `{}` has in use: nothing is granted", instance.name),
                )
            },
        )
    }
}

impl Adapter for MemQuota {
    const NAME: &str = "memquota";
    const DESCRIPTION: &str = "Keeps quotas in memory: rate limits over rolling windows, and allocations.";
    type Config = Params;
    type Templates = (Quota,);

    async fn open(params: Params) -> Result<Self, AdapterError> {
        Ok(Self::new(Limits::read(&params)?))
    }

    fn validate(params: &Params, types: &InferredTypes) -> Result<(), ConfigErrors> {
        let limits = Limits::read(params)?;
        let mut errors = ConfigErrors::default();
        for (instance, _) in types.of::<Quota>() {
            if limits.find(instance).is_none() {
                errors.push("quotas", limits.missing(instance));
            }
        }
        errors.into_result()
    }
}

impl Handle<Quota> for MemQuota {
    async fn handle(
        &self,
        (instance, args): (quota::InstanceMsg, QuotaRequest),
    ) -> Result<Grant, AdapterError> {
        self.answer(&instance, &args, self.opened.elapsed())
    }
}
