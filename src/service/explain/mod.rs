//! Explanations of the engine's answers: the gRPC service `mixer_adapter.v1.Explain`, and `/explain` on the admin port.

mod http;

use std::sync::Arc;

use tonic::Status;

use super::{
    limits::{admit_check, admit_report},
    mixer,
    rpc::{Rpc, limited_rpc},
};
use mixer_adapter_core::proto;
use mixer_adapter_engine::{
    Mixer,
    proto::mixer_adapter::v1::{CheckExplanation, ReportExplanation},
    trace::Trace,
};
use mixer_adapter_host::handler::details_of;

pub(super) use http::{refusal, router};

pub(super) const SERVICE: &str = "mixer_adapter.v1.Explain";

pub(super) fn methods(mixer: &Arc<Mixer>) -> [(&'static str, Rpc); 2] {
    let checks = mixer.clone();
    let reports = mixer.clone();
    [
        (
            "/mixer_adapter.v1.Explain/Check",
            limited_rpc(mixer::admission(mixer, admit_check), move |request, caller| {
                let mixer = checks.clone();
                async move {
                    let (answer, trace) = mixer::explain_check(&mixer, request, caller).await;
                    let (response, error) = match answer {
                        Ok(response) => (Some(response), None),
                        Err(status) => (None, Some(written(&status))),
                    };
                    Ok(CheckExplanation { response, error, trace: json(&trace)? })
                }
            }),
        ),
        (
            "/mixer_adapter.v1.Explain/Report",
            limited_rpc(mixer::admission(mixer, admit_report), move |request, caller| {
                let mixer = reports.clone();
                async move {
                    let (answer, trace) = mixer::explain_report(&mixer, request, caller).await;
                    let error = answer.err().map(|status| written(&status));
                    Ok(ReportExplanation { error, trace: json(&trace)? })
                }
            }),
        ),
    ]
}

fn json(trace: &Trace) -> Result<String, Status> {
    serde_json::to_string(trace)
        .map_err(|error| Status::internal(format!("cannot encode the trace: {error}")))
}

/// A gRPC error as a message.
fn written(status: &Status) -> proto::Status {
    proto::Status {
        code: status.code() as i32,
        message: status.message().to_owned(),
        details: details_of(status),
    }
}
