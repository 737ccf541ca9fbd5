//! Leases in a real Redis.

use std::sync::atomic::AtomicI64;

use super::*;

pub(super) async fn granted(handler: &RedisQuota, requests: i64) -> i64 {
    let mut granted = 0;
    for _ in 0..requests {
        granted += ask(handler, "q", 1).await;
    }
    granted
}

/// The amount that a handler can grant from memory.
fn held(handler: &RedisQuota) -> i64 {
    handler.leases.as_ref().unwrap().lock().held(Duration::ZERO).values().map(|held| held.left).sum()
}

/// The number of requests for the quota `q` that were granted without a trip.
fn from_leases(context: &Context) -> u64 {
    context.metrics().counter("grants_from_leases", "", ["quota"]).with(["q"]).get()
}

fn algorithms() -> [params::Quota; 2] {
    let rolling = params::QuotaAlgorithm::RollingWindow.into();
    [limit("q", 1000), params::Quota { rate_limit_algorithm: rolling, ..limit("q", 1000) }]
}

#[tokio::test]
async fn three_servers_with_leases_grant_the_limit_and_no_more() {
    for quota in algorithms() {
        let Some(redis) = Redis::start() else { return };
        let params = || patient(vec![quota.clone()], params::OnError::Deny);
        let (one, _one) = open(redis.port(), params()).await;
        let (two, _two) = open(redis.port(), params()).await;
        let (three, _three) = open(redis.port(), params()).await;
        let (one, two, three) = tokio::join!(granted(&one, 600), granted(&two, 600), granted(&three, 600));
        assert_eq!(one + two + three, 1000, "{one} {two} {three}");
    }
}

#[test]
fn a_server_that_is_killed_takes_at_most_a_hundredth_of_the_limit_with_it() {
    for quota in algorithms() {
        let Some(redis) = Redis::start() else { return };
        let params = || patient(vec![quota.clone()], params::OnError::Deny);
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let killed = runtime();
        let (before, held) = killed.block_on(async {
            let (handler, _context) = open(redis.port(), params()).await;
            let granted = granted(&handler, 100).await;
            (granted, held(&handler))
        });
        // Its tasks end with it.
        drop(killed);
        let after = runtime().block_on(async {
            let (handler, _context) = open(redis.port(), params()).await;
            granted(&handler, 1000).await
        });
        assert!((1..=10).contains(&held), "{held}");
        assert_eq!(before + after, 1000 - held);
    }
}

#[tokio::test]
async fn a_handler_returns_its_leases_when_it_closes() {
    for quota in algorithms() {
        let Some(redis) = Redis::start() else { return };
        let params = || patient(vec![quota.clone()], params::OnError::Deny);
        let (closed, context) = open(redis.port(), params()).await;
        let before = granted(&closed, 100).await;
        assert!(held(&closed) > 0);
        closed.close().await;
        drop(context);
        let (other, _context) = open(redis.port(), params()).await;
        assert_eq!(before + granted(&other, 1000).await, 1000);
    }
}

#[tokio::test]
async fn far_from_the_limit_few_requests_make_a_trip() {
    let Some(redis) = Redis::start() else { return };
    let params = || patient(vec![limit("q", 1_000_000)], params::OnError::Deny);
    let (handler, context) = open(redis.port(), params()).await;
    assert_eq!(granted(&handler, 5000).await, 5000);
    let trips = 5000 - from_leases(&context);
    assert!(trips <= 50, "{trips}");
    // Without leases every request makes one.
    let (handler, context) = open(redis.port(), Params { lease: Some(false), ..params() }).await;
    assert_eq!(granted(&handler, 100).await, 100);
    assert_eq!(from_leases(&context), 0);
}

#[tokio::test]
async fn a_lease_is_used_up_without_redis_and_repeated_calls_count_once() {
    let Some(mut redis) = Redis::start() else { return };
    let (handler, _context) =
        open(redis.port(), patient(vec![limit("q", 1000)], params::OnError::Deny)).await;
    assert_eq!(granted(&handler, 100).await, 100);
    let held = held(&handler);
    assert!(held > 1);
    redis.kill();
    let instance = quota::InstanceMsg { name: "q".to_owned(), ..Default::default() };
    for _ in 0..3 {
        let call = Call::for_quota(instance.clone(), QuotaRequest::new(1).with_dedup_id("again"));
        assert_eq!(handler.handle(call).await.unwrap().granted(), 1);
    }
    assert_eq!(granted(&handler, held + 5).await, held - 1);
}

/// A release never frees a part of a lease, which its return would free again.
#[tokio::test]
async fn releases_and_returns_free_what_was_granted_once() {
    let Some(redis) = Redis::start() else { return };
    let params = || patient(vec![limit("q", 1000)], params::OnError::Deny);
    let (one, _one) = open(redis.port(), params()).await;
    let (two, _two) = open(redis.port(), params()).await;
    let used = granted(&one, 100).await;
    let held = held(&one);
    let released = ask(&two, "q", -1000).await;
    assert!(released <= used, "{released} of {used}");
    one.close().await;
    assert!(held > 0);
    let rest = granted(&two, 1100).await;
    assert_eq!(rest, 1000 - (used - released));
}

/// Requests from three servers while Redis is paused and read-only, and while a server is killed.
#[test]
fn whatever_happens_the_limit_is_not_exceeded_and_98_percent_of_it_are_granted() {
    const LIMIT: i64 = 30_000;
    for quota in algorithms() {
        let Some(redis) = Redis::start() else { return };
        let quota = params::Quota { max_amount: LIMIT, ..quota };
        let params = || Params {
            timeout: proto(Duration::from_millis(200)),
            ..patient(vec![quota.clone()], params::OnError::Deny)
        };
        let sum = AtomicI64::new(0);
        let begin = Instant::now();
        let is_late = || begin.elapsed() > Duration::from_secs(60);
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Calls of one amount each, eight at a time.
        let serve = |until: i64| {
            runtime().block_on(async {
                let (handler, _context) = open(redis.port(), params()).await;
                let callers = (0..8).map(|_| async {
                    while sum.load(SeqCst) < until && !is_late() {
                        let granted = ask(&handler, "q", 1).await;
                        sum.fetch_add(granted, SeqCst);
                        // A refusal takes no time while Redis is away.
                        tokio::time::sleep(Duration::from_millis(if granted > 0 { 0 } else { 5 })).await;
                    }
                });
                futures_util::future::join_all(callers).await;
            });
        };
        let wait =
            |millis| runtime().block_on(async { tokio::time::sleep(Duration::from_millis(millis)).await });
        let reach = |amount: i64| {
            while sum.load(SeqCst) < amount && !is_late() {
                wait(5);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| serve(LIMIT * 98 / 100));
            }
            // Its leases are lost with it.
            scope.spawn(|| serve(LIMIT / 2));
            for part in 1..4 {
                reach(LIMIT * part / 5);
                redis.pause();
                wait(400);
                redis.resume();
                reach(LIMIT * part / 5 + LIMIT / 10);
                redis.command(&["REPLICAOF", "127.0.0.1", "9"]);
                wait(200);
                redis.command(&["REPLICAOF", "NO", "ONE"]);
            }
        });
        // The rest, until nothing is left.
        runtime().block_on(async {
            let (handler, _context) = open(redis.port(), params()).await;
            sum.fetch_add(granted(&handler, LIMIT / 50).await, SeqCst);
        });
        let sum = sum.into_inner();
        assert!((LIMIT * 98 / 100..=LIMIT).contains(&sum), "{sum}");
    }
}
