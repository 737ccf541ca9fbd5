//! `--limit`: limits that few servers change.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::value_parsers;
use crate::service::ServerOptions;
use mixer_adapter_core::framework::suggest::suggestion;
use mixer_adapter_engine::RequestLimits;
use mixer_adapter_host::{handler::TableLimits, session::SessionLimits};

/// The options that have limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    pub(super) server: ServerOptions,
    pub(super) handlers: TableLimits,
    pub(super) sessions: SessionLimits,
    pub(super) requests: RequestLimits,
}

/// The field of a limit.
enum Field {
    Number(fn(&mut Limits) -> &mut usize),
    Time(fn(&mut Limits) -> &mut Duration),
}

/// The names of the limits, as in metrics. Their meanings are in the help.
const LIMITS: [(&str, Field); 15] = [
    ("max-message-size", Field::Number(|of| &mut of.server.max_message_size)),
    ("max-requests-per-report", Field::Number(|of| &mut of.requests.requests_per_report)),
    ("max-attributes-per-request", Field::Number(|of| &mut of.requests.attributes_per_request)),
    ("max-words", Field::Number(|of| &mut of.requests.words)),
    ("max-quotas-per-check", Field::Number(|of| &mut of.requests.quotas_per_check)),
    ("max-instances", Field::Number(|of| &mut of.requests.instances)),
    ("max-expanded-size", Field::Number(|of| &mut of.requests.expanded_size)),
    ("max-config-size", Field::Number(|of| &mut of.handlers.max_config_size)),
    ("handler-cache", Field::Number(|of| &mut of.handlers.cached_handlers)),
    ("max-sessions", Field::Number(|of| &mut of.sessions.sessions)),
    ("max-waiting-calls", Field::Number(|of| &mut of.server.max_waiting_calls)),
    ("max-calls-per-connection", Field::Number(|of| &mut of.server.max_calls_per_connection)),
    ("handshake-timeout", Field::Time(|of| &mut of.server.handshake_timeout)),
    ("body-timeout", Field::Time(|of| &mut of.server.body_timeout)),
    ("write-timeout", Field::Time(|of| &mut of.server.write_timeout)),
];

/// Limits by name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Change another limit; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", value_delimiter = ',', value_parser = setting, long_help = help())]
    settings: Vec<Setting>,
}

/// A limit and its value.
#[derive(Clone, Copy, Debug)]
struct Setting {
    limit: usize,
    /// A number, or nanoseconds.
    value: u64,
}

impl LimitArgs {
    /// Returns the limits of these flags.
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for Setting { limit, value } in &self.settings {
            match LIMITS[*limit].1 {
                Field::Number(field) => *field(&mut limits) = usize::try_from(*value).unwrap_or(usize::MAX),
                Field::Time(field) => *field(&mut limits) = Duration::from_nanos(*value),
            }
        }
        limits
    }
}

/// Parses `NAME=VALUE`.
fn setting(text: &str) -> anyhow::Result<Setting> {
    let (name, value) = text.split_once('=').context("write NAME=VALUE, such as max-sessions=1000")?;
    let limit = LIMITS.iter().position(|(known, ..)| *known == name).ok_or_else(|| {
        let known = LIMITS.map(|(known, ..)| known);
        anyhow!("unknown limit {name}; {}", suggestion(name, &known))
    })?;
    let value = match LIMITS[limit].1 {
        Field::Number(_) => value_parsers::bytes(value)? as u64,
        Field::Time(_) => u64::try_from(value_parsers::timeout(value)?.as_nanos()).unwrap_or(u64::MAX),
    };
    Ok(Setting { limit, value })
}

/// The text of `--help` with the names and defaults of all limits.
fn help() -> String {
    let mut limits = Limits::default();
    let lines = include_str!("texts/limits.txt").lines().map(|line| {
        match LIMITS.iter().find(|(name, _)| line.split(':').next() == Some(*name)) {
            Some((_, Field::Number(field))) => format!("{line} [default: {}]\n", field(&mut limits)),
            Some((_, Field::Time(field))) => format!("{line} [default: {:?}]\n", field(&mut limits)),
            None => format!("{line}\n"),
        }
    });
    lines.collect::<String>().trim_end().to_owned()
}
