//! The command line of an adapter's program: `mixer_adapter::main!(MyAdapter)` is all of one.

mod adapters;
mod ask;
mod attributes;
mod call;
mod completions;
mod configuration;
mod eval;
mod explain;
mod failure;
mod fields;
mod input;
mod logging;
mod manifest;
mod remote;
mod security;
mod serve;
mod signals;
mod source;
mod sources;
mod validate;
mod values;
mod watch;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use mixer_adapter_host::handler::{AdapterInfo, Adapters, AdaptersBuilder, quoted_list};

/// A whole program that serves the adapters named: command line, gRPC, health, reflection, metrics, graceful end.
/// `; sample = TEXT` behind the names gives it the configuration (YAML) that it runs with when it is given none.
///
/// ```ignore
/// mixer_adapter::main!(DenyList);
/// ```
#[macro_export]
macro_rules! main {
    ($($adapter:ty),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::cli::run(|adapters| adapters$(.add::<$adapter>())+, None)
        }
    };
    ($($adapter:ty),+; sample = $sample:expr) => {
        fn main() -> ::std::process::ExitCode {
            $crate::cli::run(|adapters| adapters$(.add::<$adapter>())+, Some($sample))
        }
    };
}

/// Serves adapters to Istio Mixer: policy checks, telemetry and quota.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done (a denial is an answer, too), 1 it failed, 2 the command line is wrong.
Flags can be given as environment variables, too: each command's --help names them.";

const SERVE_EXAMPLES: &str = "\
Examples:
  mixer-adapter serve
  mixer-adapter serve --config config/      a directory of YAML files, watched for changes
  mixer-adapter serve --config mcp://galley:9901 --config-cache /var/cache/mixer-adapter
  mixer-adapter serve --config config/ --config 'mcp://galley:9901?collections=rules,handlers'
  mixer-adapter serve --config xds://istiod.istio-system:15010      whatever a control plane pushes
  mixer-adapter serve --mcp-listen 9901     sources of configuration dial this program
  mixer-adapter serve --listen 127.0.0.1:0 --admin 127.0.0.1:0     free ports, printed at the start
  MIXER_ADAPTER_LOG=debug mixer-adapter serve --max-connection-age 30m";

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<serve::Serve>),
    #[command(after_help = source::EXAMPLES)]
    Source(Box<source::Source>),
    #[command(after_help = watch::EXAMPLES)]
    Watch(Box<watch::Watch>),
    #[command(after_help = ask::CHECK_EXAMPLES)]
    Check(ask::Check),
    #[command(after_help = ask::REPORT_EXAMPLES)]
    Report(ask::Report),
    #[command(after_help = ask::QUOTA_EXAMPLES)]
    Quota(ask::Quota),
    #[command(after_help = explain::EXAMPLES)]
    Explain(Box<explain::Explain>),
    #[command(after_help = validate::EXAMPLES)]
    Validate(validate::Validate),
    #[command(after_help = eval::EXAMPLES)]
    Eval(eval::Eval),
    #[command(after_help = call::EXAMPLES)]
    Call(Box<call::Call>),
    #[command(after_help = adapters::EXAMPLES)]
    Adapters(adapters::List),
    #[command(after_help = manifest::EXAMPLES)]
    Manifest(manifest::Manifest),
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Completions),
}

/// What is wrong is the command line, not what it asked for: exit code 2, as for what clap refuses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Runs the program with the adapters that `add` adds. What [`main!`](crate::main) calls.
pub fn run(add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder, sample: Option<&'static str>) -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(serve) => serve.run(add, sample).map(|()| ExitCode::SUCCESS),
        Command::Source(source) => source.run(),
        Command::Watch(watch) => watch.run(),
        Command::Check(check) => check.run(),
        Command::Report(report) => report.run(),
        Command::Quota(quota) => quota.run(),
        Command::Explain(explain) => explain.run(add, sample),
        Command::Validate(validate) => validate.run(add),
        Command::Eval(eval) => eval.run(),
        Command::Call(call) => with_adapters(add, |adapters| call.run(adapters)),
        Command::Adapters(list) => with_adapters(add, |adapters| list.run(adapters)),
        Command::Manifest(manifest) => with_adapters(add, |adapters| manifest.run(adapters)),
        Command::Completions(completions) => completions.run(),
    };
    match outcome {
        Ok(code) => code,
        // Whoever read the output has seen enough: `mixer-adapter adapters | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("error: {error:#}"));
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

fn with_adapters(
    add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
    command: impl FnOnce(&Adapters) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    // Adapters are only looked at: none of them runs.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    command(&adapters(&runtime, add)?)
}

fn adapters(
    runtime: &tokio::runtime::Runtime,
    add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
) -> anyhow::Result<Adapters> {
    Ok(add(Adapters::builder(runtime.handle().clone())).build()?)
}

/// The adapters of these names, in their order; all for no name.
fn chosen<'a>(adapters: &'a Adapters, names: &[String]) -> Result<Vec<&'a AdapterInfo>, Usage> {
    match names {
        [] => Ok(adapters.iter().map(|adapter| &**adapter).collect()),
        names => names.iter().map(|name| find(adapters, name)).collect(),
    }
}

fn find<'a>(adapters: &'a Adapters, name: &str) -> Result<&'a AdapterInfo, Usage> {
    adapters.find(name).map(|adapter| &**adapter).ok_or_else(|| {
        let known = quoted_list(adapters.iter().map(|adapter| adapter.name));
        Usage(format!("there is no adapter `{name}` in this program; there is {known}"))
    })
}

/// Writes to stdout. Where its reader is gone the error ends the program without complaint.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a line to stderr. Nobody is left to be told where that is closed.
fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}

/// What the program is called by: adapters of other people have programs of their own names.
fn program() -> String {
    let path = std::env::args_os().next().map(std::path::PathBuf::from);
    let name =
        path.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| env!("CARGO_PKG_NAME").to_owned())
}

fn print_json(json: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(print(&(serde_json::to_string_pretty(json)? + "\n"))?)
}
