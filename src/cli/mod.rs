//! The command line of an adapter's program: `mixer_adapter::main!(MyAdapter)` is all of one.

mod serve;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::handler::{Adapters, AdaptersBuilder};

/// A whole program that serves the adapters named: command line, gRPC, health, reflection, metrics, graceful end.
///
/// ```ignore
/// mixer_adapter::main!(DenyList);
/// ```
#[macro_export]
macro_rules! main {
    ($($adapter:ty),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::cli::run(|adapters| adapters$(.add::<$adapter>())+)
        }
    };
}

/// Serves adapters to Istio Mixer: policy checks, telemetry and quota.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
}

/// Runs the program with the adapters that `add` adds. What [`main!`](crate::main) calls.
pub fn run(add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder) -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Serve(serve) => serve.run(add),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn adapters(
    runtime: &tokio::runtime::Runtime,
    add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
) -> anyhow::Result<Adapters> {
    Ok(add(Adapters::builder(runtime.handle().clone())).build()?)
}
