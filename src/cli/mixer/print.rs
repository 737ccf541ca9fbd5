//! Answers of a Mixer for people, and for programs.

use std::{process::ExitCode, time::Duration};

use serde_json::Value as Json;
use tonic::Status;

use crate::{
    answer::Rendered,
    cli::{self, millis, output_args::DataFormat, rpc_error::RpcError},
};
use mixer_adapter_engine::trace::Trace;

/// The answer to a request, and how long it took.
pub(crate) struct TimedAnswer {
    pub(crate) answer: Result<Rendered, Status>,
    /// The explanation, if it was requested and the server has one.
    pub(crate) trace: Option<Trace>,
    pub(crate) took: Duration,
}

impl TimedAnswer {
    /// Prints the answer, or the failure in its place.
    pub(crate) fn print(
        self,
        data: Option<DataFormat>,
        all: bool,
        failure: impl FnOnce(&Status) -> RpcError,
    ) -> anyhow::Result<ExitCode> {
        if let Some(data) = data {
            let (json, code) = self.to_json(failure)?;
            data.print(&json)?;
            return Ok(code);
        }
        let trace = self.trace.map(|trace| if all { trace.to_string() } else { trace.brief() });
        let trace = trace.map(|trace| format!("\n{trace}")).unwrap_or_default();
        match self.answer {
            Ok(Rendered { text, .. }) => {
                cli::print_verdict(&format!("{text}took {} ms\n{trace}", millis(self.took)))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(status) => {
                cli::print(trace.trim_start())?;
                Err(failure(&status).into())
            }
        }
    }

    /// Returns the answer, or the failure in its place, for programs.
    pub(crate) fn to_json(
        &self,
        failure: impl FnOnce(&Status) -> RpcError,
    ) -> anyhow::Result<(Json, ExitCode)> {
        let (mut json, code) = match &self.answer {
            Ok(answer) => (answer.json.clone(), ExitCode::SUCCESS),
            Err(status) => (failure(status).to_json(), ExitCode::FAILURE),
        };
        json["took_ms"] = millis(self.took).into();
        if let Some(trace) = &self.trace {
            json["trace"] = serde_json::to_value(trace)?;
        }
        Ok((json, code))
    }
}
