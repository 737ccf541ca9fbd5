//! A million requests to three servers whose clocks differ by up to 20 s, while one of them is killed, and Redis is paused, refuses
//! writes and fails over. docs/performance.md has figures.

use std::{
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use test_debian::Redis;

use super::{Limited, changes};
use crate::support::{debian, eventually};

const REQUESTS: usize = 1_000_000;
const LIMIT: usize = 600_000;
/// The requests in flight to each server.
const IN_FLIGHT: usize = 32;
/// The default `timeout` of redisquota.
const DEADLINE: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    Single,
    /// A master, its replica and a Sentinel.
    Failover,
    /// A cluster of three nodes.
    Cluster,
}

/// The servers of a topology.
struct Nodes {
    topology: Topology,
    nodes: Vec<Redis>,
}

impl Nodes {
    fn start(topology: Topology) -> Option<Self> {
        let nodes = match topology {
            Topology::Single => vec![Redis::start()?],
            Topology::Failover => {
                let master = Redis::start()?;
                let port = master.port().to_string();
                let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port])?;
                let sentinel = Redis::start_sentinel("quotas", master.port())?;
                let port = replica.port().to_string();
                eventually("the Sentinel knows the replica, which has the data", || {
                    let is_known = sentinel.command(&["SENTINEL", "REPLICAS", "quotas"]).contains(&port);
                    let info = replica.command(&["INFO", "replication"]);
                    (is_known && info.contains("master_link_status:up")).then_some(())
                });
                vec![master, replica, sentinel]
            }
            Topology::Cluster => Vec::from(Redis::start_cluster()?),
        };
        Some(Self { topology, nodes })
    }

    /// The fields of redisquota.
    fn fields(&self) -> String {
        let url = |node: &Redis| format!("url: redis://127.0.0.1:{}", node.port());
        match self.topology {
            Topology::Single => url(&self.nodes[0]),
            Topology::Failover => format!("{}\n    sentinelMaster: quotas", url(&self.nodes[2])),
            Topology::Cluster => format!("{}\n    cluster: true", url(&self.nodes[0])),
        }
    }

    /// The indices of the nodes that accept writes now.
    fn masters(&self) -> Vec<usize> {
        match self.topology {
            Topology::Single => vec![0],
            Topology::Failover => {
                let address = self.nodes[2].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "quotas"]);
                let is_master = |node: &Redis| address.contains(&format!("\r\n{}\r\n", node.port()));
                self.nodes[..2].iter().position(is_master).into_iter().collect()
            }
            Topology::Cluster => vec![0, 1, 2],
        }
    }

    async fn pause(&self) {
        let masters = self.masters();
        masters.iter().for_each(|index| self.nodes[*index].pause());
        sleep(400).await;
        masters.iter().for_each(|index| self.nodes[*index].resume());
    }

    /// Refuses writes: as a replica alone, otherwise as a master that has too few replicas.
    async fn refuse(&self) {
        let [begin, end] = if self.topology == Topology::Single {
            [vec!["REPLICAOF", "127.0.0.1", "9"], vec!["REPLICAOF", "NO", "ONE"]]
        } else {
            ["9", "0"].map(|least| vec!["CONFIG", "SET", "min-replicas-to-write", least])
        };
        let masters = self.masters();
        for index in &masters {
            self.nodes[*index].command(&begin);
        }
        sleep(400).await;
        for index in &masters {
            self.nodes[*index].command(&end);
        }
    }

    /// Kills the master, and returns the amount that its replica has counted of the largest counter.
    fn fail_over(&mut self) -> usize {
        let master = self.masters()[0];
        self.nodes[master].kill();
        let replica = &self.nodes[1 - master];
        let keys = replica.command(&["KEYS", "redisquota:{*}"]);
        let counters = keys.lines().filter(|line| line.starts_with("redisquota:{"));
        let used = counters.filter_map(|counter| {
            let used = replica.command(&["HGET", counter, "used"]);
            used.lines().nth(1).and_then(|used| used.parse().ok())
        });
        used.max().unwrap()
    }
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

async fn start(nodes: &Nodes, algorithm: &str, skew: &str) -> Limited {
    let change = |serve: &mut Command| {
        let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
        serve.envs([("LD_PRELOAD", library.as_str()), ("FAKETIME", skew), ("DONT_FAKE_MONOTONIC", "1")]);
    };
    Limited::start_with(changes(&nodes.fields(), LIMIT, algorithm), change).await
}

/// Returns the longest wait of one request at a time to each server, each with a counter of its own and so with a trip, while Redis
/// is paused and refuses writes.
async fn longest_wait(servers: &[Limited], nodes: &Nodes) -> Duration {
    let is_over = std::cell::Cell::new(false);
    let clients = servers.iter().enumerate().map(async |(index, server)| {
        let mut longest = Duration::ZERO;
        let mut request = 0;
        while !is_over.get() {
            let key = format!("{index} {request}");
            let start = Instant::now();
            server.try_ask(&key).await.unwrap();
            longest = longest.max(start.elapsed());
            request += 1;
            sleep(5).await;
        }
        longest
    });
    let disturb = async {
        for _ in 0..2 {
            nodes.pause().await;
            sleep(1000).await;
            nodes.refuse().await;
            sleep(1000).await;
        }
        is_over.set(true);
    };
    let (waits, ()) = tokio::join!(join_all(clients), disturb);
    waits.into_iter().max().unwrap()
}

#[expect(clippy::print_stdout, reason = "its figures are read")]
async fn send_a_million(topology: Topology, algorithm: &str) {
    let Some(mut nodes) = Nodes::start(topology) else { return };
    if debian::program("faketime", "faketime").is_none() {
        return;
    }
    let mut servers = Vec::new();
    for skew in ["+10s", "-10s", "+0s"] {
        servers.push(start(&nodes, algorithm, skew).await);
    }
    let longest_paced = longest_wait(&servers, &nodes).await;
    for server in &servers {
        eventually("Redis is back", || (server.metric("adapter_redisquota_connected{") == 1.0).then_some(()));
    }
    let (sent, granted) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let begin = Instant::now();
    let clients = servers.iter().flat_map(|server| std::iter::repeat_n(server, IN_FLIGHT));
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
    let disturb = async {
        let mut lost = 0;
        for percent in [5, 10, 15, 20, 25, 30, 35] {
            while sent.load(Relaxed) < REQUESTS / 100 * percent {
                sleep(5).await;
            }
            match percent {
                10 => nodes.refuse().await,
                20 => servers[0].server.signal("KILL"),
                25 if topology == Topology::Failover => {
                    let counted = nodes.fail_over();
                    lost = granted.load(Relaxed).saturating_sub(counted);
                }
                25 => nodes.refuse().await,
                _ => nodes.pause().await,
            }
        }
        lost
    };
    let (waits, lost) = tokio::join!(join_all(clients), disturb);
    let mut waits: Vec<Duration> = waits.into_iter().flatten().collect();
    waits.sort_unstable();
    let (granted, seconds) = (granted.load(Relaxed), begin.elapsed().as_secs_f64());
    let leased: f64 =
        servers[1..].iter().map(|server| server.metric("adapter_redisquota_grants_from_leases_total{")).sum();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    println!(
        "{topology:?} {algorithm}: {} answers in {seconds:.0} s, {granted} of {LIMIT} granted, {leased} of them from leases of two \
         servers; p50 {:?}, p99 {:?}, p99.99 {:?}, longest {:?}; longest without queueing {longest_paced:?}",
        waits.len(),
        at(0.5),
        at(0.99),
        at(0.9999),
        at(1.0)
    );
    let most = if topology == Topology::Failover {
        // What the new master does not know is granted again: what was granted, in flight or leased (of two servers).
        let most = LIMIT + lost + 3 * IN_FLIGHT + 2 * LIMIT / 100;
        println!("{} granted again after the failover", granted.saturating_sub(LIMIT));
        most
    } else {
        LIMIT
    };
    assert!((LIMIT * 98 / 100..=most).contains(&granted), "{granted}");
    assert!(longest_paced <= DEADLINE + Duration::from_millis(20), "{longest_paced:?}");
}

macro_rules! a_million_requests {
    ($($name:ident: $topology:ident, $algorithm:literal;)*) => {$(
        #[tokio::test]
        #[ignore = "takes minutes: it sends a million requests"]
        async fn $name() {
            send_a_million(Topology::$topology, $algorithm).await;
        }
    )*};
}

a_million_requests! {
    a_million_requests_in_a_rolling_window_of_one_redis: Single, "ROLLING_WINDOW";
    a_million_requests_in_a_fixed_window_of_one_redis: Single, "FIXED_WINDOW";
    a_million_requests_in_a_rolling_window_with_a_failover: Failover, "ROLLING_WINDOW";
    a_million_requests_in_a_fixed_window_with_a_failover: Failover, "FIXED_WINDOW";
    a_million_requests_in_a_rolling_window_of_a_cluster: Cluster, "ROLLING_WINDOW";
    a_million_requests_in_a_fixed_window_of_a_cluster: Cluster, "FIXED_WINDOW";
}
