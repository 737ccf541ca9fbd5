//! The services of Envoy, and their names before version 3 of Envoy's API, whose messages are compatible.

use std::sync::Arc;

use axum::{extract::Request, routing::any};
use mixer_adapter_envoy::{AccessLogServer, Services};
use tonic::body::Body;
use tower_service::Service as _;

use super::{
    envoy_metrics::{encode, failure_counters},
    metrics_encoder::{Families, Scraped},
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
            rpc(
                &services,
                |services, request, caller| async move { services.check(&request, &caller).await },
            );
        let limit = rpc(&services, |services, request, caller| async move {
            services.should_rate_limit(*request, caller).await
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
