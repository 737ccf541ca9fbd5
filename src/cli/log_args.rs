//! Logging of long-running commands, to stderr.

use anyhow::Context as _;
use clap::Args;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

use super::style;
use crate::log_output::{self, LogLine};

/// Filter and format of the log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log and traces")]
pub(super) struct LogArgs {
    /// Log filter: error, warn, info, debug, trace, or as in RUST_LOG
    ///
    /// Logs go to stderr. A level is for this program and its adapters; libraries log errors unless named, as in debug,h2=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,

    /// Log one JSON object per line
    #[arg(long)]
    log_json: bool,
}

impl LogArgs {
    /// Installs the logger, and a layer that receives spans regardless of the filter.
    pub(super) fn start(&self, spans: Option<BoxedLayer>) -> anyhow::Result<()> {
        start(&self.log, self.log_json, spans)
    }
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Libraries whose other events are about frames, handshakes and polling. Peers can cause any number of them.
const LIBRARIES: [&str; 6] = ["h2", "hyper", "mio", "rustls", "tonic", "tower"];

/// Limits a level of a filter to the events of this program and of adapters: libraries log errors unless the filter names them.
fn without_libraries(filter: &str) -> String {
    let mut levels = filter.split(',').filter_map(|directive| directive.trim().parse::<LevelFilter>().ok());
    if !levels.any(|level| level > LevelFilter::ERROR) {
        return filter.to_owned();
    }
    // Of directives with the same target, the last one applies.
    let libraries = LIBRARIES.map(|library| format!("{library}=error"));
    format!("{},{filter}", libraries.join(","))
}

fn filter(log: &str) -> anyhow::Result<EnvFilter> {
    // For EnvFilter every other word is a target with all its events.
    let misspelt = log.split(',').map(str::trim).find(|part| {
        let is_word = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_word && part.parse::<LevelFilter>().is_err()
    });
    if let Some(part) = misspelt {
        anyhow::bail!(usage!(
            "--log: {part:?} is not a level; write error, warn, info, debug or trace, or the target with its level, such as h2=debug"
        ));
    }
    EnvFilter::try_new(without_libraries(log)).with_context(|| {
        format!("--log {log:?} is not a valid filter; write it like info or mixer_adapter=debug,warn")
    })
}

/// Installs a logger with a filter, and a layer that receives spans regardless of it. Panics are logged, too.
pub(super) fn start(log: &str, json: bool, spans: Option<BoxedLayer>) -> anyhow::Result<()> {
    log_output::start()?;
    let colored = style::on_stderr();
    let lines = tracing_subscriber::fmt::layer().with_writer(move || LogLine { colored }).with_ansi(colored);
    let lines = if json { lines.json().boxed() } else { lines.boxed() };
    registry().with(spans).with(lines.with_filter(filter(log)?)).init();
    mixer_adapter_host::handler::log_panics(log_output::flush);
    Ok(())
}
