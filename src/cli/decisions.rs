//! The last decisions of a server, or those of a decision log.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_core::value::parse_duration;
use serde_json::Value as Json;

use super::{admin_client::AdminClient, print_error, server_args::AdminArgs};

/// List the last decisions of a server, or those of a decision log
#[derive(Debug, Args)]
pub(super) struct Decisions {
    /// Texts that a decision must have in any place: a path, a user, a message, a peer
    ///
    /// In upper or lower case; all of them must occur
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,

    #[command(flatten)]
    source: DecisionSource,

    /// Print further decisions as they come
    #[arg(short, long)]
    follow: bool,

    /// Only decisions of rules whose names have this text
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// Only decisions with these verdicts, such as denied,failed
    #[arg(long, value_name = "VERDICT", value_delimiter = ',')]
    verdict: Vec<String>,

    /// Only decisions from this time on: 15m ago, or 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<SystemTime>,

    /// Only decisions before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<SystemTime>,

    /// Only the decision with this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Only the last ones, this number
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,

    /// Print the decisions as lines of JSON
    #[arg(long)]
    json: bool,
}

/// Where decisions are read.
#[derive(Debug, Args)]
pub(super) struct DecisionSource {
    /// Read a decision log (`serve --decision-log`) in place of the last decisions of a server; - is standard input
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) port: AdminArgs,
}

/// Parses a time, or a duration before now.
fn time(text: &str) -> anyhow::Result<SystemTime> {
    let ago = parse_duration(text.trim_end_matches("ago").trim_end());
    if let Some(ago) = ago.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos) {
        return SystemTime::now().checked_sub(ago).context("too long ago");
    }
    timestamp(text).context("write it like 15m, for a time ago, or 2026-01-02T03:04:05Z")
}

fn timestamp(text: &str) -> Option<SystemTime> {
    SystemTime::try_from(text.parse::<prost_types::Timestamp>().ok()?).ok()
}

/// The interval at which further decisions are read.
const POLL: Duration = Duration::from_secs(1);

/// Reads decisions, from the oldest on.
enum Reader {
    /// A log, and the part of its last line that is written.
    Log(Box<dyn io::BufRead>, Vec<u8>),
    Server {
        client: Box<AdminClient>,
        last: u64,
        skipped: u64,
    },
}

impl DecisionSource {
    fn open(&self) -> anyhow::Result<Reader> {
        Ok(match &self.log_file {
            Some(file) if file.as_os_str() == "-" => Reader::Log(Box::new(io::stdin().lock()), Vec::new()),
            Some(file) => {
                let opened = File::open(file);
                let opened = opened.with_context(|| format!("cannot open --log-file {}", file.display()))?;
                Reader::Log(Box::new(BufReader::new(opened)), Vec::new())
            }
            None => Reader::Server { client: Box::new(AdminClient::new(&self.port)?), last: 0, skipped: 0 },
        })
    }

    /// Returns the first line of the decision `id`, which has its attributes.
    pub(super) async fn find(&self, id: &str) -> anyhow::Result<Json> {
        let mut reader = self.open()?;
        let mut found = None;
        reader
            .read(|line| {
                if found.is_none() && line["decision_id"] == id {
                    found = Some(line);
                }
                Ok(())
            })
            .await?;
        let hint = "a server has the last ones only, from when they are read: `decisions --follow`, or its decision log";
        found.with_context(|| format!("there is no decision {id}: {hint}"))
    }
}

impl Reader {
    /// Calls `each` with the decisions since the last call.
    async fn read(&mut self, mut each: impl FnMut(Json) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self {
            Self::Log(lines, line) => {
                while lines.read_until(b'\n', line)? > 0 && line.ends_with(b"\n") {
                    let decision = serde_json::from_slice(line);
                    line.clear();
                    each(decision.context("a line of the decision log is not valid JSON")?)?;
                }
                Ok(())
            }
            Self::Server { client, last, skipped } => {
                let read = client.get(&format!("/decisions?after={last}")).await?;
                let [missed, all_skipped, newest] =
                    ["missed", "skipped", "last"].map(|name| read[name].as_u64().unwrap_or_default());
                let beyond = all_skipped.saturating_sub(*skipped);
                if missed > 0 || beyond > 0 && *last > 0 {
                    print_error(&format!(
                        "warning: {missed} decisions were replaced before they were read, and {beyond} calls beyond 100 a second were not recorded: the decision log has all"
                    ));
                }
                (*last, *skipped) = (newest, all_skipped);
                read["decisions"].as_array().into_iter().flatten().cloned().try_for_each(each)
            }
        }
    }
}

impl Decisions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        super::block_on(self.list())?
    }

    async fn list(&self) -> anyhow::Result<()> {
        let mut reader = self.source.open()?;
        let mut found = VecDeque::new();
        reader
            .read(|line| {
                if !self.matches(&line) {
                    return Ok(());
                }
                let Some(last) = self.last else { return self.print(&line) };
                found.push_back(line);
                if found.len() > last {
                    found.pop_front();
                }
                Ok(())
            })
            .await?;
        found.iter().try_for_each(|line| self.print(line))?;
        if let Reader::Server { last: 0, .. } = reader
            && !self.follow
        {
            print_error(
                "nobody has read the decisions of this server before: they are recorded from now on, for 30 s after each read; --follow waits for them",
            );
        }
        if !self.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(POLL).await;
            reader.read(|line| if self.matches(&line) { self.print(&line) } else { Ok(()) }).await?;
        }
    }

    fn matches(&self, line: &Json) -> bool {
        let at = line["time"].as_str().and_then(timestamp);
        self.id.as_ref().is_none_or(|id| line["decision_id"] == id.as_str())
            && (self.verdict.is_empty()
                || self.verdict.iter().any(|verdict| line["verdict"] == verdict.as_str()))
            && self.rule.as_ref().is_none_or(|name| has_rule(line, name))
            && self.since.is_none_or(|since| at.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| at.is_some_and(|at| at < until))
            && has_texts(line, &self.texts)
    }

    fn print(&self, line: &Json) -> anyhow::Result<()> {
        let text = if self.json { line.to_string() } else { on_one_line(line) };
        Ok(super::print(&format!("{text}\n"))?)
    }
}

/// Returns whether a decision has a rule, also a failed one, whose name contains `name`.
fn has_rule(line: &Json, name: &str) -> bool {
    let failed = line["failed"].as_array().into_iter().flatten().map(|part| &part["rule"]);
    let mut rules = line["rules"].as_array().into_iter().flatten().chain(failed);
    rules.any(|rule| rule.as_str().is_some_and(|rule| rule.contains(name)))
}

/// Returns whether a decision contains all texts, in upper or lower case.
fn has_texts(line: &Json, texts: &[String]) -> bool {
    if texts.is_empty() {
        return true;
    }
    let line = line.to_string().to_lowercase();
    texts.iter().all(|text| line.contains(&text.to_lowercase()))
}

/// Returns a text of a decision, empty if it has none.
fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a decision for people.
fn on_one_line(line: &Json) -> String {
    let list =
        |values: &Json| values.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let failed = line["failed"].as_array().into_iter().flatten().map(|part| {
        let parts = [&part["rule"], &part["handler"], &part["cause"]].map(text);
        format!("failed: {}", parts.join(" ").replace("  ", " "))
    });
    let attributes = &line["attributes"];
    let mut paths = ["request.path", "request.url_path"].iter().map(|name| text(&attributes[*name]));
    let path = paths.find(|path| !path.is_empty()).unwrap_or_default();
    let request = [text(&attributes["request.method"]), path];
    let amount = line["amount"].as_i64().map(|amount| format!("{} of {amount}", line["granted"]));
    let parts = [
        text(&line["time"]),
        text(&line["verdict"]),
        text(&line["kind"]),
        list(&line["rules"]),
        text(&line["quota"]),
        amount.unwrap_or_default(),
        [text(&line["code"]), text(&line["message"])].join(": ").trim_matches([':', ' ']).to_owned(),
        failed.collect::<Vec<_>>().join("; "),
        request.join(" ").trim().to_owned(),
        text(&line["peer"]),
        text(&line["decision_id"]),
    ];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_has_one_line_with_what_failed() {
        let line = serde_json::json!({
            "time": "2026-01-02T03:04:05Z", "decision_id": "1-2", "kind": "check", "verdict": "failed",
            "code": "INTERNAL", "message": "down",
            "failed": [{ "rule": "r", "handler": "h", "cause": "UNAVAILABLE" }, { "rule": "s", "cause": "condition" }],
            "attributes": { "request.path": "/a", "request.method": "GET" }, "peer": "127.0.0.1:1",
        });
        assert_eq!(
            on_one_line(&line),
            "2026-01-02T03:04:05Z  failed  check  INTERNAL: down  failed: r h UNAVAILABLE; failed: s condition  GET /a  127.0.0.1:1  1-2"
        );
    }

    #[test]
    fn a_time_is_a_date_or_a_duration_before_now() {
        assert_eq!(time("1970-01-01T00:01:00Z").unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        let then = time("15m ago").unwrap();
        let ago = SystemTime::now().duration_since(then).unwrap();
        assert!((900..960).contains(&ago.as_secs()), "{ago:?}");
        assert!(time("yesterday").is_err());
    }
}
