#![allow(clippy::unwrap_used)]

mod leases;
mod topologies;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use mixer_adapter_core::{
    adapter::{Access, ConfigErrors, Faults, InferredType, InferredTypes},
    prost_types,
};
use test_debian::Redis;
use test_quota::{QuotaConfig, Subject};

use super::*;

fn proto(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}

fn seconds(seconds: u64) -> Option<prost_types::Duration> {
    proto(Duration::from_secs(seconds))
}

/// Handlers whose scripts read the time from a key.
struct Scripts {
    redis: Redis,
    handlers: AtomicU64,
}

impl Scripts {
    fn params(quotas: &[QuotaConfig], deduplication: Duration) -> Params {
        let quotas = quotas.iter().map(|quota| params::Quota {
            name: quota.name.to_owned(),
            max_amount: quota.max_amount,
            valid_duration: proto(quota.valid),
            rate_limit_algorithm: params::QuotaAlgorithm::RollingWindow.into(),
            ..Default::default()
        });
        Params {
            quotas: quotas.collect(),
            min_deduplication_duration: proto(deduplication),
            // Never away, however slow the machine is.
            timeout: seconds(1),
            ..Default::default()
        }
    }

    async fn handler(&self, params: Params) -> Handler {
        let key_prefix = format!("test{}", self.handlers.fetch_add(1, SeqCst));
        let clock = format!("local now = tonumber(redis.call('GET', '{key_prefix}:clock'))\n");
        let redis_server_url = format!("127.0.0.1:{}", self.redis.port());
        let params = Params { redis_server_url, key_prefix: key_prefix.clone(), ..params };
        let settings = Faults::parse(params).unwrap();
        let context = Context::detached(());
        let handler = RedisQuota::new(settings, &context, &clock).await.unwrap();
        assert!(handler.shared.store.client.is_connected());
        Handler { handler, key_prefix }
    }
}

struct Handler {
    handler: RedisQuota,
    key_prefix: String,
}

impl Subject for Scripts {
    type Handler = Handler;
    const ALLOCATION: Duration = Duration::from_secs(3600);
    const CASES: u32 = 24;

    fn start() -> Option<Self> {
        Some(Self { redis: Redis::start()?, handlers: AtomicU64::new(0) })
    }

    async fn open(&self, quotas: &[QuotaConfig], deduplication: Duration) -> Handler {
        self.handler(Self::params(quotas, deduplication)).await
    }

    fn set_time(&self, handler: &Handler, now: Duration) {
        // Not zero, as on any machine.
        let millis = (now.as_millis() + 1_000_000_000).to_string();
        self.redis.command(&["SET", &format!("{}:clock", handler.key_prefix), &millis]);
    }

    async fn answer(
        Handler { handler, .. }: &Handler,
        instance: &quota::InstanceMsg,
        request: &QuotaRequest,
    ) -> Result<Grant, AdapterError> {
        handler.answer(instance, request, handler.shared.timeout).await
    }

    fn validate(quota: QuotaConfig, types: Vec<InferredType>) -> Result<(), ConfigErrors> {
        let (types, access) = (InferredTypes::new(types), Access::unrestricted());
        let params = Self::params(&[quota], Duration::from_secs(1));
        Faults::new(&types, &access).settings::<RedisQuotaSettings>(params).map(drop)
    }
}

test_quota::behaviours!(Scripts);

/// A call of redisquota_test.go: the amount, the second, the amount granted, for how many seconds, and the id.
type Row = (i64, u64, i64, u64, &'static str);

async fn check(subject: &Scripts, quota: params::Quota, best_effort: bool, rows: &[Row]) {
    let params = Params {
        quotas: vec![params::Quota { name: "q".to_owned(), max_amount: 10, ..quota }],
        // The original recognizes a call as long as its grant is valid.
        min_deduplication_duration: seconds(100),
        timeout: seconds(1),
        ..Default::default()
    };
    let handler = subject.handler(params).await;
    let dimensions = [("source".to_owned(), "none".into())].into();
    let instance = quota::InstanceMsg { name: "q".to_owned(), dimensions };
    for (amount, second, granted, valid, id) in rows {
        subject.set_time(&handler, Duration::from_secs(*second));
        let request = QuotaRequest::new(*amount).with_dedup_id(*id);
        let request = if best_effort { request.with_best_effort() } else { request };
        let grant = Scripts::answer(&handler, &instance, &request).await.unwrap();
        let expected = Grant::amount(*granted).valid_for(Duration::from_secs(*valid));
        assert_eq!(grant, expected, "{amount} at {second}");
    }
}

/// redisquota_test.go: the tables of the four algorithms.
#[test]
fn windows_grant_what_the_original_grants() {
    test_quota::run(async |subject: std::sync::Arc<Scripts>| {
        let fixed = || params::Quota { valid_duration: seconds(10), ..Default::default() };
        let rolling = || params::Quota {
            valid_duration: seconds(100),
            bucket_duration: seconds(10),
            rate_limit_algorithm: params::QuotaAlgorithm::RollingWindow.into(),
            ..Default::default()
        };
        #[rustfmt::skip]
        check(&subject, fixed(), true, &[
            (3, 1, 3, 10, "test"), (3, 2, 3, 9, ""), (3, 3, 3, 8, ""), (3, 4, 1, 7, ""), (3, 5, 0, 0, ""), (3, 6, 3, 5, "test"),
            (3, 10, 0, 0, ""), (3, 11, 3, 10, ""), (8, 12, 7, 9, ""), (3, 13, 0, 0, ""), (3, 14, 0, 0, ""), (12, 21, 10, 10, "test"),
            (1, 22, 0, 0, ""),
        ]).await;
        #[rustfmt::skip]
        check(&subject, fixed(), false, &[
            (3, 1, 3, 10, ""), (3, 2, 3, 9, ""), (3, 3, 3, 8, ""), (3, 4, 0, 0, ""), (1, 5, 1, 6, ""), (3, 6, 0, 0, ""),
            (3, 10, 0, 0, ""), (3, 11, 3, 10, ""), (8, 12, 0, 0, ""), (7, 13, 7, 8, ""), (3, 14, 0, 0, ""), (10, 30, 10, 10, ""),
            (10, 31, 0, 0, ""),
        ]).await;
        #[rustfmt::skip]
        check(&subject, rolling(), true, &[
            (3, 0, 3, 100, "test"), (3, 1, 3, 100, ""), (3, 5, 3, 95, "test"), (3, 10, 3, 100, ""), (3, 11, 1, 100, ""),
            (3, 12, 0, 0, ""), (3, 20, 0, 0, ""), (3, 85, 3, 15, "test"), (3, 100, 3, 100, ""), (2, 101, 2, 100, "test"),
            (2, 102, 1, 100, ""), (1, 110, 1, 100, ""), (1, 111, 1, 100, ""), (1, 112, 1, 100, ""), (1, 113, 1, 100, ""),
            (1, 114, 0, 0, ""), (1, 150, 0, 0, ""), (10, 200, 6, 100, ""),
        ]).await;
        #[rustfmt::skip]
        check(&subject, rolling(), false, &[
            (3, 0, 3, 100, ""), (3, 1, 3, 100, ""), (3, 10, 3, 100, ""), (3, 11, 0, 0, ""), (3, 12, 0, 0, ""), (3, 20, 0, 0, ""),
            (3, 100, 3, 100, ""), (2, 101, 2, 100, ""), (2, 102, 2, 100, ""), (1, 110, 1, 100, ""), (1, 111, 1, 100, ""),
            (1, 112, 1, 100, ""), (1, 113, 0, 0, ""), (1, 114, 0, 0, ""), (1, 150, 0, 0, ""), (7, 200, 7, 100, ""),
        ]).await;
        let dimensions = [("source".to_owned(), "none".to_owned())].into();
        let given = params::Override { dimensions, max_amount: 5, valid_duration: None };
        let overridden = params::Quota { overrides: vec![given], ..fixed() };
        let rows = [(3, 0, 3, 10, ""), (3, 1, 0, 0, ""), (2, 2, 2, 8, ""), (1, 1, 0, 0, "")];
        check(&subject, overridden, false, &rows).await;
    });
}

fn limit(name: &str, max_amount: i64) -> params::Quota {
    params::Quota { name: name.to_owned(), max_amount, valid_duration: seconds(3600), ..Default::default() }
}

/// Opens a handler as a server does, with the time of Redis.
async fn open(port: u16, params: Params) -> (RedisQuota, Context) {
    let context = Context::detached(());
    let params = Params { redis_server_url: format!("127.0.0.1:{port}"), ..params };
    (context.clone().open_handler(params).await.unwrap(), context)
}

async fn ask(handler: &RedisQuota, name: &str, amount: i64) -> i64 {
    let instance = quota::InstanceMsg { name: name.to_owned(), ..Default::default() };
    handler.handle(Call::for_quota(instance, QuotaRequest::new(amount))).await.unwrap().granted()
}

/// Returns the number of requests for the quota `q` that were decided without Redis.
fn decided(context: &Context, outcome: &str) -> u64 {
    let decided = context.metrics().counter("decisions_without_redis", "", ["quota", "outcome"]);
    decided.with(["q", outcome]).get()
}

/// Waits until the handler has noticed that there is a connection, or none.
async fn eventually(handler: &RedisQuota, is_connected: bool) {
    let changed = async {
        while handler.shared.store.client.is_connected() != is_connected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), changed).await.unwrap();
}

fn patient(quotas: Vec<params::Quota>, on_error: params::OnError) -> Params {
    Params { quotas, timeout: seconds(1), on_error: on_error.into(), ..Default::default() }
}

#[tokio::test]
async fn servers_share_a_limit_and_repeated_calls() {
    let Some(redis) = Redis::start() else { return };
    let params = || patient(vec![limit("q", 10)], params::OnError::Deny);
    let ((one, _context), (other, _other_context)) =
        (open(redis.port(), params()).await, open(redis.port(), params()).await);
    assert_eq!((ask(&one, "q", 6).await, ask(&other, "q", 6).await, ask(&other, "q", 4).await), (6, 0, 4));
    assert_eq!((ask(&other, "q", -3).await, ask(&one, "q", 3).await), (3, 3));
    let repeated = || QuotaRequest::new(-2).with_dedup_id("again");
    let instance = quota::InstanceMsg { name: "q".to_owned(), ..Default::default() };
    for handler in [&one, &other] {
        let call = Call::for_quota(instance.clone(), repeated());
        assert_eq!(handler.handle(call).await.unwrap().granted(), 2);
    }
    assert_eq!((ask(&one, "q", 3).await, ask(&one, "q", 2).await), (0, 2));
}

#[tokio::test]
async fn every_key_expires() {
    let Some(redis) = Redis::start() else { return };
    let rolling = params::Quota {
        rate_limit_algorithm: params::QuotaAlgorithm::RollingWindow.into(),
        ..limit("rolling", 10)
    };
    let allocation = params::Quota { valid_duration: None, ..limit("allocation", 10) };
    let quotas = vec![limit("fixed", 10), rolling, allocation];
    let (handler, _context) = open(redis.port(), patient(quotas, params::OnError::Deny)).await;
    for name in ["fixed", "rolling", "allocation"] {
        let instance = quota::InstanceMsg { name: name.to_owned(), ..Default::default() };
        let request = QuotaRequest::new(4).with_dedup_id("id");
        handler.handle(Call::for_quota(instance, request)).await.unwrap();
    }
    let keys = redis.command(&["KEYS", "*"]);
    let keys: Vec<&str> = keys.lines().filter(|line| line.starts_with("redisquota:")).collect();
    // Counters, slots of all but the fixed window, answers, and the servers.
    assert_eq!(keys.len(), 3 + 2 + 3 + 1, "{keys:?}");
    for key in keys {
        let left: i64 = redis.command(&["PTTL", key]).trim().trim_start_matches(':').parse().unwrap();
        assert!((1..=3_661_000).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn a_redis_that_is_killed_is_away_until_it_is_back() {
    let Some(mut redis) = Redis::start() else { return };
    redis.kill();
    let (handler, context) = open(redis.port(), patient(vec![limit("q", 2)], params::OnError::Deny)).await;
    assert_eq!(ask(&handler, "q", 1).await, 0);
    for _ in 0..2 {
        redis.restart();
        eventually(&handler, true).await;
        assert_eq!((ask(&handler, "q", 2).await, ask(&handler, "q", 1).await), (2, 0));
        redis.kill();
        eventually(&handler, false).await;
        assert_eq!(ask(&handler, "q", 1).await, 0);
    }
    assert_eq!((decided(&context, "denied"), decided(&context, "granted")), (3, 0));
    assert_eq!(context.metrics().events("connections_lost").count(), 3);
}

#[tokio::test]
async fn a_paused_redis_delays_calls_by_the_timeout_and_then_not_at_all() {
    let Some(redis) = Redis::start() else { return };
    let params = Params {
        timeout: proto(Duration::from_millis(500)),
        ..patient(vec![limit("q", 9)], params::OnError::Deny)
    };
    let (handler, context) = open(redis.port(), params).await;
    assert_eq!(ask(&handler, "q", 1).await, 1);
    redis.pause();
    let start = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(ask(&handler, "q", 1).await, 0);
    }
    // Three calls wait.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(!handler.shared.store.client.is_connected());
    assert_eq!(decided(&context, "denied"), 20);
    redis.resume();
    eventually(&handler, true).await;
    assert_eq!(ask(&handler, "q", 1).await, 1);
}

/// Asks until something is granted.
async fn recovers(handler: &RedisQuota) {
    let recovered = async {
        while ask(handler, "q", 1).await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recovered).await.unwrap();
}

#[tokio::test]
async fn errors_of_redis_grant_nothing() {
    let Some(redis) = Redis::start() else { return };
    let (handler, _context) = open(redis.port(), patient(vec![limit("q", 9)], params::OnError::Deny)).await;
    // Read only: it follows a master that is not there.
    redis.command(&["REPLICAOF", "127.0.0.1", "9"]);
    assert_eq!(ask(&handler, "q", 1).await, 0);
    assert!(!handler.shared.store.client.is_connected(), "READONLY ends the connection");
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    recovers(&handler).await;
    // Too few replicas: no other connection would help.
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(ask(&handler, "q", 1).await, 0);
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    recovers(&handler).await;
    // No memory.
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(ask(&handler, "q", 1).await, 0);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    recovers(&handler).await;
    // A key of another type.
    let keys = redis.command(&["KEYS", "redisquota:{*}"]);
    let key = keys.lines().find(|line| line.starts_with("redisquota:{")).unwrap();
    redis.command(&["SET", key, "text"]);
    assert_eq!(ask(&handler, "q", 1).await, 0);
    // Scripts are loaded again.
    redis.command(&["DEL", key]);
    redis.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(ask(&handler, "q", 1).await, 1);
}

#[tokio::test]
async fn a_flush_grants_again_what_was_granted_and_nothing_more() {
    let Some(redis) = Redis::start() else { return };
    let (handler, _context) = open(redis.port(), patient(vec![limit("q", 5)], params::OnError::Deny)).await;
    assert_eq!(ask(&handler, "q", 3).await, 3);
    redis.command(&["FLUSHALL"]);
    assert_eq!((ask(&handler, "q", 5).await, ask(&handler, "q", 1).await), (5, 0));
}

#[tokio::test]
async fn without_redis_everything_is_granted_only_if_the_configuration_says_so() {
    let quotas = || vec![limit("q", 5)];
    let (handler, context) = open(9, patient(quotas(), params::OnError::Allow)).await;
    assert_eq!((ask(&handler, "q", 7).await, ask(&handler, "q", -7).await), (7, 0));
    assert_eq!(decided(&context, "granted"), 1);
    // The number of servers is not known.
    let (handler, _context) = open(9, patient(quotas(), params::OnError::Local)).await;
    assert_eq!(ask(&handler, "q", 1).await, 0);
}

#[tokio::test]
async fn without_redis_a_server_grants_its_share_less_what_redis_granted_it() {
    let Some(mut redis) = Redis::start() else { return };
    let allocation = params::Quota { valid_duration: None, ..limit("allocation", 10) };
    let quotas = || vec![limit("q", 10), limit("other", 10), limit("most", 10), allocation.clone()];
    let (handler, context) = open(redis.port(), patient(quotas(), params::OnError::Local)).await;
    // Two servers that were closed a moment ago still count.
    let in_ten_seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 10_000;
    for server in ["b", "c"] {
        redis.command(&["ZADD", "redisquota:servers", &in_ten_seconds.to_string(), server]);
    }
    let known = async {
        while handler.shared.store.client.servers() != Some(3) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(9), known).await.unwrap();
    assert_eq!(ask(&handler, "q", 2).await, 2);
    // Another handler of this server uses most of it, as this one learns when it is refused.
    let params = patient(quotas(), params::OnError::Local);
    let params = Params { redis_server_url: format!("127.0.0.1:{}", redis.port()), ..params };
    let other: RedisQuota = context.open_handler(params).await.unwrap();
    assert_eq!((ask(&other, "most", 7).await, ask(&handler, "most", 4).await), (7, 0));
    redis.kill();
    eventually(&handler, false).await;
    // A third of 10, less 2.
    assert_eq!((ask(&handler, "q", 1).await, ask(&handler, "q", 1).await), (1, 0));
    assert_eq!((ask(&handler, "other", 4).await, ask(&handler, "other", 3).await), (0, 3));
    // A third of 10, less a third of 7, rounded up.
    assert_eq!(ask(&handler, "most", 1).await, 0);
    assert_eq!(ask(&handler, "allocation", 1).await, 0);
}

/// Returns the amount that Redis counts in the only fixed window.
fn counted(redis: &Redis) -> i64 {
    let keys = redis.command(&["KEYS", "redisquota:{*}"]);
    let key = keys.lines().find(|line| line.starts_with("redisquota:{")).unwrap();
    redis.command(&["HGET", key, "used"]).lines().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn redis_counts_once_what_servers_granted_without_it() {
    let Some(redis) = Redis::start() else { return };
    let params = || patient(vec![limit("q", 10)], params::OnError::Local);
    let (one, _one) = open(redis.port(), params()).await;
    let (other, _other) = open(redis.port(), params()).await;
    let until = async |is_true: &dyn Fn() -> bool| {
        let wait = async {
            while !is_true() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    };
    until(&|| [&one, &other].iter().all(|handler| handler.shared.store.client.servers() == Some(2))).await;
    assert_eq!((ask(&one, "q", 2).await, ask(&other, "q", 2).await), (2, 2));
    // It refuses writes and has all its data.
    redis.command(&["REPLICAOF", "127.0.0.1", "9"]);
    // Half of 10, less 2.
    assert_eq!((ask(&one, "q", 4).await, ask(&one, "q", 1).await), (0, 1));
    assert_eq!((ask(&other, "q", 4).await, ask(&other, "q", 3).await), (0, 3));
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    until(&|| counted(&redis) == 8).await;
    eventually(&one, true).await;
    eventually(&other, true).await;
    // Shares hold until all servers have reported.
    assert_eq!((ask(&other, "q", 1).await, ask(&one, "q", 2).await, ask(&one, "q", 1).await), (0, 2, 0));
    assert_eq!(counted(&redis), 10);
}

#[tokio::test]
async fn a_repeated_call_gets_its_answer_without_redis_and_after_it() {
    let Some(redis) = Redis::start() else { return };
    let params = Params {
        min_deduplication_duration: seconds(3600),
        ..patient(vec![limit("q", 10)], params::OnError::Local)
    };
    let (handler, _context) = open(redis.port(), params).await;
    let ask = async |amount: i64, id: &str| {
        let instance = quota::InstanceMsg { name: "q".to_owned(), ..Default::default() };
        let request = QuotaRequest::new(amount).with_dedup_id(id);
        handler.handle(Call::for_quota(instance, request)).await.unwrap().granted()
    };
    assert_eq!(ask(6, "of Redis").await, 6);
    redis.command(&["REPLICAOF", "127.0.0.1", "9"]);
    assert_eq!((ask(4, "of the share").await, ask(1, "none").await), (4, 0));
    assert!(!handler.shared.store.client.is_connected());
    assert_eq!((ask(6, "of Redis").await, ask(4, "of the share").await), (6, 4));
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    eventually(&handler, true).await;
    assert_eq!((ask(6, "of Redis").await, ask(4, "of the share").await, ask(1, "none").await), (6, 4, 0));
    let reported = async {
        while counted(&redis) != 10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reported).await.unwrap();
}

#[tokio::test]
async fn a_counter_that_redis_cannot_count_delays_no_reports_of_others() {
    let Some(redis) = Redis::start() else { return };
    let names: Vec<String> = (0..9).map(|number| format!("q{number}")).collect();
    let quotas = names.iter().map(|name| limit(name, 10)).collect();
    let (handler, _context) = open(redis.port(), patient(quotas, params::OnError::Local)).await;
    for name in &names {
        assert_eq!(ask(&handler, name, 1).await, 1);
    }
    let keys = redis.command(&["KEYS", "redisquota:{*}"]);
    let keys: Vec<&str> = keys.lines().filter(|line| line.starts_with("redisquota:{")).collect();
    assert_eq!(keys.len(), names.len());
    for key in &keys {
        redis.command(&["SET", key, "text"]);
    }
    // Of the shares.
    for name in &names {
        assert_eq!(ask(&handler, name, 2).await, 2);
    }
    redis.command(&["DEL", keys[0]]);
    let reported = async {
        while !redis.command(&["HGET", keys[0], "used"]).ends_with("\r\n2\r\n") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reported).await.unwrap();
}

#[test]
fn faults_of_servers_name_their_field_and_show_no_password() {
    let faults =
        |params: Params| Faults::parse::<RedisQuotaSettings>(params).map(drop).unwrap_err().to_string();
    let url = |url: &str| faults(Params { url: url.to_owned(), ..Default::default() });
    for (given, reason) in [
        ("redis://user:s3cr3t@host", "username and password_file"),
        ("s3cr3t", "is not the URL"),
        ("http://host", "is not the URL"),
        ("redis://", "is not the URL"),
        ("redis://host:s3cr3t", "is not the URL"),
        ("redis://host/s3cr3t", "a database"),
        ("redis://a,b", "several servers"),
    ] {
        let faults = url(given);
        assert!(faults.starts_with("url: ") && faults.contains(reason), "{given}: {faults}");
        assert!(!faults.contains("s3cr3t"), "{faults}");
    }
    let both =
        Params { url: "redis://a".to_owned(), redis_server_url: "a:1".to_owned(), ..Default::default() };
    assert!(faults(both).starts_with("redis_server_url: "));
    let file = || "/nowhere/file".to_owned();
    let alone = Params { sentinel_password_file: file(), ..Default::default() };
    assert!(faults(alone).starts_with("sentinel_password_file: "));
    let exposed = Params {
        url: "redis://host".to_owned(),
        sentinel_master: "quotas".to_owned(),
        sentinel_password_file: file(),
        ..Default::default()
    };
    let exposed = faults(exposed);
    assert!(exposed.starts_with("sentinel_password_file: ") && exposed.contains("rediss://"), "{exposed}");
    let named_by_sentinels = Params {
        url: "redis://127.0.0.1".to_owned(),
        sentinel_master: "quotas".to_owned(),
        password_file: file(),
        ..Default::default()
    };
    let exposed = faults(named_by_sentinels);
    assert!(exposed.starts_with("password_file: ") && exposed.contains("rediss://"), "{exposed}");
    let bucket = params::Quota { bucket_duration: seconds(3600), ..limit("q", 1) };
    assert!(faults(patient(vec![bucket], params::OnError::Deny)).starts_with("quotas[0].bucket_duration: "));
}
