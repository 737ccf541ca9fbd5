//! Asks a Mixer, ours or a real one, as a proxy does.

mod check;
mod print;
mod quota;
mod report;
mod server;

pub(super) use check::{Check, EXAMPLES as CHECK_EXAMPLES};
pub(super) use print::{print_check, print_report};
pub(super) use quota::{Amount, EXAMPLES as QUOTA_EXAMPLES, Quota};
pub(super) use report::{EXAMPLES as REPORT_EXAMPLES, Report};

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use tonic::Status;

use crate::service::mixer::compress;
use mixer_adapter_engine::{
    attribute::Written,
    dictionary::WORDS,
    proto::istio::mixer::v1::{CheckRequest, ReportRequest, report_request::RepeatedAttributesSemantics},
    trace::Trace,
};

/// What came of a question.
pub(super) struct Asked<Answer> {
    pub(super) answer: Result<Answer, Status>,
    /// What led to the answer, where that was asked for and can be told.
    pub(super) trace: Option<Trace>,
    pub(super) took: Duration,
}

/// A check of one request.
pub(super) fn check_request(attributes: &Written, known_words: usize) -> CheckRequest {
    CheckRequest {
        attributes: Some(compress(pairs(attributes), known_words)),
        global_word_count: known_words as u32,
        // The keys of std's hash maps are random; nothing here needs a generator of random numbers.
        deduplication_id: RandomState::new().build_hasher().finish().to_string(),
        quotas: Default::default(),
    }
}

/// A report of several requests, each of which stands for itself.
pub(super) fn report_request(requests: &[Written], known_words: usize) -> ReportRequest {
    ReportRequest {
        attributes: requests.iter().map(|request| compress(pairs(request), known_words)).collect(),
        default_words: Vec::new(),
        global_word_count: known_words as u32,
        repeated_attributes_semantics: RepeatedAttributesSemantics::IndependentEncoding.into(),
    }
}

/// How many words of the global dictionary there are.
pub(super) fn all_words() -> usize {
    WORDS.len()
}

fn pairs(
    written: &Written,
) -> impl Iterator<Item = (&str, &mixer_adapter_engine::attribute::AttributeValue)> {
    written.iter().map(|(name, value)| (name.as_str(), value))
}
