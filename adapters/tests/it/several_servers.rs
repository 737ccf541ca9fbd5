//! Several servers with one Redis: examples/configurations/rate-limit-by-key.

mod leased;
mod million;

use std::{fs, path::Path, process::Command};

use crate::support::{Server, binary, eventually};
use futures_util::future::join_all;
use mixer_adapter::tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use mixer_adapter_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
    },
};
use serde_json::{Value as Json, json};
use test_debian::Redis;

/// Returns the changes of the example that another Redis, limit and algorithm need. The window is longer than a test.
fn changes(servers: &str, limit: usize, algorithm: &str) -> Vec<(&'static str, String)> {
    vec![
        ("url: redis://127.0.0.1:6379", servers.to_owned()),
        ("onError: LOCAL", "onError: DENY".to_owned()),
        ("maxAmount: 1000, validDuration: 60s", format!("maxAmount: {limit}, validDuration: 3600s")),
        ("ROLLING_WINDOW", algorithm.to_owned()),
    ]
}

/// A server with the example.
struct Limited {
    server: Server,
    client: RateLimitServiceClient<Channel>,
    _config: tempfile::TempDir,
}

impl Limited {
    async fn start(redis: &Redis) -> Self {
        let servers = format!("url: redis://127.0.0.1:{}\n    timeout: 1s", redis.port());
        Self::start_with(changes(&servers, 1000, "ROLLING_WINDOW"), |_| {}).await
    }

    /// Starts a server with changes of the example and of its process.
    async fn start_with(changes: Vec<(&str, String)>, change: impl FnOnce(&mut Command)) -> Self {
        let example =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configurations/rate-limit-by-key");
        let mut text = fs::read_to_string(example.join("config.yaml")).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{text}");
            text = text.replace(from, &to);
        }
        let config = tempfile::tempdir().unwrap();
        fs::write(config.path().join("config.yaml"), text).unwrap();
        let mut serve = binary();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"]);
        change(serve.arg(config.path()));
        let (server, _) = Server::spawn(&mut serve);
        server.until("/readyz", "\r\n\r\nready");
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
        let client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
        Self { server, client, _config: config }
    }

    /// Returns whether a request is within the limit of a key.
    async fn ask(&self, key: &str) -> bool {
        self.try_ask(key).await.unwrap()
    }

    async fn try_ask(&self, key: &str) -> Result<bool, Status> {
        let entry = Entry { key: "key".to_owned(), value: key.to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let domain = "per-key".to_owned();
        let request = RateLimitRequest { domain, descriptors: vec![descriptor], hits_addend: 0 };
        let answer = self.client.clone().should_rate_limit(request).await?;
        Ok(answer.into_inner().overall_code() == Code::Ok)
    }

    /// The sum of the series of a metric.
    fn metric(&self, start: &str) -> f64 {
        let page = self.server.get("/metrics");
        let values =
            page.lines().filter(|line| line.starts_with(start)).filter_map(|line| line.rsplit_once(' '));
        values.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }
}

#[tokio::test]
async fn three_servers_grant_a_limit_of_1000_to_1000_of_1800_requests() {
    let Some(redis) = Redis::start() else { return };
    let servers = [Limited::start(&redis).await, Limited::start(&redis).await, Limited::start(&redis).await];
    let mut granted = 0;
    // Twenty at a time to each server.
    for _ in 0..30 {
        let round = servers.iter().flat_map(|server| (0..20).map(|_| server.ask("a")));
        granted += join_all(round).await.into_iter().filter(|granted| *granted).count();
    }
    assert_eq!(granted, 1000);
    // Another key has a limit of its own.
    assert!(servers[0].ask("b").await);
    let without_trip =
        servers.iter().map(|server| server.metric("adapter_redisquota_grants_from_leases_total{"));
    let without_trip: f64 = without_trip.sum();
    assert!(without_trip > 0.0, "no lease was used");
}

#[tokio::test]
async fn a_server_is_ready_without_redis_and_warns_until_it_is_back() {
    let Some(mut redis) = Redis::start() else { return };
    redis.kill();
    let limited = Limited::start(&redis).await;
    let warning = "warning: handler limits.handler.istio-system: Redis is away";
    limited.server.until("/readyz", warning);
    assert!(limited.server.get("/status").contains("Redis is away"));
    assert_eq!(limited.metric("adapter_redisquota_connected{"), 0.0);
    assert!(!limited.ask("a").await);
    let denied = "adapter_redisquota_decisions_without_redis_total{";
    assert_eq!(limited.metric(denied), 1.0);
    redis.restart();
    eventually("the warning ends", || (!limited.server.get("/readyz").contains("warning")).then_some(()));
    assert_eq!(limited.metric("adapter_redisquota_connected{"), 1.0);
    assert!(limited.ask("a").await);
    let status: Json =
        serde_json::from_str(limited.server.get("/status").split_once("\r\n\r\n").unwrap().1).unwrap();
    let connected = json!({
        "series": "adapter_redisquota_connected{handler=\"limits.handler.istio-system\"}",
        "value": 1.0,
    });
    assert!(status["metrics"].as_array().unwrap().contains(&connected), "{}", status["metrics"]);
}
