//! Attacks a server of its own, one attack after the other, and prints what an honest client notices (README.md).

#![allow(clippy::print_stdout, reason = "the table is the output")]

mod attacks;
mod client;
mod honest;
mod server;
mod source;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Parser;

use attacks::{Attack, Expectation};
use honest::Honest;
use server::Server;
use source::Source;

/// Attacks a server with what clients can send, and prints what honest clients notice.
#[derive(Debug, Parser)]
struct Arguments {
    /// The attacks whose names contain this text; all of them without it.
    filter: Option<String>,
    /// The server.
    #[arg(long, default_value = "target/release/mixer-adapter")]
    binary: PathBuf,
    /// How long each attack lasts at most.
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: u64,
}

/// The highest accepted p99 of honest calls in milliseconds.
const MAX_P99: f64 = 100.0;

/// The highest accepted memory of the server in MiB.
const MAX_MEMORY: u64 = 512;

/// The `--grace` of the servers, and what they may take beyond it to stop.
const GRACE: Duration = Duration::from_secs(3);
const STOP: Duration = Duration::from_secs(4);

/// How long honest calls are measured without an attack.
const QUIET: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let attacks = attacks::all();
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let chosen: Vec<_> = attacks.iter().filter(|attack| attack.name.contains(filter)).collect();
    anyhow::ensure!(
        !chosen.is_empty(),
        "no attack is named like {filter:?}; there are {}",
        attacks.iter().map(|attack| attack.name).collect::<Vec<_>>().join(", ")
    );
    println!(
        "{:<24} {:>10} {:>12} {:>12} {:>8} {:>8} {:>8}  verdict",
        "attack", "sent, kB", "p99 before", "p99 during", "failed", "MiB", "stop, s"
    );
    let mut all_passed = true;
    for attack in chosen {
        let row = run(attack, &arguments).await.with_context(|| format!("attack {}", attack.name))?;
        println!("{row}");
        all_passed &= row.failures.is_empty();
    }
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What one attack did.
struct Row {
    name: &'static str,
    sent: u64,
    before: Honest,
    during: Honest,
    memory: u64,
    stop: Duration,
    failures: Vec<String>,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.failures.is_empty() { "ok".to_owned() } else { self.failures.join("; ") };
        write!(
            f,
            "{:<24} {:>10} {:>9.1} ms {:>9.1} ms {:>8} {:>8} {:>8.1}  {verdict}",
            self.name,
            self.sent / 1000,
            self.before.p99(),
            self.during.p99(),
            self.during.failed(),
            self.memory,
            self.stop.as_secs_f64(),
        )
    }
}

/// Runs an attack against a server of its own.
async fn run(attack: &Attack, arguments: &Arguments) -> anyhow::Result<Row> {
    let source = match attack.source {
        Some(protocol) => Some(Source::start(protocol).await?),
        None => None,
    };
    let server = Server::start(&arguments.binary, GRACE, source).await?;
    let before = Honest::measure(&server, tokio::time::sleep(QUIET)).await?;
    let limit = Duration::from_secs(arguments.seconds);
    let (mut sent, mut finding) = (0, None);
    let during = Honest::measure(&server, async {
        match tokio::time::timeout(limit, (attack.run)(server.addresses(), &mut sent)).await {
            Ok(Ok(Expectation::Met)) | Err(_) => {}
            Ok(Ok(Expectation::Missed(reason))) => finding = Some(reason),
            Ok(Err(error)) => finding = Some(format!("the attack failed: {error:#}")),
        }
        // What the attack holds is held until here; the server needs not have finished with it.
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await?;
    let memory = server.peak_memory()? >> 20;
    let stop = server.stop(STOP * 3).await?;
    let mut failures: Vec<String> = finding.into_iter().collect();
    if during.p99() > MAX_P99 {
        failures.push(format!("p99 over {MAX_P99} ms"));
    }
    if during.failed() > 0 {
        failures.push(format!("{} honest calls failed: {}", during.failed(), during.first_error()));
    }
    if memory > MAX_MEMORY {
        failures.push(format!("more than {MAX_MEMORY} MiB"));
    }
    if stop > STOP {
        failures.push(format!("stopping took more than {} s", STOP.as_secs()));
    }
    Ok(Row { name: attack.name, sent, before, during, memory, stop, failures })
}
