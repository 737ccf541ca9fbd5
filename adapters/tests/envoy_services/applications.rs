//! gRPC applications that ask for authorization themselves, as gRFC A92 describes: the same Check without an Envoy.

use mixer_adapter_envoy::proto::envoy::{
    config::core::v3::{
        Address, SocketAddress, address::Address::SocketAddress as Socket,
        socket_address::PortSpecifier::PortValue,
    },
    service::{
        auth::v3::{
            AttributeContext, CheckRequest, CheckResponse,
            attribute_context::{HttpRequest, Peer, Request as CheckedRequest},
            check_response::HttpResponse::{DeniedResponse, OkResponse},
        },
        ratelimit::v3::{RateLimitRequest, RateLimitResponse},
    },
};
use tonic::{Code, Request, Response, Status, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::{
    mesh::{PATHS, configured},
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

/// What an interceptor does for a call of a method.
async fn authorize(server: &str, method: &str) -> Result<(), Status> {
    let headers =
        [(":method", "POST"), (":path", method), ("content-type", "application/grpc"), ("x-tenant", "a")];
    let http = HttpRequest {
        method: "POST".to_owned(),
        path: method.to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
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
    let answer: CheckResponse = call(server, CHECK, CheckRequest { attributes: Some(context) }).await?;
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
    let folder = configured(&config);
    let server = Server::start(&["--config", folder.path().to_str().unwrap()]);
    server.until("/readyz", "\r\n\r\nready");
    assert!(authorize(&server.grpc, "/shop.Orders/List").await.is_ok());
    let denied = authorize(&server.grpc, "/shop.Orders/Delete").await.unwrap_err();
    let message = "paths.istio-system:/shop.Orders/Delete is blacklisted";
    assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, message));
}

#[tokio::test]
async fn checks_and_rate_limits_are_served_under_both_versions_names() {
    let folder = configured(PATHS);
    let server = Server::start(&["--config", folder.path().to_str().unwrap()]);
    server.until("/readyz", "\r\n\r\nready");
    for path in [CHECK, "/envoy.service.auth.v2.Authorization/Check"] {
        let answer: Result<CheckResponse, Status> = call(&server.grpc, path, CheckRequest::default()).await;
        assert_eq!(answer.unwrap_err().message(), "the check has no attributes", "{path}");
    }
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
    ] {
        let answer: Result<RateLimitResponse, Status> =
            call(&server.grpc, path, RateLimitRequest::default()).await;
        assert_eq!(answer.unwrap().overall_code, 1, "{path}");
    }
}
