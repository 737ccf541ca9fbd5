//! The command line of an adapter's program, which `mixer_adapter::main!(MyAdapter)` makes.

/// Returns a [`UsageError`] with a text as in `format!`.
macro_rules! usage {
    ($($text:tt)*) => {
        $crate::cli::UsageError(format!($($text)*))
    };
}

mod access_args;
mod adapters;
mod admin_client;
mod attribute_args;
mod call;
mod completions;
mod comply;
mod config_args;
mod decision_log_args;
mod decisions;
mod diff;
mod dry_run;
mod environment;
#[cfg(feature = "envoy")]
mod envoy_args;
#[cfg(feature = "envoy")]
mod envoy_config;
mod eval;
mod explain;
mod faults;
mod flags_file;
mod help;
mod init;
mod input;
mod layout;
mod limit_args;
mod log_args;
mod man;
mod manifest;
mod mixer;
mod new;
mod otlp_args;
mod output_args;
mod port_args;
mod program;
mod progress;
#[cfg(feature = "proto")]
mod proto;
mod reference;
mod rpc_client;
mod rpc_error;
mod serve;
mod server_args;
#[cfg(feature = "redis")]
mod session_args;
mod shadow_args;
mod signals;
mod source;
mod source_args;
mod style;
mod template;
mod test;
mod tls_args;
#[cfg(feature = "envoy")]
mod tour;
mod validate;
mod value_parsers;
mod version;
mod watch;
mod watch_files;

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write as _},
    path::PathBuf,
    process::{ExitCode, Termination},
    time::Duration,
};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use program::Program;

use crate::{log_output, printable::printable};
use mixer_adapter_core::framework::suggest::suggest;
use mixer_adapter_host::handler::{AdapterInfo, Adapters, AdaptersBuilder, quoted_list};
use mixer_adapter_net::disable_huge_pages;

/// Defines `main` of a program that serves the given adapters.
///
/// The program has a command line, gRPC, health, reflection, metrics and graceful shutdown. Its name, version and prefix of environment variables are those of the
/// author's binary. After the adapters, `; state = VALUE` sets the
/// state that [`Context::state`](crate::Context::state) returns, which is made outside of a runtime; `; sample = TEXT` sets the
/// configuration (YAML) to use without `--config`, and `, tour = TEXT` after it that of the demonstration of `try`, which needs the
/// adapters of this framework. The order is adapters, state, sample.
/// `#[cfg(..)]` before an adapter makes it optional.
///
/// ```ignore
/// mixer_adapter::main!(DenyList);
/// mixer_adapter::main!(Lookup; state = Services::new(); sample = include_str!("../sample.yaml"));
/// ```
#[macro_export]
macro_rules! main {
    ($($(#[$cfg:meta])* $adapter:ty),+ $(,)? $(; state = $state:expr)? $(; sample = $sample:expr $(, tour = $tour:expr)?)?) => {
        fn main() -> ::std::process::ExitCode {
            let name = option_env!("CARGO_BIN_NAME").unwrap_or(env!("CARGO_PKG_NAME"));
            let program = $crate::cli::Program::new(name, env!("CARGO_PKG_VERSION"))
                $(.with_sample($sample)$(.with_tour($tour))?)?;
            let state = ::std::sync::Arc::new($crate::main!(@state $($state)?));
            $crate::cli::run(
                move |adapters| {
                    $(
                        $(#[$cfg])*
                        let adapters = adapters.add_with::<$adapter, _>(state.clone());
                    )+
                    adapters
                },
                program,
            )
        }
    };
    (@state) => { () };
    (@state $state:expr) => { $state };
}

/// Serve adapters to Istio Mixer: policy checks, telemetry and quota
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_long_help = include_str!("texts/program.txt"))]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Read flags from this file, one on each line
    ///
    /// Flags of the command line replace them. `--listen 127.0.0.1:9091` or `--listen=127.0.0.1:9091`, with quotes and comments as in a shell. Flags of the
    /// file replace environment variables
    #[arg(long, value_name = "FILE", global = true, help_heading = GLOBAL)]
    flags_file: Option<PathBuf>,

    /// Colours in help, errors and results
    ///
    /// Never in JSON, YAML and other formats for programs. `auto` is for a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", global = true, help_heading = GLOBAL, default_value = "auto")]
    color: style::ColorArg,
}

const GLOBAL: &str = "Flags of all commands";

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_help = "--help has more flags.", after_long_help = include_str!("texts/serve.txt"))]
    Serve(Box<serve::Serve>),
    #[command(after_long_help = include_str!("texts/source.txt"))]
    Source(Box<source::Source>),
    #[command(after_long_help = include_str!("texts/watch.txt"))]
    Watch(Box<watch::Watch>),
    #[command(after_long_help = include_str!("texts/check.txt"))]
    Check(Box<mixer::Check>),
    #[command(after_long_help = include_str!("texts/report.txt"))]
    Report(Box<mixer::Report>),
    #[command(after_long_help = include_str!("texts/quota.txt"))]
    Quota(Box<mixer::Quota>),
    #[command(after_long_help = include_str!("texts/explain.txt"))]
    Explain(Box<explain::Explain>),
    #[command(after_long_help = include_str!("texts/decisions.txt"))]
    Decisions(Box<decisions::Decisions>),
    #[command(after_long_help = include_str!("texts/init.txt"))]
    Init(init::Init),
    #[command(after_long_help = include_str!("texts/validate.txt"))]
    Validate(validate::Validate),
    #[command(after_long_help = include_str!("texts/fmt.txt"))]
    Fmt(layout::Fmt),
    #[command(after_long_help = include_str!("texts/test.txt"))]
    Test(Box<test::Test>),
    #[command(after_long_help = include_str!("texts/diff.txt"))]
    Diff(Box<diff::Diff>),
    #[command(after_long_help = include_str!("texts/eval.txt"))]
    Eval(eval::Eval),
    #[command(after_long_help = include_str!("texts/call.txt"))]
    Call(Box<call::Call>),
    #[command(after_long_help = include_str!("texts/comply.txt"))]
    Comply(Box<comply::Comply>),
    #[command(after_long_help = include_str!("texts/new.txt"))]
    New(new::New),
    #[command(after_long_help = include_str!("texts/adapters.txt"))]
    Adapters(adapters::List),
    #[command(after_long_help = include_str!("texts/reference.txt"))]
    Reference(reference::Reference),
    #[command(after_long_help = include_str!("texts/man.txt"))]
    Man(man::Man),
    #[command(after_long_help = include_str!("texts/manifest.txt"))]
    Manifest(manifest::Manifest),
    #[cfg(feature = "envoy")]
    #[command(after_long_help = include_str!("texts/envoy-config.txt"))]
    EnvoyConfig(Box<envoy_config::EnvoyConfig>),
    #[cfg(feature = "envoy")]
    #[command(name = "try", after_long_help = include_str!("texts/try.txt"))]
    Tour(tour::Tour),
    #[cfg(feature = "proto")]
    #[command(after_long_help = include_str!("texts/proto.txt"))]
    Proto(proto::Proto),
    #[cfg(not(feature = "proto"))]
    #[command(hide = true, disable_help_flag = true)]
    Proto {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _arguments: Vec<OsString>,
    },
    #[command(after_long_help = include_str!("texts/completions.txt"))]
    Completions(completions::Completions),
    #[command(after_long_help = include_str!("texts/version.txt"))]
    Version(version::Version),
}

/// An invalid command line: exit code 2, as for the errors of clap.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

impl UsageError {
    /// Converts the error of a flag's value.
    fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Returns `1 request` or `2 requests`.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns rows with aligned columns, without those that are empty, each behind an indentation.
fn columns<const N: usize>(indent: &str, rows: &[[&str; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|n| rows.iter().map(|row| row[n].len()).max().unwrap_or_default());
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{indent}{}", cells.join("  ")).trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// Returns milliseconds with three digits behind the point.
fn millis(took: Duration) -> f64 {
    took.as_micros() as f64 / 1000.0
}

/// Runs the program with the adapters that `add` adds; [`main!`](crate::main) calls it.
pub fn run(add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder, program: Program) -> ExitCode {
    // Before the first large allocations: a huge page is not split again.
    disable_huge_pages();
    let add: AddAdapters<'_> = Box::new(add);
    program.enter();
    let sample = program.sample;
    if completions::is_requested() {
        return exit_code(completions::answer(add));
    }
    let command = match parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return exit_code(Err(error)),
    };
    let outcome = match command {
        Command::Serve(serve) => serve.run(add, sample).map(Termination::report),
        Command::Source(source) => source.run().map(Termination::report),
        Command::Watch(watch) => watch.run(),
        Command::Check(check) => check.run(),
        Command::Report(report) => report.run(),
        Command::Quota(quota) => quota.run(),
        Command::Explain(explain) => explain.run(add, sample),
        Command::Decisions(decisions) => decisions.run().map(Termination::report),
        Command::Init(init) => with_adapters(add, |adapters| init.run(adapters)),
        Command::Validate(validate) => validate.run(add),
        Command::Fmt(fmt) => fmt.run(),
        Command::Test(test) => test.run(add),
        Command::Diff(diff) => diff.run(add),
        Command::Eval(eval) => eval.run(),
        Command::Call(call) => with_adapters(add, |adapters| call.run(adapters)),
        Command::Comply(comply) => with_adapters(add, |adapters| comply.run(adapters)),
        Command::New(new) => new.run().map(Termination::report),
        Command::Adapters(list) => with_adapters(add, |adapters| list.run(adapters)),
        Command::Reference(reference) => with_adapters(add, |adapters| reference.run(adapters)),
        Command::Man(man) => man.run().map(Termination::report),
        Command::Manifest(manifest) => with_adapters(add, |adapters| manifest.run(adapters)),
        #[cfg(feature = "envoy")]
        Command::EnvoyConfig(config) => config.run(sample).map(Termination::report),
        #[cfg(feature = "envoy")]
        Command::Tour(tour) => tour.run(program).map(Termination::report),
        #[cfg(feature = "proto")]
        Command::Proto(proto) => proto.run(),
        #[cfg(not(feature = "proto"))]
        Command::Proto { .. } => Err(UsageError(
            "this program was built without `proto`: build it with --features proto".to_owned(),
        )
        .into()),
        Command::Completions(completions) => completions.run().map(Termination::report),
        Command::Version(version) => with_adapters(add, |adapters| version.run(adapters)),
    };
    log_output::flush();
    exit_code(outcome)
}

/// The command line as it is declared, with the layout of help for these arguments.
fn command(arguments: &[OsString]) -> clap::Command {
    let command = Arguments::command().name(program::name()).version(program::current().version);
    help::grouped(help::lay_out(environment::by_command(command), arguments))
}

/// Parses the arguments of the program, a file of flags, and environment variables.
fn parse() -> anyhow::Result<Arguments> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    style::choose(&arguments);
    let command = command(&arguments);
    // The given flags, whether or not they are complete and valid.
    let lenient = command.clone().ignore_errors(true);
    let given = lenient.try_get_matches_from(&arguments)?;
    let arguments = flags_file::expand(&command, &given, arguments)?;
    environment::warn_of_unknown(&command);
    Ok(Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)?)
}

/// Prints an error.
fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // The reader of the output has closed it: `mixer-adapter adapters | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<clap::Error>() {
            // Help and the version are such errors, too.
            Ok(error) => {
                let _ = error.print();
                u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
            }
            Err(error) => {
                print_error(&format!("error: {error:#}"));
                if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
            }
        },
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

/// Adds the adapters of the program.
type AddAdapters<'a> = Box<dyn FnOnce(AdaptersBuilder) -> AdaptersBuilder + 'a>;

fn with_adapters<T: Termination>(
    add: AddAdapters<'_>,
    command: impl FnOnce(&Adapters) -> anyhow::Result<T>,
) -> anyhow::Result<ExitCode> {
    // No adapter runs: their descriptions are enough.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    command(&adapters(&runtime, add)?).map(Termination::report)
}

/// Runs a future on a new runtime of this thread.
fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start the runtime")?.block_on(future))
}

fn adapters(runtime: &tokio::runtime::Runtime, add: AddAdapters<'_>) -> anyhow::Result<Adapters> {
    Ok(add(Adapters::builder(runtime.handle().clone())).build()?)
}

/// The adapters with these names, in their order; all adapters if there are no names.
fn selected<'a>(adapters: &'a Adapters, names: &[String]) -> Result<Vec<&'a AdapterInfo>, UsageError> {
    match names {
        [] => Ok(adapters.iter().map(|adapter| &**adapter).collect()),
        names => names.iter().map(|name| find(adapters, name)).collect(),
    }
}

fn find<'a>(adapters: &'a Adapters, name: &str) -> Result<&'a AdapterInfo, UsageError> {
    adapters.find(name).map(|adapter| &**adapter).ok_or_else(|| {
        let known = quoted_list(adapters.iter().map(|adapter| adapter.name));
        let hint = suggest(name, adapters.iter().map(|adapter| adapter.name))
            .map_or_else(String::new, |similar| format!("did you mean `{similar}`? "));
        usage!("unknown adapter `{name}`; {hint}this program has {known}")
    })
}

/// Writes to stdout. A broken pipe ends the program with success.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(printable(text, &['\n'], style::on_stdout()).as_bytes())?;
    stdout.flush()
}

/// Writes the verdict at the start of a text, and the rest of it, to stdout.
fn print_verdict(text: &str) -> io::Result<()> {
    print(&style::paint_first(text, &style::VERDICTS, style::on_stdout()))
}

/// Writes a line to stderr, and ignores a closed stderr.
fn print_error(text: &str) {
    let text = style::paint_first(text.trim_end(), &style::MESSAGES, style::on_stderr());
    let _ = writeln!(io::stderr(), "{}", printable(&text, &['\n'], style::on_stderr()));
}
