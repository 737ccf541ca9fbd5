//! Our answers in the form in which the others were recorded.

use super::referenced::referenced_attributes;
use mixer_adapter::{prost_types::Duration, tonic::Status};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckResponse, HeaderOperation, ReferencedAttributes};

use super::case::{Answer, Quota, Route};

/// The answer to a Check.
pub(crate) fn checked(answer: Result<CheckResponse, Status>) -> Answer {
    let response = match answer {
        Ok(response) => response,
        Err(status) => return failed(&status),
    };
    let precondition = response.precondition.unwrap_or_default();
    let status = precondition.status.unwrap_or_default();
    let directive = precondition.route_directive.unwrap_or_default();
    let operations = |operations: Vec<HeaderOperation>| {
        operations
            .into_iter()
            .map(|operation| (operation.name, operation.value, operation.operation))
            .collect()
    };
    let quotas = response.quotas.into_iter().map(|(name, result)| {
        let quota = Quota {
            granted: result.granted_amount,
            duration: nanos(result.valid_duration),
            refs: references(result.referenced_attributes),
            status: result.status.map_or(0, |status| status.code),
        };
        (name, quota)
    });
    Answer {
        code: status_name(0).into_owned(),
        status: status.code,
        message: status.message,
        duration: nanos(precondition.valid_duration),
        uses: precondition.valid_use_count,
        refs: references(precondition.referenced_attributes),
        route: Route {
            request: operations(directive.request_header_operations),
            response: operations(directive.response_header_operations),
            direct: (directive.direct_response_code, directive.direct_response_body),
        },
        quotas: quotas.collect(),
    }
}

/// The answer to a Report.
pub(crate) fn reported<R>(answer: Result<R, Status>) -> Answer {
    match answer {
        Ok(_) => Answer { code: status_name(0).into_owned(), ..Answer::default() },
        Err(status) => failed(&status),
    }
}

fn failed(status: &Status) -> Answer {
    Answer { code: status_name(status.code() as i32).into_owned(), ..Answer::default() }
}

fn nanos(duration: Option<Duration>) -> i128 {
    let duration = duration.unwrap_or_default();
    i128::from(duration.seconds) * 1_000_000_000 + i128::from(duration.nanos)
}

fn references(answered: Option<ReferencedAttributes>) -> Vec<String> {
    referenced_attributes(&answered.unwrap_or_default())
}
