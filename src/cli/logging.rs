//! What programs that go on and on say of themselves, to stderr.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::Args;
use tracing_subscriber::EnvFilter;

use super::values;

/// What is logged, and how.
#[derive(Debug, Args)]
pub(super) struct Logging {
    /// What is logged, to stderr: error, warn, info, debug, trace, or as in RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "info", env = "MIXER_ADAPTER_LOG")]
    log: String,

    /// Log as JSON, a line an event
    #[arg(long, env = "MIXER_ADAPTER_LOG_JSON", value_parser = values::switch(), action = clap::ArgAction::SetTrue)]
    log_json: bool,
}

impl Logging {
    /// Logs from now on.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        start(&self.log, self.log_json)
    }
}

/// Logs what the filter lets through, from now on.
pub(super) fn start(filter: &str, json: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?} is no filter"))?;
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let logging =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match json {
        true => logging.json().init(),
        false => logging.init(),
    }
    Ok(())
}
