//! Requests as a client of the Mixer API sends them.

use super::compress::compress;
use mixer_adapter_engine::{
    attribute::ParsedAttributes,
    proto::istio::mixer::v1::{CheckRequest, ReportRequest, report_request::RepeatedAttributesSemantics},
};

/// A check of one request, without a deduplication id and quotas.
pub(crate) fn check_request(attributes: &ParsedAttributes, known_words: usize) -> CheckRequest {
    CheckRequest {
        attributes: Some(compress(attributes, known_words)),
        global_word_count: known_words as u32,
        ..CheckRequest::default()
    }
}

/// A report of several requests, each encoded independently of the others.
pub(crate) fn report_request(requests: &[ParsedAttributes], known_words: usize) -> ReportRequest {
    ReportRequest {
        attributes: requests.iter().map(|attributes| compress(attributes, known_words)).collect(),
        default_words: Vec::new(),
        global_word_count: known_words as u32,
        repeated_attributes_semantics: RepeatedAttributesSemantics::IndependentEncoding.into(),
    }
}
