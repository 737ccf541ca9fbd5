//! Requests to a Mixer, this program's or a real one, as a proxy sends them.

mod args;
mod commands;
mod print;

pub(super) use crate::service::mixer::report_request;
pub(super) use commands::{AmountArgs, Check, Quota, Report};
pub(super) use print::{check_data, print_check, print_report};

use std::time::Duration;

use tonic::Status;

use crate::service::mixer;
use mixer_adapter_engine::{
    attribute::ParsedAttributes, dictionary::WORDS, proto::istio::mixer::v1::CheckRequest, trace::Trace,
};

/// The answer to a request, and how long it took.
pub(super) struct TimedAnswer<Answer> {
    pub(super) answer: Result<Answer, Status>,
    /// The explanation, if it was requested and the server has one.
    pub(super) trace: Option<Trace>,
    pub(super) took: Duration,
}

/// A check of one request, with a deduplication id that no other check has.
pub(super) fn check_request(attributes: &ParsedAttributes, known_words: usize) -> CheckRequest {
    CheckRequest {
        deduplication_id: super::random_id().to_string(),
        ..mixer::check_request(attributes, known_words)
    }
}

/// The number of words in the global dictionary.
pub(super) fn all_words() -> usize {
    WORDS.len()
}
