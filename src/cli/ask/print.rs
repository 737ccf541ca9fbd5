//! Answers of a Mixer for people, and for programs.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use serde_json::{Value as Json, json};
use tonic::Status;

use super::Asked;
use crate::{
    cli::{self, failure::Failure},
    service::mixer::{check_json, referenced},
};
use mixer_adapter_core::{status::status_name, value};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, HeaderOperation, ReportRequest, ReportResponse, RouteDirective,
    check_response::PreconditionResult, header_operation::Operation,
};

/// Prints the answer to a check, or the failure in its place.
pub(crate) fn print_check(
    request: &CheckRequest,
    asked: &Asked<CheckResponse>,
    as_json: bool,
    failure: impl FnOnce(&Status) -> Failure,
) -> anyhow::Result<ExitCode> {
    let text = |response: &CheckResponse| check_text(request, response);
    print(asked, as_json, text, check_json, failure)
}

/// Prints the answer to a report, or the failure in its place.
pub(crate) fn print_report(
    request: &ReportRequest,
    asked: &Asked<ReportResponse>,
    as_json: bool,
    failure: impl FnOnce(&Status) -> Failure,
) -> anyhow::Result<ExitCode> {
    let count = request.attributes.len();
    let text = |_: &ReportResponse| match count {
        1 => "reported 1 request\n".to_owned(),
        count => format!("reported {count} requests\n"),
    };
    print(asked, as_json, text, |_| json!({ "reported": count }), failure)
}

fn print<Answer>(
    asked: &Asked<Answer>,
    as_json: bool,
    text: impl FnOnce(&Answer) -> String,
    json: impl FnOnce(&Answer) -> Json,
    failure: impl FnOnce(&Status) -> Failure,
) -> anyhow::Result<ExitCode> {
    if as_json {
        let (mut json, code) = match &asked.answer {
            Ok(answer) => (json(answer), ExitCode::SUCCESS),
            Err(status) => (failure(status).to_json(), ExitCode::FAILURE),
        };
        json["took_ms"] = millis(asked.took).into();
        if let Some(trace) = &asked.trace {
            json["trace"] = serde_json::to_value(trace)?;
        }
        cli::print_json(&json)?;
        return Ok(code);
    }
    let trace = asked.trace.as_ref().map(|trace| format!("\n{trace}")).unwrap_or_default();
    match &asked.answer {
        Ok(answer) => {
            let answer = text(answer);
            cli::print(&format!("{answer}took {} ms\n{trace}", millis(asked.took)))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(status) => {
            cli::print(trace.trim_start())?;
            Err(failure(status).into())
        }
    }
}

fn check_text(request: &CheckRequest, response: &CheckResponse) -> String {
    let mut text = match &response.precondition {
        Some(precondition) => precondition_text(precondition),
        None => "an answer without a result of the check\n".to_owned(),
    };
    for (name, asked) in &request.quotas {
        let _ = match response.quotas.get(name) {
            Some(quota) => writeln!(
                text,
                "quota {name}: granted {} of {}, valid for {}",
                quota.granted_amount,
                asked.amount,
                duration(quota.valid_duration),
            ),
            None => writeln!(text, "quota {name}: not in the answer, so nothing is granted"),
        };
    }
    text
}

fn precondition_text(precondition: &PreconditionResult) -> String {
    let status = precondition.status.clone().unwrap_or_default();
    let mut text = match (status.code, status.message.as_str()) {
        (0, "") => "allowed\n".to_owned(),
        (0, message) => format!("allowed: {message}\n"),
        (code, "") => format!("denied: {}\n", status_name(code)),
        (code, message) => format!("denied: {}: {message}\n", status_name(code)),
    };
    let duration = duration(precondition.valid_duration);
    let _ = match precondition.valid_use_count {
        uses if uses < 0 => writeln!(text, "valid for {duration}, any number of uses"),
        uses => writeln!(text, "valid for {duration} or {uses} uses"),
    };
    let references = precondition.referenced_attributes.as_ref().map(referenced).unwrap_or_default();
    if !references.is_empty() {
        text.push_str("referenced attributes\n");
    }
    for (name, key, condition) in references {
        let key = key.map(|key| format!("[{key}]")).unwrap_or_default();
        let _ = writeln!(text, "  {name}{key} {}", condition.to_lowercase());
    }
    if let Some(directive) = &precondition.route_directive {
        directive_text(directive, &mut text);
    }
    text
}

fn directive_text(directive: &RouteDirective, text: &mut String) {
    text.push_str("route directive\n");
    if directive.direct_response_code != 0 {
        let (code, body) = (directive.direct_response_code, &directive.direct_response_body);
        let _ = writeln!(text, "  answer with {code} {body:?}");
    }
    let mut operations = |of: &str, operations: &[HeaderOperation]| {
        for operation in operations {
            let HeaderOperation { name, value, .. } = operation;
            let _ = match operation.operation() {
                Operation::Replace => writeln!(text, "  {of} header {name} set to {value:?}"),
                Operation::Append => writeln!(text, "  {of} header {name} gets {value:?} added"),
                Operation::Remove => writeln!(text, "  {of} header {name} removed"),
            };
        }
    };
    operations("request", &directive.request_header_operations);
    operations("response", &directive.response_header_operations);
}

fn duration(duration: Option<prost_types::Duration>) -> String {
    value::Duration { value: duration }.to_string()
}

fn millis(took: Duration) -> f64 {
    took.as_micros() as f64 / 1000.0
}
