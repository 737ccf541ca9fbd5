//! The requests that a real Mixer 1.3.8 put on the wire, sent as they are (`tests/data/mixer`).

use std::sync::Arc;

use mixer_adapter::{
    adapter::{Config, QuotaRequest},
    prost::{Message as _, bytes::Bytes},
    proto::Any,
    template::Template as _,
    tonic::Code,
    value::Duration,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CreateSessionRequest, CreateSessionResponse,
};
use mixer_adapter_host::session::{SessionLookup, SessionOptions};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions};
use serde_json::{Value as Json, json};
use test_adapters::{
    Recorded,
    ownergen::OwnerGen,
    recorded::{Calls, Params, Seen},
    tagcheck::TagCheck,
};

use super::support::{Client, ClientError, Serving, any};

/// A request with what the recorder made of it.
pub struct Request {
    pub number: usize,
    method: MethodDescriptor,
    pub bytes: Vec<u8>,
    decoded: Json,
}

impl Request {
    pub fn path(&self) -> String {
        format!("/{}/{}", self.method.parent_service().full_name(), self.method.name())
    }

    /// The answer as proto JSON.
    async fn send(&self, client: &Client) -> Result<Json, ClientError> {
        let answer = client.send(&self.path(), &self.bytes).await?;
        Ok(to_json(&self.method.output(), &answer))
    }

    fn instances(&self) -> Vec<Json> {
        match (&self.decoded["instance"], &self.decoded["instances"]) {
            (Json::Null, Json::Array(instances)) => instances.clone(),
            (instance, _) => vec![instance.clone()],
        }
    }
}

/// Everything that occurs in the requests and their answers.
fn descriptors() -> DescriptorPool {
    let mut pool = crate::protos::mixer();
    for set in [TagCheck::DESCRIPTOR, OwnerGen::DESCRIPTOR, <Params as Config>::DESCRIPTOR] {
        pool.decode_file_descriptor_set(set).unwrap();
    }
    pool
}

/// All of them, in the order in which they were recorded.
pub fn requests() -> Vec<Request> {
    let pool = descriptors();
    let lines = include_str!("../../data/mixer/requests.jsonl").lines();
    let decoded = include_str!("../../data/mixer/requests-decoded.jsonl").lines();
    let json = |line: &str| serde_json::from_str::<Json>(line).unwrap();
    let requests = lines.map(json).zip(decoded.map(json)).zip(1..).map(|((request, decoded), number)| {
        let service = pool.get_service_by_name(request["service"].as_str().unwrap()).unwrap();
        let method = service.methods().find(|method| request["method"] == method.name()).unwrap();
        let bytes = hex(request["request_hex"].as_str().unwrap());
        Request { number, method, bytes, decoded: decoded["message"].clone() }
    });
    requests.collect()
}

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn to_json(message: &MessageDescriptor, bytes: &[u8]) -> Json {
    let options = SerializeOptions::new().use_proto_field_name(true);
    let message = DynamicMessage::decode(message.clone(), bytes).unwrap();
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

/// What [`Recorded`] answers to each of the requests when it comes alone.
#[derive(Debug)]
enum Expected {
    Answer(Json),
    /// A session is made; its id is a digest.
    Session,
    /// No such session, in the status.
    UnknownSession,
    /// Neither configuration nor session.
    Unconfigured,
}

fn expected() -> [Expected; 26] {
    use Expected::{Answer, Session, Unconfigured, UnknownSession};
    // Of the configuration that greets with "one".
    let one = || json!({"status": {"message": "one"}, "valid_duration": "7s", "valid_use_count": 5});
    let labels = || json!({"team": "red", "zone": "1"});
    let granted = |quota: &str, amount: &str, ttl: &str| {
        Answer(json!({"quotas": {quota: {"granted_amount": amount, "valid_duration": ttl}}}))
    };
    [
        // 1-4: checknothing
        Answer(
            json!({"status": {"code": 7, "message": "one"}, "valid_duration": "7s", "valid_use_count": 5}),
        ),
        Answer(json!({"status": {"message": "two"}, "valid_duration": "11s", "valid_use_count": 9})),
        Unconfigured,
        Unconfigured,
        // 5-6: listentry
        Answer(one()),
        Answer(one()),
        // 7: apikey, 8: authorization
        Answer(one()),
        Answer(one()),
        // 9-12: metric, 13: reportnothing, 14: tracespan
        Answer(json!({})),
        Answer(json!({})),
        Answer(json!({})),
        Answer(json!({})),
        Answer(json!({})),
        Answer(json!({})),
        // 15: quota
        granted("callquota.instance.istio-system", "3", "7s"),
        // 16: kubernetes
        Answer(json!({
            "source_pod_name": "pod-7-name",
            "source_pod_ip": {"value": "CgECAw=="},
            "source_namespace": "one",
            "source_labels": labels(),
        })),
        // 17: ownergen
        Answer(json!({
            "owner": "owner-of-u9",
            "rank": "47",
            "score": 0.75,
            "active": true,
            "tags": labels(),
            "addr": {"value": "AAAAAAAAAAAAAP//CgECAw=="},
            "lease": {"value": "1.500s"},
            "host": {"value": "one.example.com"},
        })),
        // 18: tagcheck
        Answer(json!({
            "result": one(),
            "output": {
                "verdict": "l 7",
                "cost": "14",
                "tags": {"fixed": "f", "made": "v", "team": "red", "zone": "1"},
            },
        })),
        // 19: CreateSession, 20-22: calls that rely on it, 23: CreateSession, 24: CloseSession of another server's session
        Session,
        Unconfigured,
        Unconfigured,
        Unconfigured,
        Session,
        UnknownSession,
        // 25: checknothing, 26: quota, both with a Struct of limit and ttl
        Answer(json!({"status": {}, "valid_duration": "8s", "valid_use_count": 6})),
        granted("sessquota.instance.istio-system", "6", "8s"),
    ]
}

fn assert_unconfigured(answer: Result<Json, ClientError>, number: usize) {
    let failure = answer.unwrap_err();
    assert_eq!(failure.code, Code::FailedPrecondition, "request {number}");
    for part in [
        "the request has no adapter_config",
        "no session created on this connection names",
        "limit: must be positive",
    ] {
        assert!(failure.message.contains(part), "request {number}: {}", failure.message);
    }
}

#[tokio::test]
async fn each_recorded_request_alone_gets_its_answer() {
    let calls = Arc::<Calls>::default();
    let serving = Serving::start(|adapters| adapters.add_with::<Recorded, _>(calls.clone())).await;
    let pool = descriptors();
    for (request, expected) in requests().iter().zip(expected()) {
        let number = request.number;
        let client = serving.connect().await;
        let answer = request.send(&client).await;
        let seen = calls.take();
        match expected {
            Expected::Answer(expected) => {
                assert_eq!(answer, Ok(expected), "request {number}");
                let [seen] = &seen[..] else { panic!("request {number} was handled as {seen:?}") };
                let message = pool.get_message_by_name(&seen.message).unwrap();
                let instances = seen.instances.iter().map(|instance| to_json(&message, instance));
                assert_eq!(instances.collect::<Vec<_>>(), request.instances(), "request {number}");
                assert_seen_config(seen, request, &pool);
                assert_seen_quota(seen, request);
            }
            Expected::Session => {
                let answer = answer.unwrap();
                let id = answer["session_id"].as_str().unwrap();
                assert_eq!((id.len(), &answer["status"]), (32, &json!({})), "request {number}");
                let closed = client.close_session(id).await;
                assert_eq!(closed.status.unwrap().code, 0);
            }
            Expected::UnknownSession => {
                let status = &answer.unwrap()["status"];
                assert_eq!(status["code"], Code::NotFound as i32, "request {number}");
                assert!(status["message"].as_str().unwrap().contains("`s-1`"), "request {number}: {status}");
            }
            Expected::Unconfigured => {
                assert_unconfigured(answer, number);
                assert_eq!(seen, [], "request {number}");
            }
        }
    }
    serving.stop().await;
}

fn assert_seen_config(seen: &Seen, request: &Request, pool: &DescriptorPool) {
    let sent = &request.decoded["adapter_config"];
    let params = pool.get_message_by_name(<Params as Config>::NAME).unwrap();
    let config = to_json(&params, &seen.config.encode_to_vec());
    match sent["type_url"].as_str().unwrap() {
        "type.googleapis.com/example.mixer.Params" => {
            assert_eq!(config, sent["value"], "request {}", request.number);
        }
        // A Struct has no whole numbers; both requests of this kind carry the same one.
        _ => {
            assert_eq!(sent["value"], json!({"limit": 6.0, "ttl": "8s"}));
            assert_eq!(config, json!({"limit": "6", "ttl": "8s"}), "request {}", request.number);
        }
    }
}

fn assert_seen_quota(seen: &Seen, request: &Request) {
    let Some(quotas) = request.decoded["quota_request"]["quotas"].as_object() else {
        assert_eq!(seen.quota, None, "request {}", request.number);
        return;
    };
    let asked = quotas.values().next().unwrap();
    let amount = asked["amount"].as_str().unwrap().parse().unwrap();
    let mut expected = QuotaRequest::new(amount).with_dedup_id(request.decoded["dedup_id"].as_str().unwrap());
    expected.best_effort = asked["best_effort"].as_bool().unwrap();
    assert_eq!(seen.quota, Some(expected), "request {}", request.number);
}

/// What a check of the session with that limit and ttl is answered.
fn checked(limit: i64, ttl: &str) -> Result<Json, ClientError> {
    Ok(json!({"status": {}, "valid_duration": ttl, "valid_use_count": limit}))
}

#[tokio::test]
async fn recorded_calls_without_configuration_find_the_session_made_before_them() {
    let calls = Arc::<Calls>::default();
    let serving = Serving::start(|adapters| adapters.add_with::<Recorded, _>(calls.clone())).await;
    let requests = requests();
    let request = |number: usize| &requests[number - 1];
    let client = serving.connect().await;

    let first = session_id(&client, request(19)).await;
    assert_eq!(request(20).send(&client).await, checked(4, "6s"));
    assert_eq!(request(21).send(&client).await, Ok(json!({})));
    assert_eq!(request(22).send(&client).await, Ok(json!({})));
    let seen = calls.take();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| seen.config.limit == 4));

    // The handler changed: a real Mixer makes the new session first, then closes the old one.
    let second = session_id(&client, request(23)).await;
    assert_ne!(first, second);
    assert_eq!(request(20).send(&client).await, checked(6, "8s"), "the newest session is the one meant");
    assert_eq!(client.close_session(&first).await.status.unwrap().code, 0);
    assert_eq!(request(20).send(&client).await, checked(6, "8s"));
    assert_eq!(client.close_session(&second).await.status.unwrap().code, 0);

    for number in 20..=22 {
        assert_unconfigured(request(number).send(&client).await, number);
    }
    serving.stop().await;
}

#[tokio::test]
async fn with_lookup_of_any_session_that_of_the_same_connection_comes_before_newer_ones() {
    let sessions = SessionOptions::default().lookup(SessionLookup::Any);
    let serving = Serving::with_sessions(|adapters| adapters.add::<Recorded>(), sessions).await;
    let requests = requests();
    let request = |number: usize| &requests[number - 1];
    let (older, newer, neither) = (serving.connect().await, serving.connect().await, serving.connect().await);

    let first = session_id(&older, request(19)).await;
    session_id(&newer, request(23)).await;
    assert_eq!(request(20).send(&older).await, checked(4, "6s"));
    assert_eq!(request(20).send(&newer).await, checked(6, "8s"));
    assert_eq!(request(20).send(&neither).await, checked(6, "8s"), "without one of its own: the newest");

    // Its own session gone, a connection falls back to the newest of the others.
    older.close_session(&first).await;
    assert_eq!(request(20).send(&older).await, checked(6, "8s"));
    serving.stop().await;
}

#[tokio::test]
async fn a_session_that_announces_their_instance_serves_calls_of_adapters_without_configuration() {
    let serving = Serving::start(|adapters| adapters.add::<Recorded>()).await;
    let requests = requests();
    let client = serving.connect().await;
    let params = Params {
        greeting: "three".to_owned(),
        limit: 3,
        ttl: Duration::from(std::time::Duration::from_secs(2)).value,
        ..Params::default()
    };
    let nothing = Any { type_url: "checknothing.Type".to_owned(), value: Bytes::new() };
    let made = client
        .create_session(CreateSessionRequest {
            adapter_config: any(&params),
            inferred_types: [("i-nothing.instance.istio-system".to_owned(), nothing)].into(),
        })
        .await;
    assert_eq!(made.status.unwrap().code, 0);
    let expected = json!({"status": {"message": "three"}, "valid_duration": "2s", "valid_use_count": 3});
    for number in [3, 4] {
        assert_eq!(requests[number - 1].send(&client).await, Ok(expected.clone()), "request {number}");
    }
    serving.stop().await;
}

async fn session_id(client: &Client, request: &Request) -> String {
    let answer = client.send(&request.path(), &request.bytes).await.unwrap();
    let answer = CreateSessionResponse::decode(answer).unwrap();
    assert_eq!(answer.status.unwrap().code, 0, "request {}", request.number);
    answer.session_id
}
