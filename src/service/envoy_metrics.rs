//! The metrics of the services of Envoy, and their counters of failures.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use mixer_adapter_engine::CheckOutcome;
use mixer_adapter_envoy::{Counters, RateLimitOutcome, TenantCounts};
use prometheus_client::metrics::counter::ConstCounter;

use super::{
    admin::ProblemKind,
    metrics_encoder::{Encoded, Families, loaded},
};

/// Returns the counters of failures.
pub(super) fn failure_counters(counters: &Counters) -> Vec<(ProblemKind, u64)> {
    let [failed, unmatched] = [RateLimitOutcome::Failed, RateLimitOutcome::Unmatched]
        .map(|outcome| counters.rate_limits[outcome as usize].load(Relaxed));
    vec![
        (ProblemKind::RateLimits, failed),
        (ProblemKind::UnmatchedQuotas, unmatched),
        (ProblemKind::QuotasNotReturned, counters.hits_lost.load(Relaxed)),
        (ProblemKind::LogEntries, counters.lost().values().sum()),
    ]
}

/// Encodes the metrics of the services.
pub(super) fn encode(counters: &Counters, families: &mut Families<'_>) -> Encoded {
    let Counters { rate_limits, hits_lost, log_entries, log_streams, log_unreadable, .. } = counters;
    let outcomes = loaded(RateLimitOutcome::NAMES, rate_limits.each_ref());
    families.counters("mixer_adapter_envoy_rate_limits", "outcome", outcomes)?;
    families.counter("mixer_adapter_envoy_rate_limit_hits_lost", hits_lost.load(Relaxed))?;
    families.counter("mixer_adapter_envoy_log_entries", log_entries.load(Relaxed))?;
    families.counter("mixer_adapter_envoy_log_unreadable", log_unreadable.load(Relaxed))?;
    let streams = log_streams.load(Relaxed) as usize;
    families.gauge("mixer_adapter_envoy_log_streams", streams)?;
    let lost = counters.lost();
    let lost = lost.iter().map(|(handler, count)| (&**handler, *count));
    families.counters("mixer_adapter_envoy_log_lost", "handler", lost)?;
    by_namespace(&counters.tenants(), families)
}

/// Encodes the counts by namespace.
fn by_namespace(tenants: &[Arc<TenantCounts>], families: &mut Families<'_>) -> Encoded {
    let checks =
        tenants.iter().flat_map(|tenant| outcomes(tenant, CheckOutcome::NAMES, tenant.checks.each_ref()));
    families.encode("mixer_adapter_envoy_tenant_checks", None, ["namespace", "outcome"], checks)?;
    let limits = tenants
        .iter()
        .flat_map(|tenant| outcomes(tenant, RateLimitOutcome::NAMES, tenant.rate_limits.each_ref()));
    families.encode("mixer_adapter_envoy_tenant_rate_limits", None, ["namespace", "outcome"], limits)?;
    let entries = tenants.iter().map(|tenant| (&*tenant.namespace, tenant.log_entries.load(Relaxed)));
    families.counters("mixer_adapter_envoy_tenant_log_entries", "namespace", entries)?;
    let lost = tenants.iter().map(|tenant| (&*tenant.namespace, tenant.log_lost.load(Relaxed)));
    families.counters("mixer_adapter_envoy_tenant_log_lost", "namespace", lost)
}

/// Returns a counter for each outcome of a namespace.
fn outcomes<'t, const N: usize>(
    tenant: &'t TenantCounts,
    names: [&'static str; N],
    counts: [&AtomicU64; N],
) -> impl Iterator<Item = ([Cow<'t, str>; 2], ConstCounter<u64>)> {
    let namespace = &*tenant.namespace;
    loaded(names, counts)
        .map(move |(name, count)| ([namespace.into(), name.into()], ConstCounter::new(count)))
}
