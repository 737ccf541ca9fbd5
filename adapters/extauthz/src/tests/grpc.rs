//! An authorization server of gRPC.

use std::io::Write as _;

use mixer_adapter_core::proto::CheckResult;
use mixer_adapter_envoy::proto::envoy::config::core::v3::{
    address::Address as EnvoyAddress, socket_address::PortSpecifier,
};
use tempfile::NamedTempFile;

use super::*;

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
