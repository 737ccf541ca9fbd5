//! Status codes by name, as gRPC writes them.

use std::borrow::Cow;

/// A code of `google.rpc.Code` by name, `PERMISSION_DENIED`; any other number as Mixer writes it, `code 99`.
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
