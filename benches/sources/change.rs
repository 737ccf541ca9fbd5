//! One resource of many changes: bytes that are sent, and time from the change until a sink has it.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::{
    client::{Client, FRAME, Protocol},
    served::Served,
};

const CHANGES: usize = 21;

pub(crate) fn run() {
    println!(
        "one resource of many changes; medians of {CHANGES} changes over loopback, first whole push apart\n"
    );
    println!(
        "{:<16} {:>10} {:>16} {:>16} {:>14} {:>14} {:>14}",
        "protocol",
        "resources",
        "first push, B",
        "first push, ms",
        "change, B",
        "to apply, µs",
        "to arrive, µs"
    );
    for protocol in [Protocol::McpFull, Protocol::McpIncremental, Protocol::XdsDelta] {
        for resources in [1_000, 10_000, 100_000] {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(measure(protocol, resources));
        }
    }
}

async fn measure(protocol: Protocol, resources: u32) {
    let mut served = Served::start(resources).await;
    let start = Instant::now();
    let mut client = Client::dial(served.address, protocol, FRAME).await;
    let (count, whole) = client.take().await;
    let first = start.elapsed();
    assert_eq!(count, resources as usize);
    let mut bytes = 0;
    let (mut applied, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..CHANGES {
        // The answer to the push before has arrived by then.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let start = Instant::now();
        served.change_one();
        applied.push(start.elapsed());
        let (count, length) = client.take().await;
        arrived.push(start.elapsed());
        assert_eq!(count, if protocol == Protocol::McpFull { resources as usize } else { 1 });
        bytes = length;
    }
    println!(
        "{:<16} {resources:>10} {whole:>16} {:>16.1} {bytes:>14} {:>14.0} {:>14.0}",
        format!("{protocol:?}"),
        first.as_secs_f64() * 1e3,
        median(applied),
        median(arrived),
    );
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
