//! Names of status codes in gRPC's spelling, and bounds of details.

use std::borrow::Cow;

use prost::Message as _;

use crate::proto::Any;

/// Maximum size in bytes of the details of a status that a call fails with or that denies a request. They are sent in a header, and
/// peers limit the size of all headers to 8 KiB or more.
pub const MAX_DETAILS_SIZE: usize = 4 << 10;

/// Removes the details beyond a total of [`MAX_DETAILS_SIZE`], and returns how many.
pub fn limit_details(details: &mut Vec<Any>) -> u64 {
    let (before, mut size) = (details.len(), 0);
    details.retain(|detail| {
        let fits = size + detail.encoded_len() <= MAX_DETAILS_SIZE;
        if fits {
            size += detail.encoded_len();
        }
        fits
    });
    (before - details.len()) as u64
}

/// Returns the name of a code of `google.rpc.Code`, `PERMISSION_DENIED`; other numbers are written as Mixer does, `code 99`.
pub fn status_name(code: i32) -> Cow<'static, str> {
    match usize::try_from(code).ok().and_then(|code| NAMES.get(code)) {
        Some(name) => Cow::Borrowed(name),
        None => format!("code {code}").into(),
    }
}

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_that_do_not_fit_are_removed_and_smaller_ones_after_them_stay() {
        let detail = |size: usize| Any { type_url: "t/a".to_owned(), value: vec![0; size].into() };
        let mut details = vec![detail(100), detail(MAX_DETAILS_SIZE), detail(200)];
        assert_eq!(limit_details(&mut details), 1);
        assert_eq!(details, [detail(100), detail(200)]);
        assert_eq!(limit_details(&mut details), 0);
        assert!(details.iter().map(Any::encoded_len).sum::<usize>() <= MAX_DETAILS_SIZE);
    }
}
