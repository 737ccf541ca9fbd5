//! The resources that a process uses, and the rule that handlers release them.

use std::{fs, time::Duration};

use anyhow::bail;
use tokio::time::{Instant, sleep};

use super::{
    common::{Subject as _, With, request},
    instances,
    process::{Process, Suite},
    run::Outcome,
};
use mixer_adapter_host::{NewSession, handler::Caller};

/// The measured resources of a process: outside of Linux, only tasks. Resident memory is without files, and writable memory includes
/// memory that was never written to.
const RESOURCES: [&str; 5] =
    ["tasks", "threads", "open files", "KiB of resident memory", "KiB of writable memory"];

/// The use of each of the [`RESOURCES`].
type Usage = [usize; RESOURCES.len()];

/// What handlers leave behind.
#[derive(Debug)]
struct Leak {
    resource: &'static str,
    /// The number of rounds in a row that show it.
    rounds: usize,
    /// The smallest growth by 100 handlers in one of these rounds.
    per_hundred: usize,
}

/// Handlers that are opened and closed before the first measurement, so that what all of them share is there.
const WARM_UP: usize = 20;

/// Handlers of one measurement; more if they are fast, up to a number whose threads a system has, too.
const HANDLERS: usize = 100;
const MAX_HANDLERS: usize = 300;

/// The time to open and close more handlers.
const ROUND: Duration = Duration::from_millis(100);

/// The first rounds need not show a leak: an allocator may have memory that earlier tests released.
const FIRST_ROUNDS: usize = 3;

/// The number of rounds in a row that show a leak: tests of the process that are not suites use memory, too.
const AGREEING_ROUNDS: usize = 5;

const MAX_ROUNDS: usize = 8;

/// The longest measurement without handlers.
const MAX_NOISE: Duration = Duration::from_millis(500);

/// The growth of resident memory by the handlers of a round that is not noise, in KiB.
const RESIDENT: usize = 512;

/// The same for writable memory; a thread that is started takes several MiB of it.
const WRITABLE: usize = 64 << 10;

/// Opens and closes handlers, and expects that the process does not use more after that. Takes about `share` if handlers are slow.
pub(super) async fn handlers_release_everything(suite: &Suite<'_>, share: Duration) -> Outcome {
    let subject = Process::new(suite)?;
    let end = Instant::now() + share;
    cycle(&subject, WARM_UP, Duration::ZERO, end).await?;
    let mut leaks: Vec<Leak> = Vec::new();
    for round in 1..=MAX_ROUNDS {
        let (start, before) = (Instant::now(), measure(&subject));
        let handlers = cycle(&subject, HANDLERS, ROUND, end).await?;
        let grown = settled(&subject, &before, handlers).await;
        let most = handlers * 9 / 10;
        let limits = [most, most, most, RESIDENT, WRITABLE];
        let is_over = |resource: &usize| limits[*resource] > 0 && grown[*resource] >= limits[*resource];
        let over: Vec<usize> = (0..RESOURCES.len()).filter(is_over).collect();
        let noise = if over.is_empty() { Usage::default() } else { noise(&subject, start.elapsed()).await };
        let seen = over.into_iter().filter(|resource| noise[*resource] < grown[*resource] / 4);
        let seen = seen.map(|resource| {
            let per_hundred = grown[resource] * 100 / handlers.max(1);
            let resource = RESOURCES[resource];
            let earlier = leaks.iter().find(|leak| leak.resource == resource);
            let (rounds, least) = earlier.map_or((0, per_hundred), |leak| (leak.rounds, leak.per_hundred));
            Leak { resource, rounds: rounds + 1, per_hundred: least.min(per_hundred) }
        });
        leaks = seen.collect();
        let agreed = leaks.iter().filter(|leak| leak.rounds >= AGREEING_ROUNDS);
        let agreed: Vec<String> =
            agreed.map(|leak| format!("{} {}", leak.per_hundred, leak.resource)).collect();
        if !agreed.is_empty() {
            bail!("100 handlers that are opened, called and closed leave {} behind", agreed.join(" and "));
        }
        if leaks.is_empty() && round >= FIRST_ROUNDS {
            break;
        }
    }
    Ok(())
}

/// Opens, calls and closes handlers one by one: `count`, and further ones for `time`, but none after `end`. Returns how many.
async fn cycle(subject: &Process<'_>, count: usize, time: Duration, end: Instant) -> anyhow::Result<usize> {
    let config = subject.config()?;
    let start = Instant::now();
    let mut handlers = 0;
    while (handlers < count || handlers < MAX_HANDLERS && start.elapsed() < time) && Instant::now() < end {
        let (host, options) = (subject.host.clone(), subject.options());
        let calls: Vec<_> = subject
            .templates()
            .iter()
            .map(|template| {
                let instance = instances::empty(template.instance(), &options.instance);
                let with = With::Config(config.as_ref());
                (template.method().to_owned(), request(options, template, with, instance, (1, true)))
            })
            .collect();
        let new = NewSession { adapter_config: config.clone(), ..NewSession::default() };
        let patience = options.patience;
        // Other rules test the answers.
        let closed = subject.run(async move {
            let caller =
                Caller { connection: 1, deadline: Instant::now().checked_add(patience), ..Caller::default() };
            let _ = host.create_session(new, &caller).await;
            for (method, request) in calls {
                let _ = host.call(&method, request, caller.clone()).await;
            }
            host.close(patience).await
        });
        match closed.await {
            Some(0) => handlers += 1,
            _ => bail!("a handler that is opened, called and closed is still open after {patience:?}"),
        }
    }
    Ok(handlers)
}

/// Waits until tasks, threads and files that end soon have ended, and returns the growth since `before`.
async fn settled(subject: &Process<'_>, before: &Usage, handlers: usize) -> Usage {
    let end = Instant::now() + subject.options().patience.min(Duration::from_secs(2));
    loop {
        let grown = growth(&measure(subject), before);
        if grown[..3].iter().all(|growth| *growth < handlers / 2) || Instant::now() >= end {
            return grown;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the growth in a time without handlers, which is that of other tests in the process.
async fn noise(subject: &Process<'_>, time: Duration) -> Usage {
    let before = measure(subject);
    sleep(time.min(MAX_NOISE)).await;
    growth(&measure(subject), &before)
}

fn growth(usage: &Usage, before: &Usage) -> Usage {
    std::array::from_fn(|resource| usage[resource].saturating_sub(before[resource]))
}

fn measure(subject: &Process<'_>) -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let [threads, resident, writable] = ["Threads", "RssAnon", "VmData"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    });
    let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    [subject.runtime.metrics().num_alive_tasks(), threads, files, resident, writable]
}
