//! What a leased grant takes beside one of memquota, and a trip beside the same script by redis-benchmark.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use test_debian::Redis;

use super::{Limited, changes};
use crate::support::debian;

/// A limit that no run reaches.
const FAR: usize = 100_000_000;
const REQUESTS: usize = 20_000;
/// The requests in flight while trips are counted.
const IN_FLIGHT: usize = 64;

async fn wait(server: &Limited) -> Duration {
    let start = Instant::now();
    assert!(server.ask("a").await);
    start.elapsed()
}

/// Returns the words of the last call of the script, as the log of Redis has them.
fn last_call(redis: &Redis) -> Vec<String> {
    let log = redis.command(&["SLOWLOG", "GET", "20"]);
    let lines: Vec<&str> = log.split("\r\n").collect();
    let mut calls = lines.iter().enumerate().filter(|(_, line)| **line == "EVALSHA").filter_map(|(at, _)| {
        let count: usize = lines[at - 2].strip_prefix('*')?.parse().ok()?;
        Some(lines[at..].iter().step_by(2).take(count).map(|word| (*word).to_owned()).collect::<Vec<_>>())
    });
    // The other script has one key.
    calls.find(|words| words[2] == "4").unwrap()
}

#[tokio::test]
#[ignore = "measures"]
async fn a_leased_grant_takes_what_one_of_memquota_takes() {
    let Some(redis) = Redis::start() else { return };
    let Some(benchmark) = debian::program("redis-benchmark", "redis-tools") else { return };
    let servers = format!("url: redis://127.0.0.1:{}\n    timeout: 1s", redis.port());
    let leased = Limited::start_with(changes(&servers, FAR, "ROLLING_WINDOW"), |_| {}).await;
    let in_memory = vec![
        ("compiledAdapter: redisquota", "compiledAdapter: memquota".to_owned()),
        ("    url: redis://127.0.0.1:6379\n", String::new()),
        ("    onError: LOCAL\n", String::new()),
        (", rateLimitAlgorithm: ROLLING_WINDOW", String::new()),
        ("maxAmount: 1000, validDuration: 60s", format!("maxAmount: {FAR}, validDuration: 3600s")),
    ];
    let in_memory = Limited::start_with(in_memory, |_| {}).await;
    let (mut of_leased, mut of_memory) = (Vec::new(), Vec::new());
    for request in 0..REQUESTS + 1000 {
        let waits = (wait(&leased).await, wait(&in_memory).await);
        // The first ones warm up.
        if request >= 1000 {
            of_leased.push(waits.0);
            of_memory.push(waits.1);
        }
    }
    let trips = leased.metric("adapter_redisquota_trip_seconds_count{");
    of_leased.sort_unstable();
    of_memory.sort_unstable();
    let at = |waits: &[Duration], percent: usize| waits[waits.len() * percent / 100];

    let servers = format!("{servers}\n    lease: false\n    keyPrefix: trips");
    let each = Limited::start_with(changes(&servers, FAR, "ROLLING_WINDOW"), |_| {}).await;
    let begin = Instant::now();
    for _ in 0..REQUESTS / IN_FLIGHT {
        let granted = join_all((0..IN_FLIGHT).map(|_| each.ask("a"))).await;
        assert!(granted.into_iter().all(|granted| granted));
    }
    let rate = (REQUESTS / IN_FLIGHT * IN_FLIGHT) as f64 / begin.elapsed().as_secs_f64();
    redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    assert!(each.ask("a").await);
    redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    let output = Command::new(benchmark)
        .args(["-p", &redis.port().to_string(), "-n", "200000", "-c", &IN_FLIGHT.to_string(), "--csv"])
        .args(last_call(&redis))
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    println!(
        "| grant, one in flight | p50 | p99 |\n|---|---|---|\n| leased, of redisquota | {:?} | {:?} |\n| of memquota | {:?} | {:?} |\n\n\
         {trips} trips for {} requests\n{rate:.0} trips/s with lease: false, {IN_FLIGHT} in flight\nredis-benchmark, {IN_FLIGHT} in flight:\n{table}",
        at(&of_leased, 50),
        at(&of_leased, 99),
        at(&of_memory, 50),
        at(&of_memory, 99),
        REQUESTS + 1000
    );
    assert!(trips * 100.0 <= (REQUESTS + 1000) as f64, "{trips} trips");
    let slower = at(&of_leased, 99).saturating_sub(at(&of_memory, 99));
    assert!(slower <= Duration::from_micros(200), "{slower:?}");
}
