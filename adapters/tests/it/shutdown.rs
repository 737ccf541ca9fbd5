//! How `serve` ends.

use std::time::{Duration, Instant};

use crate::support::{Server, eventually_within};
use bytes::Bytes;
use h2::{RecvStream, SendStream, client::ResponseFuture};
use http::Request;
use mixer_adapter::{
    prost::Message as _,
    proto::{Any, CheckResult},
    template::checknothing::{HandleCheckNothingRequest, InstanceMsg},
};

/// Waits up to `timeout` for the end of the process.
fn exit_code(server: &mut Server, at_most: Duration) -> Option<i32> {
    eventually_within(at_most, "the server exits", || server.child.try_wait().unwrap()).code()
}

fn runs(server: &mut Server) -> bool {
    server.child.try_wait().unwrap().is_none()
}

/// A call of the denier whose request is half sent: it is in flight until the test sends the rest.
struct InFlight {
    rest: Bytes,
    request: SendStream<Bytes>,
    response: ResponseFuture,
}

impl InFlight {
    async fn start(address: &str) -> Self {
        let message = HandleCheckNothingRequest {
            instance: Some(InstanceMsg::default()),
            adapter_config: Some(Any {
                type_url: "type.googleapis.com/adapter.denier.config.Params".to_owned(),
                value: Bytes::new(),
            }),
            dedup_id: String::new(),
        };
        let message = message.encode_to_vec();
        let mut frame = Bytes::from([&[0, 0, 0, 0, message.len() as u8], &message[..]].concat());

        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let path = "checknothing.HandleCheckNothingService/HandleCheckNothing";
        let head = Request::post(format!("http://{address}/{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (response, mut request) = client.ready().await.unwrap().send_request(head, false).unwrap();
        request.send_data(frame.split_to(2), false).unwrap();
        // Until the server has it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        Self { rest: frame, request, response }
    }

    async fn finish(mut self) -> CheckResult {
        self.request.send_data(self.rest, true).unwrap();
        let mut body: RecvStream = self.response.await.unwrap().into_body();
        let answer = body.data().await.unwrap().unwrap();
        CheckResult::decode(answer.slice(5..)).unwrap()
    }
}

#[test]
fn sigterm_and_sigint_end_an_idle_server_at_once() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&[]);
        server.signal(signal);
        assert_eq!(exit_code(&mut server, Duration::from_secs(5)), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn a_call_in_flight_at_sigterm_is_answered() {
    let mut server = Server::start(&["--grace", "1m"]);
    let call = InFlight::start(&server.grpc).await;
    server.signal("TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(runs(&mut server), "the server waits for the call");
    assert!(tokio::net::TcpStream::connect(&server.grpc).await.is_err(), "nobody else is served");

    let failed_precondition = 9;
    assert_eq!(call.finish().await.status.unwrap().code, failed_precondition);
    // The client's side of the connection is a task of this runtime.
    let start = Instant::now();
    while runs(&mut server) {
        assert!(start.elapsed() < Duration::from_secs(10), "the server ends behind its last call");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(exit_code(&mut server, Duration::from_secs(1)), Some(0));
}

#[tokio::test]
async fn a_call_that_does_not_end_is_given_up_after_the_grace_period() {
    let mut server = Server::start(&["--grace", "500ms"]);
    let _call = InFlight::start(&server.grpc).await;
    server.signal("TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(runs(&mut server), "the server waits for the call");
    assert_eq!(exit_code(&mut server, Duration::from_secs(10)), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_server_with_calls_in_flight() {
    let mut server = Server::start(&["--grace", "1m"]);
    let _call = InFlight::start(&server.grpc).await;
    server.signal("TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(runs(&mut server), "the server waits for the call");
    server.signal("TERM");
    assert_eq!(exit_code(&mut server, Duration::from_secs(5)), Some(130));
}

#[test]
fn a_reload_is_no_end() {
    let mut server = Server::start(&[]);
    server.signal("HUP");
    assert!(server.get("/healthz").contains("ok"));
    assert!(runs(&mut server));
    server.signal("TERM");
    assert_eq!(exit_code(&mut server, Duration::from_secs(5)), Some(0));
}
