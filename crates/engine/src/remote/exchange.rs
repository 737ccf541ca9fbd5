//! One unary gRPC call over HTTP/2: the request's head and frame, the answer's frame and status.
//!
//! tonic's client is not used here: its timeouts are CANCELLED, its limit on sizes is OUT_OF_RANGE, it panics on malformed status
//! details, and it does not distinguish failed calls that the server never began to process.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, engine};
use bytes::Bytes;
use h2::Reason;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_TYPE, TE, USER_AGENT},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http2::SendRequest},
};
use tonic::{Code, Status};

use mixer_adapter_net::grpc::{FrameError, TraceParent, UnaryMessage, timeout_header};

/// Sends requests on one connection.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) http: SendRequest<Full<Bytes>>,
    /// Set when a request on the connection is answered.
    pub(super) answered: Arc<AtomicBool>,
}

impl Sender {
    pub(super) fn new(http: SendRequest<Full<Bytes>>) -> Self {
        Self { http, answered: Arc::default() }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let answer = self.http.try_send_request(request).await.map_err(ExchangeError::of)?;
        // Not written each time: the connection's callers share it.
        if !self.answered.load(Relaxed) {
            self.answered.store(true, Relaxed);
        }
        Ok(answer)
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const OURS: HeaderValue = HeaderValue::from_static(concat!("mixer-adapter/", env!("CARGO_PKG_VERSION")));

/// The server of requests.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
}

/// Makes a request of a framed message. `token` is the header that authenticates the caller, `trace` the trace that the call is part of.
pub(super) fn request(
    origin: &Origin,
    path: &PathAndQuery,
    frame: Bytes,
    timeout: Option<Duration>,
    token: Option<(HeaderName, HeaderValue)>,
    trace: Option<TraceParent>,
) -> Result<Request<Full<Bytes>>, Status> {
    let uri = Uri::builder()
        .scheme(origin.scheme.clone())
        .authority(origin.authority.clone())
        .path_and_query(path.clone())
        .build()
        .map_err(|error| Status::internal(format!("{path} cannot be called: {error}")))?;
    let mut request = Request::new(Full::new(frame));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(TE, TRAILERS);
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(USER_AGENT, OURS);
    if let Some(timeout) = timeout {
        headers.insert("grpc-timeout", timeout_header(timeout));
    }
    if let Some(trace) = trace.and_then(|trace| HeaderValue::from_str(&trace.to_string()).ok()) {
        headers.insert("traceparent", trace);
    }
    headers.extend(token);
    Ok(request)
}

/// A request without an answer.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The adapter has not begun to process it: it may be sent again.
    Unprocessed(Status),
    /// The adapter may have processed it.
    Lost(Status),
}

impl ExchangeError {
    fn of(mut error: TrySendError<Request<Full<Bytes>>>) -> Self {
        let unsent = error.take_message().is_some();
        let error = error.into_error();
        let status = broken(&error);
        // A server must send this for streams that it has not begun to process (RFC 9113, sections 6.8 and 8.7).
        let refused = h2_error(&error).is_some_and(|error| match error.reason() {
            Some(Reason::REFUSED_STREAM) => error.is_remote() && error.is_reset(),
            Some(Reason::NO_ERROR) => error.is_remote() && error.is_go_away(),
            _ => false,
        });
        if unsent || refused { Self::Unprocessed(status) } else { Self::Lost(status) }
    }
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

/// The status for a broken stream or connection (gRPC over HTTP/2, "Errors").
fn broken(error: &hyper::Error) -> Status {
    let reset = h2_error(error);
    let reason = reset.filter(|error| error.is_reset()).and_then(h2::Error::reason);
    let code = match reason {
        None | Some(Reason::REFUSED_STREAM) => Code::Unavailable,
        Some(Reason::CANCEL) => Code::Cancelled,
        Some(Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
        Some(Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
        Some(_) => Code::Internal,
    };
    let what = if reason.is_some() { "call" } else { "connection to the adapter" };
    let why = reset.map_or_else(|| error.to_string(), ToString::to_string);
    Status::new(code, format!("the {what} was broken off: {why}"))
}

/// Maximum size of a response in bytes; a larger one is RESOURCE_EXHAUSTED.
const MAX_RESPONSE: usize = 4 << 20;

/// Reads the message of an answer that ends in OK; any other answer is the error.
pub(super) async fn answer(response: Response<Incoming>) -> Result<Bytes, Status> {
    let (head, mut body) = response.into_parts();
    if let Some(status) = status(&head.headers) {
        return Err(unless_ok(status).unwrap_or_else(|| unreadable(FrameError::Missing)));
    }
    check_head(head.status, &head.headers)?;
    let mut message = UnaryMessage::new(MAX_RESPONSE);
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| broken(&error))?.into_data() {
            Ok(data) => message.push(data).map_err(unreadable)?,
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let Some(status) = trailers.as_ref().and_then(status) else {
        return Err(Status::unknown(
            "the answer ended without a status: it may have been cut off on its way",
        ));
    };
    match unless_ok(status) {
        Some(status) => Err(status),
        None => message.finish().map_err(unreadable),
    }
}

fn unless_ok(status: Status) -> Option<Status> {
    (status.code() != Code::Ok).then_some(status)
}

fn unreadable(error: FrameError) -> Status {
    let code = match error {
        FrameError::TooLong { .. } => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    Status::new(code, format!("the answer cannot be read: {error}"))
}

/// Checks that an answer without a status in its head is gRPC.
fn check_head(code: StatusCode, headers: &HeaderMap) -> Result<(), Status> {
    if code != StatusCode::OK {
        let meant = match code {
            StatusCode::BAD_REQUEST => Code::Internal,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::Unimplemented,
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
            _ => Code::Unknown,
        };
        return Err(Status::new(meant, format!("the answer is HTTP {code}, not gRPC")));
    }
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if !content_type.starts_with(b"application/grpc") {
        let content_type = String::from_utf8_lossy(content_type);
        return Err(Status::unknown(format!(
            "the answer has content-type {content_type:?}, not application/grpc"
        )));
    }
    Ok(())
}

/// Reads the status from an answer's trailers, or from the head of an answer without trailers.
fn status(headers: &HeaderMap) -> Option<Status> {
    let number = headers.get("grpc-status")?.to_str().unwrap_or_default();
    let text = headers.get("grpc-message").map_or(&b""[..], HeaderValue::as_bytes);
    let text = percent_encoding::percent_decode(text).decode_utf8_lossy();
    let code = match number.parse() {
        Ok(number) => Code::from_i32(number),
        Err(_) => return Some(Status::unknown(format!("grpc-status {number:?} is not a number; {text}"))),
    };
    // Unreadable details do not make the status unusable.
    let details = headers.get("grpc-status-details-bin").and_then(|details| BASE64.decode(details).ok());
    Some(Status::with_details(code, text, details.unwrap_or_default().into()))
}

/// Padded or not: gRPC allows both.
const BASE64: engine::GeneralPurpose = engine::GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    engine::GeneralPurposeConfig::new().with_decode_padding_mode(engine::DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&'static [u8]]) -> Result<Bytes, Code> {
        let mut message = UnaryMessage::new(8);
        let pushed = pieces.iter().try_for_each(|piece| message.push(Bytes::from_static(piece)));
        pushed.and_then(|()| message.finish()).map_err(|error| unreadable(error).code())
    }

    #[test]
    fn a_message_arrives_in_one_piece_or_in_many() {
        assert_eq!(read(&[b"\0\0\0\0\x03abc"]), Ok("abc".into()));
        assert_eq!(read(&[b"\0\0\0\0\0"]), Ok("".into()));
        assert_eq!(read(&[b"\0\0", b"\0\0\x03a", b"", b"b", b"c"]), Ok("abc".into()));
    }

    #[test]
    fn broken_messages_are_internal_errors_and_long_ones_exceed_the_limit() {
        for pieces in [
            &[][..],
            &[&b"\0\0"[..]],
            &[b"\0\0\0\0\x03ab"],
            &[b"\0\0\0\0\x03abcd"],
            &[b"\0\0\0\0\x03abc", b"\0\0\0\0\0"],
            &[b"\x01\0\0\0\x01a"],
            &[b"\x07\0\0\0\x01a"],
        ] {
            assert_eq!(read(pieces), Err(Code::Internal), "{pieces:?}");
        }
        assert_eq!(read(&[b"\0\0\0\0\x09"]), Err(Code::ResourceExhausted));
    }

    fn status_of(headers: &[(&'static str, &'static str)]) -> Option<Status> {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().ok(), HeaderValue::from_static(value)));
        status(&headers.filter_map(|(name, value)| Some((name?, value))).collect())
    }

    #[test]
    fn a_status_has_a_code_a_text_and_details() {
        let status = status_of(&[
            ("grpc-status", "7"),
            ("grpc-message", "not%20today%2C%20%C3%BC"),
            ("grpc-status-details-bin", "CAc"),
        ]);
        let status = status.unwrap_or_else(|| Status::ok(""));
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "not today, ü"));
        assert_eq!(status.details(), [8, 7]);
        assert!(status_of(&[("grpc-message", "x")]).is_none());
    }

    #[test]
    fn a_malformed_status_is_still_a_status() {
        for (headers, code) in [
            ([("grpc-status", "x"), ("grpc-message", "")], Code::Unknown),
            ([("grpc-status", "99"), ("grpc-message", "%zz%ff")], Code::Unknown),
            ([("grpc-status", "5"), ("grpc-status-details-bin", "!")], Code::NotFound),
        ] {
            assert_eq!(status_of(&headers).map(|status| status.code()), Some(code), "{headers:?}");
        }
    }
}
