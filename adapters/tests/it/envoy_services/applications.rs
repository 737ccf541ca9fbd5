//! gRPC applications that request authorization themselves, as gRFC A92 describes: the same Check without an Envoy.

use futures_util::stream;
use mixer_adapter_envoy::proto::envoy::{
    config::core::v3::{
        Address, SocketAddress, address::Address::SocketAddress as Socket,
        socket_address::PortSpecifier::PortValue,
    },
    data::accesslog::v3::HttpAccessLogEntry,
    extensions::common::ratelimit::v3::RateLimitDescriptor,
    service::{
        accesslog::v3::{
            StreamAccessLogsMessage, StreamAccessLogsResponse,
            stream_access_logs_message::{HttpAccessLogEntries, LogEntries},
        },
        auth::v3::{
            AttributeContext, CheckRequest, CheckResponse,
            attribute_context::{HttpRequest, Peer, Request as CheckedRequest},
            check_response::HttpResponse::{DeniedResponse, OkResponse},
        },
        ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code as LimitCode},
    },
};
use tonic::{Code, Request, Response, Status, transport::Endpoint};
use tonic_prost::ProstCodec;

use super::{
    mesh::{PATHS, configured, metric},
    support::Server,
};

/// Calls a unary method.
async fn call<Q, A>(address: &str, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: mixer_adapter_core::prost::Message + Send + Sync + 'static,
    A: mixer_adapter_core::prost::Message + Default + Send + Sync + 'static,
{
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let answer = grpc.unary(Request::new(request), path.parse().unwrap(), ProstCodec::<Q, A>::default());
    answer.await.map(Response::into_inner)
}

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// What an interceptor does for a call of a method; `service` is the path of the service that it asks.
async fn authorize(server: &str, service: &'static str, method: &str) -> Result<(), Status> {
    let headers =
        [(":method", "POST"), (":path", method), ("content-type", "application/grpc"), ("x-tenant", "a")];
    let http = HttpRequest {
        method: "POST".to_owned(),
        path: method.to_owned(),
        headers: headers
            .map(|(name, value)| mixer_adapter_envoy::proto::header_entry(name, value.to_owned()))
            .into(),
        protocol: "HTTP/2".to_owned(),
        ..HttpRequest::default()
    };
    let socket = SocketAddress { address: "10.0.0.1".to_owned(), port_specifier: Some(PortValue(4711)) };
    let peer = Peer { address: Some(Address { address: Some(Socket(socket)) }), ..Peer::default() };
    let context = AttributeContext {
        source: Some(peer),
        request: Some(CheckedRequest { time: None, http: Some(http) }),
        ..AttributeContext::default()
    };
    let answer: CheckResponse = call(server, service, CheckRequest { attributes: Some(context) }).await?;
    let status = answer.status.expect("every answer has a status");
    match answer.http_response.expect("every answer has a response") {
        OkResponse(_) if status.code == 0 => Ok(()),
        DeniedResponse(_) => Err(Status::new(Code::from(status.code), status.message)),
        response => panic!("{status:?} {response:?}"),
    }
}

#[tokio::test]
async fn a_grpc_application_asks_for_itself() {
    let config = PATHS.replace("[/admin]", "[/shop.Orders/Delete]");
    let (server, _config) = serving(&config);
    assert!(authorize(&server.grpc, CHECK, "/shop.Orders/List").await.is_ok());
    let denied = authorize(&server.grpc, CHECK, "/shop.Orders/Delete").await.unwrap_err();
    let message = "paths.istio-system:/shop.Orders/Delete is blacklisted";
    assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, message));
}

/// Services of Envoy before 1.17, whose messages are compatible.
const FORMER_CHECK: &str = "/envoy.service.auth.v2.Authorization/Check";
const FORMER_RATE_LIMIT: &str = "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit";
const FORMER_LOG: &str = "/envoy.service.accesslog.v2.AccessLogService/StreamAccessLogs";

/// Allows one request a minute.
const LIMIT: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: requests, maxAmount: 1, validDuration: 60s}]}}
---
kind: instance
metadata: {name: requests, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [requests]}]}
"#;

/// A server, with its configuration.
fn serving(config: &str) -> (Server, tempfile::TempDir) {
    let folder = configured(config);
    let server = Server::start(&["--config", folder.path().to_str().unwrap()]);
    server.until("/readyz", "\r\n\r\nready");
    (server, folder)
}

#[tokio::test]
async fn checks_are_served_under_the_name_of_version_2() {
    let (server, _config) = serving(PATHS);
    assert!(authorize(&server.grpc, FORMER_CHECK, "/shop").await.is_ok());
    let denied = authorize(&server.grpc, FORMER_CHECK, "/admin").await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let empty: Result<CheckResponse, Status> =
        call(&server.grpc, FORMER_CHECK, CheckRequest::default()).await;
    assert_eq!(empty.unwrap_err().message(), "the check has no attributes");
}

#[tokio::test]
async fn rate_limits_are_served_under_the_name_of_version_2() {
    let (server, _config) = serving(LIMIT);
    let request = RateLimitRequest {
        domain: "requests".to_owned(),
        descriptors: vec![RateLimitDescriptor::default()],
        ..RateLimitRequest::default()
    };
    for code in [LimitCode::Ok, LimitCode::OverLimit] {
        let answer: RateLimitResponse = call(&server.grpc, FORMER_RATE_LIMIT, request.clone()).await.unwrap();
        assert_eq!(answer.overall_code(), code);
    }
}

#[tokio::test]
async fn access_logs_are_received_under_the_name_of_version_2() {
    let (server, _config) = serving(PATHS);
    let logs = HttpAccessLogEntries { log_entry: vec![HttpAccessLogEntry::default(); 3] };
    let message = StreamAccessLogsMessage { identifier: None, log_entries: Some(LogEntries::HttpLogs(logs)) };
    let channel = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<StreamAccessLogsMessage, StreamAccessLogsResponse>::default();
    let messages = Request::new(stream::iter([message.clone(), message]));
    grpc.client_streaming(messages, FORMER_LOG.parse().unwrap(), codec).await.unwrap();
    assert_eq!(metric(&server, "mixer_adapter_envoy_log_entries_total"), "6");
}
