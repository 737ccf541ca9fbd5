//! The services of Envoy, and their names before version 3 of Envoy's API, whose messages are compatible.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http::Request;
use mixer_adapter_engine::CheckOutcome;
use mixer_adapter_envoy::{AccessLogServer, Counters, RateLimitOutcome, Services, TenantCounts};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
};
use tonic::{body::Body, server::NamedService};
use tower_service::Service;

use super::{
    additional::AdditionalServices,
    rpc::{Rpc, rpc},
    series::{Encoded, counter, counters, gauge},
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

impl Server {
    /// Serves Envoy's external authorization, rate limits and access logs, too.
    #[must_use]
    pub fn envoy(self, services: Arc<Services>) -> Self {
        let check = || -> Rpc {
            let services = services.clone();
            rpc(move |request, caller| {
                let services = services.clone();
                async move { services.check(request, caller).await }
            })
        };
        let should_rate_limit = || -> Rpc {
            let services = services.clone();
            rpc(move |request, caller| {
                let services = services.clone();
                async move { services.should_rate_limit(request, caller).await }
            })
        };
        let rpcs = CHECK.map(|path| (path, check())).into_iter();
        let rpcs = rpcs.chain(SHOULD_RATE_LIMIT.map(|path| (path, should_rate_limit()))).collect();
        let access_log = AccessLogServer::new(services.clone());
        let (stopped, watched) = (services.clone(), services.clone());
        self.readiness().warn(move || watched.missing_settings());
        let collector = Box::new(EnvoyMetrics(services.counters().clone()));
        self.add(AdditionalServices {
            names: NAMES.into(),
            rpcs,
            routes: Box::new(|routes| {
                let former = FormerAccessLog(access_log.clone());
                routes.add_service(access_log).add_service(former)
            }),
            descriptors: include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin")),
            collector,
            stop: Box::new(move || stopped.stop()),
            finish: Box::pin(async move { services.flush().await }),
        })
    }
}

/// The access log service under its former name.
#[derive(Clone, Debug)]
struct FormerAccessLog(AccessLogServer);

impl NamedService for FormerAccessLog {
    const NAME: &'static str = "envoy.service.accesslog.v2.AccessLogService";
}

impl Service<Request<Body>> for FormerAccessLog {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = <AccessLogServer as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// The metrics of the services.
#[derive(Debug)]
struct EnvoyMetrics(Arc<Counters>);

impl Collector for EnvoyMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let encoder = &mut encoder;
        let Counters { rate_limits, hits_lost, log_entries, log_streams, log_unreadable, .. } = &*self.0;
        let help = "Requests for rate limits, by outcome";
        let outcomes =
            RateLimitOutcome::NAMES.iter().zip(rate_limits.iter().map(|count| count.load(Relaxed)));
        counters(encoder, "mixer_adapter_envoy_rate_limits", help, "outcome", outcomes)?;
        let help = "Hits of rate limits that could not be given back";
        counter(encoder, "mixer_adapter_envoy_rate_limit_hits_lost", help, hits_lost.load(Relaxed))?;
        let help = "Entries of access logs that were received";
        counter(encoder, "mixer_adapter_envoy_log_entries", help, log_entries.load(Relaxed))?;
        let help = "Streams of access logs that ended with a message that could not be read";
        counter(encoder, "mixer_adapter_envoy_log_unreadable", help, log_unreadable.load(Relaxed))?;
        let help = "Open streams of access logs";
        gauge(encoder, "mixer_adapter_envoy_log_streams", help, log_streams.load(Relaxed) as i64)?;
        let help =
            "What access logs did not deliver, by handler; without a handler, entries before rules applied";
        counters(encoder, "mixer_adapter_envoy_log_lost", help, "handler", self.0.lost())?;
        self.tenants(encoder)
    }
}

impl EnvoyMetrics {
    /// Encodes the counts by namespace.
    fn tenants(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let tenants = self.0.tenants();
        if tenants.is_empty() {
            return Ok(());
        }
        let mut outcomes = |name: &str, help: &str, names: &[&str], of: fn(&TenantCounts) -> &[AtomicU64]| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for tenant in &tenants {
                for (outcome, count) in names.iter().zip(of(tenant)) {
                    let labels = [("namespace", &*tenant.namespace), ("outcome", *outcome)];
                    ConstCounter::new(count.load(Relaxed)).encode(family.encode_family(&labels)?)?;
                }
            }
            Ok(())
        };
        let help = "Checks of Envoy, by the namespace whose rules apply";
        outcomes("mixer_adapter_envoy_tenant_checks", help, &CheckOutcome::NAMES, |tenant| &tenant.checks)?;
        let help = "Requests for rate limits, by the namespace whose rules apply";
        outcomes("mixer_adapter_envoy_tenant_rate_limits", help, &RateLimitOutcome::NAMES, |tenant| {
            &tenant.rate_limits
        })?;
        let entries: fn(&TenantCounts) -> &AtomicU64 = |tenant| &tenant.log_entries;
        let lost: fn(&TenantCounts) -> &AtomicU64 = |tenant| &tenant.log_lost;
        for (name, help, count) in [
            (
                "mixer_adapter_envoy_tenant_log_entries",
                "Entries of access logs, by the namespace whose rules apply",
                entries,
            ),
            ("mixer_adapter_envoy_tenant_log_lost", "What access logs did not deliver, by namespace", lost),
        ] {
            let counts = tenants.iter().map(|tenant| (&tenant.namespace, count(tenant).load(Relaxed)));
            counters(encoder, name, help, "namespace", counts)?;
        }
        Ok(())
    }
}
