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
use tokio_util::sync::CancellationToken;

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

/// How much longer than by a server that nobody attacks an honest call may take, in milliseconds.
const MAX_DELAY: f64 = 250.0;

/// The same for calls on new connections.
const MAX_DELAY_OF_NEW: f64 = 1_000.0;

/// The highest accepted memory of the server in MiB.
const MAX_MEMORY: u64 = 512;

/// The `--grace` of the servers, and what they may take beyond it to stop.
const GRACE: Duration = Duration::from_secs(3);
const STOP: Duration = Duration::from_secs(4);

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
        "{:<24} {:>10} {:>9} {:>9} {:>9} {:>9} {:>7} {:>5} {:>8}  verdict",
        "attack", "sent, kB", "p99, ms", "max", "new", "control", "failed", "MiB", "stop, s"
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
    honest: Honest,
    control: Honest,
    memory: u64,
    stop: Duration,
    failures: Vec<String>,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.failures.is_empty() { "ok".to_owned() } else { self.failures.join("; ") };
        write!(
            f,
            "{:<24} {:>10} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>7} {:>5} {:>8.1}  {verdict}",
            self.name,
            self.sent / 1000,
            self.honest.open.p99(),
            self.honest.open.max(),
            self.honest.new.max(),
            self.control.open.max(),
            self.honest.failed(),
            self.memory,
            self.stop.as_secs_f64(),
        )
    }
}

/// Runs an attack against a server of its own, while another one is not attacked.
async fn run(attack: &Attack, arguments: &Arguments) -> anyhow::Result<Row> {
    let source = match attack.source {
        Some(protocol) => Some(Source::start(protocol).await?),
        None => None,
    };
    let server = Server::start(&arguments.binary, GRACE, source, attack.needs_token).await?;
    let other = Server::start(&arguments.binary, GRACE, None, false).await?;
    let limit = Duration::from_secs(arguments.seconds);
    let (mut sent, mut finding) = (0, None);
    let over = CancellationToken::new();
    let attacked = async {
        match tokio::time::timeout(limit, (attack.run)(server.addresses(), &mut sent)).await {
            Ok(Ok(Expectation::Met)) | Err(_) => {}
            Ok(Ok(Expectation::Missed(reason))) => finding = Some(reason),
            Ok(Err(error)) => finding = Some(format!("the attack failed: {error:#}")),
        }
        // What the attack holds is held until here; the server needs not have finished with it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        over.cancel();
    };
    let (honest, control) =
        tokio::try_join!(Honest::measure(&server, attacked), Honest::measure(&other, over.cancelled()))?;
    let memory = server.peak_memory()? >> 20;
    let stop = server.stop(STOP * 3).await?;
    let mut failures: Vec<String> = finding.into_iter().collect();
    let mut is_late = |what: &str, max: f64, control: f64, allowed: f64| {
        if max > control + allowed {
            failures.push(format!("{what} took {allowed} ms longer than by the other server"));
        }
    };
    is_late("a call", honest.open.max(), control.open.max(), MAX_DELAY);
    is_late("a new connection", honest.new.max(), control.new.max(), MAX_DELAY_OF_NEW);
    if honest.failed() > 0 {
        failures.push(format!("{} honest calls failed: {}", honest.failed(), honest.first_error()));
    }
    if memory > MAX_MEMORY {
        failures.push(format!("more than {MAX_MEMORY} MiB"));
    }
    if stop > STOP {
        failures.push(format!("stopping took more than {} s", STOP.as_secs()));
    }
    Ok(Row { name: attack.name, sent, honest, control, memory, stop, failures })
}
