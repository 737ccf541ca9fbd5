//! Explanations of the engine's answers: the gRPC service `mixer_adapter.v1.Explain`, and `/explain` on the admin port.

mod http;

use std::sync::Arc;

use tonic::Status;

use super::{
    limits::{admit_check, admit_report},
    mixer::{self, admission},
    rpc::{Rpc, limited_rpc},
};
use crate::answer::proto_status;
use mixer_adapter_engine::{
    Mixer,
    proto::{
        istio::mixer::v1::{CheckRequest, ReportRequest},
        mixer_adapter::v1::{CheckExplanation, ReportExplanation},
    },
    trace::Trace,
};
use mixer_adapter_host::handler::Caller;

pub(super) use http::{refusal, router};

pub(super) const SERVICE: &str = "mixer_adapter.v1.Explain";

pub(super) fn methods(mixer: &Arc<Mixer>) -> [(&'static str, Rpc); 2] {
    [
        ("/mixer_adapter.v1.Explain/Check", limited_rpc(mixer, admission(admit_check), check)),
        ("/mixer_adapter.v1.Explain/Report", limited_rpc(mixer, admission(admit_report), report)),
    ]
}

async fn check(
    mixer: Arc<Mixer>,
    request: Box<CheckRequest>,
    caller: Caller,
) -> Result<CheckExplanation, Status> {
    let trace = new_trace(&caller)?;
    let (answer, trace) = mixer::trace_check(&mixer, *request, caller, trace).await;
    let (response, error) = match answer {
        Ok(response) => (Some(response), None),
        Err(status) => (None, Some(proto_status(&status))),
    };
    Ok(CheckExplanation { response, error, trace: json(&trace)? })
}

async fn report(
    mixer: Arc<Mixer>,
    request: Box<ReportRequest>,
    caller: Caller,
) -> Result<ReportExplanation, Status> {
    let trace = new_trace(&caller)?;
    let (answer, trace) = mixer::trace_report(&mixer, *request, caller, trace).await;
    Ok(ReportExplanation { error: answer.err().map(|status| proto_status(&status)), trace: json(&trace)? })
}

/// The maximum size of the steps of an explanation as JSON in bytes: values of the request may occur in the steps of every rule.
const MAX_TRACE: usize = 1 << 20;

/// The memory of an explanation in bytes, about: its steps, and their JSON twice.
const TRACE_MEMORY: usize = 6 * MAX_TRACE;

/// Returns an empty trace, and takes its memory for the call.
fn new_trace(caller: &Caller) -> Result<Trace, Status> {
    match &caller.memory {
        Some(memory) if !memory.take(TRACE_MEMORY) => Err(Status::resource_exhausted(
            "no memory is left for an explanation (--memory-limit); try again",
        )),
        _ => Ok(Trace::with_limit(MAX_TRACE)),
    }
}

fn json(trace: &Trace) -> Result<String, Status> {
    serde_json::to_string(trace)
        .map_err(|error| Status::internal(format!("cannot encode the trace: {error}")))
}

#[cfg(test)]
mod tests {
    use mixer_adapter_net::grpc::{FREE_BYTES, StreamMemory};

    use super::*;

    #[test]
    fn an_explanation_takes_its_memory_from_that_of_the_server() {
        let within = |bytes| {
            let memory = StreamMemory::new(bytes - FREE_BYTES).for_message();
            Caller { memory: Some(memory), ..Caller::default() }
        };
        assert!(new_trace(&within(TRACE_MEMORY)).is_ok());
        let refused = new_trace(&within(TRACE_MEMORY - 1)).map_err(|status| status.code());
        assert_eq!(refused, Err(tonic::Code::ResourceExhausted));
    }
}
