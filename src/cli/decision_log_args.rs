//! Flags of the decision log.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;

use super::value_parsers;
use mixer_adapter_engine::{
    Mixer,
    decision_log::{DEFAULT_MASKS, DecisionLog},
};

/// Where and how decisions are logged.
#[derive(Debug, Args)]
#[command(next_help_heading = "Decision log")]
pub(super) struct DecisionLogArgs {
    /// Append decisions to this file, one JSON object a line [default: none]
    ///
    /// For each check, quota request and failed report; - is stdout
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,

    /// Share of calls whose decisions are logged, from 0 to 1
    #[arg(long, hide_short_help = true, value_name = "SHARE", default_value_t = 1.0, value_parser = value_parsers::share)]
    decision_log_sample: f64,

    /// Values besides credentials that are replaced by *** in the decision log, separated by commas
    ///
    /// ATTRIBUTE, ATTRIBUTE[KEY] for a key of a map, or ?PARAMETER for a parameter of queries in all texts
    #[arg(long, hide_short_help = true, value_name = "ATTRIBUTE", value_delimiter = ',')]
    decision_log_mask: Vec<String>,
}

/// How long the end of the server waits for lines that are not written yet.
const FLUSH: Duration = Duration::from_secs(1);

impl DecisionLogArgs {
    /// Adds the log to an engine.
    pub(super) fn add_to(&self, mixer: Mixer) -> anyhow::Result<Mixer> {
        let masks = DEFAULT_MASKS.into_iter().chain(self.decision_log_mask.iter().map(|mask| mask.trim()));
        let log = DecisionLog::new(masks);
        let Some(path) = &self.decision_log else { return Ok(mixer.with_decision_log(log)) };
        let log = if path.as_os_str() == "-" {
            log.with_output(io::stdout(), self.decision_log_sample)
        } else {
            // Attributes are for the owner's eyes only.
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let file = file.with_context(|| format!("cannot open --decision-log {}", path.display()))?;
            log.with_output(file, self.decision_log_sample)
        };
        Ok(mixer.with_decision_log(log.context("cannot start the decision log")?))
    }
}

/// Waits until the decisions of an engine are written, for at most a second.
pub(super) fn flush(mixer: &Mixer) {
    if !mixer.decision_log().flush(FLUSH) {
        tracing::warn!("the decision log is incomplete: its output accepts no lines");
    }
}
