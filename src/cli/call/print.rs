//! Output of answers and of load tests, as text and as JSON.

use std::{fmt::Write as _, io, time::Duration};

use serde_json::{Value as Json, json};

use super::{
    answer::{self, Answer},
    load::{Load, Outcome},
    request::PreparedCall,
};
use crate::{
    answer::quotas_text,
    cli::{self, output_args::DataFormat},
};

pub(super) fn answer(
    prepared: &PreparedCall,
    answer: &Answer,
    took: Duration,
    data: Option<DataFormat>,
) -> anyhow::Result<()> {
    if let Some(data) = data {
        let template = prepared.template.name();
        return data
            .print(&json!({ "template": template, "answer": answer.to_json(), "took_ms": millis(took) }));
    }
    let mut text = match answer {
        Answer::Check(verdict) => verdict.to_string(),
        Answer::Quota(result) => {
            let requests = prepared.quota_request.iter().flat_map(|request| &request.quotas);
            let amounts = requests.map(|(name, params)| (name.as_str(), params.amount));
            quotas_text(amounts, &result.quotas)
        }
        Answer::Report => format!("reported, {} in one call\n", instances(prepared.instances.len())),
        Answer::Output(output) => output_text(Some(output)),
        Answer::CheckWithOutput(verdict, output) => format!("{verdict}{}", output_text(output.as_ref())),
    };
    let _ = writeln!(text, "took {} ms", millis(took));
    Ok(cli::print_verdict(&text)?)
}

fn instances(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}

fn output_text(output: Option<&prost_reflect::DynamicMessage>) -> String {
    let fields = output.map(answer::output_json).unwrap_or_default();
    let mut text = if fields.is_empty() { "no output\n".to_owned() } else { "output\n".to_owned() };
    for (name, value) in fields {
        let _ = writeln!(text, "  {name}: {value}");
    }
    text
}

pub(super) fn load(load: &Load, data: Option<DataFormat>) -> anyhow::Result<()> {
    if let Some(data) = data {
        return data.print(&load_json(load));
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
    for (outcome, count) in &load.outcomes {
        let _ = match outcome {
            Outcome::Answer(summary) => writeln!(text, "{:>10}  {summary}", count.calls),
            Outcome::Error(_) => {
                writeln!(text, "{:>10}  gRPC error {}: {}", count.calls, outcome.name(), count.message)
            }
        };
    }
    cli::print(&text)
}

fn load_json(load: &Load) -> Json {
    let latency = PERCENTILES.map(|(name, percent)| (name.to_owned(), load.percentile(percent).into()));
    let outcomes = load.outcomes.iter().map(|(outcome, count)| match outcome {
        Outcome::Answer(summary) => json!({ "answer": summary, "calls": count.calls }),
        Outcome::Error(_) => {
            json!({ "error": outcome.name(), "message": count.message, "calls": count.calls })
        }
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
