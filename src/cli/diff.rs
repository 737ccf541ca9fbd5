//! Compares the answers of two configurations.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, ValueHint};
use serde_json::{Value as Json, json};

use super::{
    AddAdapters, UsageError,
    config_args::ConfigArgs,
    counted,
    dry_run::{DryRun, Loaded, unknown_names},
    input,
    mixer::{all_words, check_request, report_request},
    output_args::OutputArgs,
};
use crate::{
    answer::Rendered,
    service::mixer::{trace_check, trace_report},
};
use mixer_adapter_core::{framework::status::status_name, value::ValueType};
use mixer_adapter_engine::{
    Mixer,
    attribute::{ParseAttributesError, ParsedAttributes, Vocabulary, parse_json, parse_logged},
    decision_log::MASK,
    proto::istio::mixer::v1::{CheckRequest, CheckResponse, ReportResponse, check_request::QuotaParams},
    trace::{Step, Trace},
};
use mixer_adapter_host::handler::Caller;
use mixer_adapter_streams::ScopedUrl;

/// Show which answers to recorded requests differ between two configurations
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The configuration to compare with: files, or a server such as mcp://HOST:PORT
    #[arg(value_name = "BEFORE", value_hint = ValueHint::AnyPath)]
    before: ScopedUrl,

    /// The changed configuration
    #[arg(value_name = "AFTER", value_hint = ValueHint::AnyPath)]
    after: ScopedUrl,

    /// The requests: a decision log, or a file with one JSON object of attributes on each line; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    requests: String,

    /// Compare the granted amounts of this quota, too
    ///
    /// Repeat the flag for others
    #[arg(long = "quota", value_name = "NAME", value_delimiter = ',')]
    quotas: Vec<String>,

    /// Compare the reports of each request, too
    #[arg(long)]
    report: bool,

    #[command(flatten)]
    configuration: ConfigArgs,

    #[command(flatten)]
    output: OutputArgs,
}

impl Diff {
    pub(super) fn run(mut self, add: AddAdapters<'_>) -> anyhow::Result<ExitCode> {
        let requests = self.read_requests()?;
        let engines = DryRun::new(add, false)?;
        let mut answers = Vec::with_capacity(2);
        for url in [&self.before, &self.after] {
            self.configuration.config = vec![url.clone()];
            let mut loaded = Loaded::read(&self.configuration, None)?;
            answers
                .push(engines.with_engine(&mut loaded, async |mixer| self.answers(mixer, &requests).await)?);
        }
        engines.close();
        let [(before, unknown_before), (after, unknown_after)] = &answers[..] else {
            return Ok(ExitCode::FAILURE);
        };
        // A name that only one configuration has may explain the difference.
        for unknown in unknown_before.intersection(unknown_after) {
            super::print_error(&format!("warning: {unknown}"));
        }
        let pairs = requests.iter().zip(before.iter().zip(after)).enumerate();
        let changed: Vec<_> = pairs.filter(|(_, (_, (before, after)))| before.text != after.text).collect();
        let mut rules: BTreeMap<&str, [usize; CHANGES.len()]> = BTreeMap::new();
        for (_, (_, (before, after))) in &changed {
            for rule in Answer::responsible(before, after) {
                rules.entry(rule).or_default()[Answer::change(before, after)] += 1;
            }
        }
        let values = changed.iter().map(|(index, (request, (before, after)))| {
            let rules = Answer::responsible(before, after);
            json!({
                "request": index + 1, "attributes": request.attributes, "rules": rules,
                "before": before.text, "after": after.text,
            })
        });
        let of_rules = rules.iter().map(|(rule, counts)| {
            let counts: BTreeMap<_, _> = CHANGES.iter().zip(counts).collect();
            json!({ "rule": rule, "changes": counts })
        });
        let values = json!({
            "requests": requests.len(),
            "changed": values.collect::<Vec<_>>(),
            "rules": of_rules.collect::<Vec<_>>(),
        });
        self.output.print(&values, || {
            let lines = changed.iter().map(|(index, (request, (before, after)))| {
                let (before, after) = (&before.text, &after.text);
                let request = &request.attributes;
                format!("request {}: {request}\n  before: {before}\n  after:  {after}\n", index + 1)
            });
            let rules = rules.iter().map(|(rule, counts)| {
                let counts = CHANGES.iter().zip(counts).filter(|(_, count)| **count > 0);
                let counts: Vec<_> = counts.map(|(change, count)| format!("{count} {change}")).collect();
                format!("rule {rule}: {}\n", counts.join(", "))
            });
            let all = counted(requests.len(), "request");
            let sum = format!("{all}: {}\n", counted(changed.len(), "different answer"));
            lines.chain(rules).chain([sum]).collect()
        })?;
        Ok(if changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns the answer to each request, and descriptions of unknown names.
    async fn answers(
        &self,
        mixer: &Mixer,
        requests: &[Recorded],
    ) -> anyhow::Result<(Vec<Answer>, BTreeSet<String>)> {
        let snapshot = mixer.snapshot().context("there is no configuration")?;
        let mut answers = Vec::with_capacity(requests.len());
        let mut unknown = BTreeSet::new();
        for (index, request) in requests.iter().enumerate() {
            let attributes = request
                .parse(snapshot.vocabulary())
                .map_err(|error| usage!("--requests: request {}: {error}", index + 1))?;
            let mut request = check_request(&attributes, all_words());
            for quota in &self.quotas {
                request.quotas.insert(quota.clone(), QuotaParams { amount: 1, best_effort: false });
            }
            let (answer, trace) =
                trace_check(mixer, request.clone(), Caller::default(), Trace::default()).await;
            unknown.extend(unknown_names(&trace));
            let mut text = verdict(&request, &answer);
            let is_denied = !is_allowed(&answer);
            let rules = trace.rules.iter().map(|rule| {
                let shown = match snapshot.place(rule) {
                    Some(place) => format!("{rule} ({place})"),
                    None => rule.to_string(),
                };
                (rule.to_string(), shown)
            });
            let rules = rules.collect();
            if self.report {
                let report = report_request(&[attributes], all_words());
                let (answer, trace) = trace_report(mixer, report, Caller::default(), Trace::default()).await;
                text.push_str("; ");
                text.push_str(&reported(&answer, &trace));
            }
            answers.push(Answer { text, is_denied, rules });
        }
        Ok((answers, unknown))
    }

    fn read_requests(&self) -> Result<Vec<Recorded>, UsageError> {
        let (text, _) = input::text("--requests", &format!("@{}", self.requests))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (mut requests, mut masked, mut cut) = (Vec::new(), 0, 0);
        for (index, line) in lines {
            let read: Json = serde_json::from_str(line).map_err(|error| {
                usage!("--requests: line {} of {}: not valid JSON: {error}", index + 1, self.requests)
            })?;
            // A line of a decision log. Lines of quotas and reports have no attributes.
            let attributes = match (read.get("decision_id"), read.get("attributes")) {
                (None, _) => {
                    requests.push(Recorded { attributes: read, is_logged: false });
                    continue;
                }
                (Some(_), Some(attributes)) if read["kind"] == "check" => {
                    if read.get("omitted").is_some() {
                        cut += 1;
                        continue;
                    }
                    masked += usize::from(attributes.to_string().contains(MASK));
                    attributes.clone()
                }
                (Some(_), _) => continue,
            };
            requests.push(Recorded { attributes, is_logged: true });
        }
        if masked > 0 {
            let masked = counted(masked, "request");
            super::print_error(&format!(
                "warning: {masked} with masked values: both configurations read {MASK} in their place"
            ));
        }
        if cut > 0 {
            let cut = counted(cut, "request");
            super::print_error(&format!("warning: {cut} left out, because the log omits some attributes"));
        }
        if requests.is_empty() {
            return Err(usage!("--requests: {} has no check to compare", self.requests));
        }
        Ok(requests)
    }
}

/// A recorded request.
struct Recorded {
    attributes: Json,
    /// Whether it comes from a decision log.
    is_logged: bool,
}

impl Recorded {
    fn parse(&self, types: &Vocabulary) -> Result<ParsedAttributes, ParseAttributesError> {
        let attributes = match &self.attributes {
            Json::Object(attributes) if self.is_logged => attributes,
            given => return parse_json(given, types),
        };
        // A masked value is not a valid number or address: the attribute is absent instead.
        let is_readable = |name: &str, value: &Json| {
            let declared = types.find(name).map(|declared| declared.value_type);
            value != MASK || matches!(declared, None | Some(ValueType::String))
        };
        let attributes = attributes.iter().filter(|(name, value)| is_readable(name, value));
        let attributes = attributes.map(|(name, value)| (name.clone(), value.clone()));
        parse_logged(&Json::Object(attributes.collect()), types)
    }
}

/// The ways in which an answer changes.
const CHANGES: [&str; 3] = ["would be denied", "would be allowed", "would change otherwise"];

/// An answer to a request.
struct Answer {
    /// On one line.
    text: String,
    is_denied: bool,
    /// The rules that decided, by name, with their places.
    rules: BTreeMap<String, String>,
}

impl Answer {
    /// Returns the index of the change in [`CHANGES`].
    fn change(before: &Self, after: &Self) -> usize {
        match (before.is_denied, after.is_denied) {
            (false, true) => 0,
            (true, false) => 1,
            _ => 2,
        }
    }

    /// Returns the rules that explain a change: rules that deny or, if both answers allow, rules that apply to only one answer.
    fn responsible<'a>(before: &'a Self, after: &'a Self) -> Vec<&'a str> {
        let only_of = |one: &'a Self, other: &Self| {
            one.rules.iter().filter(|(rule, _)| !other.rules.contains_key(*rule)).collect::<Vec<_>>()
        };
        let rules = match (before.is_denied, after.is_denied) {
            (_, true) => after.rules.iter().collect(),
            (true, false) => before.rules.iter().collect(),
            (false, false) => [only_of(before, after), only_of(after, before)].concat(),
        };
        rules.into_iter().map(|(_, shown)| shown.as_str()).collect()
    }
}

/// Returns whether a check is allowed.
fn is_allowed(answer: &Result<CheckResponse, tonic::Status>) -> bool {
    let status = answer.as_ref().ok().and_then(|answer| answer.precondition.as_ref()?.status.as_ref());
    status.is_some_and(|status| status.code == 0)
}

/// Describes a report on one line: the instances, and the handlers that they are for.
fn reported(answer: &Result<ReportResponse, tonic::Status>, trace: &Trace) -> String {
    if let Err(status) = answer {
        return format!("report failed: {}: {}", status_name(status.code() as i32), status.message());
    }
    let instances = trace.steps.iter().filter_map(|step| match step {
        Step::Instance { instance, built: Some(built), .. } => Some(format!("{instance} {built}")),
        _ => None,
    });
    let calls = trace.steps.iter().filter_map(|step| match step {
        Step::Call { handler, instances, .. } => Some(format!("{} to {handler}", instances.join(", "))),
        _ => None,
    });
    // Calls are concurrent, so their order varies.
    let (mut parts, calls) = (instances.collect::<Vec<_>>(), calls.collect::<BTreeSet<_>>());
    parts.extend(calls);
    if parts.is_empty() { "nothing reported".to_owned() } else { format!("reported {}", parts.join("; ")) }
}

/// Describes an answer on one line, without its validity and the attributes that it depends on.
pub(super) fn verdict(request: &CheckRequest, answer: &Result<CheckResponse, tonic::Status>) -> String {
    let answer = match answer {
        Ok(answer) => answer,
        Err(status) => return format!("error: {}: {}", status_name(status.code() as i32), status.message()),
    };
    let mut answer = answer.clone();
    if let Some(precondition) = &mut answer.precondition {
        precondition.referenced_attributes = None;
    }
    let text = Rendered::check(request, &answer).text;
    let validity = ["valid for ", "not cacheable: "];
    let lines = text.lines().filter(|line| !validity.iter().any(|prefix| line.starts_with(prefix)));
    lines.map(str::trim).collect::<Vec<_>>().join("; ")
}
