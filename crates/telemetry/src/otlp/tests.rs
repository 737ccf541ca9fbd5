//! An exporter with a collector that answers as a test says, and a clock that waits for nothing.

#![allow(clippy::unwrap_used)]

use std::{
    collections::VecDeque,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};
use mixer_adapter_core::{
    adapter::{Access, FileLocation, Http},
    framework::{HttpTransport, SendFuture, TransportError, frame},
    metrics::Events,
};
use prost::{Message as _, bytes::Bytes};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Collector, ExportLimits, Exporter, Protocol, Signal, encode_resource,
    message::{ExportRequest, ExportResponse, PartialSuccess, Span},
};

const SECOND: Duration = Duration::from_secs(1);

/// What a collector does with a request.
#[derive(Clone, Copy)]
enum Answer {
    Accepts,
    /// A status of HTTP, and the seconds after which it may accept the request.
    Status(u16, Option<u64>),
    /// A status of 200 with this body.
    Text(&'static str),
    /// A status of gRPC.
    Grpc(&'static str),
    /// Rejects this number of messages.
    Rejects(i64),
    /// Has no connection.
    IsAway,
    /// Does not answer.
    Hangs,
}

/// A request that has arrived.
#[derive(Clone)]
struct Received {
    request: Request<Bytes>,
    at: Instant,
}

/// A collector, and what it has received.
#[derive(Default)]
struct FakeCollector {
    /// Of the next requests; afterwards it accepts all.
    answers: Mutex<VecDeque<Answer>>,
    received: Mutex<Vec<Received>>,
}

impl HttpTransport for FakeCollector {
    fn with_authorities(&self, _: FileLocation) -> Result<Arc<dyn HttpTransport>, TransportError> {
        Err("the collector has no TLS".into())
    }

    fn send(&self, request: Request<Bytes>, limit: Duration) -> SendFuture {
        let is_grpc = request.version() == Version::HTTP_2;
        self.received.lock().unwrap().push(Received { request, at: Instant::now() });
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Answer::Accepts);
        Box::pin(async move {
            let accepted = |rejected| {
                let partial_success = PartialSuccess { rejected, error_message: "too old".to_owned() };
                let message = ExportResponse { partial_success: Some(partial_success) };
                let body = if is_grpc { frame::frame(&message) } else { message.encode_to_vec().into() };
                Response::builder().header("grpc-status", "0").body(body)
            };
            Ok(match answer {
                Answer::Accepts => accepted(0),
                Answer::Rejects(count) => accepted(count),
                Answer::Status(status, None) => Response::builder().status(status).body(Bytes::new()),
                Answer::Status(status, Some(seconds)) => {
                    Response::builder().status(status).header("retry-after", seconds).body(Bytes::new())
                }
                Answer::Text(body) => Response::builder().body(Bytes::from_static(body.as_bytes())),
                Answer::Grpc(code) => Response::builder().header("grpc-status", code).body(Bytes::new()),
                Answer::IsAway => return Err("connection refused".into()),
                Answer::Hangs => {
                    timeout(limit, pending::<()>()).await?;
                    unreachable!("nothing ends the wait but its limit")
                }
            }?)
        })
    }
}

impl FakeCollector {
    fn answering(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), ..Self::default() })
    }

    fn exporter(self: &Arc<Self>, protocol: Protocol, limits: ExportLimits) -> Exporter {
        self.exporter_to("http://collector:4317/", protocol, limits)
    }

    fn exporter_to(self: &Arc<Self>, url: &str, protocol: Protocol, limits: ExportLimits) -> Exporter {
        let mut tenant = HeaderValue::from_static("shop");
        tenant.set_sensitive(true);
        let collector = Collector {
            http: Http::new(Some(self.clone()), Access::unrestricted()),
            url: url.to_owned(),
            protocol,
            headers: HeaderMap::from_iter([(HeaderName::from_static("x-tenant"), tenant)]),
            token: None,
            timeout: 10 * SECOND,
        };
        assert!(!format!("{collector:?}").contains("shop"), "{collector:?}");
        let (exporter, task) = Exporter::new(collector, Signal::Traces, limits, Events::default());
        tokio::spawn(task);
        exporter
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The number of messages in each request.
    fn sizes(&self) -> Vec<usize> {
        let sizes = |received: &Received| {
            let request = ExportRequest::decode(received.request.body().clone()).unwrap();
            request
                .resources
                .iter()
                .flat_map(|resource| &resource.scopes)
                .map(|scope| scope.items.len())
                .sum()
        };
        self.received().iter().map(sizes).collect()
    }
}

fn add(exporter: &Exporter, count: usize) {
    for _ in 0..count {
        exporter.add(encode_resource(Vec::new()), &Span { name: "x".repeat(100), ..Span::default() }, 1);
    }
}

fn limits() -> ExportLimits {
    ExportLimits { batch_size: 10, batch_delay: SECOND, ..ExportLimits::default() }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_sent_when_it_is_full_or_its_first_message_has_waited() {
    let collector = FakeCollector::answering([]);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 25);
    sleep(SECOND / 2).await;
    assert_eq!(collector.sizes(), [10, 10]);
    sleep(SECOND).await;
    assert_eq!(collector.sizes(), [10, 10, 5]);
    sleep(60 * SECOND).await;
    assert_eq!(collector.sizes().len(), 3);
    assert_eq!(exporter.lost(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_are_those_of_the_protocol() {
    let collector = FakeCollector::answering([]);
    for protocol in [Protocol::Grpc, Protocol::Http] {
        add(&collector.exporter(protocol, limits()), 10);
        sleep(SECOND).await;
    }
    let described = collector.received().into_iter().map(|received| {
        let header = |name: &str| received.request.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-tenant"), "shop");
        (received.request.uri().to_string(), header("content-type"))
    });
    let expected = [
        (
            "http://collector:4317/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            "application/grpc",
        ),
        ("http://collector:4317/v1/traces", "application/x-protobuf"),
    ];
    assert_eq!(described.collect::<Vec<_>>(), expected.map(|(url, kind)| (url.to_owned(), kind.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_temporary_failure_is_repeated_with_growing_delays() {
    let failures = [
        Answer::IsAway,
        Answer::Status(503, None),
        Answer::Hangs,
        Answer::Status(429, Some(20)),
        Answer::Grpc("14"),
    ];
    let collector = FakeCollector::answering(failures);
    let exporter = collector.exporter(Protocol::Grpc, limits());
    add(&exporter, 10);
    sleep(120 * SECOND).await;
    let received = collector.received();
    assert_eq!((received.len(), exporter.lost()), (failures.len() + 1, 0));
    assert!(received.iter().all(|one| one.request.body() == received[0].request.body()));
    let delays: Vec<Duration> = received.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    // Half a second, then twice as long each time, each shortened by up to a half.
    assert!((SECOND / 4..=SECOND / 2).contains(&delays[0]), "{delays:?}");
    assert!((SECOND / 2..=SECOND).contains(&delays[1]), "{delays:?}");
    assert!((11 * SECOND..=12 * SECOND).contains(&delays[2]), "the limit of a request: {delays:?}");
    assert!((20 * SECOND..21 * SECOND).contains(&delays[3]), "what the collector asks for: {delays:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_accepted_is_counted_as_lost_and_the_next_batch_is_sent() {
    let collector =
        FakeCollector::answering([Answer::Status(400, None), Answer::Status(401, None), Answer::Rejects(3)]);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 40);
    sleep(SECOND).await;
    assert_eq!((collector.sizes().len(), exporter.lost()), (4, 23));
    let collector = FakeCollector::answering([Answer::Grpc("3"), Answer::Grpc("12"), Answer::Grpc("8")]);
    let exporter = collector.exporter(Protocol::Grpc, limits());
    add(&exporter, 40);
    sleep(SECOND).await;
    assert_eq!((collector.received().len(), exporter.lost()), (4, 30));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_http_that_is_not_of_the_protocol_is_no_delivery() {
    let answers =
        [Answer::Text(""), Answer::Text(" {}"), Answer::Text("<html></html>"), Answer::Text("hello")];
    let collector = FakeCollector::answering(answers);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 40);
    sleep(SECOND).await;
    assert_eq!((collector.sizes().len(), exporter.lost()), (4, 20));
}

#[tokio::test(start_paused = true)]
async fn protobuf_that_begins_as_json_does_is_read_as_protobuf() {
    // Field 1 with the length of 123 bytes, which is a brace: 3 rejected items, and 119 bytes of text.
    let rejected = format!("\n{{\x08\x03\x12w{}", "x".repeat(119));
    let collector = FakeCollector::answering([Answer::Text(rejected.leak())]);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 10);
    sleep(SECOND).await;
    assert_eq!((collector.sizes().len(), exporter.lost()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_sent_is_not_repeated() {
    let collector = FakeCollector::answering([]);
    let exporter = collector.exporter_to("http://a b/", Protocol::Http, limits());
    add(&exporter, 10);
    sleep(SECOND).await;
    assert_eq!((collector.sizes().len(), exporter.lost()), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_given_up_after_the_time_for_repeating() {
    let collector = FakeCollector::answering([Answer::IsAway; 5]);
    let exporter = collector.exporter(Protocol::Http, ExportLimits { retry_time: 5 * SECOND, ..limits() });
    add(&exporter, 10);
    sleep(5 * SECOND).await;
    assert_eq!(exporter.lost(), 10);
    let attempts = collector.sizes().len();
    assert!(attempts >= 3, "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_in_messages_and_bytes_while_the_collector_is_slow() {
    for (bounded, accepted) in [
        (ExportLimits { queue_size: 30, ..limits() }, 30..=30),
        // A message of a hundred bytes takes up to three hundred.
        (ExportLimits { queue_bytes: 8 << 10, ..limits() }, 27..=81),
    ] {
        let collector = FakeCollector::answering([Answer::Hangs]);
        let exporter = collector.exporter(Protocol::Http, bounded);
        add(&exporter, 10);
        sleep(SECOND).await;
        add(&exporter, 1_000);
        let lost = usize::try_from(exporter.lost()).unwrap();
        assert!(accepted.contains(&(1_010 - lost)), "{lost}");
        // The first batch is repeated, and the rest follows.
        sleep(30 * SECOND).await;
        assert_eq!(collector.sizes()[1..].iter().sum::<usize>(), 1_010 - lost);
        add(&exporter, 10);
        sleep(SECOND).await;
        assert_eq!(usize::try_from(exporter.lost()).unwrap(), lost, "there is room again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_larger_than_a_batch_is_sent_alone() {
    let collector = FakeCollector::answering([]);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 1);
    exporter.add(Bytes::new(), &Span { name: "x".repeat(2 << 20), ..Span::default() }, 1);
    add(&exporter, 1);
    sleep(2 * SECOND).await;
    assert_eq!(collector.sizes(), [1, 1, 1]);
    exporter.add(Bytes::new(), &Span { name: "x".repeat(9 << 20), ..Span::default() }, 1);
    assert_eq!(exporter.lost(), 1, "it is larger than the queue");
}

#[tokio::test(start_paused = true)]
async fn closing_sends_what_waits_and_counts_what_it_cannot_send() {
    let collector = FakeCollector::answering([Answer::IsAway]);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 25);
    exporter.close(10 * SECOND).await;
    assert_eq!((collector.sizes(), exporter.lost()), (vec![10, 10, 10, 5], 0));
    add(&exporter, 1);
    assert_eq!(exporter.lost(), 1, "it is closed");

    let collector = FakeCollector::answering([Answer::Hangs; 10]);
    let exporter = collector.exporter(Protocol::Http, limits());
    add(&exporter, 25);
    let begin = Instant::now();
    exporter.close(2 * SECOND).await;
    assert_eq!((begin.elapsed(), exporter.lost()), (2 * SECOND, 25));
}
