//! Status codes of HTTP and gRPC.

/// Returns the HTTP status of a denial without a direct response, as Istio's proxy chose it
/// (docs/behaviour/envoy.md#http-status-of-a-denial).
pub(crate) fn http_status(code: i32) -> i32 {
    match code {
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}

/// Returns the status of a denied response that a client can be sent: Envoy sends any number, and a number below 200 or above
/// 599 is not a final response.
pub(crate) fn final_status(code: u32) -> i32 {
    i32::try_from(code).ok().filter(|code| (200..=599).contains(code)).unwrap_or(403)
}

/// Returns the code of gRPC for a denial: the code of an adapter may be any number, and 0 would be a success.
pub(crate) fn grpc_code(code: i32) -> i32 {
    match code {
        1..=16 => code,
        _ => 2,
    }
}
