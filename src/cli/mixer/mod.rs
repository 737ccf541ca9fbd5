//! Requests to a Mixer, this program's or a real one, as a proxy sends them.

mod args;
mod commands;
mod print;

pub(super) use crate::service::mixer::report_request;
pub(super) use commands::{AmountArgs, Check, Quota, Report};
pub(super) use print::TimedAnswer;

use serde_json::json;

use crate::{answer::Rendered, random::random_id, service::mixer};
use mixer_adapter_engine::{
    attribute::ParsedAttributes,
    dictionary::WORDS,
    proto::istio::mixer::v1::{CheckRequest, ReportRequest},
};

/// Renders the answer to a report.
pub(super) fn reported(request: &ReportRequest) -> Rendered {
    let count = request.attributes.len();
    Rendered {
        text: format!("reported {}\n", super::counted(count, "request")),
        json: json!({ "reported": count }),
    }
}

/// A check of one request, with a deduplication id that no other check has.
pub(super) fn check_request(attributes: &ParsedAttributes, known_words: usize) -> CheckRequest {
    CheckRequest {
        deduplication_id: random_id().to_string(),
        ..mixer::check_request(attributes, known_words)
    }
}

/// The number of words in the global dictionary.
pub(super) fn all_words() -> usize {
    WORDS.len()
}
