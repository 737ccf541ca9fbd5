//! Several servers with one Redis: examples/configurations/rate-limit-by-key.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::support::{Server, binary, debian, eventually};
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

/// A server with the example, whose window is longer than the test.
struct Limited {
    server: Server,
    client: RateLimitServiceClient<Channel>,
    _config: tempfile::TempDir,
}

impl Limited {
    async fn start(redis: &Redis) -> Self {
        Self::start_with(redis, 1000, |_| {}).await
    }

    /// Starts a server with another limit and another environment.
    async fn start_with(redis: &Redis, limit: usize, change: impl FnOnce(&mut Command)) -> Self {
        let example =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configurations/rate-limit-by-key");
        let mut text = fs::read_to_string(example.join("config.yaml")).unwrap();
        for (from, to) in [
            ("127.0.0.1:6379\n", format!("127.0.0.1:{}\n    timeout: 1s\n", redis.port())),
            ("onError: LOCAL", "onError: DENY".to_owned()),
            ("maxAmount: 1000, validDuration: 60s", format!("maxAmount: {limit}, validDuration: 3600s")),
        ] {
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

/// Requests to three servers whose clocks differ by up to 20 s, while one of them is killed, and Redis is paused and refuses writes.
/// docs/performance.md has its figures.
#[tokio::test]
#[ignore = "takes minutes: it sends a million requests"]
async fn a_million_requests_are_granted_no_more_than_the_limit_and_98_percent_of_it() {
    const REQUESTS: usize = 1_000_000;
    const LIMIT: usize = 600_000;
    let Some(redis) = Redis::start() else { return };
    if debian::program("faketime", "faketime").is_none() {
        return;
    }
    let mut servers = Vec::new();
    for skew in ["+10s", "-10s", "+0s"] {
        let change = |serve: &mut Command| {
            let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
            serve.envs([("LD_PRELOAD", library.as_str()), ("FAKETIME", skew), ("DONT_FAKE_MONOTONIC", "1")]);
        };
        servers.push(Limited::start_with(&redis, LIMIT, change).await);
    }
    let (sent, granted) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let begin = Instant::now();
    let clients = servers.iter().flat_map(|server| std::iter::repeat_n(server, 32));
    let clients = clients.map(|server| async move {
        let mut waits = Vec::new();
        while sent.fetch_add(1, Relaxed) < REQUESTS {
            let start = Instant::now();
            // It fails if the server was killed.
            let Ok(is_granted) = server.try_ask("a").await else { break };
            granted.fetch_add(usize::from(is_granted), Relaxed);
            waits.push(start.elapsed());
        }
        waits
    });
    let sleep = |millis| tokio::time::sleep(Duration::from_millis(millis));
    let disturb = async {
        for percent in [5, 10, 15, 20, 25, 30, 35] {
            while sent.load(Relaxed) < REQUESTS / 100 * percent {
                sleep(5).await;
            }
            match percent {
                10 | 25 => _ = redis.command(&["REPLICAOF", "127.0.0.1", "9"]),
                20 => servers[0].server.signal("KILL"),
                _ => redis.pause(),
            }
            sleep(400).await;
            match percent {
                10 | 25 => _ = redis.command(&["REPLICAOF", "NO", "ONE"]),
                20 => {}
                _ => redis.resume(),
            }
        }
    };
    let (waits, ()) = tokio::join!(join_all(clients), disturb);
    let mut waits: Vec<Duration> = waits.into_iter().flatten().collect();
    waits.sort_unstable();
    let (granted, seconds) = (granted.load(Relaxed), begin.elapsed().as_secs_f64());
    let leased: f64 =
        servers[1..].iter().map(|server| server.metric("adapter_redisquota_grants_from_leases_total{")).sum();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    println!(
        "{} answers in {seconds:.0} s, {granted} of {LIMIT} granted, {leased} of them from leases of two servers; \
         p50 {:?}, p99 {:?}, p99.99 {:?}, longest {:?}",
        waits.len(),
        at(0.5),
        at(0.99),
        at(0.9999),
        at(1.0)
    );
    assert!((LIMIT * 98 / 100..=LIMIT).contains(&granted), "{granted}");
}
