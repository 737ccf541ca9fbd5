//! Log entries and spans as messages of the protocol.

use std::time::SystemTime;

use mixer_adapter_core::value::{TimeStamp, Value};
use mixer_adapter_telemetry::otlp::{
    KeyValue, attribute,
    message::{AnyValue, LogRecord, Span, Status},
    unix_nanos,
};
use mixer_adapter_templates::{logentry, tracespan};

/// The variables that are not attributes.
const MESSAGE: &str = "message";
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";

/// Derives the id of a client's span from the id that it shares with the server, as the original adapters do.
const CLIENT_SPAN: u64 = 0x3f6a_2ec3_c810_c2ab;

/// An id of a span instance that is not one.
#[derive(Debug, thiserror::Error)]
#[error("{instance}: the {field} {text:?} does not have up to {digits} hexadecimal digits")]
pub(super) struct IdError {
    instance: String,
    field: &'static str,
    text: String,
    digits: usize,
}

/// Makes a log record of an entry, with the attributes of its variables.
pub(super) fn log_record(entry: &logentry::InstanceMsg, attributes: Vec<KeyValue>) -> LogRecord {
    let text = |name: &str| entry.variables.get(name).and_then(Value::as_str).unwrap_or_default();
    let trace_id = parse_id(text(TRACE_ID), 32).filter(|id| *id != 0);
    let span_id = parse_id(text(SPAN_ID), 16).and_then(|id| u64::try_from(id).ok()).filter(|id| *id != 0);
    let is_attribute = |name: &str| match name {
        MESSAGE => false,
        TRACE_ID => trace_id.is_none(),
        SPAN_ID => span_id.is_none(),
        _ => true,
    };
    LogRecord {
        time_unix_nano: nanos(entry.timestamp.as_ref()),
        severity_number: severity_number(&entry.severity),
        severity_text: entry.severity.clone(),
        body: entry.variables.get(MESSAGE).map(AnyValue::from),
        attributes: attributes.into_iter().filter(|pair| is_attribute(&pair.key)).collect(),
        trace_id: trace_id.map_or_else(Vec::new, |id| id.to_be_bytes().into()),
        span_id: span_id.map_or_else(Vec::new, |id| id.to_be_bytes().into()),
        observed_time_unix_nano: unix_nanos(SystemTime::now()),
        event_name: entry.name.clone(),
    }
}

/// Returns the number of a severity by its usual names; 0 for others.
fn severity_number(severity: &str) -> i32 {
    match &*severity.to_ascii_lowercase() {
        "trace" => 1,
        "debug" => 5,
        "info" | "information" | "default" => 9,
        "notice" => 10,
        "warn" | "warning" => 13,
        "err" | "error" => 17,
        "crit" | "critical" => 18,
        "alert" => 19,
        "fatal" | "emerg" | "emergency" => 21,
        _ => 0,
    }
}

/// Makes a span of an instance, with the attributes of its tags. An instance without a trace or an id is not a span.
pub(super) fn span(
    instance: &tracespan::InstanceMsg,
    mut attributes: Vec<KeyValue>,
) -> Result<Option<Span>, IdError> {
    let id = |field, text: &str, digits| match parse_id(text, digits) {
        Some(id) => Ok(id),
        None => Err(IdError { instance: instance.name.clone(), field, text: text.to_owned(), digits }),
    };
    let trace_id = id("trace_id", &instance.trace_id, 32)?;
    let [mut span_id, mut parent_id] =
        [id("span_id", &instance.span_id, 16)?, id("parent_span_id", &instance.parent_span_id, 16)?]
            .map(|id| u64::try_from(id).unwrap_or_default());
    if trace_id == 0 || span_id == 0 {
        return Ok(None);
    }
    match (instance.rewrite_client_span_id, instance.client_span) {
        (true, true) => span_id ^= CLIENT_SPAN,
        (true, false) => parent_id = span_id ^ CLIENT_SPAN,
        (false, _) => {}
    }
    let [source, destination] = [&instance.source_ip, &instance.destination_ip]
        .map(|ip| ip.as_ref().and_then(|ip| ip.addr()).map(|ip| ip.to_string()).unwrap_or_default());
    let texts = [
        ("source.name", instance.source_name.clone()),
        ("source.address", source),
        ("destination.name", instance.destination_name.clone()),
        ("destination.address", destination),
        ("api.protocol", instance.api_protocol.clone()),
    ];
    let texts = texts.iter().filter(|(_, text)| !text.is_empty());
    attributes.extend(texts.map(|(name, text)| attribute(name, text.as_str())));
    let numbers = [
        ("http.response.status_code", instance.http_status_code),
        ("http.request.body.size", instance.request_size),
        ("http.request.size", instance.request_total_size),
        ("http.response.body.size", instance.response_size),
        ("http.response.size", instance.response_total_size),
    ];
    let numbers = numbers.iter().filter(|(_, number)| *number != 0);
    attributes.extend(numbers.map(|(name, number)| attribute(name, *number)));
    // By the conventions for HTTP, a span of the server does not fail with an error of the client.
    let is_error = instance.http_status_code >= if instance.client_span { 400 } else { 500 };
    Ok(Some(Span {
        trace_id: trace_id.to_be_bytes().into(),
        span_id: span_id.to_be_bytes().into(),
        parent_span_id: if parent_id == 0 { Vec::new() } else { parent_id.to_be_bytes().into() },
        name: instance.span_name.clone(),
        kind: if instance.client_span { Span::CLIENT } else { Span::SERVER },
        start_time_unix_nano: nanos(instance.start_time.as_ref()),
        end_time_unix_nano: nanos(instance.end_time.as_ref()),
        attributes,
        status: is_error.then_some(Status { code: Status::ERROR }),
        flags: Span::SAMPLED,
    }))
}

/// Reads an id of up to `digits` hexadecimal digits; an empty one is 0.
fn parse_id(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).unwrap_or_default())
}

fn nanos(time: Option<&TimeStamp>) -> u64 {
    time.and_then(TimeStamp::get).map_or(0, unix_nanos)
}
