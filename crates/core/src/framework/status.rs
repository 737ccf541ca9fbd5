//! Names of status codes in gRPC's spelling.

use std::borrow::Cow;

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
