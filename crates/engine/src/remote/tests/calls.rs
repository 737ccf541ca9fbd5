use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use h2::Reason;
use http::{Method, Version, uri::PathAndQuery};
use tokio::{sync::mpsc, time::Instant};
use tonic::Code;

use super::{
    check, connection,
    probe::{Running, configured, reason},
    quick, remote, request,
    scripted::{Act, Scripted},
    soon,
};
use crate::remote::{Options, RemoteAdapter};
use mixer_adapter_host::handler::Caller;
use mixer_adapter_net::grpc::TraceParent;

#[tokio::test]
async fn a_call_reaches_an_adapter_on_our_own_server_with_its_configuration() {
    let adapter = Running::start().await;
    let remote = remote(adapter.address);
    let answer = remote.call(&check(), request(Some(configured("not today"))), None).await.unwrap();
    assert_eq!(reason(answer), "not today");
}

#[tokio::test]
async fn errors_of_an_adapter_pass_through_with_code_and_text() {
    let adapter = Running::start().await;
    let remote = remote(adapter.address);
    for (config, code, text) in [
        (configured("aborted"), Code::Aborted, "try, again: ü"),
        (configured("cannot open"), Code::FailedPrecondition, "no room"),
        (configured("invalid"), Code::InvalidArgument, "value: must not be invalid"),
        (configured("not found"), Code::NotFound, "no such row"),
    ] {
        let error = remote.call(&check(), request(Some(config)), None).await.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.message().contains(text), "{error:?}");
    }
    let unknown = PathAndQuery::from_static("/listentry.HandleListEntryService/HandleListEntry");
    let error = remote.call(&unknown, request(None), None).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_call_is_grpc_on_the_wire() {
    let mut server = Scripted::start(|_| Act::ok(b"")).await;
    let mut to = connection(format!("localhost:{}", server.address.port()));
    to.timeout = Some(prost_types::Duration { seconds: 200, nanos: 0 });
    let options = quick();
    let remote = RemoteAdapter::new(&to, &options, &tokio::runtime::Handle::current()).unwrap();
    remote.call(&check(), "message".into(), None).await.unwrap();
    let seen = server.next().await;
    assert_eq!((seen.head.method(), seen.head.version()), (&Method::POST, Version::HTTP_2));
    assert_eq!(seen.path(), "/checknothing.HandleCheckNothingService/HandleCheckNothing");
    let uri = seen.head.uri();
    assert_eq!(uri.scheme_str(), Some("http"));
    assert_eq!(uri.authority().unwrap().as_str(), format!("localhost:{}", server.address.port()));
    assert_eq!(seen.header("content-type"), Some("application/grpc"));
    assert_eq!(seen.header("te"), Some("trailers"));
    assert!(seen.header("user-agent").unwrap().starts_with("mixer-adapter/"));
    assert_eq!(seen.header("grpc-encoding"), None);
    assert_eq!(&seen.body[..], b"\0\0\0\0\x07message");
}

#[tokio::test]
async fn the_adapter_continues_the_trace_of_the_caller_or_of_the_span_that_is_exported() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut server = Scripted::start(|_| Act::ok(b"")).await;
    let caller = Caller { trace: TraceParent::parse(TRACE.as_bytes()), ..Caller::default() };
    let exporting = Options { exported_span: Some(|_| TraceParent::new(1, 2, true)), ..quick() };
    let idle = Options { exported_span: Some(|_| None), ..quick() };
    let exported = "00-00000000000000000000000000000001-0000000000000002-01";
    for (options, caller, sent) in [
        (quick(), &Caller::default(), None),
        (quick(), &caller, Some(TRACE)),
        (idle, &caller, Some(TRACE)),
        (exporting.clone(), &caller, Some(exported)),
        (exporting, &Caller::default(), Some(exported)),
    ] {
        let runtime = tokio::runtime::Handle::current();
        let remote = RemoteAdapter::new(&connection(server.address), &options, &runtime).unwrap();
        remote.call_for(caller, &check(), request(None)).await.unwrap();
        assert_eq!(server.next().await.header("traceparent"), sent);
    }
}

/// `grpc-timeout` in milliseconds.
fn timeout_sent(header: Option<&str>) -> u64 {
    let micros: u64 = header.unwrap().strip_suffix('u').unwrap().parse().unwrap();
    micros / 1000
}

#[tokio::test]
async fn the_handlers_timeout_shortens_the_deadline_and_is_sent() {
    let mut server = Scripted::start(|_| Act::ok(b"")).await;
    let mut to = connection(server.address);
    to.timeout = Some(prost_types::Duration { seconds: 20, nanos: 0 });
    let runtime = tokio::runtime::Handle::current();
    let limited = RemoteAdapter::new(&to, &quick(), &runtime).unwrap();
    let unlimited = remote(server.address);
    let within = |seconds| Some(Instant::now() + Duration::from_secs(seconds));

    limited.call(&check(), request(None), None).await.unwrap();
    assert!((15_000..20_000).contains(&timeout_sent(server.next().await.header("grpc-timeout"))));
    limited.call(&check(), request(None), within(10)).await.unwrap();
    assert!((5_000..10_000).contains(&timeout_sent(server.next().await.header("grpc-timeout"))));
    limited.call(&check(), request(None), within(30)).await.unwrap();
    assert!((15_000..20_000).contains(&timeout_sent(server.next().await.header("grpc-timeout"))));
    unlimited.call(&check(), request(None), within(30)).await.unwrap();
    assert!((25_000..30_000).contains(&timeout_sent(server.next().await.header("grpc-timeout"))));
    unlimited.call(&check(), request(None), None).await.unwrap();
    assert_eq!(server.next().await.header("grpc-timeout"), None);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_deadline_exceeded_and_given_up() {
    let (reset, mut resets) = mpsc::channel(16);
    let server = Scripted::start(move |_| Act::Hang(reset.clone())).await;
    let mut to = connection(server.address);
    to.timeout = Some(prost_types::Duration { seconds: 0, nanos: 250_000_000 });
    let remote = RemoteAdapter::new(&to, &quick(), &tokio::runtime::Handle::current()).unwrap();
    let error = remote.call(&check(), request(None), None).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert_eq!(soon(resets.recv()).await, Some(Reason::CANCEL));
    assert_eq!(server.open(), 1, "the connection lives");
}

#[tokio::test]
async fn a_call_that_comes_too_late_is_not_sent() {
    let mut server = Scripted::start(|_| Act::ok(b"")).await;
    let remote = remote(server.address);
    remote.call(&check(), request(None), None).await.unwrap();
    server.rest();
    let error = remote.call(&check(), request(None), Some(Instant::now())).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    remote.call(&check(), "next".into(), None).await.unwrap();
    assert_eq!(server.rest().iter().map(|seen| &seen.body[5..]).collect::<Vec<_>>(), [b"next"]);
}

#[tokio::test]
async fn the_adapters_own_deadline_is_the_same_error() {
    let adapter = Running::start().await;
    let remote = remote(adapter.address);
    let deadline = Instant::now() + Duration::from_millis(50);
    let error = remote.call(&check(), request(Some(configured("slow"))), Some(deadline)).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_call_whose_caller_has_gone_is_given_up() {
    let (reset, mut resets) = mpsc::channel(16);
    let mut server = Scripted::start(move |_| Act::Hang(reset.clone())).await;
    let remote = remote(server.address);
    let (path, request) = (check(), request(None));
    tokio::select! {
        _ = remote.call(&path, request, None) => unreachable!("it hangs"),
        _ = server.next() => {}
    }
    assert_eq!(soon(resets.recv()).await, Some(Reason::CANCEL));
}

#[tokio::test]
async fn a_call_that_the_adapter_refused_to_begin_with_is_sent_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let server = Scripted::start(move |_| match counted.fetch_add(1, SeqCst) {
        0 | 1 => Act::Reset(Reason::REFUSED_STREAM),
        _ => Act::ok(b"third"),
    })
    .await;
    let remote = remote(server.address);
    assert_eq!(remote.call(&check(), request(None), None).await.unwrap(), "third");
    assert_eq!(calls.load(SeqCst), 3);
}

#[tokio::test]
async fn a_call_that_is_always_refused_ends() {
    let mut server = Scripted::start(|_| Act::Reset(Reason::REFUSED_STREAM)).await;
    let remote = remote(server.address);
    let error = remote.call(&check(), request(None), None).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(server.rest().len(), 3);
}

#[tokio::test]
async fn a_call_that_the_adapter_may_have_seen_is_not_sent_again() {
    for act in [
        Act::Reset(Reason::INTERNAL_ERROR),
        Act::Reset(Reason::CANCEL),
        Act::Cut,
        Act::CutAnswer,
        Act::error("14", "overloaded"),
    ] {
        let shown = format!("{act:?}");
        let mut server = Scripted::start(move |_| act.clone()).await;
        let remote = remote(server.address);
        soon(remote.call(&check(), request(None), None)).await.unwrap_err();
        assert_eq!(server.rest().len(), 1, "{shown}");
    }
}
