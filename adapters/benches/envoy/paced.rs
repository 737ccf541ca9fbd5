//! Latencies at a fixed rate, in turn.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{runtime::Builder, task::JoinSet};

use super::{client::Caller, measure::Subject};

const RATE: u32 = 5_000;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

pub(super) fn compare(path: &'static str, frame: &Bytes, subjects: &[(&str, &Subject)]) {
    println!("\nlatency of checks at {RATE} requests/s, µs: median of {ROUNDS} rounds in turn\n");
    println!("{:<20} {:>8} {:>8}", "", "p50", "p99");
    let mut measured: Vec<Vec<(u64, u64)>> = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for (rounds, (_, subject)) in measured.iter_mut().zip(subjects) {
            rounds.push(measure(subject.address, path, frame));
        }
    }
    for (rounds, (name, _)) in measured.iter_mut().zip(subjects) {
        rounds.sort_by_key(|(_, p99)| *p99);
        let (p50, p99) = rounds[ROUNDS / 2];
        println!("{name:<20} {p50:>8} {p99:>8}");
    }
}

/// The median and the 99th percentile in microseconds. The latency of a call counts from the time at which it was due.
fn measure(address: SocketAddr, path: &'static str, frame: &Bytes) -> (u64, u64) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut latencies: Vec<u64> = runtime.block_on(async {
        let caller = Caller::connect(address, path, frame.clone()).await;
        let mut calls = JoinSet::new();
        let start = Instant::now();
        for number in 0..RATE * TIME.as_secs() as u32 {
            let due = start + Duration::from_secs(1) * number / RATE;
            tokio::time::sleep_until(due.into()).await;
            let caller = caller.clone();
            calls.spawn(async move {
                caller.once().await;
                u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX)
            });
        }
        calls.join_all().await
    });
    latencies.sort_unstable();
    (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100])
}
