//! Annotations of rules that limit the reuse of answers.

use std::time::Duration;

use crate::cache::CachePolicy;
use mixer_adapter_config::{Fault, Resource};
use mixer_adapter_core::value::parse_duration;

/// The prefix of this project's annotations.
const PREFIX: &str = "mixer-adapter/";

/// The maximum duration of validity of answers of the rule.
const MAX_AGE: &str = "mixer-adapter/cache-max-age";

/// The time after its expiry during which an answer of the rule may be used while a backend is down.
const STALE_IF_ERROR: &str = "mixer-adapter/cache-stale-if-error";

/// Maximum of [`STALE_IF_ERROR`].
const MAX_STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// An annotation that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum AnnotationError {
    #[error("there is no such annotation of rules; there are {MAX_AGE} and {STALE_IF_ERROR}")]
    Unknown,
    #[error("{0:?} is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"")]
    Syntax(String),
    #[error("{0:?} is longer than 24 hours")]
    TooLong(String),
}

impl From<AnnotationError> for Box<str> {
    fn from(error: AnnotationError) -> Self {
        error.to_string().into()
    }
}

/// Returns the policy of a rule. If an annotation is not valid, it is that of answers that are not reused.
pub(super) fn cache_policy(resource: &Resource, faults: &mut Vec<Fault>) -> CachePolicy {
    for name in resource.annotations.keys() {
        if name.starts_with(PREFIX) && name != MAX_AGE && name != STALE_IF_ERROR {
            faults.push(resource.annotation_error(name, AnnotationError::Unknown));
        }
    }
    let mut read = |name: &str, max: Duration, default: Duration| match resource.annotations.get(name) {
        None => default,
        Some(text) => parse(text, max).unwrap_or_else(|error| {
            faults.push(resource.annotation_error(name, error));
            Duration::ZERO
        }),
    };
    let CachePolicy { max_age, stale_if_error } = CachePolicy::OF_RULE;
    CachePolicy {
        max_age: read(MAX_AGE, Duration::MAX, max_age),
        stale_if_error: read(STALE_IF_ERROR, MAX_STALE, stale_if_error),
    }
}

fn parse(text: &str, max: Duration) -> Result<Duration, AnnotationError> {
    let nanos = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    let duration = nanos.map(Duration::from_nanos).ok_or_else(|| AnnotationError::Syntax(text.to_owned()))?;
    match duration > max {
        true => Err(AnnotationError::TooLong(text.to_owned())),
        false => Ok(duration),
    }
}
