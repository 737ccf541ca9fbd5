//! Requests to a Mixer, this program's or a real one, as a proxy sends them.

mod args;
mod check;
mod print;
mod quota;
mod report;

pub(super) use crate::service::mixer::report_request;
pub(super) use check::{Check, EXAMPLES as CHECK_EXAMPLES};
pub(super) use print::{check_data, print_check, print_report};
pub(super) use quota::{AmountArgs, EXAMPLES as QUOTA_EXAMPLES, Quota};
pub(super) use report::{EXAMPLES as REPORT_EXAMPLES, Report};

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

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
        // The keys of std's hash maps are random, which is enough for an id.
        deduplication_id: RandomState::new().build_hasher().finish().to_string(),
        ..mixer::check_request(attributes, known_words)
    }
}

/// The number of words in the global dictionary.
pub(super) fn all_words() -> usize {
    WORDS.len()
}
