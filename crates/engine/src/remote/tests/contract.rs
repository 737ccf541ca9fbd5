//! The messages of a session to an adapter, compared with the text of `InfrastructureBackend` and a scripted one.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use h2::Reason;
use prost::Message as _;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc},
};
use tonic::Code;

use super::{
    ADAPTER_CONFIG, ask, check, close, connection, new, open,
    probe::configured,
    quick, request,
    scripted::{Act, Scripted, Seen},
    soon, until,
};
use crate::{
    proto::istio::mixer::adapter::model::v1beta1::{
        CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse,
        ValidateRequest, ValidateResponse,
    },
    remote::{
        OpenError, Options, Resolver, Session,
        session::{SessionState, SetupStep},
    },
};
use mixer_adapter_core::proto::{Any, CheckResult, Status};
use mixer_adapter_host::handler::{Caller, Closing};
use mixer_adapter_templates::checknothing::HandleCheckNothingRequest;

const BACKEND: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/";

fn refusal() -> Status {
    Status { code: 9, message: "no".to_owned(), details: Vec::new() }
}

fn validated(status: Option<Status>) -> Act {
    Act::message(&ValidateResponse { status })
}

fn created(session_id: &str) -> Act {
    Act::message(&CreateSessionResponse { session_id: session_id.to_owned(), status: None })
}

/// An adapter without fault: it makes session `s1`, then `s2` ..., and allows every check.
fn faultless() -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    let sessions = AtomicUsize::new(0);
    move |seen| match seen.path().rsplit('/').next() {
        Some("Validate") => validated(Some(Status::default())),
        Some("CreateSession") => created(&format!("s{}", sessions.fetch_add(1, SeqCst) + 1)),
        Some("CloseSession") => Act::message(&CloseSessionResponse { status: Some(Status::default()) }),
        _ => Act::message(&CheckResult::default()),
    }
}

fn methods(calls: &[Seen]) -> Vec<&str> {
    calls.iter().map(|call| call.path().rsplit('/').next().unwrap()).collect()
}

#[tokio::test]
async fn a_session_is_validated_created_named_in_calls_and_closed_on_one_connection() {
    let mut server = Scripted::start(faultless()).await;
    let (session, closing) = open(server.address, "config").await.unwrap();
    ask(&session).await.unwrap();
    close(session, closing).await;

    let calls = server.rest();
    assert_eq!(methods(&calls), ["Validate", "CreateSession", "HandleCheckNothing", "CloseSession"]);
    assert!([0, 1, 3].iter().all(|index| calls[*index].path().starts_with(BACKEND)));
    let sent = new(configured("config"));
    let validate: ValidateRequest = calls[0].message();
    assert_eq!(
        (&validate.adapter_config, &validate.inferred_types),
        (&sent.adapter_config, &sent.inferred_types)
    );
    let create: CreateSessionRequest = calls[1].message();
    assert_eq!((create.adapter_config, create.inferred_types), (sent.adapter_config, sent.inferred_types));
    let mut handle: HandleCheckNothingRequest = calls[2].message();
    let id = Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: "s1".into() };
    assert_eq!(handle.adapter_config.take(), Some(id));
    assert_eq!(handle.encode_to_vec(), request(None), "the rest of the request is as it was");
    assert_eq!(calls[3].message::<CloseSessionRequest>().session_id, "s1");
    assert_eq!(server.connections(), 1);
}

/// A session is known to the replica that created it; another replica gets its own when the first has ended.
#[tokio::test]
async fn a_session_keeps_to_one_replica_of_a_name() {
    let other = |seen: &Seen| match seen.path().rsplit('/').next() {
        Some("Validate") => validated(None),
        Some("CreateSession") => created("other"),
        _ if seen.body.windows(5).any(|text| text == b"other") => Act::message(&CheckResult::default()),
        _ => Act::error("5", "no such session"),
    };
    let mut servers = [Scripted::start(faultless()).await, Scripted::start(other).await];
    let addresses = servers.each_ref().map(|server| server.address).to_vec();
    let resolver = Resolver::new(move |_, _| {
        let addresses = addresses.clone();
        async { Ok(addresses) }
    });
    let options = Options { resolver, ..quick() };
    let closing = Closing::on(Handle::current());
    let to = connection("dns:///adapter:1");
    let session = Session::open(&to, new(configured("x")), &options, &closing).await.unwrap();
    for _ in 0..10 {
        ask(&session).await.unwrap();
    }
    assert_eq!(servers.each_ref().map(Scripted::connections), [1, 0]);
    let [first, second] = &mut servers;
    first.stop().await;
    until(async || ask(&session).await.is_ok()).await;
    let calls = second.rest();
    assert_eq!(methods(&calls), ["HandleCheckNothing", "Validate", "CreateSession", "HandleCheckNothing"]);
}

#[tokio::test]
async fn no_session_is_created_without_a_validated_configuration() {
    let mut server = Scripted::start(|_| validated(Some(refusal()))).await;
    let Err(OpenError::Refused(refused)) = open(server.address, "x").await else { panic!("not refused") };
    assert_eq!((refused.step, refused.status), (SetupStep::Validate, refusal()));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(methods(&server.rest()), ["Validate"]);
}

/// An answer that is no session refuses the configuration; an error of the connection, or of an adapter that had no time,
/// does not.
#[tokio::test]
async fn what_refuses_a_configuration_and_what_leaves_it_pending() {
    let ok = || validated(None);
    let unknown = Status { code: 99, message: "odd".to_owned(), details: Vec::new() };
    let refusing = [
        (ok(), created(""), "CreateSession returned Internal: OK without a session_id"),
        (ok(), Act::ok(b"\xff"), "CreateSession returned Internal: invalid response"),
        (Act::ok(b"\x0a\xff"), created("s"), "Validate returned Internal: invalid response"),
        (validated(Some(unknown)), created("s"), "Validate returned code 99: odd"),
        (
            Act::error("12", "no such service"),
            created("s"),
            "Validate returned Unimplemented: no such service",
        ),
        (ok(), Act::error("2", "bad config"), "CreateSession returned Unknown: bad config"),
        (ok(), Act::error("16", "who?"), "CreateSession returned Unauthenticated: who?"),
    ];
    let pending = [
        (Act::error("14", "starting"), created("s"), "starting"),
        (ok(), Act::error("8", "busy"), "busy"),
        (ok(), Act::Cut, "broken off"),
        (ok(), Act::Reset(Reason::CANCEL), "broken off"),
    ];
    let script = |validate: Act, create: Act| {
        Scripted::start(
            move |seen| if seen.path().ends_with("Validate") { validate.clone() } else { create.clone() },
        )
    };
    for (validate, create, text) in refusing {
        let server = script(validate, create).await;
        let error = open(server.address, "x").await.err().unwrap();
        assert!(error.to_string().contains(text), "{error}");
    }
    for (validate, create, text) in pending {
        let server = script(validate, create).await;
        let (session, _) = open(server.address, "x").await.unwrap();
        let error = ask(&session).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains(text), "{error:?}");
    }
}

#[tokio::test]
async fn an_adapter_that_does_not_answer_leaves_the_session_pending_in_time() {
    let (reset, _resets) = mpsc::channel(16);
    let server = Scripted::start(move |_| Act::Hang(reset.clone())).await;
    let options = Options { setup_timeout: Duration::from_millis(30), ..quick() };
    let closing = Closing::on(Handle::current());
    let to = connection(server.address);
    let opening = Session::open(&to, new(configured("x")), &options, &closing);
    let session = soon(opening).await.unwrap();
    assert!(matches!(session.state(), SessionState::Pending { .. }));
}

#[tokio::test]
async fn the_handlers_timeout_is_for_its_calls_only() {
    let mut server = Scripted::start(faultless()).await;
    let mut to = connection(server.address);
    to.timeout = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let closing = Closing::on(Handle::current());
    let session = Session::open(&to, new(configured("x")), &quick(), &closing).await.unwrap();
    ask(&session).await.unwrap();
    let micros = |seen: &Seen| -> u64 {
        seen.header("grpc-timeout").unwrap().strip_suffix('u').unwrap().parse().unwrap()
    };
    let calls = server.rest();
    assert!(calls[..2].iter().all(|call| micros(call) > 1_000_000), "the time for setting up is 2 s here");
    assert!(micros(&calls[2]) <= 1_000_000);
}

/// Pending, refused while it is retried, then accepted: never allowed in between, and never given up.
#[tokio::test]
async fn a_pending_session_that_is_refused_stays_pending_until_it_is_accepted() {
    let now = Arc::new(Mutex::new(Act::error("14", "starting")));
    let (script, rest) = (now.clone(), faultless());
    let server = Scripted::start(move |seen| {
        if seen.path().ends_with("Validate") { script.lock().unwrap().clone() } else { rest(seen) }
    });
    let server = server.await;
    let (session, _) = open(server.address, "x").await.unwrap();
    *now.lock().unwrap() = validated(Some(refusal()));
    until(async || {
        ask(&session).await.is_err_and(|error| {
            error.code() == Code::Unavailable
                && error.message().contains("Validate returned FailedPrecondition: no")
        })
    })
    .await;
    *now.lock().unwrap() = validated(None);
    soon(session.opened()).await;
    ask(&session).await.unwrap();
}

/// An adapter that gives every session a new id, and no longer knows the first one.
fn forgetful(renewed: Act) -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    let rest = faultless();
    let renewing = AtomicUsize::new(0);
    move |seen| {
        if seen.path().ends_with("HandleCheckNothing") {
            let handle: HandleCheckNothingRequest = seen.message();
            return if handle.adapter_config.is_some_and(|config| config.value == "s1") {
                Act::error("5", "no such session")
            } else {
                Act::message(&CheckResult::default())
            };
        }
        if seen.path().ends_with("Validate") && renewing.fetch_add(1, SeqCst) == 1 {
            renewed.clone()
        } else {
            rest(seen)
        }
    }
}

#[tokio::test]
async fn a_lost_session_is_validated_and_created_again_once_for_all_calls() {
    let mut server = Scripted::start(forgetful(validated(None))).await;
    let (session, closing) = open(server.address, "x").await.unwrap();
    let answers = futures_util::future::join_all((0..50).map(|_| ask(&session))).await;
    assert!(answers.iter().all(Result::is_ok));
    close(session, closing).await;
    let calls = server.rest();
    let count = |method: &str| methods(&calls).iter().filter(|called| **called == method).count();
    assert_eq!((count("Validate"), count("CreateSession")), (2, 2));
    let closed = calls.last().unwrap();
    assert_eq!(closed.message::<CloseSessionRequest>().session_id, "s2");
    assert_eq!(count("CloseSession"), 1, "what is lost needs no closing");
}

#[tokio::test]
async fn a_lost_session_that_is_refused_or_unreachable_makes_calls_unavailable_until_it_is_back() {
    for renewed in [validated(Some(refusal())), Act::error("14", "starting")] {
        let server = Scripted::start(forgetful(renewed)).await;
        let (session, _) = open(server.address, "x").await.unwrap();
        assert_eq!(ask(&session).await.unwrap_err().code(), Code::Unavailable);
        soon(session.opened()).await;
        ask(&session).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_is_sent_again_only_once_and_the_first_session_given_back() {
    let rest = faultless();
    let mut server = Scripted::start(move |seen| {
        if seen.path().ends_with("HandleCheckNothing") { Act::error("5", "no such row") } else { rest(seen) }
    })
    .await;
    let (session, closing) = open(server.address, "x").await.unwrap();
    let error = ask(&session).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "no such row"));
    close(session, closing).await;
    let calls = server.rest();
    assert_eq!(
        methods(&calls)[2..6],
        ["HandleCheckNothing", "Validate", "CreateSession", "HandleCheckNothing"]
    );
    let mut closed: Vec<_> =
        calls[6..].iter().map(|call| call.message::<CloseSessionRequest>().session_id).collect();
    closed.sort();
    assert_eq!(closed, ["s1", "s2"]);
}

#[tokio::test]
async fn a_lost_session_is_made_again_also_when_its_caller_goes_away() {
    let permitted = Arc::new(Semaphore::new(0));
    let renewed = Act::Once(permitted.clone(), Box::new(validated(None)));
    let mut server = Scripted::start(forgetful(renewed)).await;
    let (session, _) = open(server.address, "x").await.unwrap();
    let path = check();
    let caller = Caller::default();
    tokio::select! {
        _ = session.call(&path, ADAPTER_CONFIG, request(None), &caller) => panic!("it waits for a new session"),
        () = validations(&mut server, 2) => {}
    }
    permitted.add_permits(1);
    until(async || matches!(session.state(), SessionState::Open { id } if id == "s2")).await;
}

async fn validations(server: &mut Scripted, count: usize) {
    for _ in 0..count {
        while !server.next().await.path().ends_with("Validate") {}
    }
}

#[tokio::test]
async fn a_session_dropped_while_it_is_pending_is_not_tried_any_more() {
    let mut server = Scripted::start(|_| Act::error("14", "starting")).await;
    let (session, closing) = open(server.address, "x").await.unwrap();
    server.next().await;
    server.next().await;
    close(session, closing).await;
    until(async || server.open() == 0).await;
    assert!(methods(&server.rest()).iter().all(|method| *method == "Validate"));
}

#[tokio::test]
async fn a_session_dropped_while_it_is_made_again_is_closed_when_it_is_there() {
    let permitted = Arc::new(Semaphore::new(0));
    let renewed = Act::Once(permitted.clone(), Box::new(validated(None)));
    let mut server = Scripted::start(forgetful(renewed)).await;
    let (session, _) = open(server.address, "x").await.unwrap();
    let path = check();
    let caller = Caller::default();
    tokio::select! {
        _ = session.call(&path, ADAPTER_CONFIG, request(None), &caller) => panic!("it waits for a new session"),
        () = validations(&mut server, 2) => {}
    }
    drop(session);
    permitted.add_permits(1);
    assert_eq!(server.next().await.message::<CreateSessionRequest>().inferred_types.len(), 1);
    assert_eq!(server.next().await.message::<CloseSessionRequest>().session_id, "s2");
    until(async || server.open() == 0).await;
}
