//! Subjects served on a thread of their own, compared in pairs.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use tokio::{runtime::Builder, sync::oneshot};

use super::client::load;

/// How often each subject is measured for a second.
const PAIRS: usize = 5;
const TIME: Duration = Duration::from_secs(1);

/// A server on a thread of its own, whose CPU time can be read.
pub(super) struct Subject {
    pub(super) address: SocketAddr,
    schedstat: std::path::PathBuf,
}

impl Subject {
    pub(super) fn start<F: Future<Output = ()> + 'static>(
        name: &str,
        serve: impl FnOnce(oneshot::Sender<SocketAddr>) -> F + Send + 'static,
    ) -> Self {
        let (address_sender, address) = oneshot::channel();
        let (thread_sender, thread) = oneshot::channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let thread = std::fs::read_link("/proc/thread-self").expect("Linux");
                thread_sender.send(thread).expect("somebody waits for it");
                let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(serve(address_sender));
            })
            .expect("a thread");
        let thread = thread.blocking_recv().expect("the thread runs");
        let schedstat = std::path::Path::new("/proc").join(thread).join("schedstat");
        Self { address: address.blocking_recv().expect("the server starts"), schedstat }
    }

    /// Nanoseconds on a processor so far.
    pub(super) fn cpu(&self) -> u64 {
        let schedstat = std::fs::read_to_string(&self.schedstat).expect("the thread runs");
        schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("the format of schedstat")
    }

    fn measure(&self, path: &'static str, frame: &Bytes, time: Duration) -> Measured {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let before = self.cpu();
        let start = std::time::Instant::now();
        let mut latencies = runtime.block_on(load(self.address, path, frame.clone(), time));
        let (took, cpu) = (start.elapsed(), self.cpu() - before);
        latencies.sort_unstable();
        let calls = latencies.len().max(1);
        Measured {
            rate: calls as f64 / took.as_secs_f64(),
            cpu: cpu as f64 / calls as f64 / 1_000.0,
            p99: latencies.get(calls * 99 / 100).map_or(0.0, |nanos| *nanos as f64 / 1_000.0),
        }
    }
}

#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    cpu: f64,
    p99: f64,
}

/// Prints what the two cost for the same request, in turn.
pub(super) fn compare(name: &str, path: &'static str, frame: Bytes, ours: &Subject, bare: &Subject) {
    let warm_up = Duration::from_millis(300);
    ours.measure(path, &frame, warm_up);
    bare.measure(path, &frame, warm_up);
    let pairs: Vec<(Measured, Measured)> =
        (0..PAIRS).map(|_| (ours.measure(path, &frame, TIME), bare.measure(path, &frame, TIME))).collect();
    let median_of = |of: &dyn Fn(&(Measured, Measured)) -> f64| median(pairs.iter().map(of).collect());
    println!(
        "{:<34} {:>9.0} {:>9.0} {:>7.2} {:>9.2} {:>9.2} {:>7.2} {:>8.0} {:>8.0}",
        name,
        median_of(&|pair| pair.0.rate),
        median_of(&|pair| pair.1.rate),
        median_of(&|pair| pair.0.rate / pair.1.rate),
        median_of(&|pair| pair.0.cpu),
        median_of(&|pair| pair.1.cpu),
        median_of(&|pair| pair.0.cpu / pair.1.cpu),
        median_of(&|pair| pair.0.p99),
        median_of(&|pair| pair.1.p99),
    );
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(super) fn heading() {
    println!("pairs of a second each, in turn; medians; CPU of the serving thread only\n");
    println!(
        "{:<34} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7} {:>17}",
        "", "ours", "bare", "", "ours", "bare", "", "p99 µs"
    );
    println!(
        "{:<34} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7} {:>8} {:>8}",
        "", "req/s", "req/s", "ratio", "µs CPU", "µs CPU", "ratio", "ours", "bare"
    );
}
