#![allow(clippy::unwrap_used)]

mod caddy;
mod grpc;
mod headers;
mod http;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, Uri},
    response::{IntoResponse, Response as HttpAnswer},
};
use mixer_adapter::testing::{FakeHandler, FakeMixer};
use mixer_adapter_core::{DirectHttpResponse, prost::Message as _, proto::Status, value::Value};
use mixer_adapter_envoy::proto::envoy::{
    config::core::v3::{HeaderValue, HeaderValueOption},
    service::auth::v3::{
        CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
        authorization_server::{Authorization as EnvoyAuthorization, AuthorizationServer},
        check_response::HttpResponse,
    },
    r#type::v3::HttpStatus,
};
use mixer_adapter_templates::authorization::{ActionMsg, InstanceMsg, SubjectMsg};
use tokio::{io::AsyncReadExt as _, net::TcpListener};
use tonic::transport::{Server, server::TcpIncoming};

use super::*;

mixer_adapter::testing::compliance!(
    ExtAuthz,
    config("url: http://127.0.0.1:9"),
    refuses("url", "{}"),
    refuses("url", "url: grpc://127.0.0.1:9"),
    refuses("url", "{url: 'http://127.0.0.1:9/?a=b', protocol: HTTP}"),
    refuses("token_file", "{url: 'http://authz.example.com', token_file: config.proto}"),
    refuses("ca_file", "{url: 'http://127.0.0.1:9', ca_file: config.proto}"),
    refuses("upstream_headers[0]", "{url: 'http://127.0.0.1:9', protocol: HTTP, upstream_headers: [Host]}"),
    refuses("upstream_headers", "{url: 'http://127.0.0.1:9', upstream_headers: [x-user]}"),
    refuses("timeout", "{url: 'http://127.0.0.1:9', timeout: 11s}"),
    refuses("max_concurrent_calls", "{url: 'http://127.0.0.1:9', max_concurrent_calls: -1}"),
    refuses("client_headers[1]", "{url: 'http://127.0.0.1:9', client_headers: [location, 'a b']}")
);

const NO_DECISION: &str = "the authorization service made no decision";

fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, Value> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A request for `/todos?done=1` with these headers.
fn instance(headers: &[(&str, &str)]) -> InstanceMsg {
    InstanceMsg {
        subject: Some(SubjectMsg {
            user: "alice".into(),
            groups: "admin".into(),
            properties: properties(&[("tenant", "shop"), ("absent", "")]),
        }),
        action: Some(ActionMsg {
            service: "todo.example.com".into(),
            method: "PUT".into(),
            path: "/todos?done=1".into(),
            properties: properties(headers),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn handler(url: &str, settings: &str) -> FakeHandler {
    FakeMixer::with::<ExtAuthz>().params(&*format!("{{url: '{url}', {settings}}}"))
}

async fn check(handler: &FakeHandler) -> Check {
    handler.call::<Authorization>(instance(&[])).await.expect_ok().clone().into()
}

/// The response to the client of a denial.
fn response(check: &Check) -> DirectHttpResponse {
    DirectHttpResponse::decode(check.details()[0].value.clone()).unwrap()
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

async fn unused_url() -> String {
    listener().await.1
}

/// An authorization server of gRPC, which records its calls.
#[derive(Clone, Default)]
struct GrpcService {
    answer: Arc<Mutex<Option<Result<CheckResponse, tonic::Status>>>>,
    received: Arc<Mutex<Vec<tonic::Request<CheckRequest>>>>,
    open: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
    delay: Duration,
}

#[tonic::async_trait]
impl EnvoyAuthorization for GrpcService {
    async fn check(
        &self,
        request: tonic::Request<CheckRequest>,
    ) -> Result<tonic::Response<CheckResponse>, tonic::Status> {
        self.most_open.fetch_max(self.open.fetch_add(1, SeqCst) + 1, SeqCst);
        tokio::time::sleep(self.delay).await;
        self.open.fetch_sub(1, SeqCst);
        self.received.lock().unwrap().push(request);
        let answer = self.answer.lock().unwrap().clone();
        answer.unwrap_or_else(|| Ok(allowed())).map(tonic::Response::new)
    }
}

impl GrpcService {
    async fn start(&self) -> String {
        let (listener, url) = listener().await;
        tokio::spawn(self.clone().serve(listener));
        url
    }

    async fn serve(self, listener: TcpListener) {
        let server = Server::builder().add_service(AuthorizationServer::new(self));
        server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
    }

    fn set(&self, answer: Result<CheckResponse, tonic::Status>) {
        *self.answer.lock().unwrap() = Some(answer);
    }
}

fn status(code: i32, message: &str) -> Option<Status> {
    Some(Status { code, message: message.to_owned(), details: Vec::new() })
}

fn allowed() -> CheckResponse {
    let response = Some(HttpResponse::OkResponse(OkHttpResponse::default()));
    CheckResponse { status: status(0, ""), http_response: response, ..CheckResponse::default() }
}

fn denied(code: i32) -> CheckResponse {
    let header = |key: &str, value: &str| HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), value: value.to_owned(), ..HeaderValue::default() }),
        ..HeaderValueOption::default()
    };
    let response = DeniedHttpResponse {
        status: Some(HttpStatus { code: 403 }),
        headers: vec![
            header("Content-Type", "application/json"),
            header("set-cookie", "a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
            header("set-cookie", "b=2"),
        ],
        body: r#"{"error": "no"}"#.to_owned(),
    };
    CheckResponse {
        status: status(code, "not yours"),
        http_response: Some(HttpResponse::DeniedResponse(response)),
        ..CheckResponse::default()
    }
}

/// A request as the service of HTTP has received it.
#[derive(Clone, Debug)]
struct Received {
    method: Method,
    url: Uri,
    headers: HeaderMap,
    body: Bytes,
}

type AnswerHeaders = Vec<(&'static str, &'static str)>;

/// A service of HTTP with one answer, which records its requests.
#[derive(Clone, Default)]
struct HttpService {
    answer: Arc<Mutex<(u16, AnswerHeaders, String)>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl HttpService {
    async fn start(&self) -> String {
        let (listener, url) = listener().await;
        tokio::spawn(self.clone().serve(listener));
        url
    }

    async fn serve(self, listener: TcpListener) {
        let router = Router::new().fallback(Self::answer).with_state(self);
        axum::serve(listener, router).await.unwrap();
    }

    fn set(&self, status: u16, headers: &[(&'static str, &'static str)], body: &str) {
        *self.answer.lock().unwrap() = (status, headers.to_vec(), body.to_owned());
    }

    fn last(&self) -> Received {
        self.received.lock().unwrap().last().unwrap().clone()
    }

    #[expect(clippy::unused_async, reason = "handlers of axum are")]
    async fn answer(
        State(service): State<Self>,
        method: Method,
        url: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> HttpAnswer {
        service.received.lock().unwrap().push(Received { method, url, headers, body });
        let (status, headers, body) = service.answer.lock().unwrap().clone();
        let mut answer = body.into_response();
        *answer.status_mut() = axum::http::StatusCode::from_u16(status).unwrap();
        answer.headers_mut().clear();
        for (name, value) in headers {
            answer.headers_mut().append(name, value.parse().unwrap());
        }
        answer
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_is_not_sent_and_the_request_is_denied() {
    let (grpc, http) = (GrpcService::default(), HttpService::default());
    http.set(200, &[], "");
    let (grpc_url, http_url) = (grpc.start().await, http.start().await);
    let longest = "x".repeat(1 << 20);
    for (url, protocol) in [(&grpc_url, "GRPC"), (&http_url, "HTTP")] {
        let handler = handler(url, &format!("protocol: {protocol}, on_error: ALLOW, timeout: 10s"));
        handler.check::<Authorization>(instance(&[(":body", &longest)])).await.expect_allowed();
        let longer = instance(&[(":body", &format!("{longest}x"))]);
        handler.check::<Authorization>(longer).await.expect_denied(Code::Unavailable, NO_DECISION);
    }
    let sent = grpc.received.lock().unwrap().pop().unwrap().into_inner().attributes.unwrap();
    assert_eq!(sent.request.unwrap().http.unwrap().body, longest);
    assert_eq!((grpc.received.lock().unwrap().len(), http.received.lock().unwrap().len()), (0, 1));
    assert_eq!(http.last().body, longest);
}

#[tokio::test]
async fn a_service_that_does_not_answer_allows_only_if_so_configured() {
    let away = unused_url().await;
    let slow = GrpcService { delay: Duration::from_secs(600), ..GrpcService::default() }.start().await;
    for (url, protocol) in [(&away, "GRPC"), (&away, "HTTP"), (&away, "FORWARD_AUTH"), (&slow, "GRPC")] {
        let settings = format!("protocol: {protocol}, timeout: 1s");
        let denied = handler(url, &settings).check::<Authorization>(instance(&[])).await;
        denied.expect_denied(Code::Unavailable, NO_DECISION).expect_valid(Duration::ZERO, -1);
        let allowed = handler(url, &format!("{settings}, on_error: ALLOW"));
        let allowed = allowed.check::<Authorization>(instance(&[])).await;
        allowed.expect_allowed().expect_valid(Duration::ZERO, -1);
    }
}

#[tokio::test]
async fn a_question_whose_connection_is_lost_is_repeated_once() {
    let http = HttpService::default();
    http.set(200, &[], "");
    for (protocol, lost) in
        ["GRPC", "HTTP", "FORWARD_AUTH"].into_iter().flat_map(|name| [(name, 1), (name, 2)])
    {
        let (listener, url) = listener().await;
        let http = http.clone();
        let service = tokio::spawn(async move {
            for _ in 0..lost {
                let (mut connection, _) = listener.accept().await.unwrap();
                connection.read_u8().await.unwrap();
            }
            match protocol {
                "GRPC" => GrpcService::default().serve(listener).await,
                _ => http.serve(listener).await,
            }
        });
        let handler = handler(&url, &format!("protocol: {protocol}, timeout: 10s"));
        let with_body =
            if protocol == "FORWARD_AUTH" { instance(&[]) } else { instance(&[(":body", "a=b")]) };
        let check: Check = handler.call::<Authorization>(with_body).await.expect_ok().clone().into();
        assert_eq!(check.is_allowed(), lost == 1, "{protocol}");
        service.abort();
    }
}
