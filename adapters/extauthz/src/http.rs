//! Services of HTTP.

use mixer_adapter_core::{
    Check, Code,
    adapter::{HeaderOperation, Http, HttpRequest, HttpResponse, is_framing_header},
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header},
};

use super::{
    decision::{client_response, deny},
    error::AskError,
    question::{DEPTH, Question},
};

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Asks as Envoy's `http_service` does: with the method and the path of the request.
pub(super) fn request(http: &Http, url: &str, question: &Question) -> Result<HttpRequest, AskError> {
    let path = &question.path;
    let url = format!("{}{path}", url.trim_end_matches('/'));
    // Another first character would be a part of the host.
    if !path.starts_with('/') || url.parse::<Uri>().is_err() {
        return Err(AskError::Path(path.clone()));
    }
    // A CONNECT has the host in place of the path.
    let method = Method::from_bytes(question.method.as_bytes()).ok();
    let method = method.filter(|method| *method != Method::CONNECT);
    let method = method.ok_or_else(|| AskError::Method(question.method.clone()))?;
    let request = with_headers(http.request(method, &url), question)?;
    Ok(if question.body.is_empty() { request } else { request.body(question.body.clone()) })
}

/// Asks as proxies with forward authentication do: with a GET of the URL.
pub(super) fn forward_request(http: &Http, url: &str, question: &Question) -> Result<HttpRequest, AskError> {
    if !question.body.is_empty() {
        return Err(AskError::Body("is not sent with FORWARD_AUTH"));
    }
    let request = with_headers(http.get(url), question)?;
    let request = with_header(request, FORWARDED_METHOD, &question.method)?;
    with_header(request, FORWARDED_URI, &question.path)
}

fn with_headers(mut request: HttpRequest, question: &Question) -> Result<HttpRequest, AskError> {
    for (name, value) in &question.headers {
        let valid = HeaderName::from_bytes(name.as_bytes()).ok();
        let valid = valid.filter(|name| !is_framing_header(name) && *name != header::HOST);
        request = with_header(request, valid.ok_or_else(|| AskError::Header(name.clone()))?, value)?;
    }
    if !question.host.is_empty() {
        request = with_header(request, FORWARDED_HOST, &question.host)?;
    }
    with_header(request, DEPTH, &question.depth.to_string())
}

fn with_header(request: HttpRequest, name: HeaderName, value: &str) -> Result<HttpRequest, AskError> {
    match HeaderValue::from_bytes(value.as_bytes()) {
        Ok(_) => Ok(request.header(name, value)),
        Err(_) => Err(AskError::Header(name.to_string())),
    }
}

/// Allows without an answer. The upstream receives no header with these names: the client's are not the service's.
pub(super) fn allowed_without_answer(upstream_headers: &[HeaderName]) -> Check {
    let request = upstream_headers.iter().map(|name| HeaderOperation::remove(name.as_str()));
    Check::allow().with_header_operations(request.collect(), Vec::new())
}

/// Reads an answer that allows. The upstream receives the headers with these names.
pub(super) fn allowed(answer: &HttpResponse, upstream_headers: &[HeaderName]) -> Check {
    let values = |name: &HeaderName| {
        let values =
            answer.headers().get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let operations = values.enumerate().map(|(index, value)| match index {
            0 => HeaderOperation::replace(name.as_str(), value),
            _ => HeaderOperation::append(name.as_str(), value),
        });
        operations.collect::<Vec<_>>()
    };
    let of_header = |name: &HeaderName| match values(name) {
        none if none.is_empty() => vec![HeaderOperation::remove(name.as_str())],
        some => some,
    };
    let request = upstream_headers.iter().flat_map(of_header).collect();
    Check::allow().with_header_operations(request, Vec::new())
}

/// Reads an answer that does not allow. Its client receives the headers with these names.
pub(super) fn denial(answer: HttpResponse, client_headers: &[HeaderName]) -> Result<Check, AskError> {
    let status = answer.status();
    if status.is_server_error() {
        return Err(answer.success().map_or_else(AskError::Http, |_| AskError::Undecided));
    }
    let code = match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        _ => Code::PermissionDenied,
    };
    let headers = client_headers.iter().flat_map(|name| {
        let values = answer.headers().get_all(name).iter();
        values.map(move |value| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    let body = String::from_utf8_lossy(answer.body());
    let response = client_response(status.as_u16().into(), headers, &body);
    Ok(deny(code as i32, "denied by the authorization service".to_owned(), Some(&response)))
}
