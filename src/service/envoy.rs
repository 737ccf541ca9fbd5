//! The services of Envoy, and their names before version 3 of Envoy's API, whose messages are compatible.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{extract::Request, routing::any};
use mixer_adapter_engine::CheckOutcome;
use mixer_adapter_envoy::{AccessLogServer, Counters, RateLimitOutcome, Services, TenantCounts};
use prometheus_client::metrics::counter::ConstCounter;
use tonic::body::Body;
use tower_service::Service as _;

use super::{
    admin::ProblemKind,
    metrics_encoder::{Encoded, Families, Scraped, loaded},
    rpc::rpc,
    server::Server,
};

const NAMES: [&str; 6] = [
    "envoy.service.auth.v3.Authorization",
    "envoy.service.auth.v2.Authorization",
    "envoy.service.ratelimit.v3.RateLimitService",
    "envoy.service.ratelimit.v2.RateLimitService",
    "envoy.service.accesslog.v3.AccessLogService",
    "envoy.service.accesslog.v2.AccessLogService",
];

const CHECK: [&str; 2] =
    ["/envoy.service.auth.v3.Authorization/Check", "/envoy.service.auth.v2.Authorization/Check"];

const SHOULD_RATE_LIMIT: [&str; 2] = [
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
];

/// The methods of the access log service under its former name.
const FORMER_ACCESS_LOG: &str = "/envoy.service.accesslog.v2.AccessLogService/{*method}";

impl Server {
    /// Serves Envoy's external authorization, rate limits and access logs, too.
    #[must_use]
    pub fn envoy(mut self, services: Arc<Services>) -> Self {
        let check =
            rpc(&services, |services, request, caller| async move { services.check(request, caller).await });
        let limit = rpc(&services, |services, request, caller| async move {
            services.should_rate_limit(request, caller).await
        });
        let access_log = AccessLogServer::new(services.clone());
        let (stopped, watched) = (services.clone(), services.clone());
        self.readiness().warn(move || watched.missing_settings());
        let counters = services.counters().clone();
        let failing = counters.clone();
        let metrics = Scraped(move |families: &mut Families<'_>| encode(&counters, families));
        let added = &mut self.additional;
        added.names.extend(NAMES);
        added.rpcs.extend(CHECK.map(|path| (path, check.clone())));
        added.rpcs.extend(SHOULD_RATE_LIMIT.map(|path| (path, limit.clone())));
        added.routes.push(Box::new(|routes| {
            let router = routes.add_service(access_log.clone()).into_axum_router();
            let former = any(async move |request: Request| {
                let mut access_log = access_log.clone();
                access_log.call(request.map(Body::new)).await
            });
            router.route(FORMER_ACCESS_LOG, former).into()
        }));
        added.descriptors.push(include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin")));
        added.collectors.push(Box::new(metrics));
        added.failure_counters.push(Box::new(move || failure_counters(&failing)));
        added.stops.push(Box::new(move || stopped.stop()));
        added.finish.push(Box::pin(async move { services.flush().await }));
        self
    }
}

/// Returns the counters of failures.
fn failure_counters(counters: &Counters) -> Vec<(ProblemKind, u64)> {
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
fn encode(counters: &Counters, families: &mut Families<'_>) -> Encoded {
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
