//! Sessions: made, shared, found, closed, expired.

use mixer_adapter::{
    prost::Message as _,
    proto::{Any, CheckResult},
    template::{ListEntry, Metric, Template as _},
    tonic::Code,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CreateSessionRequest, ValidateRequest,
};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{Adapters, Caller, Closing, TableLimits},
    session::{STEPS_TO_EXPIRE, SessionKey, SessionOptions},
};
use test_adapters::{Blocker, Probe, ledger, params::probe::Params};

use super::{
    requests::{ENTRY, blocker, entry, inferred, metrics, probe, session, session_id},
    support::{Client, Serving, any, until},
};

async fn create(client: &Client, config: Option<Any>) -> String {
    let made = client.create_session(session(config)).await;
    assert_eq!(made.status.unwrap().code, 0);
    made.session_id
}

async fn close(client: &Client, id: &str) -> i32 {
    client.close_session(id).await.status.unwrap().code
}

/// The use count of an answer, which a probe takes from its configuration; the code where there is none.
async fn uses(client: &Client, config: Option<Any>) -> Result<i32, Code> {
    let answer: Result<CheckResult, _> = client.call(ListEntry::METHOD, &entry(config, "allow")).await;
    answer.map(|answer| answer.valid_use_count).map_err(|failure| failure.code)
}

/// A configuration whose answers have that use count.
fn using(ledger: &str, uses: i64) -> Option<Any> {
    any(&Params { maybe: Some(uses), ..probe(ledger) })
}

const NOT_FOUND: i32 = Code::NotFound as i32;
const PERMISSION_DENIED: i32 = Code::PermissionDenied as i32;

#[tokio::test]
async fn equal_sessions_have_one_id_and_one_handler_and_every_claim_counts() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (one, other, ledger) = (serving.connect().await, serving.connect().await, ledger("equal sessions"));
    let config = any(&probe("equal sessions"));
    let id = create(&one, config.clone()).await;
    assert_eq!(create(&other, config.clone()).await, id);
    assert_eq!(create(&one, config.clone()).await, id);
    assert_eq!(ledger.opened(), 1);
    let listed = serving.host.sessions().list(10);
    assert_eq!((listed.len(), listed[0].claims), (1, 3));

    for (left, client) in [(2, &one), (1, &other)] {
        assert_eq!(close(client, &id).await, 0);
        assert_eq!(serving.host.sessions().list(10)[0].claims, left);
        assert!(uses(client, session_id(&id)).await.is_ok());
    }
    assert_eq!(ledger.closed(), 0);
    assert_eq!(close(&one, &id).await, 0);
    until("the handler is closed with the last claim", || ledger.closed() == 1).await;
}

#[tokio::test]
async fn other_configuration_or_other_types_make_another_session() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let config = || any(&probe("other session"));
    let first = create(&client, config()).await;
    assert_ne!(first, create(&client, using("other session", 3)).await);
    for inferred_types in [
        [].into(),
        [inferred(ENTRY, "metric")].into(),
        [inferred("other", "listentry")].into(),
        [(ENTRY.to_owned(), Any { type_url: "listentry.Type".to_owned(), value: vec![0x08, 1].into() })]
            .into(),
    ] {
        let made =
            client.create_session(CreateSessionRequest { adapter_config: config(), inferred_types }).await;
        assert_eq!(made.status.unwrap().code, 0);
        assert_ne!(made.session_id, first);
    }
    assert_eq!(ledger("other session").opened(), 2, "one handler a configuration");
}

#[tokio::test]
async fn a_session_outlives_the_connection_it_was_made_on() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let id = create(&client, using("reconnects", 3)).await;
    client.break_off();
    until("its claim is abandoned", || serving.host.sessions().list(1)[0].abandoned == 1).await;
    let again = serving.connect().await;
    assert_eq!(uses(&again, session_id(&id)).await, Ok(3));
    assert_eq!(uses(&again, None).await, Err(Code::FailedPrecondition), "it was made on another connection");
    assert_eq!(create(&again, using("reconnects", 3)).await, id);
    assert_eq!(uses(&again, None).await, Ok(3));
    assert_eq!(
        (close(&again, &id).await, close(&again, &id).await),
        (0, 0),
        "its own claim and the abandoned one"
    );
    assert_eq!(close(&again, &id).await, NOT_FOUND);
}

#[tokio::test]
async fn the_claims_of_a_connection_are_closed_on_no_other() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (owner, other) = (serving.connect().await, serving.connect().await);
    let id = create(&owner, using("claims of others", 3)).await;
    assert_eq!(close(&other, &id).await, PERMISSION_DENIED);
    assert_eq!(create(&other, using("claims of others", 3)).await, id);
    assert_eq!(close(&other, &id).await, 0, "its own claim");
    assert_eq!(close(&other, &id).await, PERMISSION_DENIED);
    assert_eq!(uses(&owner, None).await, Ok(3));
    assert_eq!(uses(&other, session_id(&id)).await, Ok(3), "everybody who knows the id may call");
    assert_eq!(close(&owner, &id).await, 0);
}

#[tokio::test]
async fn a_newer_session_of_another_connection_answers_no_calls_of_this_one() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (owner, other) = (serving.connect().await, serving.connect().await);
    let id = create(&owner, using("taken over", 1)).await;
    create(&other, using("taken over", 2)).await;
    assert_eq!(uses(&owner, None).await, Ok(1));
    assert_eq!(close(&owner, &id).await, 0);
    assert_eq!(uses(&owner, None).await, Err(Code::FailedPrecondition));
    assert_eq!(uses(&other, None).await, Ok(2));
}

#[test]
fn claims_of_an_authenticated_peer_stay_its_own_on_other_connections() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let closing = Closing::on(runtime.handle().clone());
    let adapters = Adapters::builder(runtime.handle().clone()).add::<Probe>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), closing);
    let caller = |connection, peer: Option<&str>| Caller {
        connection,
        peer: peer.map(Into::into),
        ..Caller::default()
    };
    let create = |by: Caller| {
        let CreateSessionRequest { adapter_config, inferred_types } = session(any(&probe("peers")));
        let new = NewSession { adapter_config, inferred_types };
        runtime.block_on(host.create_session(new, &by)).unwrap().to_string()
    };
    let close =
        |id: &str, by: Caller| runtime.block_on(host.close_session(id, &by)).map_err(|error| error.code());
    let denied = Err(mixer_adapter::Code::PermissionDenied);

    let id = create(caller(1, Some("mixer")));
    assert_eq!(close(&id, caller(1, None)), denied);
    assert_eq!(close(&id, caller(1, Some("other"))), denied, "another peer behind the same connection");
    assert_eq!(close(&id, caller(2, Some("mixer"))), Ok(()), "the same peer on another connection");

    let id = create(caller(1, Some("mixer")));
    host.end_connection(1);
    assert_eq!(host.sessions().list(1)[0].abandoned, 0);
    assert_eq!(close(&id, caller(3, None)), denied, "the peer's claim outlives its connection");
    assert_eq!(close(&id, caller(3, Some("mixer"))), Ok(()));
    assert_eq!(host.sessions().list(1), []);
}

#[tokio::test]
async fn ids_are_equal_in_processes_with_the_same_key_only() {
    let secret = [7; SessionKey::MIN_LENGTH];
    let id = async |key: Option<SessionKey>| {
        let options = match key {
            Some(key) => SessionOptions::default().key(key),
            None => SessionOptions::default(),
        };
        let serving = Serving::with_sessions(|adapters| adapters.add::<Probe>(), options).await;
        create(&serving.connect().await, any(&probe("keyed ids"))).await
    };
    let shared = || Some(SessionKey::new(&secret).unwrap());
    assert_eq!(id(shared()).await, id(shared()).await);
    assert_ne!(id(None).await, id(None).await, "the default key is random");
}

#[tokio::test]
async fn closing_more_often_than_creating_takes_nothing_from_anybody() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("double close"));
    let id = create(&client, any(&probe("double close"))).await;
    assert_eq!(close(&client, &id).await, 0);
    for _ in 0..3 {
        assert_eq!(close(&client, &id).await, NOT_FOUND);
    }
    until("the handler is closed", || ledger.closed() == 1).await;
    assert_eq!(create(&client, any(&probe("double close"))).await, id);
    assert!(uses(&client, session_id(&id)).await.is_ok());
    assert_eq!(serving.host.sessions().list(10)[0].claims, 1);
    assert_eq!(close(&client, &id).await, 0);
    assert_eq!(close(&client, &id).await, NOT_FOUND);
    until("the second handler is closed", || ledger.closed() == 2).await;
    assert_eq!(ledger.opened(), 2);
    assert_eq!(serving.metric("mixer_adapter_session_opens_total{result=\"ok\"}").await, 2.0);
    assert_eq!(serving.metric("mixer_adapter_session_ends_total{reason=\"closed\"}").await, 2.0);
}

#[tokio::test]
async fn closing_a_session_lets_its_calls_in_flight_finish() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("close in flight"));
    let id = create(&client, any(&probe("close in flight"))).await;
    let call = {
        let (client, request) = (client.clone(), entry(session_id(&id), "wait"));
        tokio::spawn(async move { client.call::<CheckResult>(ListEntry::METHOD, &request).await })
    };
    until("the call is in the handler", || ledger.entered() == 1).await;
    assert_eq!(close(&client, &id).await, 0);
    assert_eq!(uses(&client, session_id(&id)).await, Err(Code::NotFound), "no new calls");
    assert_eq!(ledger.closed(), 0);
    ledger.open_gate();
    assert!(call.await.unwrap().is_ok());
    until("the handler is closed after its last call", || ledger.closed() == 1).await;
    assert_eq!((ledger.finished(), ledger.abandoned()), (1, 0));
}

#[tokio::test]
async fn a_session_id_is_read_plain_and_as_a_string_value() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let id = create(&client, using("id forms", 3)).await;
    let string_value =
        Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: id.clone().encode_to_vec().into() };
    assert_eq!(string_value.value.len(), 34, "a StringValue: key, length, text");
    assert_eq!(uses(&client, session_id(&id)).await, Ok(3));
    assert_eq!(uses(&client, Some(string_value)).await, Ok(3));
}

#[tokio::test]
async fn a_session_id_comes_before_the_sessions_that_name_the_instance() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let first = create(&client, using("id first", 1)).await;
    create(&client, using("id first", 2)).await;
    assert_eq!(uses(&client, session_id(&first)).await, Ok(1));
    assert_eq!(uses(&client, using("id first", 3)).await, Ok(3), "so does a configuration");
    assert_eq!(uses(&client, None).await, Ok(2));
}

#[tokio::test]
async fn a_report_finds_the_session_that_announced_all_its_instances() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let announce = |ledger: &str, instances: &[&str]| CreateSessionRequest {
        adapter_config: any(&probe(ledger)),
        inferred_types: instances.iter().map(|instance| inferred(instance, "metric")).collect(),
    };
    for request in [announce("announced both", &["a", "b"]), announce("announced one", &["a"])] {
        assert_eq!(client.create_session(request).await.status.unwrap().code, 0);
    }
    let report = async |names: [&str; 2]| {
        let mut report = metrics(None, &["allow", "allow"]);
        report.instances.iter_mut().zip(names).for_each(|(instance, name)| instance.name = name.to_owned());
        client.send(Metric::METHOD, &report.encode_to_vec()).await.map_err(|failure| failure.code)
    };
    assert!(report(["a", "b"]).await.is_ok());
    assert_eq!((ledger("announced both").entered(), ledger("announced one").entered()), (2, 0));
    assert!(report(["a", "a"]).await.is_ok(), "the newest of those that announced it");
    assert_eq!((ledger("announced both").entered(), ledger("announced one").entered()), (2, 2));
    assert_eq!(report(["a", "c"]).await, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn calls_of_two_adapters_with_one_template_run_with_their_own_configuration() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Blocker>()).await;
    let client = serving.connect().await;
    ledger("two adapters, blocker").open_gate();
    let probe_id = create(&client, any(&probe("two adapters, probe"))).await;
    let blocker_id = create(&client, any(&blocker("two adapters, blocker"))).await;
    let entered = || (ledger("two adapters, probe").entered(), ledger("two adapters, blocker").entered());
    assert!(uses(&client, session_id(&probe_id)).await.is_ok());
    assert_eq!(entered(), (1, 0));
    assert!(uses(&client, session_id(&blocker_id)).await.is_ok());
    assert_eq!(entered(), (1, 1));
    assert!(uses(&client, any(&probe("two adapters, probe"))).await.is_ok());
    assert_eq!(entered(), (2, 1));
    assert_eq!(close(&client, &blocker_id).await, 0);
    assert!(uses(&client, None).await.is_ok());
    assert_eq!(entered(), (3, 1));
}

#[tokio::test]
async fn validating_opens_nothing_and_every_answer_has_a_status() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let request = session(any(&probe("validate")));
    let (adapter_config, inferred_types) = (request.adapter_config, request.inferred_types);
    let answer = client.validate(ValidateRequest { adapter_config, inferred_types }).await;
    assert_eq!(answer.status, Some(Default::default()));
    assert_eq!((ledger("validate").opened(), serving.host.sessions().list(1).len()), (0, 0));
}

#[tokio::test]
async fn a_session_nobody_uses_expires_after_ten_ticks() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let (client, ledger) = (serving.connect().await, ledger("expires"));
    let id = create(&client, any(&probe("expires"))).await;
    let tick = |times: u32| (0..times).for_each(|_| serving.host.expire_idle());
    tick(STEPS_TO_EXPIRE);
    assert!(uses(&client, session_id(&id)).await.is_ok(), "a use by its id");
    tick(STEPS_TO_EXPIRE);
    assert!(uses(&client, None).await.is_ok(), "a use by its instance");
    tick(STEPS_TO_EXPIRE);
    assert_eq!(create(&client, any(&probe("expires"))).await, id, "another claim");
    tick(STEPS_TO_EXPIRE);
    assert_eq!(ledger.closed(), 0);
    tick(1);
    until("the handler of an expired session is closed", || ledger.closed() == 1).await;
    assert_eq!(uses(&client, session_id(&id)).await, Err(Code::NotFound));
    assert_eq!(close(&client, &id).await, NOT_FOUND);
    assert_eq!(serving.metric("mixer_adapter_session_ends_total{reason=\"expired\"}").await, 1.0);
    assert_eq!(ledger.opened(), 1);
}

#[tokio::test]
async fn the_server_lets_sessions_expire_by_itself() {
    let options = mixer_adapter::service::ServerOptions::default()
        .session_idle(Some(std::time::Duration::from_millis(100)));
    let serving = Serving::with(|adapters| adapters.add::<Probe>(), options, Default::default()).await;
    let client = serving.connect().await;
    create(&client, any(&probe("expires by itself"))).await;
    until("the session has expired", || ledger("expires by itself").closed() == 1).await;
    assert_eq!(serving.host.sessions().list(1), []);
}
