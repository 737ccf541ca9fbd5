//! Many sinks on one source, in a process of their own so that the memory of the source is its own.

use std::{
    env,
    io::{BufRead as _, BufReader, Lines},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use tokio::{runtime::Builder, sync::mpsc};

use crate::{
    client::{Client, FRAME, Protocol, SHORT_FRAME},
    served::Served,
};

/// Says to a process of this program that it is to be the sinks, of which address, how many and how.
const ASKED: &str = "SOURCES_CROWD";
/// Says to one that it is to be the source, of how many resources.
const SOURCE: &str = "SOURCES_SOURCE";
/// The name of xDS with sinks that accept short frames only.
const SHORT_FRAMES: &str = "xds-16k-frames";
const SINKS: usize = 1_000;
const RESOURCES: [u32; 2] = [100, 10_000];
const CHANGES: usize = 5;

pub(crate) struct Crowd {
    address: SocketAddr,
    protocol: Protocol,
    frame: u32,
}

impl Crowd {
    pub(crate) fn asked_for() -> Option<Self> {
        let asked = env::var(ASKED).ok()?;
        let (address, protocol) = asked.split_once(' ').unwrap();
        let frame = if protocol == SHORT_FRAMES { SHORT_FRAME } else { FRAME };
        let protocol = if protocol == "mcp" { Protocol::McpIncremental } else { Protocol::XdsDelta };
        Some(Self { address: address.parse().unwrap(), protocol, frame })
    }

    /// Prints a line when all sinks have the first state, and one for each change when all have it.
    pub(crate) fn run(self) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (took, mut takes) = mpsc::channel(SINKS);
            for _ in 0..SINKS {
                let took = took.clone();
                let mut client = Client::dial(self.address, self.protocol, self.frame).await;
                tokio::spawn(async move {
                    loop {
                        client.take().await;
                        took.send(()).await.unwrap();
                    }
                });
            }
            loop {
                for _ in 0..SINKS {
                    takes.recv().await.unwrap();
                }
                println!("all");
            }
        });
    }
}

/// The sinks, until this is dropped.
struct Sinks {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Sinks {
    fn start(address: SocketAddr, protocol: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .env(ASKED, format!("{address} {protocol}"))
            .env_remove(SOURCE)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn all_have_it(&mut self) {
        assert_eq!(self.lines.next().unwrap().unwrap(), "all");
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Each source in a process of its own, so that none has memory left over from another.
pub(crate) fn run() {
    println!(
        "\n{SINKS} sinks on one source, of whose resources one changes; each on a connection of its own\n"
    );
    println!(
        "{:<16} {:>10} {:>20} {:>20} {:>22} {:>18}",
        "protocol",
        "resources",
        "all have all, ms",
        "CPU of source, ms",
        "all have a change, ms",
        "bytes a sink"
    );
    let sources =
        RESOURCES.into_iter().flat_map(|n| ["mcp", "xds", SHORT_FRAMES].map(|protocol| (protocol, n)));
    for (protocol, resources) in sources {
        let source =
            Command::new(env::current_exe().unwrap()).env(SOURCE, format!("{protocol} {resources}")).status();
        assert!(source.unwrap().success());
    }
}

/// Measures a source, if this process is to be one.
pub(crate) fn source() -> bool {
    let Ok(asked) = env::var(SOURCE) else { return false };
    let (protocol, resources) = asked.split_once(' ').unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut served = runtime.block_on(Served::start(resources.parse().unwrap()));
    let (before, cpu_before) = (resident(), cpu());
    let start = Instant::now();
    let mut sinks = Sinks::start(served.address, protocol);
    sinks.all_have_it();
    let (all, first_push) = (start.elapsed(), cpu() - cpu_before);
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..CHANGES {
        #[expect(
            clippy::disallowed_methods,
            reason = "lets the threads come to rest before the measurement"
        )]
        std::thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        served.change_one();
        sinks.all_have_it();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let each = resident().saturating_sub(before) / SINKS as u64;
    println!(
        "{protocol:<16} {resources:>10} {:>20.0} {first_push:>20} {:>22.1} {each:>18}",
        all.as_secs_f64() * 1e3,
        times[CHANGES / 2].as_secs_f64() * 1e3,
    );
    true
}

/// Bytes in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Milliseconds of CPU of this process. The kernel counts in steps of 10 ms.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program may contain spaces. After it, the 12th and the 13th field are the times in user and kernel mode.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum()
}
