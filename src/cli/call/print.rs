//! Answers and numbers for people, and for programs.

use std::{fmt::Write as _, io, time::Duration};

use serde_json::{Value as Json, json};

use super::{
    answer::{self, Answer},
    load::{Kind, Load},
    request::Prepared,
};
use crate::cli;
use mixer_adapter_core::{
    proto::{CheckResult, QuotaResult},
    status::status_name,
};

pub(super) fn answer(
    prepared: &Prepared,
    answer: &Answer,
    took: Duration,
    as_json: bool,
) -> anyhow::Result<()> {
    if as_json {
        let template = prepared.template.name();
        return cli::print_json(
            &json!({ "template": template, "answer": answer.to_json(), "took_ms": millis(took) }),
        );
    }
    let mut text = match answer {
        Answer::Check(check) => check_text(check),
        Answer::Quota(result) => quota_text(prepared, result),
        Answer::Report => format!("reported, {} in one call\n", instances(prepared.instances.len())),
        Answer::Output(output) => output_text(Some(output)),
        Answer::CheckWithOutput(check, output) => check_text(check) + &output_text(output.as_ref()),
    };
    let _ = writeln!(text, "took {} ms", millis(took));
    Ok(cli::print(&text)?)
}

fn instances(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}

fn check_text(check: &CheckResult) -> String {
    let status = check.status.clone().unwrap_or_default();
    let mut text = match (status.code, status.message.as_str()) {
        (0, "") => "allowed\n".to_owned(),
        (0, message) => format!("allowed: {message}\n"),
        (code, "") => format!("denied: {}\n", status_name(code)),
        (code, message) => format!("denied: {}: {message}\n", status_name(code)),
    };
    if let Json::Array(details) = &Answer::Check(check.clone()).to_json()["status"]["details"] {
        for detail in details {
            let _ = writeln!(text, "detail: {detail}");
        }
    }
    text + &validity(check)
}

/// How a real Mixer and its proxies read the two numbers (docs/behaviour/adapter-calls.md#validity-of-a-check).
fn validity(check: &CheckResult) -> String {
    let duration = answer::duration(check.valid_duration);
    let lasts = check.valid_duration.is_some_and(|length| length.seconds > 0 || length.nanos > 0);
    match (lasts, check.valid_use_count) {
        (false, 0) if answer::status_code(check) == 0 => {
            "no opinion on how long: 0s and 0 uses, which Mixer makes 1m0s and 10000 uses\n".to_owned()
        }
        (false, uses) => format!("not to be kept: valid for {duration}, {uses} uses\n"),
        (true, 0) => format!("not to be kept: valid for {duration}, 0 uses\n"),
        (true, uses) if uses < 0 => format!("valid for {duration}, any number of uses\n"),
        (true, uses) => format!("valid for {duration} or {uses} uses\n"),
    }
}

fn quota_text(prepared: &Prepared, result: &QuotaResult) -> String {
    let mut text = String::new();
    for (name, asked) in prepared.quota_request.iter().flat_map(|request| &request.quotas) {
        let _ = match result.quotas.get(name) {
            Some(grant) => writeln!(
                text,
                "{name}: granted {} of {}, valid for {}",
                grant.granted_amount,
                asked.amount,
                answer::duration(grant.valid_duration),
            ),
            None => writeln!(text, "{name}: not in the answer, which Mixer takes for 0 of {}", asked.amount),
        };
    }
    text
}

fn output_text(output: Option<&prost_reflect::DynamicMessage>) -> String {
    let fields = output.map(answer::output_json).unwrap_or_default();
    let mut text = if fields.is_empty() { "no output\n".to_owned() } else { "output\n".to_owned() };
    for (name, value) in fields {
        let _ = writeln!(text, "  {name}: {value}");
    }
    text
}

pub(super) fn load(load: &Load, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return cli::print_json(&load_json(load));
    }
    Ok(load_text(load)?)
}

const PERCENTILES: [(&str, usize); 4] = [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)];

fn load_text(load: &Load) -> io::Result<()> {
    let mut text = format!(
        "{} calls in {:.3} s: {:.0} calls/s, {} at a time on {}\nlatency ",
        load.micros.len(),
        load.took.as_secs_f64(),
        load.calls_per_second(),
        load.concurrency,
        if load.connections == 1 {
            "1 connection".to_owned()
        } else {
            format!("{} connections", load.connections)
        },
    );
    for (name, percent) in PERCENTILES {
        let _ = write!(text, " {name} {:.3} ms ", load.percentile(percent));
    }
    text.push('\n');
    for (kind, count) in &load.outcomes {
        let _ = match kind {
            Kind::Answer(summary) => writeln!(text, "{:>10}  {summary}", count.calls),
            Kind::Error(_) => {
                writeln!(text, "{:>10}  gRPC error {}: {}", count.calls, kind.name(), count.message)
            }
        };
    }
    cli::print(&text)
}

fn load_json(load: &Load) -> Json {
    let latency = PERCENTILES.map(|(name, percent)| (name.to_owned(), load.percentile(percent).into()));
    let outcomes = load.outcomes.iter().map(|(kind, count)| match kind {
        Kind::Answer(summary) => json!({ "answer": summary, "calls": count.calls }),
        Kind::Error(_) => json!({ "error": kind.name(), "message": count.message, "calls": count.calls }),
    });
    json!({
        "calls": load.micros.len(),
        "seconds": load.took.as_secs_f64(),
        "calls_per_second": load.calls_per_second(),
        "concurrency": load.concurrency,
        "connections": load.connections,
        "latency_ms": Json::Object(latency.into_iter().collect()),
        "outcomes": outcomes.collect::<Vec<_>>(),
    })
}

fn millis(took: Duration) -> f64 {
    (took.as_micros() as f64) / 1000.0
}
