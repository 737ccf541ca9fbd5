use h2::Reason;
use tonic::Code;

use super::{
    check, remote, request,
    scripted::{Act, Head, Scripted, frame, grpc_head, headers},
    soon,
};

fn ok() -> Option<http::HeaderMap> {
    Some(headers(&[("grpc-status", "0")]))
}

fn http(status: u16, content_type: &str) -> Act {
    let head = Head { status, headers: headers(&[("content-type", content_type)]) };
    Act::Answer(head, vec!["<html>".into()], None)
}

/// The outcome of each broken answer: gRPC's own rules for HTTP answers and resets, INTERNAL for a broken message, UNKNOWN
/// where no status came.
#[tokio::test]
async fn broken_answers_are_errors_that_say_how_they_are_broken() {
    let cases = [
        (http(404, "text/html"), Code::Unimplemented, "404"),
        (http(503, "text/html"), Code::Unavailable, "503"),
        (http(429, "text/html"), Code::Unavailable, "429"),
        (http(401, "text/html"), Code::Unauthenticated, "401"),
        (http(403, "text/html"), Code::PermissionDenied, "403"),
        (http(400, "text/html"), Code::Internal, "400"),
        (http(302, "text/html"), Code::Unknown, "302"),
        (http(200, "text/html"), Code::Unknown, "text/html"),
        (Act::Answer(grpc_head(), vec![frame(b"x")], None), Code::Unknown, "without a status"),
        (Act::Answer(grpc_head(), vec![], Some(headers(&[]))), Code::Unknown, "without a status"),
        (Act::Answer(grpc_head(), vec![], ok()), Code::Internal, "no message"),
        (Act::error("0", ""), Code::Internal, "no message"),
        (
            Act::Answer(grpc_head(), vec!["\0\0\0\0\x05abc".into()], ok()),
            Code::Internal,
            "ends after 3 of 5 bytes",
        ),
        (Act::Answer(grpc_head(), vec![frame(b"x"), frame(b"y")], ok()), Code::Internal, "more than one"),
        (Act::Answer(grpc_head(), vec!["\x01\0\0\0\x01x".into()], ok()), Code::Internal, "compressed"),
        (Act::Answer(grpc_head(), vec!["\x09\0\0\0\x01x".into()], ok()), Code::Internal, "0x09"),
        (Act::Reset(Reason::CANCEL), Code::Cancelled, "broken off"),
        (Act::Reset(Reason::PROTOCOL_ERROR), Code::Internal, "broken off"),
        (Act::Reset(Reason::ENHANCE_YOUR_CALM), Code::ResourceExhausted, "broken off"),
        (Act::Cut, Code::Unavailable, "broken off"),
        (Act::CutAnswer, Code::Unavailable, "broken off"),
        (Act::error("x", "what"), Code::Unknown, "not a number; what"),
        (Act::error("99", "beyond"), Code::Unknown, "beyond"),
    ];
    for (act, code, text) in cases {
        let shown = format!("{act:?}");
        let server = Scripted::start(move |_| act.clone()).await;
        let remote = remote(server.address);
        let error = soon(remote.call(&check(), request(None), None)).await.unwrap_err();
        assert_eq!(error.code(), code, "{shown}: {error:?}");
        assert!(error.message().contains(text), "{shown}: {error:?}");
    }
}

#[tokio::test]
async fn an_error_after_a_message_is_the_answer() {
    let trailers =
        headers(&[("grpc-status", "9"), ("grpc-message", "no"), ("grpc-status-details-bin", "!!")]);
    let act = Act::Answer(grpc_head(), vec![frame(b"x")], Some(trailers));
    let server = Scripted::start(move |_| act.clone()).await;
    let error = remote(server.address).call(&check(), request(None), None).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::FailedPrecondition, "no"));
}

#[tokio::test]
async fn answers_of_four_mebibytes_are_taken_and_longer_ones_refused_from_their_prefix() {
    let largest = vec![7; 4 << 20];
    let act = Act::ok(&largest);
    let server = Scripted::start(move |_| act.clone()).await;
    let answer = remote(server.address).call(&check(), request(None), None).await.unwrap();
    assert!(answer == largest);

    let prefix = [&[0][..], &((4_u32 << 20) + 1).to_be_bytes()].concat();
    let act = Act::Answer(grpc_head(), vec![prefix.into()], ok());
    let server = Scripted::start(move |_| act.clone()).await;
    let error = remote(server.address).call(&check(), request(None), None).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
}
