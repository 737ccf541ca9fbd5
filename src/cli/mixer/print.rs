//! Answers of a Mixer for people, and for programs.

use std::process::ExitCode;

use serde_json::{Value as Json, json};
use tonic::Status;

use super::TimedAnswer;
use crate::{
    answer::{check_json, check_text},
    cli::{self, counted, millis, output_args::DataFormat, rpc_error::RpcError},
};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, ReportRequest, ReportResponse,
};

/// Prints the answer to a check, or the failure in its place.
pub(crate) fn print_check(
    request: &CheckRequest,
    asked: &TimedAnswer<CheckResponse>,
    data: Option<DataFormat>,
    failure: impl FnOnce(&Status) -> RpcError,
) -> anyhow::Result<ExitCode> {
    let text = |response: &CheckResponse| check_text(request, response);
    print(asked, data, text, check_json, failure)
}

/// Prints the answer to a report, or the failure in its place.
pub(crate) fn print_report(
    request: &ReportRequest,
    asked: &TimedAnswer<ReportResponse>,
    data: Option<DataFormat>,
    failure: impl FnOnce(&Status) -> RpcError,
) -> anyhow::Result<ExitCode> {
    let count = request.attributes.len();
    let text = |_: &ReportResponse| format!("reported {}\n", counted(count, "request"));
    print(asked, data, text, |_| json!({ "reported": count }), failure)
}

/// The answer to a check, or the failure in its place, for programs.
pub(crate) fn check_data(
    asked: &TimedAnswer<CheckResponse>,
    failure: impl FnOnce(&Status) -> RpcError,
) -> anyhow::Result<(Json, ExitCode)> {
    answer_data(asked, check_json, failure)
}

fn answer_data<Answer>(
    asked: &TimedAnswer<Answer>,
    json: impl FnOnce(&Answer) -> Json,
    failure: impl FnOnce(&Status) -> RpcError,
) -> anyhow::Result<(Json, ExitCode)> {
    let (mut json, code) = match &asked.answer {
        Ok(answer) => (json(answer), ExitCode::SUCCESS),
        Err(status) => (failure(status).to_json(), ExitCode::FAILURE),
    };
    json["took_ms"] = millis(asked.took).into();
    if let Some(trace) = &asked.trace {
        json["trace"] = serde_json::to_value(trace)?;
    }
    Ok((json, code))
}

fn print<Answer>(
    asked: &TimedAnswer<Answer>,
    data: Option<DataFormat>,
    text: impl FnOnce(&Answer) -> String,
    json: impl FnOnce(&Answer) -> Json,
    failure: impl FnOnce(&Status) -> RpcError,
) -> anyhow::Result<ExitCode> {
    if let Some(data) = data {
        let (json, code) = answer_data(asked, json, failure)?;
        data.print(&json)?;
        return Ok(code);
    }
    let trace = asked.trace.as_ref().map(|trace| format!("\n{trace}")).unwrap_or_default();
    match &asked.answer {
        Ok(answer) => {
            let answer = text(answer);
            cli::print_verdict(&format!("{answer}took {} ms\n{trace}", millis(asked.took)))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(status) => {
            cli::print(trace.trim_start())?;
            Err(failure(status).into())
        }
    }
}
