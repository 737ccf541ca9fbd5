#![allow(clippy::unwrap_used)]

mod caddy;

use std::{
    collections::BTreeMap,
    io::Write as _,
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
use mixer_adapter_core::{
    DirectHttpResponse,
    prost::Message as _,
    proto::{CheckResult, Status},
    value::Value,
};
use mixer_adapter_envoy::proto::envoy::{
    config::core::v3::{
        HeaderValue, HeaderValueOption, address::Address as EnvoyAddress, socket_address::PortSpecifier,
    },
    service::auth::v3::{
        CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
        authorization_server::{Authorization as EnvoyAuthorization, AuthorizationServer},
        check_response::HttpResponse,
    },
    r#type::v3::HttpStatus,
};
use mixer_adapter_templates::authorization::{ActionMsg, InstanceMsg, SubjectMsg};
use tempfile::NamedTempFile;
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

#[tokio::test]
async fn a_grpc_service_receives_the_values_of_the_instance() {
    let service = GrpcService::default();
    let url = service.start().await;
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "s3cr3t").unwrap();
    let handler = handler(&url, &format!("token_file: '{}'", file.path().display()));
    let instance = instance(&[
        ("Authorization", "Bearer x"),
        ("x-empty", ""),
        (":body", "a=ü"),
        (":source.ip", "10.0.0.1"),
        (":source.port", "4711"),
        (":destination.ip", "10.0.0.2"),
        (":scheme", "https"),
        (":protocol", "HTTP/2"),
        (":id", "7"),
        (":query", "done=1"),
    ]);
    handler.check::<Authorization>(instance).await.expect_allowed().expect_valid(Duration::ZERO, -1);
    let received = service.received.lock().unwrap().pop().unwrap();
    assert_eq!(received.metadata().get("authorization").unwrap(), "Bearer s3cr3t");
    assert_eq!(received.metadata().get("x-mixer-adapter-depth").unwrap(), "1");
    let attributes = received.into_inner().attributes.unwrap();
    let (source, destination) = (attributes.source.unwrap(), attributes.destination.unwrap());
    assert_eq!((&*source.principal, &*destination.principal), ("alice", ""));
    for (peer, ip, port) in [(source, "10.0.0.1", Some(4711)), (destination, "10.0.0.2", None)] {
        let Some(EnvoyAddress::SocketAddress(socket)) = peer.address.unwrap().address else {
            panic!("no address of a socket");
        };
        assert_eq!((&*socket.address, socket.port_specifier), (ip, port.map(PortSpecifier::PortValue)));
    }
    assert_eq!(attributes.context_extensions, texts(&[("groups", "admin"), ("tenant", "shop")]));
    let http = attributes.request.unwrap().http.unwrap();
    assert_eq!((&*http.method, &*http.path, &*http.host), ("PUT", "/todos?done=1", "todo.example.com"));
    assert_eq!(http.headers, [mixer_adapter_envoy::proto::header_entry("authorization", "Bearer x")]);
    assert_eq!((&*http.body, http.size), ("a=ü", 4));
    assert_eq!((&*http.scheme, &*http.protocol, &*http.id), ("https", "HTTP/2", "7"));
}

#[tokio::test]
async fn a_port_that_is_not_one_is_not_sent_and_the_request_is_denied() {
    let service = GrpcService::default();
    let handler = handler(&service.start().await, "on_error: ALLOW");
    for (name, port) in [(":source.port", "65536"), (":source.port", "-1"), (":destination.port", "http")] {
        let denied = handler.check::<Authorization>(instance(&[(name, port)])).await;
        denied.expect_denied(Code::Unavailable, NO_DECISION);
    }
    assert!(service.received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_denial_by_grpc_has_the_status_the_headers_and_the_body_of_the_service() {
    let service = GrpcService::default();
    let handler = handler(&service.start().await, "caching_interval: 5s");
    service.set(Ok(denied(7)));
    let denial = check(&handler).await;
    assert_eq!((denial.status().code, &*denial.status().message), (7, "not yours"));
    assert_eq!(
        (denial.valid_duration(), denial.valid_use_count()),
        (Duration::from_secs(5), i32::MAX as u32)
    );
    let response = response(&denial);
    assert_eq!((response.code, &*response.body), (403, r#"{"error": "no"}"#));
    let cookies = "a=1; Expires=Wed 21 Oct 2026 07:28:00 GMT,b=2";
    assert_eq!(response.headers, texts(&[("content-type", "application/json"), ("set-cookie", cookies)]));
    service.set(Ok(CheckResponse { status: status(16, "who?"), ..CheckResponse::default() }));
    let bare = CheckResult::from(check(&handler).await).status.unwrap();
    assert_eq!((bare.code, &*bare.message, bare.details.len()), (16, "who?", 0));
}

#[tokio::test]
async fn answers_by_grpc_have_the_metadata_of_the_service() {
    let service = GrpcService::default();
    let handler = handler(&service.start().await, "");
    let value = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue("alice".to_owned())) };
    let metadata = prost_types::Struct { fields: [("user".to_owned(), value)].into() };
    for answer in [allowed(), denied(7)] {
        service.set(Ok(CheckResponse { dynamic_metadata: Some(metadata.clone()), ..answer }));
        let check = check(&handler).await;
        let detail = check.details().last().unwrap();
        assert_eq!(detail.type_url, "type.googleapis.com/google.protobuf.Struct");
        assert_eq!(prost_types::Struct::decode(detail.value.clone()).unwrap(), metadata);
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
async fn without_a_decision_by_grpc_the_request_is_denied() {
    let service = GrpcService::default();
    let url = service.start().await;
    let (denying, allowing) = (handler(&url, ""), handler(&url, "on_error: ALLOW"));
    let error = Some(HttpResponse::ErrorResponse(DeniedHttpResponse::default()));
    let failed =
        CheckResponse { http_response: error, status: status(13, "down"), ..CheckResponse::default() };
    let answers = [
        // Envoy would allow these two.
        (Ok(CheckResponse::default()), false),
        (Ok(denied(0)), false),
        (Err(tonic::Status::invalid_argument("what?")), false),
        (Err(tonic::Status::permission_denied("not you")), false),
        (Err(tonic::Status::unimplemented("")), false),
        (Err(tonic::Status::resource_exhausted("too long")), false),
        (Ok(failed), true),
        (Err(tonic::Status::unavailable("later")), true),
        (Err(tonic::Status::internal("oh")), true),
    ];
    for (answer, is_outage) in answers {
        let shown = format!("{answer:?}");
        service.set(answer);
        denying.check::<Authorization>(instance(&[])).await.expect_denied(Code::Unavailable, NO_DECISION);
        let check = check(&allowing).await;
        assert_eq!((check.is_allowed(), check.valid_use_count()), (is_outage, 0), "{shown}");
    }
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

#[tokio::test]
async fn the_service_receives_a_limited_number_of_calls_at_a_time() {
    let service = GrpcService { delay: Duration::from_millis(50), ..GrpcService::default() };
    let handler = Arc::new(handler(&service.start().await, "max_concurrent_calls: 2, timeout: 10s"));
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let handler = handler.clone();
            tokio::spawn(async move { check(&handler).await.is_allowed() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(service.received.lock().unwrap().len(), 10);
    assert_eq!(service.most_open.load(SeqCst), 2);
}

#[tokio::test]
async fn servers_do_not_ask_each_other_in_a_circle() {
    let service = GrpcService::default();
    let handler = handler(&service.start().await, "on_error: ALLOW");
    let depth =
        |depth: &'static str| handler.check::<Authorization>(instance(&[("X-Mixer-Adapter-Depth", depth)]));
    depth("2").await.expect_allowed();
    for too_deep in ["3", "4000000000000", "1,1", "x"] {
        depth(too_deep).await.expect_denied(Code::Unavailable, NO_DECISION);
    }
    let received = service.received.lock().unwrap();
    let depths: Vec<_> =
        received.iter().map(|call| call.metadata().get("x-mixer-adapter-depth").unwrap()).collect();
    assert_eq!(depths, ["3"]);
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
async fn a_service_of_http_is_asked_with_the_method_and_the_path_of_the_request() {
    let service = HttpService::default();
    let handler = handler(&format!("{}/check/", service.start().await), "protocol: HTTP");
    service.set(200, &[], "");
    let instance = instance(&[("Cookie", "session=ü"), ("x-empty", ""), (":body", "a=ü")]);
    handler.check::<Authorization>(instance).await.expect_allowed();
    let Received { method, url, headers, body } = service.last();
    assert_eq!((&*body, &headers["content-length"]), ("a=ü".as_bytes(), &"4".parse().unwrap()));
    assert_eq!((method.as_str(), url.to_string().as_str()), ("PUT", "/check/todos?done=1"));
    assert_eq!(headers["cookie"].as_bytes(), "session=ü".as_bytes());
    assert_eq!(
        (&headers["x-forwarded-host"], &headers["x-mixer-adapter-depth"]),
        (&"todo.example.com".parse().unwrap(), &"1".parse().unwrap())
    );
    assert!(!headers.contains_key("x-empty") && !headers.contains_key("tenant"), "{headers:?}");
    for (status, code) in [(204, 7), (302, 7), (403, 7), (404, 7), (401, 16), (429, 8)] {
        service.set(status, &[], "");
        assert_eq!(check(&handler).await.status().code, code, "{status}");
    }
    service.set(503, &[], "");
    handler.check::<Authorization>(self::instance(&[])).await.expect_denied(Code::Unavailable, NO_DECISION);
}

#[tokio::test]
async fn forward_authentication_asks_one_url_with_the_request_in_headers() {
    let service = HttpService::default();
    let url = format!("{}/oauth2/auth?allowed_groups=admin", service.start().await);
    let handler = handler(&url, "protocol: FORWARD_AUTH");
    service.set(202, &[], "");
    handler.check::<Authorization>(instance(&[("cookie", "a=b")])).await.expect_allowed();
    let with_body = handler.check::<Authorization>(instance(&[(":body", "x")])).await;
    with_body.expect_denied(Code::Unavailable, NO_DECISION);
    let Received { method, url, headers, .. } = service.last();
    assert_eq!((method.as_str(), url.to_string().as_str()), ("GET", "/oauth2/auth?allowed_groups=admin"));
    let sent = ["cookie", "x-forwarded-method", "x-forwarded-host", "x-forwarded-uri"];
    let sent = sent.map(|name| headers[name].to_str().unwrap());
    assert_eq!(sent, ["a=b", "PUT", "todo.example.com", "/todos?done=1"]);
}

#[tokio::test]
async fn a_denial_by_http_has_the_headers_that_clients_receive() {
    let service = HttpService::default();
    let url = service.start().await;
    let handlers =
        [handler(&url, "protocol: HTTP"), handler(&url, "protocol: HTTP, client_headers: [x-why]")];
    let headers = [
        ("location", "https://login.example.com/?rd=/todos"),
        ("set-cookie", "csrf=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("set-cookie", "b=2"),
        ("x-why", "expired"),
        ("server", "secret/1.0"),
    ];
    service.set(302, &headers, "Found");
    let [default, named] =
        [check(&handlers[0]).await, check(&handlers[1]).await].map(|check| response(&check));
    assert_eq!((default.code, &*default.body), (302, "Found"));
    let cookies = "csrf=1; Expires=Wed 21 Oct 2026 07:28:00 GMT,b=2";
    let location = "https://login.example.com/?rd=/todos";
    assert_eq!(default.headers, texts(&[("location", location), ("set-cookie", cookies)]));
    assert_eq!(named.headers, texts(&[("x-why", "expired")]));
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_is_denied_whatever_is_configured() {
    let (service, other) = (HttpService::default(), HttpService::default());
    service.set(200, &[], "");
    other.set(200, &[], "");
    let handler = handler(&service.start().await, "protocol: HTTP, on_error: ALLOW");
    let elsewhere = format!("@{}/", other.start().await.trim_start_matches("http://"));
    let with = |change: &dyn Fn(&mut ActionMsg)| {
        let mut instance = instance(&[]);
        change(instance.action.as_mut().unwrap());
        instance
    };
    let unsendable = [
        with(&|action| action.path = elsewhere.clone()),
        with(&|action| action.path = String::new()),
        with(&|action| action.path = "/a b".into()),
        with(&|action| action.method = "A B".into()),
        with(&|action| action.method = "CONNECT".into()),
        with(&|action| action.service = "a\nb".into()),
        with(&|action| action.properties = properties(&[("x-a", "1\r\nx-b: 2")])),
        with(&|action| action.properties = properties(&[("a b", "1")])),
        with(&|action| action.properties = properties(&[("Content-Length", "10")])),
        with(&|action| action.properties = properties(&[("host", "a")])),
        with(&|action| action.properties = properties(&[(":source.ip", "10.0.0.1")])),
    ];
    for instance in unsendable {
        handler.check::<Authorization>(instance).await.expect_denied(Code::Unavailable, NO_DECISION);
    }
    assert!(service.received.lock().unwrap().is_empty() && other.received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_question_that_cannot_be_sent_is_not_an_outage() {
    let unsendable = Context::detached(()).http().get("http://a b/").send().await.unwrap_err();
    assert!(!AskError::from(unsendable).is_outage());
}

/// A Mixer that asks a service, and has a header operation of its own.
async fn mixer_asking(url: &str, settings: &str) -> FakeMixer {
    let setup = FakeMixer::with::<ExtAuthz>().handler("other", &*format!("{{url: '{url}', {settings}}}"));
    let setup = setup.instance::<Authorization>("request", "{action: {method: '\"GET\"', path: '\"/\"'}}");
    setup.rule("true", "other", ["request"]).start().await.unwrap()
}

/// The changes of an answer: a `=` replaces, a `+` appends, a `-` removes.
async fn changes(mixer: &FakeMixer) -> (Vec<String>, Vec<String>) {
    let answer = mixer.check(mixer_adapter::testing::Attributes::default()).await;
    let directive = answer.expect_allowed().expect_ok().directive().cloned().unwrap_or_default();
    let [request, response] = [directive.request_header_operations, directive.response_header_operations]
        .map(|operations| {
            let shown = operations.into_iter().map(|change| {
                let sign = ["=", "-", "+"][usize::try_from(change.operation).unwrap()];
                format!("{}{sign}{}", change.name, change.value)
            });
            shown.collect()
        });
    (request, response)
}

#[tokio::test]
async fn an_answer_by_grpc_that_allows_changes_headers() {
    let service = GrpcService::default();
    let mixer = mixer_asking(&service.start().await, "").await;
    assert_eq!(changes(&mixer).await, (vec![], vec![]));
    let header = |key: &str, value: &str, append: Option<bool>| HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), value: value.to_owned(), ..HeaderValue::default() }),
        append,
        ..HeaderValueOption::default()
    };
    let ok = OkHttpResponse {
        headers: vec![header("x-user", "alice", None), header("x-roles", "admin", Some(true))],
        headers_to_remove: vec!["authorization".to_owned()],
        response_headers_to_add: vec![
            header("set-cookie", "a=1", None),
            header("x-by", "authz", Some(false)),
        ],
    };
    service.set(Ok(CheckResponse { http_response: Some(HttpResponse::OkResponse(ok)), ..allowed() }));
    let (request, response) = changes(&mixer).await;
    assert_eq!(request, ["authorization-", "x-user=alice", "x-roles+admin"]);
    assert_eq!(response, ["set-cookie+a=1", "x-by=authz"]);
}

#[tokio::test]
async fn an_answer_by_http_that_allows_gives_the_upstream_the_configured_headers() {
    let service = HttpService::default();
    let url = service.start().await;
    service.set(200, &[("x-user", "alice"), ("x-group", "a"), ("x-group", "b"), ("x-other", "no")], "");
    for protocol in ["HTTP", "FORWARD_AUTH"] {
        let settings = format!("protocol: {protocol}, upstream_headers: [x-user, x-group, x-role]");
        let (request, response) = changes(&mixer_asking(&url, &settings).await).await;
        // The client cannot give itself a role.
        assert_eq!(request, ["x-user=alice", "x-group=a", "x-group+b", "x-role-"]);
        assert_eq!(response, [""; 0]);
        let (request, _) = changes(&mixer_asking(&url, &format!("protocol: {protocol}")).await).await;
        assert_eq!(request, [""; 0]);
        // Nor without an answer of the service.
        let settings = format!("protocol: {protocol}, upstream_headers: [x-user], on_error: ALLOW");
        let (request, _) = changes(&mixer_asking(&unused_url().await, &settings).await).await;
        assert_eq!(request, ["x-user-"]);
    }
}
